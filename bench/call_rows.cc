// The smallest call: what a call costs beside its arithmetic. That it allocates nothing is a test
// (AttentionStatsTest.NothingIsAllocatedAfterTheFirstCall), which counts.
#include "bench/attention_case.h"
#include "bench/families.h"

namespace sightline::bench {

namespace {

Result<void> run_smallest(const Bench& bench) {
  SIGHTLINE_TRY(const std::unique_ptr<AttentionBody> body,
                AttentionBody::make(bench, self_attention("call-1x1x64", "causal", 1, 64, 1)));
  Row row;
  row.name = body->get_case().name;
  row.what = fmt::format("{}; one call, planned before", body->what());
  row.limit = Limit::kSeconds;
  SIGHTLINE_TRY(row.note, body->check());
  measure(bench, row, [&] { body->run(); });
  return {};
}

}  // namespace

std::vector<RowCase> call_rows() { return {{"call-1x1x64", Limit::kSeconds, run_smallest}}; }

}  // namespace sightline::bench
