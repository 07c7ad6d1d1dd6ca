// Masks given as a boolean matrix: random blocks, as time over density x the time of the dense call, and
// random single pairs, as time over the time of the dense call. Planned once, outside the time.
#include "bench/attention_case.h"
#include "bench/families.h"
#include "sightline/base/rng.h"

namespace sightline::bench {

namespace {

constexpr std::int64_t kTokens = 4096;

// [tokens, tokens]: blocks of `block` x `block` that are visible or not as a whole.
std::vector<std::uint8_t> random_blocks(std::int64_t block, double density) {
  Rng rng(11);
  const std::int64_t num_blocks = kTokens / block;
  std::vector<std::uint8_t> visible(static_cast<std::size_t>(num_blocks * num_blocks));
  for (std::uint8_t& x : visible) x = rng.next_uniform() < density ? 1 : 0;
  std::vector<std::uint8_t> dense(static_cast<std::size_t>(kTokens * kTokens));
  for (std::int64_t q = 0; q < kTokens; ++q) {
    for (std::int64_t k = 0; k < kTokens; ++k) {
      dense[static_cast<std::size_t>(q * kTokens + k)] =
          visible[static_cast<std::size_t>(q / block * num_blocks + k / block)];
    }
  }
  return dense;
}

RowCase dense_row(const std::string& name, int dim, std::int64_t block, double density, bool by_density) {
  return {name, Limit::kReference, [=](const Bench& bench) {
            AttentionPair pair;
            pair.c = self_attention(name, "dense", kHeads, dim, kTokens);
            pair.c.dense = random_blocks(block, density);
            pair.reference = self_attention("dense", "all", kHeads, dim, kTokens);
            pair.share = by_density ? 0.0 : 1.0;
            pair.what = by_density ? "time over density x dense time" : "time over dense time";
            return run_attention_pair(bench, pair);
          }};
}

}  // namespace

std::vector<RowCase> block_rows() {
  std::vector<RowCase> rows;
  for (const int dim : {64, 128}) {
    for (const int block : {128, 64}) {
      for (const int percent : {25, 10}) {
        rows.push_back(dense_row(fmt::format("blocks{}-{}-f32-d{}-T4096", block, percent, dim), dim, block,
                                 percent / 100.0, true));
      }
    }
    rows.push_back(dense_row(fmt::format("boolean-50-f32-d{}-T4096", dim), dim, 1, 0.5, false));
  }
  return rows;
}

}  // namespace sightline::bench
