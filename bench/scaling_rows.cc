// What a second thread brings: speed on two threads over speed on one.
#include "bench/attention_case.h"
#include "bench/families.h"

namespace sightline::bench {

namespace {

Result<void> run_scaling(const Bench& bench, const AttentionCase& c) {
  Row row;
  row.name = c.name;
  row.limit = Limit::kReference;
  row.is_speed = true;
  if (available_threads() < 2) {
    report_unmeasured(bench, row, "not measured: one core");
    return {};
  }
  ThreadPool one(1);
  ThreadPool two(2);
  Bench on_one = bench;
  Bench on_two = bench;
  on_one.pool = &one;
  on_two.pool = &two;
  SIGHTLINE_TRY(const std::unique_ptr<AttentionBody> alone, AttentionBody::make(on_one, c));
  SIGHTLINE_TRY(const std::unique_ptr<AttentionBody> both, AttentionBody::make(on_two, c));
  row.what = fmt::format("{}; speed on 2 threads over speed on 1", both->what());
  SIGHTLINE_TRY(row.note, both->check());
  measure_against(on_two, row, [&] { both->run(); }, [&] { alone->run(); });
  return {};
}

}  // namespace

std::vector<RowCase> scaling_rows() {
  std::vector<RowCase> rows;
  for (const std::string mask : {"dense", "causal"}) {
    for (const std::int64_t num_tokens : {1024, 4096}) {
      const std::string name = fmt::format("scaling-f32-{}-d64-T{}", mask, num_tokens);
      rows.push_back({name, Limit::kReference, [=](const Bench& bench) {
                        return run_scaling(bench, self_attention(name, mask == "dense" ? "all" : mask, kHeads,
                                                                 64, num_tokens));
                      }});
    }
  }
  return rows;
}

}  // namespace sightline::bench
