// The engine's forward, and the oracle forward and backward.
#include "bind.h"
#include "docstrings.h"
#include "sightline/attention/attention.h"
#include "sightline/reference/attention.h"

namespace sightline::python {

namespace {

using Values = Input<double, 3>;

std::vector<std::int64_t> offsets_of(std::int64_t num_tokens, std::int64_t num_sequences) {
  std::vector<std::int64_t> offsets;
  for (std::int64_t s = 0; s <= num_sequences; ++s) offsets.push_back(s * (num_tokens / num_sequences));
  return offsets;
}

std::vector<std::size_t> shape_of(const std::array<std::int64_t, 2>& leading, std::int64_t last) {
  return {static_cast<std::size_t>(leading[0]), static_cast<std::size_t>(leading[1]),
          static_cast<std::size_t>(last)};
}

// A batch of sequences of one length, one after the other in every array.
nb::tuple forward(const AttentionSpec& spec, const Input<float, 3>& q, const Input<float, 3>& k,
                  const Input<float, 3>& v, const Tokens& q_tokens, const Tokens& kv_tokens,
                  std::int64_t num_sequences, const std::optional<Input<float, 3>>& bias, int num_threads) {
  const StridedView<const float, 3> q_view = view3(q);
  const std::vector<std::int64_t> q_offsets = offsets_of(q_view.shape[0], num_sequences);
  ContiguousKv kv;
  kv.k = view3(k);
  kv.v = view3(v);
  const std::vector<std::int64_t> kv_offsets = offsets_of(kv.k.shape[0], num_sequences);
  kv.kv_offsets = kv_offsets;
  kv.coords = kv_tokens.coords;
  kv.rope_pos = kv_tokens.rope_pos;
  const QueryBatch queries{q_offsets, q_tokens.coords, q_tokens.rope_pos};
  AttentionExtras extras;
  if (bias) extras.bias = view3(*bias);
  const std::array<std::int64_t, 2> rows{q_view.shape[0], spec.heads.num_q_heads};
  std::vector<float> out(static_cast<std::size_t>(rows[0] * rows[1] * spec.heads.v_head_dim));
  std::vector<float> lse(static_cast<std::size_t>(rows[0] * rows[1]));
  Result<void> done;
  {
    const nb::gil_scoped_release released;
    done = [&]() -> Result<void> {
      ThreadPool pool(num_threads > 0 ? num_threads : available_threads());
      AttentionContext context(pool);
      SIGHTLINE_TRY(const AttentionPlan plan, plan_attention(spec, queries, kv, extras));
      return attention_forward(spec, plan, q_view, queries, kv, extras,
                               dense_view<float, 3>(out.data(), {rows[0], rows[1], spec.heads.v_head_dim}),
                               dense_view<float, 2>(lse.data(), {rows[0], rows[1]}), context);
    }();
  }
  unwrap(std::move(done));
  return nb::make_tuple(
      to_numpy(std::move(out), shape_of(rows, spec.heads.v_head_dim)),
      to_numpy(std::move(lse), {static_cast<std::size_t>(rows[0]), static_cast<std::size_t>(rows[1])}));
}

reference::AttentionInputs oracle_inputs(const Values& q, const Values& k, const Values& v,
                                         const Tokens& q_tokens, const Tokens& kv_tokens,
                                         const std::optional<Values>& bias) {
  reference::AttentionInputs in;
  in.q = view3(q);
  in.k = view3(k);
  in.v = view3(v);
  in.q_coords = q_tokens.coords;
  in.kv_coords = kv_tokens.coords;
  in.q_rope_pos = q_tokens.rope_pos;
  in.kv_rope_pos = kv_tokens.rope_pos;
  if (bias) in.bias = view3(*bias);
  return in;
}

nb::tuple oracle_forward(const AttentionSpec& spec, const Values& q, const Values& k, const Values& v,
                         const Tokens& q_tokens, const Tokens& kv_tokens, const std::optional<Values>& bias) {
  const reference::AttentionInputs in = oracle_inputs(q, k, v, q_tokens, kv_tokens, bias);
  Result<reference::AttentionOutputs> got;
  {
    const nb::gil_scoped_release released;
    got = reference::attention_forward(spec, in, {.weights = true});
  }
  reference::AttentionOutputs outputs = unwrap(std::move(got));
  const auto q_len = static_cast<std::size_t>(in.q.shape[0]);
  const auto heads = static_cast<std::size_t>(spec.heads.num_q_heads);
  const auto v_dim = static_cast<std::size_t>(spec.heads.v_head_dim);
  return nb::make_tuple(
      to_numpy(std::move(outputs.out), {q_len, heads, v_dim}),
      to_numpy(std::move(outputs.lse), {q_len, heads}),
      to_numpy(std::move(outputs.weights), {heads, q_len, static_cast<std::size_t>(in.k.shape[0])}));
}

nb::tuple oracle_backward(const AttentionSpec& spec, const Values& q, const Values& k, const Values& v,
                          const Values& d_out, const Tokens& q_tokens, const Tokens& kv_tokens,
                          const std::optional<Values>& bias) {
  const reference::AttentionInputs in = oracle_inputs(q, k, v, q_tokens, kv_tokens, bias);
  reference::AttentionUpstream upstream;
  upstream.d_out = view3(d_out);
  Result<reference::AttentionGradients> got;
  {
    const nb::gil_scoped_release released;
    got = reference::attention_backward(spec, in, upstream);
  }
  reference::AttentionGradients grads = unwrap(std::move(got));
  const auto shape = [](const StridedView<const double, 3>& x) {
    return std::vector<std::size_t>(x.shape.begin(), x.shape.end());
  };
  return nb::make_tuple(to_numpy(std::move(grads.d_q), shape(in.q)),
                        to_numpy(std::move(grads.d_k), shape(in.k)),
                        to_numpy(std::move(grads.d_v), shape(in.v)));
}

}  // namespace

void bind_attention(nb::module_& m) {
  m.def("attention_forward", &forward, nb::arg("spec"), nb::arg("q").noconvert(), nb::arg("k").noconvert(),
        nb::arg("v").noconvert(), nb::arg("q_tokens"), nb::arg("kv_tokens"), nb::arg("num_sequences"),
        nb::arg("bias").noconvert() = nb::none(), nb::arg("num_threads") = 0,
        kDoc_attention_attention_forward);
  m.def("oracle_forward", &oracle_forward, nb::arg("spec"), nb::arg("q").noconvert(),
        nb::arg("k").noconvert(), nb::arg("v").noconvert(), nb::arg("q_tokens"), nb::arg("kv_tokens"),
        nb::arg("bias").noconvert() = nb::none(), kDoc_reference_attention_forward);
  m.def("oracle_backward", &oracle_backward, nb::arg("spec"), nb::arg("q").noconvert(),
        nb::arg("k").noconvert(), nb::arg("v").noconvert(), nb::arg("d_out").noconvert(), nb::arg("q_tokens"),
        nb::arg("kv_tokens"), nb::arg("bias").noconvert() = nb::none(), kDoc_reference_attention_backward);
}

}  // namespace sightline::python
