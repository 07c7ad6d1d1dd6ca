// The engine's backward on arrays. The forward is in bind_attention.cc, the oracle in bind_reference.cc.
#include "bind.h"
#include "docstrings.h"
#include "engine.h"
#include "engine_call.h"
#include "sightline/attention/attention_backward.h"

namespace sightline::python {

namespace {

/// What the forward gave, and the gradients of its results.
struct UpstreamArrays {
  const Rows& out;
  const Rows& d_out;
  StridedView<const float, 2> lse;    ///< [rows of all sequences, heads]
  StridedView<const float, 2> d_lse;  ///< the same or no data
};

struct GradientArrays {
  std::vector<float> d_q, d_k, d_v;        ///< [rows of all sequences, heads, dim]
  std::vector<float> d_bias;               ///< of d_bias_shape
  std::array<std::int64_t, 4> bias_shape;  ///< [batch, num_q_heads, q_len, kv_len], 1 where it is summed
  std::vector<float> d_alibi_slopes, d_sink_logits;
};

void add_to(float* sums, const std::vector<float>& part) {
  for (std::size_t i = 0; i < part.size(); ++i) sums[i] += part[i];
}

template <typename T>
StridedView<T, 2> part_of(const StridedView<T, 2>& rows, std::int64_t begin, std::int64_t count) {
  if (rows.data == nullptr) return rows;
  return {rows.data + begin * rows.strides[0], {count, rows.shape[1]}, rows.strides};
}

Result<void> run_backward(const AttentionSpec& spec, const Batch& batch, const UpstreamArrays& up,
                          GradientArrays& to, AttentionContext& context) {
  const HeadSpec& heads = spec.heads;
  const bool wants_bias = !to.d_bias.empty();
  // One sequence at a time where each has a part of d_bias, or where rows do not lie one after the other.
  const auto out = up.out.all();
  const auto d_out = up.d_out.all();
  std::vector<float> slopes(to.d_alibi_slopes.size());
  std::vector<float> sinks(to.d_sink_logits.size());
  std::vector<float> part_bias;
  for (const Group& group : groups_of(batch, wants_bias || !out || !d_out)) {
    const EngineCall call(batch, group);
    const bool whole = group.count == batch.q.num_sequences() && out && d_out;
    AttentionUpstream upstream;
    upstream.q = group.q;
    upstream.out = whole ? *out : up.out.sequence(group.first);
    upstream.d_out = whole ? *d_out : up.d_out.sequence(group.first);
    upstream.lse = part_of(up.lse, call.first_q, call.num_q);
    upstream.d_lse = part_of(up.d_lse, call.first_q, call.num_q);
    AttentionGradients gradients;
    gradients.d_q = dense_view<float, 3>(to.d_q.data() + call.first_q * heads.num_q_heads * heads.qk_head_dim,
                                         {call.num_q, heads.num_q_heads, heads.qk_head_dim});
    gradients.d_k =
        dense_view<float, 3>(to.d_k.data() + call.first_kv * heads.num_kv_heads * heads.qk_head_dim,
                             {call.num_kv, heads.num_kv_heads, heads.qk_head_dim});
    gradients.d_v =
        dense_view<float, 3>(to.d_v.data() + call.first_kv * heads.num_kv_heads * heads.v_head_dim,
                             {call.num_kv, heads.num_kv_heads, heads.v_head_dim});
    const auto& shape = to.bias_shape;
    const auto size = static_cast<std::size_t>(shape[1] * shape[2] * shape[3]);
    if (wants_bias) {
      part_bias.resize(size);
      gradients.d_bias = dense_view<float, 3>(part_bias.data(), {shape[1], shape[2], shape[3]});
      for (std::size_t i = 0; i < 3; ++i) {
        if (shape[i + 1] == 1) gradients.d_bias.strides[i] = 0;
        gradients.d_bias.shape[i] = group.bias.shape[i];
      }
    }
    gradients.d_alibi_slopes = slopes;
    gradients.d_sink_logits = sinks;
    SIGHTLINE_TRY(const AttentionPlan plan, plan_attention(spec, call.queries, call.kv, call.extras));
    SIGHTLINE_CHECK(
        attention_backward(spec, plan, upstream, call.queries, call.kv, call.extras, gradients, context));
    add_to(to.d_alibi_slopes.data(), slopes);
    add_to(to.d_sink_logits.data(), sinks);
    add_to(to.d_bias.data() + (shape[0] == 1 ? 0 : static_cast<std::size_t>(group.first) * size), part_bias);
  }
  return {};
}

nb::tuple backward(const AttentionSpec& spec, const AnyArray& q_array, const AnyArray& k_array,
                   const AnyArray& v_array, const AnyArray& out_array, const AnyArray& lse,
                   const AnyArray& d_out_array, const std::optional<AnyArray>& d_lse, const Tokens& q_tokens,
                   const Tokens& kv_tokens, const std::optional<AnyArray>& bias,
                   const std::vector<std::int64_t>& d_bias_shape, const std::optional<AnyArray>& dense,
                   std::int64_t rope_length, int num_threads) {
  const Rows q(q_array, "q");
  const Rows k(k_array, "k");
  const Rows v(v_array, "v");
  const Rows out(out_array, "out");
  const Rows d_out(d_out_array, "d_out");
  const Batch batch(q, k, v, q_tokens, kv_tokens, bias, dense, rope_length);
  UpstreamArrays up{out, d_out, typed_view<float, 2>(lse, "lse"), {}};
  if (d_lse) up.d_lse = typed_view<float, 2>(*d_lse, "d_lse");
  const HeadSpec& heads = spec.heads;
  const std::int64_t num_q = q.num_sequences() * q.num_tokens();
  const std::int64_t num_kv = k.num_sequences() * k.num_tokens();
  require_sequences(out, "out", q.num_sequences(), q.num_tokens());
  require_sequences(d_out, "d_out", q.num_sequences(), q.num_tokens());
  for (const auto* rows : {&up.lse, &up.d_lse}) {
    if (rows->data == nullptr || rows->shape == std::array<std::int64_t, 2>{num_q, heads.num_q_heads})
      continue;
    throw nb::value_error(fmt::format("{} has shape [{}], expected [{}, {}]",
                                      rows == &up.lse ? "lse" : "d_lse", fmt::join(rows->shape, ", "), num_q,
                                      heads.num_q_heads)
                              .c_str());
  }
  GradientArrays to;
  const auto size = [](std::int64_t rows, std::int64_t width) {
    return static_cast<std::size_t>(rows * width);
  };
  to.d_q.resize(size(num_q, heads.num_q_heads * heads.qk_head_dim));
  to.d_k.resize(size(num_kv, heads.num_kv_heads * heads.qk_head_dim));
  to.d_v.resize(size(num_kv, heads.num_kv_heads * heads.v_head_dim));
  to.bias_shape.fill(0);
  if (bias && !d_bias_shape.empty()) {
    if (d_bias_shape.size() != 4) throw nb::value_error("d_bias_shape has to have 4 entries or none");
    for (std::size_t i = 0; i < 4; ++i) {
      to.bias_shape[i] = d_bias_shape[i];
      if (d_bias_shape[i] != 1 && d_bias_shape[i] != batch.bias.shape[i]) {
        throw nb::value_error(
            fmt::format("d_bias_shape[{}] is {}, expected 1 or {}", i, d_bias_shape[i], batch.bias.shape[i])
                .c_str());
      }
    }
    to.d_bias.assign(size(to.bias_shape[0] * to.bias_shape[1], to.bias_shape[2] * to.bias_shape[3]), 0.0F);
  }
  to.d_alibi_slopes.assign(spec.score.alibi_slopes.size(), 0.0F);
  to.d_sink_logits.assign(spec.score.sink_logits.size(), 0.0F);
  Result<void> done;
  if (num_q > 0) {
    const nb::gil_scoped_release released;
    const EngineLease engine(num_threads);
    done = run_backward(spec, batch, up, to, engine.context());
  }
  unwrap(std::move(done));
  const auto shape3 = [](std::int64_t rows, int num_heads, int dim) {
    return std::vector<std::size_t>{static_cast<std::size_t>(rows), static_cast<std::size_t>(num_heads),
                                    static_cast<std::size_t>(dim)};
  };
  const std::vector<std::size_t> bias_shape(to.bias_shape.begin(), to.bias_shape.end());
  const std::size_t num_slopes = to.d_alibi_slopes.size();
  const std::size_t num_sinks = to.d_sink_logits.size();
  return nb::make_tuple(to_numpy(std::move(to.d_q), shape3(num_q, heads.num_q_heads, heads.qk_head_dim)),
                        to_numpy(std::move(to.d_k), shape3(num_kv, heads.num_kv_heads, heads.qk_head_dim)),
                        to_numpy(std::move(to.d_v), shape3(num_kv, heads.num_kv_heads, heads.v_head_dim)),
                        to_numpy(std::move(to.d_bias), bias_shape),
                        to_numpy(std::move(to.d_alibi_slopes), {num_slopes}),
                        to_numpy(std::move(to.d_sink_logits), {num_sinks}));
}

}  // namespace

void bind_attention_backward(nb::module_& m) {
  m.def("attention_backward", &backward, nb::arg("spec"), nb::arg("q").noconvert(), nb::arg("k").noconvert(),
        nb::arg("v").noconvert(), nb::arg("out").noconvert(), nb::arg("lse").noconvert(),
        nb::arg("d_out").noconvert(), nb::arg("d_lse").noconvert() = nb::none(), nb::arg("q_tokens"),
        nb::arg("kv_tokens"), nb::arg("bias").noconvert() = nb::none(),
        nb::arg("d_bias_shape") = std::vector<std::int64_t>{}, nb::arg("dense").noconvert() = nb::none(),
        nb::arg("rope_length") = 0, nb::arg("num_threads") = 0, kDoc_attention_attention_backward);
}

}  // namespace sightline::python
