// What a model takes besides its weights and cache: nothing that grows with the context, no gradients.
#include <gtest/gtest.h>

#include "model/model_runner.h"

namespace sightline {
namespace {

using namespace testing;  // NOLINT: fixtures of this folder

// The memory after `num_tokens` tokens in chunks of 32.
ModelMemory memory_after(std::int64_t num_tokens) {
  LoadedModel loaded = make_loaded(random_model(small_llama_spec(), 79), 2);
  RunOptions options;
  options.chunk = 32;
  run_tokens(*loaded.model, random_tokens(50, num_tokens, 79), options);
  return loaded.model->memory();
}

TEST(ModelMemoryTest, WorkspaceAndActivationsDoNotGrowWithTheContext) {
  const ModelMemory small = memory_after(64);
  const ModelMemory large = memory_after(2048);
  EXPECT_GT(small.workspace, 0);
  RecordProperty("small", static_cast<int>(small.workspace));
  RecordProperty("large", static_cast<int>(large.workspace));
  EXPECT_EQ(large.activations, small.activations);
  EXPECT_EQ(large.weights, small.weights);
  EXPECT_EQ(large.workspace, small.workspace);
}

}  // namespace
}  // namespace sightline
