// Decode: one query a sequence on long caches, 32 query heads on 8 key heads. Caches are read in rotation, at
// least 8 times the third cache in all, so that what is measured is memory.
#include "bench/attention_case.h"
#include "bench/families.h"

namespace sightline::bench {

namespace {

constexpr std::int64_t kMaxKeys = 16384;

Result<void> run_decode(const Bench& bench, AttentionCase c) {
  SIGHTLINE_TRY(const std::unique_ptr<AttentionBody> body, AttentionBody::make(bench, std::move(c)));
  const auto bytes = static_cast<double>(body->cache_bytes());
  const auto third_cache = static_cast<double>(std::max<std::size_t>(level3_bytes(), 1));
  SIGHTLINE_TRY(
      Row row,
      checked_row(*body, Limit::kBandwidth,
                  fmt::format("{:.1f} MB a call, {} caches in rotation, {:.1f} x the third cache",
                              bytes / 1e6, body->num_copies(), bytes * body->num_copies() / third_cache)));
  row.work = bytes;
  measure(bench, row, [&] { body->run(); });
  return {};
}

AttentionCase decode_case(std::string name, StorageType type) {
  AttentionCase c;
  c.name = std::move(name);
  c.spec.heads = {32, 8, 128, 128};
  c.spec.mask = mask_rule(MaskOp::kCausal);
  c.sequences = {{1, kMaxKeys}};
  c.cache = CaseCache{type, memory_bytes()};
  return c;
}

// Lengths from a quarter of the most to the most, in no order.
std::vector<CaseSequence> ragged_sequences() {
  std::vector<CaseSequence> sequences;
  for (std::int64_t i = 0; i < 16; ++i)
    sequences.push_back({1, kMaxKeys / 4 + i * 7 % 16 * (kMaxKeys * 3 / 4) / 15});
  return sequences;
}

}  // namespace

std::vector<RowCase> decode_rows() {
  std::vector<RowCase> rows;
  for (const StorageType type : {StorageType::kF32, StorageType::kBf16}) {
    const std::string type_name = type == StorageType::kBf16 ? "bf16" : "f32";
    const std::string name = fmt::format("decode-{}-d128-k16384", type_name);
    rows.push_back({name, Limit::kBandwidth,
                    [=](const Bench& bench) { return run_decode(bench, decode_case(name, type)); }});
    const std::string ragged = fmt::format("decode-{}-ragged16-d128", type_name);
    rows.push_back({ragged, Limit::kBandwidth, [=](const Bench& bench) {
                      AttentionCase c = decode_case(ragged, type);
                      c.sequences = ragged_sequences();
                      return run_decode(bench, std::move(c));
                    }});
  }
  return rows;
}

}  // namespace sightline::bench
