// Chunked prefill: 512 queries at the end of a long sequence, 32 query heads on 8 key heads, from arrays and
// from pages.
#include "bench/attention_case.h"
#include "bench/families.h"

namespace sightline::bench {

namespace {

AttentionCase chunk_case(std::string name, std::int64_t num_keys, std::optional<CaseCache> cache) {
  AttentionCase c;
  c.name = std::move(name);
  c.spec.heads = {32, 8, 128, 128};
  c.spec.mask = mask_rule(MaskOp::kCausal);
  c.sequences = {{512, num_keys}};
  c.cache = cache;
  return c;
}

}  // namespace

std::vector<RowCase> chunk_rows() {
  const struct {
    const char* name;
    std::optional<CaseCache> cache;
  } storages[] = {{"f32-contiguous", {}},
                  {"f32-paged", CaseCache{StorageType::kF32}},
                  {"bf16-paged", CaseCache{StorageType::kBf16}}};
  std::vector<RowCase> rows;
  for (const std::int64_t num_keys : {4096, 16384}) {
    for (const auto& storage : storages) {
      const std::string name = fmt::format("chunk512-{}-d128-k{}", storage.name, num_keys);
      const std::optional<CaseCache> cache = storage.cache;
      rows.push_back({name, Limit::kPeak, [=](const Bench& bench) {
                        return run_attention_case(bench, chunk_case(name, num_keys, cache));
                      }});
    }
    const std::string name = fmt::format("chunk512-paged-over-contiguous-k{}", num_keys);
    rows.push_back({name, Limit::kReference, [=](const Bench& bench) {
                      AttentionPair pair;
                      pair.c = chunk_case(name, num_keys, CaseCache{StorageType::kF32});
                      pair.reference = chunk_case("contiguous", num_keys, {});
                      pair.share = 1.0;
                      pair.what = "time from pages over time from arrays";
                      return run_attention_pair(bench, pair);
                    }});
  }
  return rows;
}

}  // namespace sightline::bench
