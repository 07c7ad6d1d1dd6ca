// The engine on small random models: against the oracle by the error rule, and against itself to the bit.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "model/model_impl.h"
#include "model/model_runner.h"
#include "model/plain_model.h"

namespace sightline {
namespace {

using namespace testing;  // NOLINT: fixtures of this folder

reference::ModelInputs as_inputs(const Tokens& tokens, std::int64_t rope_length = 0) {
  reference::ModelInputs inputs;
  inputs.token_ids = tokens.ids;
  inputs.coords = tokens.coords;
  inputs.rope_pos = tokens.rope_pos;
  inputs.rope_length = rope_length;
  return inputs;
}

void expect_follows_oracle(const TestModel& model, const Tokens& tokens, std::span<const float> logits,
                           std::int64_t rope_length = 0) {
  const reference::ModelInputs inputs = as_inputs(tokens, rope_length);
  const auto oracle = reference::model_forward(model.spec, as_reference(model), inputs);
  ASSERT_TRUE(oracle) << oracle.error().message;
  const double allowed = allowed_error(oracle->logits, plain_logits(model, inputs));
  // A broken plain method would allow anything.
  ASSERT_LT(allowed, 1e-3);
  EXPECT_LE(largest_error(oracle->logits, logits), allowed);
}

struct Kind {
  const char* name;
  ModelSpec spec;
  std::int64_t rope_length = 0;
};

// One model of each way that a ModelSpec can differ.
std::vector<Kind> kinds() {
  std::vector<Kind> all;
  all.push_back({"llama", small_llama_spec()});
  all.push_back({"gpt2", small_gpt2_spec()});

  ModelSpec windows = small_llama_spec();
  windows.layers[0].attention.mask = *parse_mask("causal & window(7)");
  windows.layers[2].attention.mask = *parse_mask("causal & window(7)");
  windows.layers[1].attention.rope = RopeSpec{};
  windows.layers[2].attention.rope.theta = 50;
  all.push_back({"alternating windows, one layer without rotation", windows});

  ModelSpec partial = small_llama_spec();
  for (LayerSpec& layer : partial.layers) {
    layer.attention.heads = {6, 3, 10, 6};
    layer.attention.rope.rotary_dim = 4;
    layer.attention.rope.pairing = RopePairing::kInterleaved;
    layer.attention.score.softmax_scale = 0.4;
    layer.qkv_bias = layer.output_bias = layer.ffn.bias = true;
    layer.ffn.activation = Activation::kGeluErf;
  }
  all.push_back({"partial rotation of neighbours, other value width, biases", partial});

  ModelSpec parallel = small_llama_spec();
  parallel.norm = {NormKind::kLayer, 1e-5, false};
  parallel.residual = ResidualKind::kParallel;
  parallel.logit_scale = 0.25;
  parallel.tied_head = true;
  all.push_back({"parallel branches, layer norm without bias", parallel});

  ModelSpec after = small_llama_spec();
  after.norm_placement = NormPlacement::kAfter;
  for (LayerSpec& layer : after.layers) layer.qk_norm = QkNorm::kFullWidth;
  all.push_back({"norms after the branches, q and k normalised over the width", after});

  ModelSpec both = small_llama_spec();
  both.norm_placement = NormPlacement::kBoth;
  both.embedding_scale = std::sqrt(24.0);
  both.residual_scale = 0.7;
  both.final_logit_softcap = 3;
  for (LayerSpec& layer : both.layers) {
    layer.qk_norm = QkNorm::kPerHead;
    layer.ffn.activation = Activation::kGeluTanh;
  }
  all.push_back({"norms on both sides, q and k normalised per head, scales and a cap", both});

  ModelSpec dynamic = small_llama_spec();
  for (LayerSpec& layer : dynamic.layers) {
    layer.attention.rope.scaling.kind = RopeScalingKind::kDynamicNtk;
    layer.attention.rope.scaling.factor = 2;
    layer.attention.rope.scaling.original_context = 16;
  }
  all.push_back({"dynamic ntk set up for 64 tokens", dynamic, 64});

  ModelSpec relu = small_gpt2_spec();
  relu.tied_head = false;
  for (LayerSpec& layer : relu.layers) layer.ffn.activation = Activation::kRelu;
  all.push_back({"gpt2 with relu and its own head", relu});
  return all;
}

TEST(ModelTest, LogitsOfEveryKindFollowTheOracle) {
  std::uint64_t seed = 10;
  for (const Kind& kind : kinds()) {
    SCOPED_TRACE(kind.name);
    const TestModel model = random_model(kind.spec, ++seed);
    LoadedModel loaded = make_loaded(model);
    const Tokens tokens = random_tokens(kind.spec.vocab_size, 37, seed);
    RunOptions options;
    options.rope_length = kind.rope_length;
    expect_follows_oracle(model, tokens, run_tokens(*loaded.model, tokens, options), kind.rope_length);
  }
}

TEST(ModelTest, LayersFollowTheOracle) {
  const TestModel model = random_model(small_llama_spec(), 30);
  LoadedModel loaded = make_loaded(model);
  const Tokens tokens = random_tokens(50, 21, 30);
  const auto oracle = reference::model_forward(model.spec, as_reference(model), as_inputs(tokens));
  ASSERT_TRUE(oracle) << oracle.error().message;
  std::map<std::string, std::vector<float>> tapped;
  RunOptions options;
  options.tap = [&](std::string_view name, StridedView<const float, 2> rows) {
    std::vector<float>& out = tapped[std::string(name)];
    for (std::int64_t i = 0; i < rows.shape[0]; ++i) {
      for (std::int64_t j = 0; j < rows.shape[1]; ++j) out.push_back(rows(i, j));
    }
  };
  run_tokens(*loaded.model, tokens, options);
  // Activations are near 1; three layers of f32 keep five digits. The sharp bound is on the logits above.
  constexpr double kFiveDigits = 1e-5;
  for (std::size_t i = 0; i < model.spec.layers.size(); ++i) {
    const std::string prefix = fmt::format("layer.{}.", i);
    const auto& layer = oracle->layers[i];
    for (const auto& [name, ref] :
         {std::pair{"q", &layer.q}, std::pair{"k", &layer.k}, std::pair{"v", &layer.v},
          std::pair{"attention", &layer.attention}, std::pair{"output", &layer.output}}) {
      EXPECT_LT(largest_error(*ref, tapped[prefix + name]), kFiveDigits) << prefix << name;
    }
  }
  EXPECT_LT(largest_error(oracle->final_norm, tapped["final_norm"]), kFiveDigits);
}

TEST(ModelTest, WholeEqualsChunksEqualsTokenByTokenToTheBitOnAnyThreadsAndPages) {
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

TEST(ModelTest, LongPromptsAreEqualAcrossBlocksOfTheFeedForwardPart) {
  const TestModel model = random_model(small_llama_spec(), 60);
  LoadedModel loaded = make_loaded(model, 2);
  const Tokens tokens = random_tokens(50, 2 * kFfnRows + 5, 60);
  RunOptions options;
  options.chunk = 100;
  EXPECT_TRUE(same_bits(run_tokens(*loaded.model, tokens, options), run_tokens(*loaded.model, tokens)));
}

TEST(ModelTest, RowsOfAMixedBatchEqualTheRowAloneToTheBit) {
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

TEST(ModelTest, PaddedRowsEqualTheRowAloneToTheBit) {
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

TEST(ModelTest, FutureEditAlsoToNanLeavesEveryEarlierLogitUnchanged) {
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

TEST(ModelTest, PackedDocumentsAreAloneUnderSegmentAndMixUnderPlainCausal) {
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

TEST(ModelTest, ConstantShiftOfRotaryPositionsChangesNothingOfPureRopeAndChangesLearnedPositions) {
  for (const ModelSpec& spec : {small_llama_spec(), small_gpt2_spec()}) {
    const TestModel model = random_model(spec, 68);
    LoadedModel loaded = make_loaded(model);
    Tokens tokens = random_tokens(50, 25, 68);
    const std::vector<float> before = run_tokens(*loaded.model, tokens);
    const auto oracle = reference::model_forward(spec, as_reference(model), as_inputs(tokens));
    ASSERT_TRUE(oracle) << oracle.error().message;
    for (std::int64_t i = 0; i < 25; ++i) tokens.rope_pos.push_back(i + 15);
    const std::vector<float> after = run_tokens(*loaded.model, tokens);
    const double allowed = allowed_error(oracle->logits, plain_logits(model, as_inputs(tokens)));
    if (spec.num_learned_positions == 0) {
      EXPECT_LE(largest_error(oracle->logits, after), allowed);
    } else {
      EXPECT_GT(largest_error(oracle->logits, after), 0.1);
    }
  }
}

TEST(ModelTest, GroupedHeadsEqualCopiedHeadsToTheBit) {
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

TEST(ModelTest, OneModelFromGgufAndFromFolderGivesEqualBitsAndTheWrongRowOrderDoesNot) {
  TempFolder folder;
  const TestModel model = random_model(small_llama_spec(), 70);
  Entries metadata = llama_metadata(model.spec);
  // The file says its epsilon and theta as f32; the folder says the same numbers.
  ModelSpec spec = model.spec;
  spec.norm.epsilon = static_cast<float>(spec.norm.epsilon);
  write_llama_gguf(folder.file("m.gguf"), model, metadata);
  write_llama_hf(folder.file("hf"), model, llama_config(spec));
  const Tokens tokens = random_tokens(50, 30, 70);
  std::vector<float> gguf_logits;
  for (const char* name : {"m.gguf", "hf"}) {
    LoadedModel loaded = load_file(folder.file(name));
    const std::vector<float> logits = run_tokens(*loaded.model, tokens);
    expect_follows_oracle(model, tokens, logits);
    if (gguf_logits.empty()) gguf_logits = logits;
    EXPECT_TRUE(same_bits(logits, gguf_logits));
    LoadOptions wrong;
    wrong.rope_pairing = gguf_logits == logits && std::string(name) == "hf" ? RopePairing::kInterleaved
                                                                            : RopePairing::kHalfSplit;
    LoadedModel other = load_file(folder.file(name), 1, wrong);
    const std::vector<float> wrong_logits = run_tokens(*other.model, tokens);
    // Position 0 is not rotated, so a wrong order only adds in another order; it shows from the second token
    // on.
    for (std::size_t t = 0; t < 50; ++t) EXPECT_NEAR(wrong_logits[t], logits[t], 1e-5);
    float largest = 0;
    for (std::size_t i = 0; i < logits.size(); ++i)
      largest = std::max(largest, std::abs(logits[i] - wrong_logits[i]));
    EXPECT_GT(largest, 0.05) << name;
  }
}

TEST(ModelTest, Gpt2FolderFollowsTheOracle) {
  TempFolder folder;
  const TestModel model = random_model(small_gpt2_spec(), 71);
  write_gpt2_hf(folder.file("hf"), model, gpt2_config(model.spec), "transformer.");
  LoadedModel loaded = load_file(folder.file("hf"), 2);
  const Tokens tokens = random_tokens(50, 30, 71);
  expect_follows_oracle(model, tokens, run_tokens(*loaded.model, tokens));
}

TEST(ModelTest, InferenceLeavesTheHashOfTheWeightsUnchangedAndOneBitChangesIt) {
  TestModel model = random_model(small_llama_spec(), 72);
  LoadedModel loaded = make_loaded(model, 2);
  const std::uint64_t before = loaded.model->weights_hash();
  run_tokens(*loaded.model, random_tokens(50, 30, 72));
  EXPECT_EQ(loaded.model->weights_hash(), before);
  float& weight = model.tensors["layer.1.down.weight"].values[100];
  weight = std::nextafter(weight, 10.0F);
  EXPECT_NE(make_loaded(model).model->weights_hash(), before);
}

TEST(ModelTest, MemoryIsPackedWeightsAndTheStatedActivations) {
  const TestModel model = random_model(small_llama_spec(), 73);
  LoadedModel loaded = make_loaded(model);
  EXPECT_EQ(loaded.model->memory().weights, loaded.model->info().packed_weight_bytes);
  RunOptions options;
  options.chunk = 30;
  run_tokens(*loaded.model, random_tokens(50, 30, 73), options);
  EXPECT_EQ(loaded.model->memory().activations, activation_floats(model.spec, 30, 30) * 4);
  // Buffers are kept: a shorter call grows nothing.
  run_tokens(*loaded.model, random_tokens(50, 5, 74));
  EXPECT_EQ(loaded.model->memory().activations, activation_floats(model.spec, 30, 30) * 4);
}

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

TEST(ModelTest, SpecsOfTheCallerReplaceTheModelsOwn) {
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
