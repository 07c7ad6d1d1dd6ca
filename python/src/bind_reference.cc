// The float64 oracle, one sequence a call.
#include "arrays.h"
#include "bind.h"
#include "docstrings.h"
#include "sightline/reference/attention.h"
#include "sightline/reference/rotate.h"

namespace sightline::python {

namespace {

using Values = Input<double, 3>;
using Table = nb::ndarray<const std::uint8_t, nb::ndim<2>, nb::device::cpu>;

/// Inputs as Python keeps them alive during a call.
struct Call {
  const Values& q;
  const Values& k;
  const Values& v;
  const Tokens& q_tokens;
  const Tokens& kv_tokens;
  const std::optional<Values>& bias;
  const std::optional<Table>& dense;
  std::int64_t rope_length;
};

reference::AttentionInputs inputs_of(const Call& call) {
  reference::AttentionInputs in;
  in.q = view3(call.q);
  in.k = view3(call.k);
  in.v = view3(call.v);
  in.q_coords = call.q_tokens.coords;
  in.kv_coords = call.kv_tokens.coords;
  in.q_rope_pos = call.q_tokens.rope_pos;
  in.kv_rope_pos = call.kv_tokens.rope_pos;
  in.rope_length = call.rope_length;
  if (call.bias) in.bias = view3(*call.bias);
  if (call.dense) {
    const Table& table = *call.dense;
    in.tables.dense = {table.data(),
                       {static_cast<std::int64_t>(table.shape(0)), static_cast<std::int64_t>(table.shape(1))},
                       {table.stride(0), table.stride(1)}};
  }
  return in;
}

std::vector<std::size_t> shape_of(const StridedView<const double, 3>& x) {
  return {x.shape.begin(), x.shape.end()};
}

nb::tuple forward(const AttentionSpec& spec, const Values& q, const Values& k, const Values& v,
                  const Tokens& q_tokens, const Tokens& kv_tokens, const std::optional<Values>& bias,
                  const std::optional<Table>& dense, std::int64_t rope_length) {
  const reference::AttentionInputs in = inputs_of({q, k, v, q_tokens, kv_tokens, bias, dense, rope_length});
  Result<reference::AttentionOutputs> got;
  {
    const nb::gil_scoped_release released;
    got = reference::attention_forward(spec, in, {.weights = true, .scores = true});
  }
  reference::AttentionOutputs outputs = unwrap(std::move(got));
  const auto q_len = static_cast<std::size_t>(in.q.shape[0]);
  const auto heads = static_cast<std::size_t>(spec.heads.num_q_heads);
  const std::vector<std::size_t> pairs{heads, q_len, static_cast<std::size_t>(in.k.shape[0])};
  return nb::make_tuple(
      to_numpy(std::move(outputs.out), {q_len, heads, static_cast<std::size_t>(spec.heads.v_head_dim)}),
      to_numpy(std::move(outputs.lse), {q_len, heads}), to_numpy(std::move(outputs.weights), pairs),
      to_numpy(std::move(outputs.scores), pairs));
}

nb::tuple backward(const AttentionSpec& spec, const Values& q, const Values& k, const Values& v,
                   const Values& d_out, const std::optional<Input<double, 2>>& d_lse, const Tokens& q_tokens,
                   const Tokens& kv_tokens, const std::optional<Values>& bias,
                   const std::optional<Table>& dense, std::int64_t rope_length) {
  const reference::AttentionInputs in = inputs_of({q, k, v, q_tokens, kv_tokens, bias, dense, rope_length});
  reference::AttentionUpstream upstream;
  upstream.d_out = view3(d_out);
  if (d_lse) {
    upstream.d_lse = {
        d_lse->data(),
        {static_cast<std::int64_t>(d_lse->shape(0)), static_cast<std::int64_t>(d_lse->shape(1))},
        {d_lse->stride(0), d_lse->stride(1)}};
  }
  Result<reference::AttentionGradients> got;
  {
    const nb::gil_scoped_release released;
    got = reference::attention_backward(spec, in, upstream);
  }
  reference::AttentionGradients grads = unwrap(std::move(got));
  const std::size_t bias_size = grads.d_bias.size();
  const std::size_t num_slopes = grads.d_alibi_slopes.size();
  const std::size_t num_sinks = grads.d_sink_logits.size();
  return nb::make_tuple(
      to_numpy(std::move(grads.d_q), shape_of(in.q)), to_numpy(std::move(grads.d_k), shape_of(in.k)),
      to_numpy(std::move(grads.d_v), shape_of(in.v)), to_numpy(std::move(grads.d_bias), {bias_size}),
      to_numpy(std::move(grads.d_alibi_slopes), {num_slopes}),
      to_numpy(std::move(grads.d_sink_logits), {num_sinks}));
}

}  // namespace

void bind_reference(nb::module_& m) {
  m.def("oracle_forward", &forward, nb::arg("spec"), nb::arg("q").noconvert(), nb::arg("k").noconvert(),
        nb::arg("v").noconvert(), nb::arg("q_tokens"), nb::arg("kv_tokens"),
        nb::arg("bias").noconvert() = nb::none(), nb::arg("dense").noconvert() = nb::none(),
        nb::arg("rope_length") = 0, kDoc_reference_attention_forward);
  m.def("oracle_backward", &backward, nb::arg("spec"), nb::arg("q").noconvert(), nb::arg("k").noconvert(),
        nb::arg("v").noconvert(), nb::arg("d_out").noconvert(), nb::arg("d_lse").noconvert() = nb::none(),
        nb::arg("q_tokens"), nb::arg("kv_tokens"), nb::arg("bias").noconvert() = nb::none(),
        nb::arg("dense").noconvert() = nb::none(), nb::arg("rope_length") = 0,
        kDoc_reference_attention_backward);
}

}  // namespace sightline::python
