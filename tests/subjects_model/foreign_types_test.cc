// A program that computes in other types than ours: what its rounding explains is no fault, and a fault is
// named through it.
#include "sightline/subjects/model/foreign_types.h"

#include <gtest/gtest.h>

#include <cmath>

#include "model/model_runner.h"
#include "model/text_fixtures.h"
#include "sightline/base/half.h"
#include "sightline/generate/generate.h"
#include "sightline/model/model_text.h"
#include "sightline/subjects/model/model_diagnosis.h"
#include "subjects/model/dithered_rows.h"

namespace sightline::subjects {
namespace {

using namespace testing;  // NOLINT: fixtures of tests/model
using checker::Report;
using checker::Verdict;

TEST(ForeignTypesTest, AreReadAndTakenFromTheFile) {
  const std::vector<ModelInfo::TypeCount> mixed = {{"F32", 3, 0}, {"Q4_1", 9, 0}}, k = {{"Q4_K", 1, 0}};
  EXPECT_EQ(parse_foreign_types("q8/f16", {}).value(), (ForeignTypes{RowType::kQ8, RowType::kF16}));
  EXPECT_EQ(parse_foreign_types("bf16", {}).value(), (ForeignTypes{RowType::kBf16, RowType::kF32}));
  EXPECT_EQ(to_string(parse_foreign_types("llama.cpp", mixed).value()), "q8/f16");
  EXPECT_EQ(to_string(parse_foreign_types("llama.cpp", k).value()), "q8_k/f16");
  EXPECT_EQ(to_string(parse_foreign_types("llama.cpp", {}).value()), "f32/f16");
  for (const char* bad : {"", "q8/", "/f16", "f8", "q8/f16/f16", "llama"})
    EXPECT_FALSE(parse_foreign_types(bad, mixed)) << bad;
}

// The step of each type at numbers below 2 whose largest in a block is 127 / 64.
TEST(DitheredRowsTest, ErrorsAreUniformWithinHalfAStep) {
  struct Row {
    RowType type;
    double step;
  };
  for (const Row& row : {Row{RowType::kQ8, 1.0 / 64}, Row{RowType::kQ8K, 1.0 / 64},
                         Row{RowType::kF16, std::exp2(-10)}, Row{RowType::kBf16, std::exp2(-7)}}) {
    constexpr std::int64_t kRows = 64, kWidth = 256;
    std::vector<float> x(kRows * kWidth, 1.5F);
    for (std::size_t i = 0; i < x.size(); i += 32) x[i] = 127.0F / 64;
    const std::vector<float> before = x;
    dither_rows(row.type, 7, dense_view<float, 2>(x.data(), {kRows, kWidth}));
    double sum = 0, square = 0;
    for (std::size_t i = 0; i < x.size(); ++i) {
      const double error = (x[i] - before[i]) / row.step;
      ASSERT_LE(std::abs(error), 0.5001) << to_string(row.type);
      sum += error;
      square += error * error;
    }
    const auto count = static_cast<double>(x.size());
    EXPECT_NEAR(sum / count, 0, 0.01) << to_string(row.type);
    EXPECT_NEAR(square / count, 1.0 / 12, 0.002) << to_string(row.type);
  }
}

class ForeignProgramTest : public ::testing::Test {
 protected:
  ForeignProgramTest() : path_(folder_.file("m.gguf")) {
    write_text_model(path_, 91);
    loaded_ = load_file(path_, 2);
    text_.emplace(*load_model_text(path_));
  }

  // Rounds to nearest, as programs do, with no code of the dither.
  static void to_q8(StridedView<float, 2> rows) {
    for (std::int64_t i = 0; i < rows.shape[0]; ++i) {
      float* const row = rows.data + i * rows.strides[0];
      for (std::int64_t begin = 0; begin < rows.shape[1]; begin += 32) {
        const std::int64_t end = std::min(begin + 32, rows.shape[1]);
        float largest = 0;
        for (std::int64_t j = begin; j < end; ++j) largest = std::max(largest, std::abs(row[j]));
        const float step = largest / 127;
        for (std::int64_t j = begin; j < end; ++j) row[j] = step * std::nearbyint(row[j] / step);
      }
    }
  }
  static void round_as_llama_cpp(std::string_view name, StridedView<float, 2> rows) {
    if (!name.ends_with(".q") && !name.ends_with(".k") && !name.ends_with(".v")) return to_q8(rows);
    for (std::int64_t i = 0; i < rows.shape[0]; ++i) {
      for (std::int64_t j = 0; j < rows.shape[1]; ++j) rows(i, j) = to_f32(to_f16(rows(i, j)));
    }
  }

  std::vector<ModelObservation> observed(void (*change)(AttentionSpec&), bool rounds,
                                         const RowChange& first = {}) {
    GenerateHooks hooks;
    hooks.specs = loaded_.model->attention_specs();
    if (change != nullptr) {
      for (AttentionSpec& spec : hooks.specs) change(spec);
    }
    hooks.change_rows = [=](std::string_view name, StridedView<float, 2> rows) {
      if (first) first(name, rows);
      if (rounds) round_as_llama_cpp(name, rows);
    };
    std::vector<ModelObservation> all;
    for (const char* words : {"the quick brown fox, and more of it", "0123456789 abababab 987654321, longer",
                              "a third text of other words than the two above"}) {
      ModelObservation o;
      o.ids = text_->tokenizer.encode(words).value();
      const auto results = generate(*loaded_.model, text_->tokenizer, std::span(&o.ids, 1),
                                    {.max_tokens = 0, .num_logprobs = 0, .echo = true}, hooks);
      EXPECT_TRUE(results) << results.error().message;
      for (const TokenLogprob& entry : results->front().logprobs) {
        if (entry.logprob) o.logprobs.push_back(*entry.logprob);
      }
      all.push_back(std::move(o));
    }
    return all;
  }

  Report diagnosed(const std::vector<ModelObservation>& seen, std::string_view types) {
    ModelDiagnosisOptions options{.tolerance = 1e-4};
    if (!types.empty()) options.types = parse_foreign_types(types, {}).value();
    return diagnose_model(*loaded_.model, text_->tokenizer, seen, options).value();
  }

  void expect_named(const Report& report, std::string_view slug, std::string_view variant) {
    ASSERT_EQ(report.verdict, Verdict::kFault) << to_text(report);
    EXPECT_EQ(report.faults.front().slug, slug) << to_text(report);
    EXPECT_EQ(report.faults.front().variant, variant) << to_text(report);
  }

  TempFolder folder_;
  std::string path_;
  LoadedModel loaded_;
  std::optional<ModelText> text_;
};

TEST_F(ForeignProgramTest, RoundingIsNoFaultWithinItsTypesAndNoneIsNamedWithoutThem) {
  const auto seen = observed(nullptr, true);
  EXPECT_EQ(diagnosed(seen, "q8/f16").verdict, Verdict::kRounding);
  EXPECT_EQ(diagnosed(seen, "").verdict, Verdict::kUnknown);
  EXPECT_EQ(diagnosed(observed(nullptr, false), "q8/f16").verdict, Verdict::kAgrees);
}

TEST_F(ForeignProgramTest, TypesThatRoundLessDoNotExplainIt) {
  EXPECT_EQ(diagnosed(observed(nullptr, true), "f16/f16").verdict, Verdict::kUnknown);
}

TEST_F(ForeignProgramTest, AFaultIsNamedThroughTheRounding) {
  const Report report = diagnosed(observed([](AttentionSpec& s) { s.rope.theta = 300; }, true), "q8/f16");
  expect_named(report, "rope.base", "");
  EXPECT_NEAR(report.faults.front().parameters.front().value, 300, 15) << to_text(report);
}

TEST_F(ForeignProgramTest, SettingsThatNoFaultSaysAreNamed) {
  const Report half = diagnosed(observed(
                                    [](AttentionSpec& s) {
                                      s.rope.scaling.kind = RopeScalingKind::kLinear;
                                      s.rope.scaling.factor = 2;
                                    },
                                    false),
                                "");
  expect_named(half, "rope.scaling_missing", "linear");
  EXPECT_NEAR(half.faults.front().parameters.front().value, 2, 1e-3);
  const Report window = diagnosed(
      observed([](AttentionSpec& s) { s.mask = mask_rule(MaskOp::kCausal) & mask_rule(MaskOp::kWindow, 7); },
               false),
      "");
  expect_named(window, "mask.window_scope", "applied");
  EXPECT_EQ(window.faults.front().parameters.front().value, 7) << to_text(window);
}

TEST_F(ForeignProgramTest, LogProbabilitiesThatWereNotSeenAreNotLookedAt) {
  auto seen = observed(nullptr, false);
  for (ModelObservation& o : seen) o.logprobs[0] = 0;
  EXPECT_EQ(diagnosed(seen, "").verdict, Verdict::kUnknown);
  for (ModelObservation& o : seen) o.num_unseen = 1;
  EXPECT_EQ(diagnosed(seen, "").verdict, Verdict::kAgrees);
  seen.front().num_unseen = std::ssize(seen.front().logprobs);
  EXPECT_FALSE(diagnose_model(*loaded_.model, text_->tokenizer, seen));
}

}  // namespace
}  // namespace sightline::subjects
