// The engine's forward on arrays. Its backward is in bind_attention_backward.cc, the oracle in
// bind_reference.cc, caches in bind_kv_cache.cc.
#include "bind.h"
#include "docstrings.h"
#include "engine.h"
#include "engine_call.h"
#include "sightline/attention/attention.h"

namespace sightline::python {

namespace {

Result<void> run_forward(const AttentionSpec& spec, const Batch& batch, std::vector<float>& out,
                         std::vector<float>& lse, AttentionContext& context) {
  const std::int64_t heads = spec.heads.num_q_heads;
  const std::int64_t v_dim = spec.heads.v_head_dim;
  for (const Group& group : groups_of(batch)) {
    const EngineCall call(batch, group);
    SIGHTLINE_TRY(const AttentionPlan plan, plan_attention(spec, call.queries, call.kv, call.extras));
    SIGHTLINE_CHECK(attention_forward(
        spec, plan, group.q, call.queries, call.kv, call.extras,
        dense_view<float, 3>(out.data() + call.first_q * heads * v_dim, {call.num_q, heads, v_dim}),
        dense_view<float, 2>(lse.data() + call.first_q * heads, {call.num_q, heads}), context));
  }
  return {};
}

nb::tuple forward(const AttentionSpec& spec, const AnyArray& q_array, const AnyArray& k_array,
                  const AnyArray& v_array, const Tokens& q_tokens, const Tokens& kv_tokens,
                  const std::optional<AnyArray>& bias, const std::optional<AnyArray>& dense,
                  std::int64_t rope_length, int num_threads) {
  const Rows q(q_array, "q");
  const Rows k(k_array, "k");
  const Rows v(v_array, "v");
  const Batch batch(q, k, v, q_tokens, kv_tokens, bias, dense, rope_length);
  const auto rows = static_cast<std::size_t>(q.num_sequences() * q.num_tokens());
  const auto heads = static_cast<std::size_t>(spec.heads.num_q_heads);
  const auto v_dim = static_cast<std::size_t>(spec.heads.v_head_dim);
  std::vector<float> out(rows * heads * v_dim);
  std::vector<float> lse(rows * heads);
  Result<void> done;
  if (rows > 0) {
    const nb::gil_scoped_release released;
    const EngineLease engine(num_threads);
    done = run_forward(spec, batch, out, lse, engine.context());
  }
  unwrap(std::move(done));
  return nb::make_tuple(to_numpy(std::move(out), {rows, heads, v_dim}),
                        to_numpy(std::move(lse), {rows, heads}));
}

}  // namespace

void bind_attention(nb::module_& m) {
  m.def("attention_forward", &forward, nb::arg("spec"), nb::arg("q").noconvert(), nb::arg("k").noconvert(),
        nb::arg("v").noconvert(), nb::arg("q_tokens"), nb::arg("kv_tokens"),
        nb::arg("bias").noconvert() = nb::none(), nb::arg("dense").noconvert() = nb::none(),
        nb::arg("rope_length") = 0, nb::arg("num_threads") = 0, kDoc_attention_attention_forward);
}

}  // namespace sightline::python
