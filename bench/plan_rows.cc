// How exact a plan is (pairs computed over pairs visible, counted) and what it costs (time of planning over
// the time of one forward).
#include "bench/attention_case.h"
#include "bench/families.h"

namespace sightline::bench {

namespace {

Result<void> run_pairs(const Bench& bench, const AttentionCase& c) {
  SIGHTLINE_TRY(const std::unique_ptr<AttentionBody> body, AttentionBody::make(bench, c));
  SIGHTLINE_TRY(Row row, checked_row(*body, Limit::kCount, "pairs computed over pairs visible"));
  row.counted = static_cast<double>(body->pairs_computed()) / static_cast<double>(body->pairs_visible());
  bench.report(row);
  return {};
}

Result<void> run_planning(const Bench& bench, const AttentionCase& c) {
  SIGHTLINE_TRY(const std::unique_ptr<AttentionBody> body, AttentionBody::make(bench, c));
  SIGHTLINE_TRY(const Row row,
                checked_row(*body, Limit::kReference, "time of planning over one forward, 0 when reused"));
  measure_against(bench, row, [&] { body->plan(); }, [&] { body->run(); });
  return {};
}

}  // namespace

std::vector<RowCase> plan_rows() {
  std::vector<RowCase> rows;
  for (const int dim : {64, 128}) {
    const std::string name = fmt::format("pairs-causal-d{}-T512", dim);
    rows.push_back({name, Limit::kCount, [=](const Bench& bench) {
                      return run_pairs(bench, self_attention(name, "causal", kHeads, dim, 512));
                    }});
  }
  const struct {
    const char* name;
    const char* mask;
  } masks[] = {{"dense", "all"}, {"causal", "causal"}, {"window256", "causal & window(256)"}};
  for (const auto& mask : masks) {
    for (const std::int64_t num_tokens : {2048, 4096}) {
      const std::string name = fmt::format("plan-{}-T{}", mask.name, num_tokens);
      rows.push_back({name, Limit::kReference, [=](const Bench& bench) {
                        return run_planning(bench, self_attention(name, mask.mask, kHeads, 64, num_tokens));
                      }});
    }
  }
  return rows;
}

}  // namespace sightline::bench
