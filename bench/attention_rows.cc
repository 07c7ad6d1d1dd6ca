// Attention forward in f32, dense and causal, as a fraction of the multiply-add peak of the kernels that run.
#include "bench/attention_case.h"
#include "bench/families.h"

namespace sightline::bench {

namespace {

AttentionCase square_case(std::string name, bool causal, int dim, std::int64_t num_tokens) {
  return self_attention(std::move(name), causal ? "causal" : "all", kHeads, dim, num_tokens);
}

// The same row on the kernels of another instruction set, which must be at hand.
Result<void> run_on(const Bench& bench, std::string_view isa, const AttentionCase& c) {
  for (const kernels::KernelTable* table : kernels::available_tables()) {
    if (table->name != isa) continue;
    Bench other = bench;
    other.table = table;
    return run_attention_case(other, c);
  }
  Row row;
  row.name = c.name;
  report_unmeasured(bench, row, fmt::format("not measured: this CPU does not support {}", isa));
  return {};
}

}  // namespace

std::vector<RowCase> attention_rows() {
  std::vector<RowCase> rows;
  for (const int dim : {64, 128}) {
    for (const bool causal : {false, true}) {
      for (const std::int64_t num_tokens : {512, 2048, 4096}) {
        const std::string name = fmt::format("f32-{}-d{}-T{}", causal ? "causal" : "dense", dim, num_tokens);
        rows.push_back({name, Limit::kPeak, [=](const Bench& bench) {
                          return run_attention_case(bench, square_case(name, causal, dim, num_tokens));
                        }});
      }
    }
  }
  for (const std::string isa : {"avx2", "portable"}) {
    for (const int dim : {64, 128}) {
      for (const bool causal : {false, true}) {
        const std::string name = fmt::format("{}-f32-{}-d{}-T2048", isa, causal ? "causal" : "dense", dim);
        rows.push_back({name, Limit::kPeak, [=](const Bench& bench) {
                          return run_on(bench, isa, square_case(name, causal, dim, 2048));
                        }});
      }
    }
  }
  return rows;
}

}  // namespace sightline::bench
