// The engine's forward on arrays. The oracle is in bind_reference.cc, caches in bind_kv_cache.cc.
#include "arrays.h"
#include "bind.h"
#include "docstrings.h"
#include "engine.h"

namespace sightline::python {

namespace {

/// Sequences of one length each for queries and keys, as they came.
struct Batch {
  const Rows& q;
  const Rows& k;
  const Rows& v;
  const Tokens& q_tokens;
  const Tokens& kv_tokens;
  StridedView<const float, 4> bias{};  ///< [batch, num_q_heads, q_len, kv_len] or no data
  std::span<const MaskTables> tables;  ///< none or one a sequence
  std::int64_t rope_length = 0;
};

std::vector<std::int64_t> offsets_of(std::int64_t length, std::int64_t num_sequences) {
  std::vector<std::int64_t> offsets;
  for (std::int64_t s = 0; s <= num_sequences; ++s) offsets.push_back(s * length);
  return offsets;
}

template <typename T>
std::span<const T> part(const std::vector<T>& all, std::int64_t begin, std::int64_t count) {
  if (all.empty()) return {};
  return std::span(all).subspan(static_cast<std::size_t>(begin), static_cast<std::size_t>(count));
}

// Sequences [first, first + count) in one call; more than one only where their rows lie one after the other.
struct Group {
  std::int64_t first = 0;
  std::int64_t count = 1;
  StridedView<const float, 3> q, k, v, bias;
};

Result<void> run(const AttentionSpec& spec, const Batch& batch, const Group& group, std::vector<float>& out,
                 std::vector<float>& lse, AttentionContext& context) {
  const std::int64_t q_len = batch.q.num_tokens();
  const std::int64_t kv_len = batch.k.num_tokens();
  const std::vector<std::int64_t> q_offsets = offsets_of(q_len, group.count);
  const std::vector<std::int64_t> kv_offsets = offsets_of(kv_len, group.count);
  const std::int64_t first_q = group.first * q_len;
  const std::int64_t first_kv = group.first * kv_len;
  const std::int64_t num_q = group.count * q_len;
  const std::int64_t num_kv = group.count * kv_len;
  const QueryBatch queries{q_offsets, part(batch.q_tokens.coords, first_q, num_q),
                           part(batch.q_tokens.rope_pos, first_q, num_q)};
  ContiguousKv kv;
  kv.kv_offsets = kv_offsets;
  kv.coords = part(batch.kv_tokens.coords, first_kv, num_kv);
  kv.rope_pos = part(batch.kv_tokens.rope_pos, first_kv, num_kv);
  kv.k = group.k;
  kv.v = group.v;
  AttentionExtras extras;
  extras.bias = group.bias;
  extras.rope_length = batch.rope_length;
  if (!batch.tables.empty()) {
    extras.tables =
        batch.tables.subspan(static_cast<std::size_t>(group.first), static_cast<std::size_t>(group.count));
  }
  const std::int64_t heads = spec.heads.num_q_heads;
  const std::int64_t v_dim = spec.heads.v_head_dim;
  SIGHTLINE_TRY(const AttentionPlan plan, plan_attention(spec, queries, kv, extras));
  return attention_forward(spec, plan, group.q, queries, kv, extras,
                           dense_view<float, 3>(out.data() + first_q * heads * v_dim, {num_q, heads, v_dim}),
                           dense_view<float, 2>(lse.data() + first_q * heads, {num_q, heads}), context);
}

// A bias of all sequences as one of their rows; nothing where the strides do not allow it.
std::optional<StridedView<const float, 3>> all_rows(const StridedView<const float, 4>& bias) {
  if (bias.data == nullptr) return StridedView<const float, 3>{};
  if (bias.shape[0] != 1 && bias.strides[0] != bias.shape[2] * bias.strides[2]) return std::nullopt;
  return StridedView<const float, 3>{bias.data,
                                     {bias.shape[1], bias.shape[0] * bias.shape[2], bias.shape[3]},
                                     {bias.strides[1], bias.strides[2], bias.strides[3]}};
}

Result<void> run_all(const AttentionSpec& spec, const Batch& batch, std::vector<float>& out,
                     std::vector<float>& lse, AttentionContext& context) {
  const std::int64_t num_sequences = batch.q.num_sequences();
  const auto q = batch.q.all();
  const auto k = batch.k.all();
  const auto v = batch.v.all();
  const auto bias = all_rows(batch.bias);
  if (q && k && v && bias) {
    return run(spec, batch, {0, num_sequences, *q, *k, *v, *bias}, out, lse, context);
  }
  for (std::int64_t s = 0; s < num_sequences; ++s) {
    Group group{s, 1, batch.q.sequence(s), batch.k.sequence(s), batch.v.sequence(s), {}};
    if (batch.bias.data != nullptr) group.bias = entry(batch.bias, s);
    SIGHTLINE_CHECK(run(spec, batch, group, out, lse, context));
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
  const std::int64_t num_sequences = q.num_sequences();
  for (const Rows* rows : {&k, &v}) {
    if (rows->num_sequences() != num_sequences || rows->num_tokens() != k.num_tokens()) {
      throw nb::value_error(fmt::format("{} has {} sequences of {} tokens, expected {} of {}",
                                        rows == &k ? "k" : "v", rows->num_sequences(), rows->num_tokens(),
                                        num_sequences, k.num_tokens())
                                .c_str());
    }
  }
  Batch batch{q, k, v, q_tokens, kv_tokens};
  batch.rope_length = rope_length;
  if (bias) batch.bias = typed_view<float, 4>(*bias, "bias");
  const std::vector<MaskTables> tables = dense ? mask_tables(*dense) : std::vector<MaskTables>{};
  batch.tables = tables;
  const auto rows = static_cast<std::size_t>(num_sequences * q.num_tokens());
  const auto heads = static_cast<std::size_t>(spec.heads.num_q_heads);
  const auto v_dim = static_cast<std::size_t>(spec.heads.v_head_dim);
  std::vector<float> out(rows * heads * v_dim);
  std::vector<float> lse(rows * heads);
  Result<void> done;
  if (rows > 0) {
    const nb::gil_scoped_release released;
    const EngineLease engine(num_threads);
    done = run_all(spec, batch, out, lse, engine.context());
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
