// The backward alone, from the results of a forward: dense and causal as a fraction of the peak, grouped
// heads, masks that are key ranges as time over density x the time of the dense backward, and its memory,
// counted.
#include "bench/backward_case.h"
#include "bench/families.h"
#include "bench/mask_kinds.h"

namespace sightline::bench {

namespace {

AttentionCase grouped_case(const std::string& name, int dim) {
  AttentionCase c = self_attention(name, "causal", 32, dim, 2048);
  c.spec.heads.num_kv_heads = 8;
  return c;
}

Result<void> run_masked(const Bench& bench, const AttentionCase& c) {
  const CaseSequence& sequence = c.sequences.front();
  SIGHTLINE_TRY(const std::unique_ptr<BackwardBody> body, BackwardBody::make(bench, c));
  SIGHTLINE_TRY(const std::unique_ptr<BackwardBody> dense,
                BackwardBody::make(bench, self_attention("dense", "all", kHeads, c.spec.heads.qk_head_dim,
                                                         sequence.num_kv)));
  SIGHTLINE_TRY(Row row, checked_row(*body, Limit::kReference, "time over density x dense time"));
  row.work = body->work();
  row.share = body->work() / dense->work();
  measure_against(bench, row, [&] { body->run(); }, [&] { dense->run(); });
  return {};
}

// At 16384 tokens; what an implementation that holds all pairs would take is 64 times q + k + v.
Result<void> run_memory(const Bench& bench, const AttentionCase& c) {
  SIGHTLINE_TRY(const std::unique_ptr<BackwardBody> body, BackwardBody::make(bench, c));
  SIGHTLINE_TRY(Row row,
                checked_row(*body, Limit::kCount, "scratch of the call over the bytes of q, k and v"));
  row.counted = body->memory_ratio();
  bench.report(row);
  return {};
}

}  // namespace

std::vector<RowCase> backward_rows() {
  std::vector<RowCase> rows;
  for (const int dim : {64, 128}) {
    for (const std::string mask : {"dense", "causal"}) {
      for (const std::int64_t num_tokens : {512, 2048, 4096}) {
        const std::string name = fmt::format("backward-f32-{}-d{}-T{}", mask, dim, num_tokens);
        rows.push_back({name, Limit::kPeak, [=](const Bench& bench) {
                          return run_backward_case(bench, self_attention(name, mask == "dense" ? "all" : mask,
                                                                         kHeads, dim, num_tokens));
                        }});
      }
    }
    const std::string name = fmt::format("backward-f32-gqa-d{}-T2048", dim);
    rows.push_back({name, Limit::kPeak,
                    [=](const Bench& bench) { return run_backward_case(bench, grouped_case(name, dim)); }});
  }
  for (const std::int64_t num_tokens : {4096, 16384}) {
    for (const MaskKind& kind : mask_kinds()) {
      const std::string name = fmt::format("backward-mask-{}-f32-d64-T{}", kind.name, num_tokens);
      rows.push_back({name, Limit::kReference, [=](const Bench& bench) {
                        return run_masked(bench, masked_case(name, kind, 64, num_tokens));
                      }});
    }
  }
  for (const MaskKind& kind : mask_kinds()) {
    const std::string name = fmt::format("backward-memory-{}-d64-T16384", kind.name);
    rows.push_back({name, Limit::kCount, [=](const Bench& bench) {
                      return run_memory(bench, masked_case(name, kind, 64, 16384));
                    }});
  }
  return rows;
}

}  // namespace sightline::bench
