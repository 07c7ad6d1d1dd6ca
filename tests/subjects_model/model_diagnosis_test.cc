// Log-probabilities and hidden states of another program name what it does otherwise than the file says.
#include "sightline/subjects/model/model_diagnosis.h"

#include <gtest/gtest.h>

#include <fstream>

#include "model/model_runner.h"
#include "model/text_fixtures.h"
#include "sightline/faults/fault_table.h"
#include "sightline/formats/npy.h"
#include "sightline/generate/generate.h"
#include "sightline/model/model_text.h"
#include "sightline/subjects/model/layer_diagnosis.h"
#include "sightline/subjects/model/read_model_observations.h"

namespace sightline::subjects {
namespace {

using namespace testing;  // NOLINT: fixtures of tests/model
using checker::Report;
using checker::Verdict;

class ModelDiagnosisTest : public ::testing::Test {
 protected:
  ModelDiagnosisTest() : path_(folder_.file("m.gguf")) {
    write_text_model(path_, 90);
    loaded_ = load_file(path_, 2);
    text_.emplace(*load_model_text(path_));
  }

  // What a program with `fault` makes of two texts, in chunks of 5.
  std::vector<ModelObservation> observed(std::string_view fault_text, std::int64_t chunk = 5) {
    GenerateHooks hooks;
    if (!fault_text.empty()) {
      const Fault fault = parse_fault(fault_text).value();
      EXPECT_TRUE(runs_in_engine(*fault.kind)) << fault_text;
      if (fault.kind->on_spec != nullptr) {
        hooks.specs = loaded_.model->attention_specs();
        EXPECT_TRUE(plant(fault, std::span(hooks.specs)));
      }
      if (fault.kind->on_call != nullptr)
        hooks.change_call = [fault](CallCoords& call) { return plant(fault, call); };
    }
    std::vector<ModelObservation> all;
    for (const char* words :
         {"the quick brown fox, and more of it", "0123456789 abababab 987654321, and a longer one"}) {
      ModelObservation o;
      o.ids = text_->tokenizer.encode(words).value();
      o.chunk = chunk;
      const auto results =
          generate(*loaded_.model, text_->tokenizer, std::span(&o.ids, 1),
                   {.max_tokens = 0, .num_logprobs = 0, .echo = true, .chunk = chunk}, hooks);
      EXPECT_TRUE(results) << results.error().message;
      for (const TokenLogprob& entry : results->front().logprobs) {
        if (entry.logprob) o.logprobs.push_back(*entry.logprob);
      }
      all.push_back(std::move(o));
    }
    return all;
  }

  Report diagnosed(const std::vector<ModelObservation>& seen, const ModelDiagnosisOptions& options = {1e-4}) {
    return diagnose_model(*loaded_.model, text_->tokenizer, seen, options).value();
  }

  TempFolder folder_;
  std::string path_;
  LoadedModel loaded_;
  std::optional<ModelText> text_;
};

TEST_F(ModelDiagnosisTest, ARightProgramAgrees) {
  EXPECT_EQ(diagnosed(observed("")).verdict, Verdict::kAgrees);
  EXPECT_EQ(diagnosed(observed(""), {0.2}).verdict, Verdict::kRounding);
}

TEST_F(ModelDiagnosisTest, FaultsAreNamedWithTheirParameters) {
  for (const char* fault : {"mask.top_left_alignment", "mask.causal_dropped", "cache.position_offset",
                            "rope.pairing", "rope.base:theta=50000", "score.scale/factor:factor=0.5"}) {
    const Report report = diagnosed(observed(fault));
    ASSERT_EQ(report.verdict, Verdict::kFault) << fault << "\n" << to_text(report);
    const std::string_view slug =
        std::string_view(fault).substr(0, std::string_view(fault).find_first_of(":/"));
    EXPECT_EQ(report.faults.front().slug, slug);
    if (std::string_view(fault).starts_with("rope.base")) {
      EXPECT_NEAR(report.faults.front().parameters.front().value, 50000, 500) << to_text(report);
    }
    ASSERT_TRUE(report.first_difference);
    EXPECT_EQ(report.first_difference->tensor, "logprobs");
  }
}

// Faults of chunks change nothing of a text in one forward: one text excludes them, and one is not enough.
TEST_F(ModelDiagnosisTest, ATextThatWasNotRunExcludesNothing) {
  std::vector<ModelObservation> seen = observed("cache.position_offset");
  const Report both = diagnosed(seen);
  ASSERT_EQ(both.verdict, Verdict::kFault) << to_text(both);
  EXPECT_TRUE(both.faults.front().certain) << to_text(both);
  seen.back() = observed("").back();
  seen.back().chunk = 0;
  const Report one = diagnosed(seen);
  ASSERT_EQ(one.verdict, Verdict::kFault) << to_text(one);
  EXPECT_EQ(one.faults.front().slug, "cache.position_offset");
  EXPECT_FALSE(one.faults.front().certain) << to_text(one);
}

// Token by token, positions that restart are no rotation at all: only one forward of several tokens tells.
TEST_F(ModelDiagnosisTest, AnAmbiguousReportSaysWhichTextWouldTell) {
  std::vector<ModelObservation> seen = observed("cache.position_offset", 1);
  for (ModelObservation& o : seen) {
    o.ids.resize(6);
    o.logprobs.resize(5);
  }
  const Report report = diagnosed(seen);
  ASSERT_EQ(report.verdict, Verdict::kAmbiguous) << to_text(report);
  EXPECT_TRUE(report.next_probe.starts_with("a text of 64 tokens in one forward: there some log-probability"))
      << report.next_probe;
  // With it, one is left.
  std::vector<ModelObservation> whole = observed("cache.position_offset", 64);
  for (ModelObservation& o : whole) seen.push_back(std::move(o));
  const Report told = diagnosed(seen);
  ASSERT_EQ(told.verdict, Verdict::kFault) << to_text(told);
  EXPECT_EQ(told.faults.front().slug, "cache.position_offset");
}

TEST_F(ModelDiagnosisTest, PiecesThatWereNotToldAreAskedFor) {
  std::vector<ModelObservation> seen = observed("mask.top_left_alignment");
  for (ModelObservation& o : seen) o.chunk = 0;
  const Report report = diagnosed(seen);
  EXPECT_EQ(report.verdict, Verdict::kUnknown) << to_text(report);
  EXPECT_NE(report.next_probe.find("say --chunk 5"), std::string::npos) << report.next_probe;
}

// What the row after each token gives that token, of a program with the right base and with another.
TEST_F(ModelDiagnosisTest, NumbersThatStandOneRowLateAreReadSo) {
  for (const double theta : {0.0, 50000.0}) {
    std::vector<ModelObservation> seen = observed("");
    GenerateHooks hooks;
    hooks.specs = loaded_.model->attention_specs();
    for (AttentionSpec& spec : hooks.specs) spec.rope.theta = theta > 0 ? theta : spec.rope.theta;
    for (ModelObservation& o : seen) {
      o.is_late = true;
      o.chunk = 0;
      o.logprobs.clear();
      const auto length = static_cast<std::int64_t>(o.ids.size());
      for (std::int64_t t = 1; t < length;
           ++t) {  // each prompt ends with the token, and its last row is asked
        const std::vector<TokenId> begin(o.ids.begin(), o.ids.begin() + t + 1);
        const auto results =
            generate(*loaded_.model, text_->tokenizer, std::span(&begin, 1),
                     {.max_tokens = 1, .num_logprobs = loaded_.model->spec().vocab_size}, hooks);
        ASSERT_TRUE(results) << results.error().message;
        const TokenLogprob& last = results->front().logprobs.front();
        const auto own = std::ranges::find(last.top, begin.back(), &AlternativeLogprob::id);
        ASSERT_NE(own, last.top.end());
        o.logprobs.push_back(own->logprob);
      }
    }
    const Report report = diagnosed(seen);
    EXPECT_EQ(report.verdict, theta > 0 ? Verdict::kFault : Verdict::kConvention) << to_text(report);
    if (theta > 0) {
      EXPECT_EQ(report.faults.front().slug, "rope.base");
    }
    EXPECT_NE(to_text(report).find("one row late"), std::string::npos) << to_text(report);
    for (ModelObservation& o : seen) o.is_late = false;
    if (theta == 0) {
      EXPECT_EQ(diagnosed(seen).verdict, Verdict::kUnknown);
    }
  }
}

TEST_F(ModelDiagnosisTest, AStopEndsItBeforeTheNextRun) {
  int num_asked = 0;
  const auto report = diagnose_model(*loaded_.model, text_->tokenizer, observed("rope.pairing"),
                                     {.tolerance = 1e-4, .stop = [&] { return ++num_asked > 3; }});
  ASSERT_FALSE(report);
  EXPECT_EQ(report.error().kind, ErrorKind::kTryLater);
  EXPECT_EQ(num_asked, 4);
}

TEST_F(ModelDiagnosisTest, WhatNoFaultExplainsIsUnknown) {
  std::vector<ModelObservation> seen = observed("");
  for (ModelObservation& o : seen) o.logprobs[3] -= 1.0;
  const Report report = diagnosed(seen);
  EXPECT_EQ(report.verdict, Verdict::kUnknown) << to_text(report);
  EXPECT_TRUE(report.faults.empty());
  EXPECT_EQ(report.first_difference->index, (std::vector<std::int64_t>{4}));
}

TEST_F(ModelDiagnosisTest, TheFirstLayerThatDiffersIsFound) {
  ModelObservation o;
  o.ids = text_->tokenizer.encode("layers").value();
  const auto length = static_cast<std::int64_t>(o.ids.size());
  const Tokens tokens = tokens_of(o.ids);
  std::map<std::int64_t, std::vector<double>> states;
  KvCache cache = make_cache(*loaded_.model, {.context = length}).value();
  const std::vector<SequenceId> sequences{cache.add_sequence()};
  const std::vector<std::int64_t> offsets{0, length}, last{length - 1};
  const std::vector<TokenCoord> coords = coords_range(0, length);
  ForwardBatch batch;
  batch.sequences = sequences;
  batch.offsets = offsets;
  batch.token_ids = o.ids;
  batch.q_coords = coords;
  batch.logit_rows = last;
  std::vector<float> logits(kByteVocabularySize);
  ASSERT_TRUE(loaded_.model->forward(batch, cache,
                                     dense_view<float, 2>(logits.data(), {1, kByteVocabularySize}), {},
                                     [&](std::string_view name, StridedView<const float, 2> rows) {
                                       for (std::int64_t layer = 0; layer < 3; ++layer) {
                                         if (name != fmt::format("layer.{}.output", layer)) continue;
                                         for (std::int64_t i = 0; i < rows.shape[0]; ++i) {
                                           for (std::int64_t j = 0; j < rows.shape[1]; ++j)
                                             states[layer].push_back(rows(i, j));
                                         }
                                       }
                                     }));
  ASSERT_EQ(states.size(), 3U);
  for (const auto& [layer, rows] : states) o.tensors.push_back({layer, rows});
  EXPECT_EQ(diagnosed({o}).verdict, Verdict::kAgrees);
  for (double& x : o.tensors[1].rows) x *= 1.1;
  for (double& x : o.tensors[2].rows) x *= 1.2;
  const Report report = diagnosed({o});
  ASSERT_EQ(report.verdict, Verdict::kFault) << to_text(report);
  EXPECT_EQ(report.faults.front().slug, "tensor.scaled");
  EXPECT_EQ(report.faults.front().what, "layer.1.output is ours times 1.1");
  EXPECT_FALSE(report.faults.front().certain);  // one text
  ASSERT_TRUE(report.first_difference);
  EXPECT_EQ(report.first_difference->tensor, "layer.1.output");
  o.tensors[1].rows[5] += 1;
  EXPECT_EQ(diagnosed({o}).verdict, Verdict::kUnknown);
}

TEST_F(ModelDiagnosisTest, RefusesWhatDoesNotFit) {
  const auto refused = [&](const ModelObservation& o) {
    return !diagnose_model(*loaded_.model, text_->tokenizer, std::span(&o, 1)).has_value();
  };
  EXPECT_TRUE(refused({}));
  EXPECT_TRUE(refused({.ids = {1, 2}, .logprobs = {-1, -2}}));
  EXPECT_TRUE(refused({.ids = {1, 99999}, .logprobs = {-1}}));
  EXPECT_TRUE(refused({.ids = {1, 2}, .logprobs = {}}));
  EXPECT_TRUE(refused({.ids = {1, 2}, .tensors = {{7, std::vector<double>(48)}}}));
  EXPECT_TRUE(refused({.ids = {1, 2}, .tensors = {{0, std::vector<double>(47)}}}));
  EXPECT_FALSE(diagnose_model(*loaded_.model, text_->tokenizer, {}).has_value());
}

TEST_F(ModelDiagnosisTest, FilesAreRead) {
  const std::string json = folder_.file("a.json");
  std::ofstream(json)
      << R"([{"prompt_ids": [5, 6], "ids": [7], "logprobs": [{"id": 5, "logprob": null}, {"logprob": -1.5}, -2]}])";
  const auto read = read_model_observations(json);
  ASSERT_TRUE(read) << read.error().message;
  EXPECT_EQ(read->front().ids, (std::vector<TokenId>{5, 6, 7}));
  EXPECT_EQ(read->front().logprobs, (std::vector<double>{-1.5, -2}));
  const std::string npz = folder_.file("a.npz");
  const std::vector<float> ids{0, 1, 2, 1};
  const std::vector<float> logits{0, 0, 0, 1, 2, 3, 0, 0, 0, 0, 0, 0};
  ASSERT_TRUE(write_npz(npz,
                        {{"input_ids", npy_array(std::span<const float>(ids), {2, 2}).value()},
                         {"logits", npy_array(std::span<const float>(logits), {2, 2, 3}).value()}},
                        true));
  const auto dump = read_model_observations(npz);
  ASSERT_TRUE(dump) << dump.error().message;
  ASSERT_EQ(dump->size(), 2U);
  EXPECT_NEAR((*dump)[0].logprobs[0], -std::log(3.0), 1e-12);
  EXPECT_NEAR((*dump)[1].logprobs[0], -std::log(3.0), 1e-12);
  const std::vector<float> heads(12), states(8);
  ASSERT_TRUE(write_npz(npz,
                        {{"input_ids", npy_array(std::span<const float>(ids), {2, 2}).value()},
                         {"theirs", npy_array(std::span<const float>(heads), {2, 3, 2, 1}).value()},
                         {"hidden.1", npy_array(std::span<const float>(states), {2, 2, 2}).value()}},
                        true));
  const std::vector<std::pair<std::string, std::string>> names{{"layer.0.q", "theirs"}};
  const auto tensors = read_model_observations(npz, names);
  ASSERT_TRUE(tensors) << tensors.error().message;
  const std::vector<LayerTensor>& first = tensors->front().tensors;
  ASSERT_EQ(first.size(), 2U);
  const LayerTensor& q = first[first[0].tensor == "q" ? 0 : 1];
  EXPECT_EQ(q.layer, 0);
  EXPECT_EQ(q.shape, (std::vector<std::int64_t>{3, 2, 1}));
  EXPECT_EQ(q.rows.size(), 6U);
  const std::vector<std::pair<std::string, std::string>> absent{{"layer.0.q", "nobody"}};
  EXPECT_FALSE(read_model_observations(npz, absent));
  const std::vector<std::pair<std::string, std::string>> wrong{{"layer.zero.q", "theirs"}};
  EXPECT_FALSE(read_model_observations(npz, wrong));
  for (const char* bad : {"{}", "[]x", R"({"ids": [1.5], "logprobs": [0]})",
                          R"({"ids": [1, 2], "logprobs": ["a"]})", R"({"ids": 3, "logprobs": []})"}) {
    std::ofstream(json) << bad;
    const auto refused = read_model_observations(json);
    ASSERT_FALSE(refused) << bad;
    EXPECT_EQ(refused.error().kind, ErrorKind::kInvalidContent) << bad;
  }
}

TEST_F(ModelDiagnosisTest, ArraysWithoutATextOrAnAxisAreRefused) {
  const std::string npz = folder_.file("odd.npz");
  const std::vector<float> five{1, 2, 1, 2, 1}, one{0}, none;
  struct Odd {
    const std::vector<float>& ids;
    std::vector<std::int64_t> ids_shape;
    const char* name;
    const std::vector<float>& values;
    std::vector<std::int64_t> shape;
  };
  const Odd cases[] = {{none, {0, 5}, "logprobs", none, {0, 4}},
                       {none, {0, 5}, "layer.0.q", none, {0, 5, 64}},
                       {five, {5}, "logits", one, {}},
                       {five, {5}, "logprobs", one, {}},
                       {five, {5}, "logits", five, {5}},
                       {none, {0}, "layer.0.q", none, {0, 2, 4}},
                       {five, {1, 5}, "layer.0.q", none, {0, 5, 4}}};
  for (const Odd& odd : cases) {
    ASSERT_TRUE(write_npz(npz,
                          {{"input_ids", npy_array(std::span<const float>(odd.ids), odd.ids_shape).value()},
                           {odd.name, npy_array(std::span<const float>(odd.values), odd.shape).value()}},
                          true));
    const auto read = read_model_observations(npz);
    if (!read) {
      EXPECT_EQ(read.error().kind, ErrorKind::kInvalidContent) << odd.name;
      continue;
    }
    EXPECT_FALSE(diagnose_layers(*loaded_.model, *read, 1e-3)) << odd.name;
  }
}

}  // namespace
}  // namespace sightline::subjects
