// The engine against itself, to the bit: any cut of a text, any batch, padding, threads and pages.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "model/activations.h"
#include "model/model_kinds.h"
#include "model/model_runner.h"

namespace sightline {
namespace {

using namespace testing;  // NOLINT: fixtures of this folder

TEST(ModelBitsTest, WholeEqualsChunksEqualsTokenByTokenToTheBitOnAnyThreadsAndPages) {
  std::uint64_t seed = 40;
  for (const Kind& kind : kinds()) {
    SCOPED_TRACE(kind.name);
    const TestModel model = random_model(kind.spec, ++seed);
    const Tokens tokens = random_tokens(kind.spec.vocab_size, 39, seed);
    RunOptions options;
    options.rope_length = kind.rope_length;
    LoadedModel one = make_loaded(model, 1);
    const std::vector<float> whole = run_tokens(*one.model, tokens, options);
    // Every count of threads on the first kind; two for the others.
    const bool is_first = seed == 41;
    for (const int threads : is_first ? std::vector{1, 2, 3} : std::vector{2}) {
      LoadedModel loaded = make_loaded(model, threads);
      for (const std::int64_t chunk : {0, 1, 3, 16}) {
        options.chunk = chunk;
        options.page_size = chunk == 3 ? 16 : 64;
        EXPECT_TRUE(same_bits(run_tokens(*loaded.model, tokens, options), whole))
            << "chunk " << chunk << ", threads " << threads;
      }
      options = {};
      options.rope_length = kind.rope_length;
    }
  }
}

TEST(ModelBitsTest, LongPromptsAreEqualAcrossBlocksOfTheFeedForwardPart) {
  const TestModel model = random_model(small_llama_spec(), 60);
  LoadedModel loaded = make_loaded(model, 2);
  const Tokens tokens = random_tokens(50, 2 * kFfnRows + 5, 60);
  RunOptions options;
  options.chunk = 100;
  EXPECT_TRUE(same_bits(run_tokens(*loaded.model, tokens, options), run_tokens(*loaded.model, tokens)));
}

TEST(ModelBitsTest, RowsOfAMixedBatchEqualTheRowAloneToTheBit) {
  for (const ModelSpec& spec : {small_llama_spec(), small_gpt2_spec()}) {
    const TestModel model = random_model(spec, 61);
    LoadedModel loaded = make_loaded(model, 2);
    std::vector<Tokens> sequences;
    for (const std::int64_t length : {1, 17, 2, 33, 9}) {
      sequences.push_back(random_tokens(spec.vocab_size, length, static_cast<std::uint64_t>(length)));
    }
    const auto together = run_batch(*loaded.model, sequences);
    for (std::size_t s = 0; s < sequences.size(); ++s) {
      EXPECT_TRUE(same_bits(together[s], run_tokens(*loaded.model, sequences[s]))) << s;
    }
  }
}

TEST(ModelBitsTest, PaddedRowsEqualTheRowAloneToTheBit) {
  for (const bool with_learned_positions : {false, true}) {
    const ModelSpec spec = with_learned_positions ? small_gpt2_spec() : small_llama_spec();
    const TestModel model = random_model(spec, 62);
    LoadedModel loaded = make_loaded(model, 2);
    // Past 128 keys, where the maximum moves: sums alone are the same after a turn of the lanes.
    const std::int64_t count = with_learned_positions ? 20 : 300;
    const Tokens alone = random_tokens(spec.vocab_size, count, 62);
    const std::vector<float> expected = run_tokens(*loaded.model, alone);
    constexpr std::int64_t kPads = 37;
    for (const bool left : {true, false}) {
      Tokens padded = alone;
      TokenCoord pad;
      pad.valid = false;
      pad.pos = 7;  // ignored
      const auto at = left ? 0 : static_cast<std::ptrdiff_t>(alone.ids.size());
      padded.ids.insert(padded.ids.begin() + at, kPads, 3);
      padded.coords.insert(padded.coords.begin() + at, kPads, pad);
      const auto rows = run_batch(*loaded.model, {padded, random_tokens(spec.vocab_size, 33, 63)});
      const std::int64_t begin = left ? kPads : 0;
      EXPECT_TRUE(same_bits(logit_rows(rows[0], spec.vocab_size, begin, begin + count), expected)) << left;
    }
  }
}

TEST(ModelBitsTest, FutureEditAlsoToNanLeavesEveryEarlierLogitUnchanged) {
  for (const ModelSpec& spec : {small_llama_spec(), small_gpt2_spec()}) {
    TestModel model = random_model(spec, 64);
    constexpr std::int32_t kNanToken = 49;
    const auto width = static_cast<std::size_t>(spec.model_dim);
    auto& table = model.tensors["embedding.weight"].values;
    const auto nan_row = static_cast<std::ptrdiff_t>(kNanToken * width);
    // An own head, so that the row of this token does not also make a NaN column of logits.
    if (model.spec.tied_head) {
      model.spec.tied_head = false;
      model.tensors["head.weight"] = model.tensors["embedding.weight"];
    }
    std::fill_n(table.begin() + nan_row, width, std::numeric_limits<float>::quiet_NaN());
    LoadedModel loaded = make_loaded(model, 2);
    const Tokens tokens = random_tokens(49, 32, 64);
    const std::vector<float> before = run_tokens(*loaded.model, tokens);
    for (const std::int64_t edited : {1, 16, 31}) {
      for (const std::int32_t id : {5, kNanToken}) {
        Tokens other = tokens;
        other.ids[static_cast<std::size_t>(edited)] = id;
        const std::vector<float> after = run_tokens(*loaded.model, other);
        EXPECT_TRUE(same_bits(logit_rows(before, 50, 0, edited), logit_rows(after, 50, 0, edited)))
            << edited << " to " << id;
        EXPECT_FALSE(
            same_bits(logit_rows(before, 50, edited, edited + 1), logit_rows(after, 50, edited, edited + 1)));
        if (id == kNanToken) {
          EXPECT_TRUE(std::isnan(after.back()));
        }
      }
    }
  }
}

TEST(ModelBitsTest, PackedDocumentsAreAloneUnderSegmentAndMixUnderPlainCausal) {
  // Token 0 plays the end of text. It isolates nothing: only the mask does.
  for (const bool with_segment : {true, false}) {
    ModelSpec spec = small_llama_spec();
    if (with_segment) {
      for (LayerSpec& layer : spec.layers) layer.attention.mask = *parse_mask("causal & segment");
    }
    const TestModel model = random_model(spec, 65);
    LoadedModel loaded = make_loaded(model, 2);
    Tokens first = random_tokens(50, 19, 66);
    first.ids.back() = 0;
    const Tokens second = random_tokens(50, 24, 67);
    Tokens packed = first;
    packed.ids.insert(packed.ids.end(), second.ids.begin(), second.ids.end());
    for (TokenCoord coord : second.coords) {
      packed.rope_pos.resize(packed.coords.size());
      coord.pos += 19;
      coord.segment_start = 19;
      coord.segment = 1;
      packed.coords.push_back(coord);
    }
    packed.rope_pos.clear();
    for (std::int64_t i = 0; i < 43; ++i) packed.rope_pos.push_back(i < 19 ? i : i - 19);
    const std::vector<float> together = run_tokens(*loaded.model, packed);
    EXPECT_TRUE(same_bits(logit_rows(together, 50, 0, 19), run_tokens(*loaded.model, first)));
    const bool second_is_alone =
        same_bits(logit_rows(together, 50, 19, 43), run_tokens(*loaded.model, second));
    EXPECT_EQ(second_is_alone, with_segment);
  }
}

TEST(ModelBitsTest, GroupedHeadsEqualCopiedHeadsToTheBit) {
  const TestModel grouped = random_model(small_llama_spec(), 69);
  TestModel copied = grouped;
  for (std::size_t i = 0; i < copied.spec.layers.size(); ++i) {
    copied.spec.layers[i].attention.heads.num_kv_heads = 4;
    for (const char* part : {"k", "v"}) {
      const TestTensor& from = grouped.tensors.at(fmt::format("layer.{}.{}.weight", i, part));
      TestTensor to{{32, 24}, {}};
      for (const int head : {0, 0, 1, 1}) {
        const auto begin = from.values.begin() + head * 8 * 24;
        to.values.insert(to.values.end(), begin, begin + 8 * 24);
      }
      copied.tensors[fmt::format("layer.{}.{}.weight", i, part)] = to;
    }
  }
  LoadedModel a = make_loaded(grouped);
  LoadedModel b = make_loaded(copied);
  const Tokens tokens = random_tokens(50, 40, 69);
  EXPECT_TRUE(same_bits(run_tokens(*a.model, tokens), run_tokens(*b.model, tokens)));
}

TEST(ModelBitsTest, SpecsOfTheCallerReplaceTheModelsOwn) {
  const TestModel model = random_model(small_llama_spec(), 77);
  LoadedModel loaded = make_loaded(model);
  const Tokens tokens = random_tokens(50, 30, 77);
  RunOptions planted;
  planted.specs = loaded.model->attention_specs();
  const std::vector<float> own = run_tokens(*loaded.model, tokens);
  EXPECT_TRUE(same_bits(run_tokens(*loaded.model, tokens, planted), own));
  for (AttentionSpec& spec : planted.specs) spec.mask = *parse_mask("causal & window(5)");
  const std::vector<float> windowed = run_tokens(*loaded.model, tokens, planted);
  EXPECT_TRUE(same_bits(logit_rows(windowed, 50, 0, 5), logit_rows(own, 50, 0, 5)));
  EXPECT_FALSE(same_bits(logit_rows(windowed, 50, 29, 30), logit_rows(own, 50, 29, 30)));
}

}  // namespace
}  // namespace sightline
