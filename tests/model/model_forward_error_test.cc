// What a forward refuses, by field, and that a refused one leaves the cache as it was.
#include <gtest/gtest.h>

#include "model/model_runner.h"

namespace sightline {
namespace {

using namespace testing;  // NOLINT: fixtures of this folder

class ModelForwardErrorTest : public ::testing::Test {
 protected:
  // Runs a batch of two sequences that `edit` spoils; expects a refusal that names `named` and an unchanged
  // cache.
  void expect_refused(const std::function<void(ForwardBatch&)>& edit, const std::string& named,
                      ErrorKind kind = ErrorKind::kInvalidArgument) {
    const std::int64_t before[] = {*cache_.length(sequences_[0]), *cache_.length(sequences_[1])};
    ForwardBatch batch = valid_batch();
    edit(batch);
    const auto done = loaded_.model->forward(batch, cache_, dense_view(logits_.data(), {2, 50}), specs_);
    ASSERT_FALSE(done) << "accepted, but should name " << named;
    EXPECT_EQ(done.error().kind, kind) << done.error().message;
    EXPECT_NE(done.error().message.find(named), std::string::npos) << done.error().message;
    EXPECT_EQ(*cache_.length(sequences_[0]), before[0]);
    EXPECT_EQ(*cache_.length(sequences_[1]), before[1]);
  }

  ForwardBatch valid_batch() {
    ForwardBatch batch;
    batch.sequences = sequences_;
    batch.offsets = offsets_;
    batch.token_ids = ids_;
    batch.q_coords = coords_;
    batch.logit_rows = rows_;
    return batch;
  }

  TestModel model_ = random_model(small_llama_spec(), 75);
  LoadedModel loaded_ = make_loaded(model_);
  KvCache cache_ = make_cache(*loaded_.model, 16);
  std::vector<SequenceId> sequences_ = {cache_.add_sequence(), cache_.add_sequence()};
  std::vector<std::int64_t> offsets_ = {0, 3, 5};
  std::vector<std::int32_t> ids_ = {1, 2, 3, 4, 5};
  std::vector<TokenCoord> coords_ = coords_range(0, 5);
  std::vector<std::int64_t> rows_ = {2, 4};
  std::vector<float> logits_ = std::vector<float>(100);
  std::vector<AttentionSpec> specs_;
};

TEST_F(ModelForwardErrorTest, BadBatchesAreRefusedByFieldAndTheCacheStaysAsItWas) {
  const std::vector<std::int64_t> short_offsets = {0, 5};
  const std::vector<std::int64_t> falling = {0, 6, 5};
  const std::vector<std::int64_t> early = {0, 3, 4};
  const std::vector<std::int32_t> big_id = {1, 2, 3, 50, 5};
  const std::vector<std::int32_t> negative_id = {1, 2, -1, 4, 5};
  const std::vector<SequenceId> twice = {sequences_[0], sequences_[0]};
  const std::vector<SequenceId> unknown = {sequences_[0], 777};
  const std::vector<std::int64_t> far_rows = {2, 5};
  const std::vector<std::int64_t> unsorted_rows = {4, 2};
  const std::vector<std::int64_t> one_row = {2};
  expect_refused([&](ForwardBatch& b) { b.offsets = short_offsets; }, "offsets");
  expect_refused([&](ForwardBatch& b) { b.offsets = falling; }, "offsets");
  expect_refused([&](ForwardBatch& b) { b.offsets = early; }, "offsets");
  expect_refused([&](ForwardBatch& b) { b.token_ids = big_id; }, "token_ids[3] = 50");
  expect_refused([&](ForwardBatch& b) { b.token_ids = negative_id; }, "token_ids[2] = -1");
  expect_refused([&](ForwardBatch& b) { b.q_coords = b.q_coords.first(4); }, "q_coords");
  expect_refused([&](ForwardBatch& b) { b.q_rope_pos = offsets_; }, "q_rope_pos");
  expect_refused([&](ForwardBatch& b) { b.sequences = twice; }, "twice");
  expect_refused([&](ForwardBatch& b) { b.sequences = unknown; }, "777");
  expect_refused([&](ForwardBatch& b) { b.logit_rows = far_rows; }, "logit_rows");
  expect_refused([&](ForwardBatch& b) { b.logit_rows = unsorted_rows; }, "logit_rows");
  expect_refused([&](ForwardBatch& b) { b.logit_rows = one_row; }, "logits");
  specs_ = loaded_.model->attention_specs();
  specs_.pop_back();
  expect_refused([](ForwardBatch&) {}, "specs");
  specs_ = loaded_.model->attention_specs();
  specs_[1].heads.num_kv_heads = 4;
  expect_refused([](ForwardBatch&) {}, "specs[1]");
  // What is refused leaves nothing behind: the valid batch still runs.
  const auto done = loaded_.model->forward(valid_batch(), cache_, dense_view(logits_.data(), {2, 50}));
  EXPECT_TRUE(done) << done.error().message;
}

TEST_F(ModelForwardErrorTest, PagesThatRunOutForTheSecondSequenceLeaveTheFirstAsItWas) {
  KvCacheOptions options;
  options.page_size = 16;
  options.max_pages = 3;  // one page of each of three layers
  options.poison = true;
  cache_ = *KvCache::create(loaded_.model->attention_specs(), options);
  sequences_ = {cache_.add_sequence(), cache_.add_sequence()};
  expect_refused([](ForwardBatch&) {}, "page", ErrorKind::kOutOfMemory);
  // The page of the first sequence is free again.
  const Tokens tokens = tokens_of({1, 2, 3});
  EXPECT_TRUE(
      same_bits(run_on(*loaded_.model, cache_, sequences_[1], tokens), run_tokens(*loaded_.model, tokens)));
}

TEST_F(ModelForwardErrorTest, RollBackWorksBehindAWindowThatFreedPages) {
  for (LayerSpec& layer : model_.spec.layers) layer.attention.mask = *parse_mask("causal & window(8)");
  loaded_ = make_loaded(model_);
  KvCacheOptions options;
  options.page_size = 16;
  options.max_pages = 9;
  options.poison = true;
  cache_ = *KvCache::create(loaded_.model->attention_specs(), options);
  sequences_ = {cache_.add_sequence(), cache_.add_sequence()};
  const Tokens tokens = random_tokens(50, 40, 78);
  Tokens head = tokens;
  head.ids.resize(30);
  head.coords.resize(30);
  run_on(*loaded_.model, cache_, sequences_[0], head);
  // The first sequence frees its first page and takes another; the second then asks for too many.
  offsets_ = {0, 3, 67};
  ids_.assign(67, 1);
  coords_ = coords_range(30, 33);
  const std::vector<TokenCoord> far = coords_range(0, 64);
  coords_.insert(coords_.end(), far.begin(), far.end());
  rows_ = {2, 66};
  expect_refused([](ForwardBatch&) {}, "page", ErrorKind::kOutOfMemory);
  Tokens tail = tokens;
  tail.ids.erase(tail.ids.begin(), tail.ids.begin() + 30);
  tail.coords.erase(tail.coords.begin(), tail.coords.begin() + 30);
  const std::vector<float> whole = run_tokens(*loaded_.model, tokens);
  EXPECT_TRUE(same_bits(run_on(*loaded_.model, cache_, sequences_[0], tail), logit_rows(whole, 50, 30, 40)));
}

TEST_F(ModelForwardErrorTest, CacheOfOtherHeadsIsRefused) {
  std::vector<AttentionSpec> specs = loaded_.model->attention_specs();
  for (AttentionSpec& spec : specs) spec.heads.num_kv_heads = 4;
  cache_ = *KvCache::create(specs, {});
  sequences_ = {cache_.add_sequence(), cache_.add_sequence()};
  expect_refused([](ForwardBatch&) {}, "the cache holds 4 heads");
}

TEST_F(ModelForwardErrorTest, LearnedPositionsBeyondTheirTableAreRefused) {
  loaded_ = make_loaded(random_model(small_gpt2_spec(), 76));
  cache_ = make_cache(*loaded_.model);
  sequences_ = {cache_.add_sequence(), cache_.add_sequence()};
  coords_ = coords_range(36, 41);
  expect_refused([](ForwardBatch&) {}, "position 40 is not in the table of 40");
}

}  // namespace
}  // namespace sightline
