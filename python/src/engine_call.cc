#include "engine_call.h"

namespace sightline::python {

namespace {

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

// A bias of all sequences as one of their rows; nothing where the strides do not allow it.
std::optional<StridedView<const float, 3>> all_rows(const StridedView<const float, 4>& bias) {
  if (bias.data == nullptr) return StridedView<const float, 3>{};
  if (bias.shape[0] != 1 && bias.strides[0] != bias.shape[2] * bias.strides[2]) return std::nullopt;
  return StridedView<const float, 3>{bias.data,
                                     {bias.shape[1], bias.shape[0] * bias.shape[2], bias.shape[3]},
                                     {bias.strides[1], bias.strides[2], bias.strides[3]}};
}

}  // namespace

Batch::Batch(const Rows& q_rows, const Rows& k_rows, const Rows& v_rows, const Tokens& of_q,
             const Tokens& of_kv, const std::optional<AnyArray>& bias_array,
             const std::optional<AnyArray>& dense, std::int64_t length)
    : q(q_rows), k(k_rows), v(v_rows), q_tokens(of_q), kv_tokens(of_kv), rope_length(length) {
  require_sequences(k, "k", q.num_sequences(), k.num_tokens());
  require_sequences(v, "v", q.num_sequences(), k.num_tokens());
  if (bias_array) bias = typed_view<float, 4>(*bias_array, "bias");
  if (dense) tables = mask_tables(*dense);
}

std::vector<Group> groups_of(const Batch& batch, bool one_by_one) {
  const std::int64_t num_sequences = batch.q.num_sequences();
  const auto q = batch.q.all();
  const auto k = batch.k.all();
  const auto v = batch.v.all();
  const auto bias = all_rows(batch.bias);
  if (!one_by_one && q && k && v && bias) return {{0, num_sequences, *q, *k, *v, *bias}};
  std::vector<Group> groups;
  for (std::int64_t s = 0; s < num_sequences; ++s) {
    Group group{s, 1, batch.q.sequence(s), batch.k.sequence(s), batch.v.sequence(s), {}};
    if (batch.bias.data != nullptr) group.bias = entry(batch.bias, s);
    groups.push_back(group);
  }
  return groups;
}

EngineCall::EngineCall(const Batch& batch, const Group& group)
    : first_q(group.first * batch.q.num_tokens()),
      num_q(group.count * batch.q.num_tokens()),
      first_kv(group.first * batch.k.num_tokens()),
      num_kv(group.count * batch.k.num_tokens()),
      q_offsets(offsets_of(batch.q.num_tokens(), group.count)),
      kv_offsets(offsets_of(batch.k.num_tokens(), group.count)) {
  queries = {q_offsets, part(batch.q_tokens.coords, first_q, num_q),
             part(batch.q_tokens.rope_pos, first_q, num_q)};
  kv.kv_offsets = kv_offsets;
  kv.coords = part(batch.kv_tokens.coords, first_kv, num_kv);
  kv.rope_pos = part(batch.kv_tokens.rope_pos, first_kv, num_kv);
  kv.k = group.k;
  kv.v = group.v;
  extras.bias = group.bias;
  extras.rope_length = batch.rope_length;
  if (!batch.tables.empty()) {
    extras.tables =
        std::span(batch.tables)
            .subspan(static_cast<std::size_t>(group.first), static_cast<std::size_t>(group.count));
  }
}

}  // namespace sightline::python
