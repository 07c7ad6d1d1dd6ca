// A batch of 16 sequences of unequal lengths, as speed a useful operation over that of 16 equal ones.
#include <algorithm>
#include <cmath>

#include "bench/attention_case.h"
#include "bench/families.h"
#include "sightline/base/rng.h"

namespace sightline::bench {

namespace {

constexpr int kSequences = 16;

// Log-normal, sigma 0.8, scaled to the mean.
std::vector<CaseSequence> unequal_lengths(std::int64_t mean) {
  Rng rng(5);
  std::vector<double> lengths;
  double sum = 0.0;
  for (int i = 0; i < kSequences; ++i) sum += lengths.emplace_back(std::exp(0.8 * rng.next_normal()));
  std::vector<CaseSequence> sequences;
  for (const double length : lengths) {
    const double scaled = length / sum * kSequences * static_cast<double>(mean);
    const std::int64_t num_tokens = std::max<std::int64_t>(1, std::llround(scaled));
    sequences.push_back({num_tokens, num_tokens});
  }
  return sequences;
}

}  // namespace

std::vector<RowCase> varlen_rows() {
  std::vector<RowCase> rows;
  for (const std::int64_t mean : {256, 1024}) {
    for (const int dim : {64, 128}) {
      const std::string name = fmt::format("varlen16-f32-d{}-mean{}", dim, mean);
      rows.push_back({name, Limit::kReference, [=](const Bench& bench) {
                        AttentionPair pair;
                        pair.c = self_attention(name, "causal", kHeads, dim, mean);
                        pair.reference = pair.c;
                        pair.c.sequences = unequal_lengths(mean);
                        pair.reference.sequences.assign(kSequences, {mean, mean});
                        pair.is_speed = true;
                        pair.what = "speed a useful operation over that of equal lengths";
                        return run_attention_pair(bench, pair);
                      }});
    }
  }
  return rows;
}

}  // namespace sightline::bench
