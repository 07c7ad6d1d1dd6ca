// A dump in which one tensor of one layer is scaled, moved, shifted or put into another order: layer, tensor
// and change are named. The dumps are the oracle's, or another program's published ones.
#include "sightline/subjects/model/layer_diagnosis.h"

#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <cstdlib>
#include <sstream>

#include "model/model_kinds.h"
#include "model/model_runner.h"
#include "model/nano_sort_folder.h"
#include "model/plain_model.h"
#include "subjects_model/changed_tensor.h"

namespace sightline::subjects {
namespace {

using namespace testing;  // NOLINT: fixtures of tests/model
using checker::Report;
using checker::Verdict;

constexpr double kTolerance = 2e-3;

// SIGHTLINE_LAYER_SEEDS="first count" draws other changes than the usual ones.
std::pair<std::uint64_t, int> seeds(int usual) {
  const char* text = std::getenv("SIGHTLINE_LAYER_SEEDS");
  if (text == nullptr) return {1, usual};
  char* end = nullptr;
  const std::uint64_t first = std::strtoull(text, &end, 10);
  return {first, static_cast<int>(std::strtol(end, nullptr, 10))};
}

std::size_t at(std::int64_t i) { return static_cast<std::size_t>(i); }

// Heads and width of a tensor.
std::pair<std::int64_t, std::int64_t> sizes(const ModelSpec& spec, const LayerTensor& tensor) {
  const HeadSpec& heads = spec.layers[at(tensor.layer)].attention.heads;
  if (tensor.tensor == "q") return {heads.num_q_heads, heads.qk_head_dim};
  if (tensor.tensor == "k") return {heads.num_kv_heads, heads.qk_head_dim};
  if (tensor.tensor == "v") return {heads.num_kv_heads, heads.v_head_dim};
  if (tensor.tensor == "attention") return {heads.num_q_heads, heads.v_head_dim};
  return {1, spec.model_dim};
}

double parameter(const checker::NamedFault& fault, const std::string& name) {
  for (const checker::MeasuredParameter& p : fault.parameters) {
    if (p.name == name) return p.value;
  }
  return std::nan("");
}

// `before`: rows [sizes[0], sizes[1] * sizes[2]] of one text as they were.
void expect_named(const Report& report, const LayerTensor& tensor, const PlantedChange& change,
                  const std::vector<double>& before, const std::array<std::int64_t, 3>& sizes) {
  const std::string name = fmt::format("layer.{}.{}", tensor.layer, tensor.tensor);
  const std::string planted =
      fmt::format("{} {} {} {}", name, change.slug, change.variant, change.value) + "\n" + to_text(report);
  ASSERT_EQ(report.verdict, Verdict::kFault) << planted;
  ASSERT_EQ(report.faults.size(), 1U) << planted;
  const checker::NamedFault& fault = report.faults.front();
  EXPECT_EQ(fault.slug, change.slug) << planted;
  EXPECT_EQ(fault.variant, change.variant) << planted;
  EXPECT_EQ(fault.what.rfind(name + " is ", 0), 0U) << planted;
  EXPECT_EQ(parameter(fault, "layer"), static_cast<double>(tensor.layer)) << planted;
  if (!change.parameter.empty()) {
    EXPECT_NEAR(parameter(fault, change.parameter), change.value, 2e-3 * std::abs(change.value) + 1e-9)
        << planted;
  } else {
    // Equal rows (one token at two places) may be taken in another order than the planted one.
    PlantedChange named = change;
    std::istringstream numbers(fault.what.substr(fault.what.find("in the order ") + 13));
    for (std::int64_t& place : named.order) numbers >> place;
    const auto apply = [&](const PlantedChange& one) {
      return changed(before, one, sizes[0], sizes[1], sizes[2]);
    };
    const std::vector<double> want = apply(change), got = apply(named);
    double largest = 0;
    for (std::size_t i = 0; i < want.size(); ++i) {
      if (want[i] != got[i]) largest = std::max(largest, std::abs(want[i] - got[i]));
    }
    EXPECT_LT(largest, 1e-6) << planted;
  }
  ASSERT_TRUE(report.first_difference);
  EXPECT_EQ(report.first_difference->tensor, name);
}

std::vector<ModelObservation> dump_of_the_oracle(const TestModel& model,
                                                 const reference::ModelWeights& weights, std::uint64_t seed,
                                                 std::int64_t length) {
  std::vector<ModelObservation> texts;
  for (std::uint64_t t = 0; t < 2; ++t) {
    const Tokens tokens = random_tokens(model.spec.vocab_size, length, 2 * seed + t);
    const auto run = reference::model_forward(model.spec, weights, as_inputs(tokens));
    EXPECT_TRUE(run) << run.error().message;
    ModelObservation& text = texts.emplace_back();
    text.ids = tokens.ids;
    for (std::size_t layer = 0; layer < run->layers.size(); ++layer) {
      const reference::LayerActivations& a = run->layers[layer];
      const auto index = static_cast<std::int64_t>(layer);
      for (const auto& [name, rows] : {std::pair{"q", &a.q},
                                       {"k", &a.k},
                                       {"v", &a.v},
                                       {"attention", &a.attention},
                                       {"output", &a.output}}) {
        text.tensors.push_back({index, *rows, name, {}});
      }
    }
  }
  return texts;
}

std::vector<Kind> small_kinds() {
  std::vector<Kind> some = kinds();
  std::erase_if(some, [](const Kind& kind) { return kind.rope_length != 0; });
  return some;
}

TEST(LayerDiagnosisTest, RightDumpsAgreeForEveryKindOfModel) {
  std::uint64_t seed = 70;
  for (const Kind& kind : small_kinds()) {
    const TestModel model = random_model(kind.spec, ++seed);
    LoadedModel loaded = make_loaded(model);
    const auto texts = dump_of_the_oracle(model, as_reference(model), seed, 9);
    const Report report = diagnose_layers(*loaded.model, texts, kTolerance).value();
    EXPECT_EQ(report.verdict, Verdict::kAgrees) << kind.name << "\n" << to_text(report);
  }
}

// The tensor alone is changed, as where a dump was written wrongly.
TEST(LayerDiagnosisTest, OneChangedTensorIsNamedWithItsParameter) {
  const auto [first, count] = seeds(60);
  const std::vector<Kind> all = small_kinds();
  for (std::uint64_t seed = first; seed < first + static_cast<std::uint64_t>(count); ++seed) {
    Rng rng(seed);
    const Kind& kind = all[rng.next_below(all.size())];
    const TestModel model = random_model(kind.spec, seed);
    LoadedModel loaded = make_loaded(model);
    auto texts = dump_of_the_oracle(model, as_reference(model), seed,
                                    7 + static_cast<std::int64_t>(rng.next_below(5)));
    const std::size_t which = rng.next_below(texts.front().tensors.size());
    const LayerTensor tensor = texts.front().tensors[which];
    const auto [heads, dim] = sizes(model.spec, tensor);
    const std::int64_t length = std::ssize(texts.front().ids);
    const PlantedChange change = draw_change(length, heads, dim, rng);
    for (ModelObservation& text : texts) {
      std::vector<double>& rows = text.tensors[which].rows;
      rows = changed(rows, change, length, heads, dim);
    }
    SCOPED_TRACE(fmt::format("seed {}, {}", seed, kind.name));
    const Report report = diagnose_layers(*loaded.model, texts, kTolerance).value();
    expect_named(report, tensor, change, tensor.rows, {length, heads, dim});
    EXPECT_TRUE(report.faults.empty() || report.faults.front().certain) << to_text(report);
  }
}

// A run whose weights are wrong in one layer: whatever follows differs too.
TEST(LayerDiagnosisTest, AChangeThatRunsOnIsNamedWhereItBegins) {
  const auto [first, count] = seeds(30);
  for (std::uint64_t seed = first; seed < first + static_cast<std::uint64_t>(count); ++seed) {
    Rng rng(seed + 1000);
    const TestModel model = random_model(small_llama_spec(), seed);
    LoadedModel loaded = make_loaded(model);
    reference::ModelWeights weights = as_reference(model);
    const std::size_t layer = rng.next_below(weights.layers.size());
    reference::LinearWeights* const parts[] = {&weights.layers[layer].q, &weights.layers[layer].k,
                                               &weights.layers[layer].v};
    const std::uint64_t which = rng.next_below(3);
    const LayerTensor tensor{static_cast<std::int64_t>(layer), {}, std::string(1, "qkv"[which]), {}};
    const auto [heads, dim] = sizes(model.spec, tensor);
    const std::int64_t width = model.spec.model_dim;
    PlantedChange change{"tensor.scaled", "", "factor", 0.5 + 2 * rng.next_uniform(), {}};
    if (rng.next_below(2) == 0) change = {"tensor.permuted", "heads", "", 0, random_order(heads, rng)};
    // Rows of the weight are the tensor's columns: heads of dim * width numbers.
    parts[which]->weight = changed(parts[which]->weight, change, 1, heads, dim * width);
    const auto texts = dump_of_the_oracle(model, weights, seed, 9);
    SCOPED_TRACE(fmt::format("seed {}", seed));
    const Report report = diagnose_layers(*loaded.model, texts, kTolerance).value();
    expect_named(report, tensor, change, std::vector<double>(at(heads * dim)), {1, heads, dim});
  }
}

// q, k and v are ours and the result is not: the oracle names what attention did.
TEST(LayerDiagnosisTest, AFaultOfAttentionInOneLayerIsNamed) {
  const TestModel model = random_model(small_llama_spec(), 5);
  LoadedModel loaded = make_loaded(model);
  TestModel faulty = model;
  faulty.spec.layers[1].attention.score.softmax_scale = 0.7;
  const auto texts = dump_of_the_oracle(faulty, as_reference(model), 5, 12);
  const Report report = diagnose_layers(*loaded.model, texts, kTolerance).value();
  ASSERT_EQ(report.verdict, Verdict::kFault) << to_text(report);
  EXPECT_EQ(report.faults.front().slug, "score.scale");
  EXPECT_EQ(parameter(report.faults.front(), "layer"), 1.0);
  EXPECT_NEAR(parameter(report.faults.front(), "factor"), 0.7 * std::sqrt(8.0), 1e-3) << to_text(report);
}

TEST(LayerDiagnosisTest, WhatNoChangeExplainsIsUnknownWithLayerAndTensor) {
  const TestModel model = random_model(small_llama_spec(), 6);
  LoadedModel loaded = make_loaded(model);
  auto texts = dump_of_the_oracle(model, as_reference(model), 6, 9);
  Rng rng(1);
  for (ModelObservation& text : texts) {
    for (double& x : text.tensors[7].rows) x += rng.next_normal();  // layer 1, v
  }
  const Report report = diagnose_layers(*loaded.model, texts, kTolerance).value();
  EXPECT_EQ(report.verdict, Verdict::kUnknown);
  EXPECT_NE(report.summary.find("layer.1.v"), std::string::npos) << report.summary;
  texts[0].tensors[0].tensor = "gate";
  EXPECT_FALSE(diagnose_layers(*loaded.model, texts, kTolerance));
}

class NanoSortLayersTest : public ::testing::Test {
 protected:
  void SetUp() override {
    const auto files = open_nano_sort();
    if (!files) GTEST_SKIP() << "SIGHTLINE_TEST_DATA: nano-sort/model.json or partials.json is not there";
    write_nano_sort_hf(folder_.file("hf"), *files);
    loaded_ = load_file(folder_.file("hf"));
    const auto ids = nano_sort_tensor(*files->partials.find("idx")).values;
    for (std::int64_t b = 0; b < NanoSort::kBatch; ++b) {
      ModelObservation& text = texts_.emplace_back();
      for (std::int64_t i = 0; i < NanoSort::kLength; ++i)
        text.ids.push_back(static_cast<TokenId>(ids[at(b * NanoSort::kLength + i)]));
      for (const auto& [theirs, ours] : {std::pair{"q", "q"},
                                         {"k", "k"},
                                         {"v", "v"},
                                         {"att", "scores"},
                                         {"attSm", "weights"},
                                         {"y", "attention"}}) {
        add(files->partials, theirs, ours, 0, b);
      }
      for (const char* layer : {"0", "1", "2"})
        add(files->partials, std::string("block") + layer, "output", std::atoi(layer), b);
    }
  }

  void add(const Json& partials, const std::string& theirs, const std::string& ours, std::int64_t layer,
           std::int64_t b) {
    const Json* found = partials.find(theirs);
    if (found == nullptr) return;
    TestTensor tensor = nano_sort_tensor(*found);
    const auto size = static_cast<std::int64_t>(tensor.values.size()) / NanoSort::kBatch;
    LayerTensor one{layer,
                    {tensor.values.begin() + b * size, tensor.values.begin() + (b + 1) * size},
                    ours,
                    {tensor.shape.begin() + 1, tensor.shape.end()}};
    texts_[at(b)].tensors.push_back(std::move(one));
  }

  TempFolder folder_;
  LoadedModel loaded_;
  std::vector<ModelObservation> texts_;
};

TEST_F(NanoSortLayersTest, ThePublishedTensorsAgree) {
  ASSERT_EQ(texts_.front().tensors.size(), 9U);
  const Report report = diagnose_layers(*loaded_.model, texts_, kTolerance).value();
  EXPECT_EQ(report.verdict, Verdict::kAgrees) << to_text(report);
}

TEST_F(NanoSortLayersTest, OneChangedTensorIsNamedWithItsParameter) {
  const auto [first, count] = seeds(40);
  for (std::uint64_t seed = first; seed < first + static_cast<std::uint64_t>(count); ++seed) {
    Rng rng(seed + 2000);
    std::vector<ModelObservation> texts = texts_;
    std::vector<double> before = texts.front().tensors.front().rows;
    const std::size_t which = rng.next_below(texts.front().tensors.size());
    const LayerTensor tensor = texts.front().tensors[which];
    const bool has_heads = tensor.shape.size() == 3;
    // Published as [heads, tokens, dim]: rows of a change run over tokens, so it is planted on the other
    // order.
    const std::int64_t heads = has_heads                      ? tensor.shape[0]
                               : tensor.tensor == "attention" ? NanoSort::kHeads
                                                              : 1;
    const std::int64_t length = NanoSort::kLength;
    const std::int64_t dim = std::ssize(tensor.rows) / (heads * length);
    const PlantedChange change = draw_change(length, heads, dim, rng);
    for (ModelObservation& text : texts) {
      std::vector<double>& rows = text.tensors[which].rows;
      if (!has_heads) {
        if (&text == &texts.front()) before = rows;
        rows = changed(rows, change, length, heads, dim);
        continue;
      }
      std::vector<double> by_token(rows.size());
      const auto place = [&](std::int64_t h, std::int64_t i, std::int64_t c) {
        return at((i * heads + h) * dim + c);
      };
      const auto published = [&](std::int64_t h, std::int64_t i, std::int64_t c) {
        return at((h * length + i) * dim + c);
      };
      for (std::int64_t h = 0; h < heads; ++h)
        for (std::int64_t i = 0; i < length; ++i)
          for (std::int64_t c = 0; c < dim; ++c) by_token[place(h, i, c)] = rows[published(h, i, c)];
      if (&text == &texts.front()) before = by_token;
      by_token = changed(by_token, change, length, heads, dim);
      for (std::int64_t h = 0; h < heads; ++h)
        for (std::int64_t i = 0; i < length; ++i)
          for (std::int64_t c = 0; c < dim; ++c) rows[published(h, i, c)] = by_token[place(h, i, c)];
    }
    SCOPED_TRACE(fmt::format("seed {}", seed));
    expect_named(diagnose_layers(*loaded_.model, texts, kTolerance).value(), tensor, change, before,
                 {length, heads, dim});
  }
}

}  // namespace
}  // namespace sightline::subjects
