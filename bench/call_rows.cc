// The smallest call: what a call costs beside its arithmetic. That it allocates nothing is a test
// (AttentionStatsTest.NothingIsAllocatedAfterTheFirstCall), which counts.
#include "bench/attention_case.h"
#include "bench/families.h"

namespace sightline::bench {

namespace {

Result<void> run_smallest(const Bench& bench) {
  SIGHTLINE_TRY(const std::unique_ptr<AttentionBody> body,
                AttentionBody::make(bench, self_attention("call-1x1x64", "causal", 1, 64, 1)));
  SIGHTLINE_TRY(const Row row, checked_row(*body, Limit::kSeconds, "one call, planned before"));
  measure(bench, row, [&] { body->run(); });
  return {};
}

}  // namespace

std::vector<RowCase> call_rows() { return {{"call-1x1x64", Limit::kSeconds, run_smallest}}; }

}  // namespace sightline::bench
