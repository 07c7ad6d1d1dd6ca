// What a model takes besides its weights and cache: nothing that grows with the context, no gradients.
#include <gtest/gtest.h>

#include "model/model_runner.h"

namespace sightline {
namespace {

using namespace testing;  // NOLINT: fixtures of this folder

// The memory after `num_tokens` tokens in chunks of 256, and one alone.
ModelMemory memory_after(std::int64_t num_tokens) {
  LoadedModel loaded = make_loaded(random_model(small_llama_spec(), 79), 2);
  KvCache cache = make_cache(*loaded.model);
  const SequenceId sequence = cache.add_sequence();
  RunOptions options;
  options.chunk = 256;
  run_on(*loaded.model, cache, sequence, random_tokens(50, num_tokens, 79), options);
  Tokens one = tokens_of({1});
  one.coords = coords_range(num_tokens, num_tokens + 1);
  run_on(*loaded.model, cache, sequence, one);
  return loaded.model->memory();
}

TEST(ModelMemoryTest, WorkspaceAndActivationsDoNotGrowWithTheContext) {
  const ModelMemory small = memory_after(512);
  const ModelMemory large = memory_after(6144);
  EXPECT_EQ(large.activations, small.activations);
  EXPECT_EQ(large.weights, small.weights);
  // Ranges of 2048 keys of few queries run apart: each leaves 16 rows of an output (8 padded to 16) and two
  // sums per key head, of which there are 2, for 4 ranges.
  EXPECT_GT(small.workspace, 0);
  EXPECT_LE(large.workspace - small.workspace, 4 * 2 * 16 * (16 + 2) * 4);
  // A plan knows storage index and position of each key; it lives for one call.
  EXPECT_LE(large.plans - small.plans, (6144 - 512) * 16);
}

}  // namespace
}  // namespace sightline
