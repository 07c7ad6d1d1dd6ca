// Masks whose visible keys form ranges, as time over density x the time of the dense call.
#include "bench/families.h"
#include "bench/mask_kinds.h"

namespace sightline::bench {

std::vector<RowCase> mask_rows() {
  std::vector<RowCase> rows;
  for (const std::int64_t num_tokens : {4096, 16384}) {
    for (const int dim : {64, 128}) {
      for (const MaskKind& kind : mask_kinds()) {
        const std::string name = fmt::format("mask-{}-f32-d{}-T{}", kind.name, dim, num_tokens);
        rows.push_back({name, Limit::kReference, [=](const Bench& bench) {
                          AttentionPair pair;
                          pair.c = masked_case(name, kind, dim, num_tokens);
                          pair.reference = self_attention("dense", "all", kHeads, dim, num_tokens);
                          pair.what = "time over density x dense time";
                          return run_attention_pair(bench, pair);
                        }});
      }
    }
  }
  return rows;
}

}  // namespace sightline::bench
