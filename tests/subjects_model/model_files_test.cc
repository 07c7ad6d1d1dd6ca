// Two files of one model: another container is the same model, and what one of them says or holds otherwise
// is named.
#include "sightline/subjects/model/model_files.h"

#include <gtest/gtest.h>

#include "model/model_fixtures.h"
#include "sightline/spec/row_order.h"

namespace sightline::subjects {
namespace {

using namespace testing;  // NOLINT: fixtures of tests/model
using checker::Report;
using checker::Verdict;

class ModelFilesTest : public ::testing::Test {
 protected:
  ModelFilesTest() : model_(random_model(small_llama_spec(), 7)) {
    write_llama_gguf(gguf_, model_, llama_metadata(model_.spec));
  }

  // A Hugging Face folder of a changed model.
  std::string folder(const TestModel& model, const Json& config) {
    const std::string path = folder_.file(fmt::format("hf{}", ++count_));
    write_llama_hf(path, model, config);
    return path;
  }
  Report against(const std::string& theirs) {
    auto report = check_model_files(gguf_, theirs);
    EXPECT_TRUE(report) << report.error().message;
    return report ? *report : Report{};
  }

  // Rows of the named weight in every layer, moved by `row_of`.
  static TestModel with_rows(TestModel model, const std::string& block,
                             const std::function<std::int64_t(std::int64_t)>& row_of) {
    for (auto& [name, tensor] : model.tensors) {
      if (!name.ends_with("." + block + ".weight")) continue;
      const TestTensor right = tensor;
      const std::int64_t cols = tensor.shape[1];
      for (std::int64_t i = 0; i < tensor.shape[0]; ++i) {
        std::copy_n(right.values.begin() + row_of(i) * cols, cols, tensor.values.begin() + i * cols);
      }
    }
    return model;
  }

  TempFolder folder_;
  std::string gguf_ = folder_.file("m.gguf");
  TestModel model_;
  int count_ = 0;
};

TEST_F(ModelFilesTest, AnotherContainerIsTheSameModel) {
  const Report report = against(folder(model_, llama_config(model_.spec)));
  EXPECT_EQ(report.verdict, Verdict::kAgrees) << to_text(report);
  EXPECT_EQ(against(gguf_).verdict, Verdict::kAgrees);
}

TEST_F(ModelFilesTest, RowsInTheOtherOrderAreAPairingFault) {
  const auto neighbours = [](std::int64_t i) { return i / 8 * 8 + i % 2 * 4 + i % 8 / 2; };
  const TestModel wrong = with_rows(with_rows(model_, "q", neighbours), "k", neighbours);
  const Report report = against(folder(wrong, llama_config(model_.spec)));
  ASSERT_EQ(report.verdict, Verdict::kFault) << to_text(report);
  EXPECT_EQ(report.faults.front().slug, "rope.pairing");
  EXPECT_TRUE(report.faults.front().certain);
}

TEST_F(ModelFilesTest, RowsOrderedForOtherHeadsArePairingFaultsWithTheirWidth) {
  const AttentionSpec& attention = model_.spec.layers.front().attention;
  const HeadSpec& heads = attention.heads;
  const auto misplaced = [&](TestModel model, const std::string& block, RowMistake mistake, int width) {
    const int num_heads = block == "q" ? heads.num_q_heads : heads.num_kv_heads;
    const auto from = misplaced_rows(mistake, std::int64_t{num_heads} * heads.qk_head_dim, heads.qk_head_dim,
                                     width, RopePairing::kHalfSplit);
    return with_rows(std::move(model), block,
                     [&](std::int64_t i) { return from[static_cast<std::size_t>(i)]; });
  };
  const auto expect = [&](const TestModel& wrong, std::string_view variant, int width) {
    const Report report = against(folder(wrong, llama_config(model_.spec)));
    ASSERT_EQ(report.verdict, Verdict::kFault) << to_text(report);
    ASSERT_EQ(report.faults.size(), 1U) << to_text(report);
    EXPECT_EQ(report.faults.front().slug, "rope.pairing");
    EXPECT_EQ(report.faults.front().variant, variant);
    ASSERT_EQ(report.faults.front().parameters.size(), 1U);
    EXPECT_EQ(report.faults.front().parameters.front().value, width);
    EXPECT_TRUE(report.faults.front().certain);
  };
  // Of twice or half the right width both ways are the same permutation, and called that of a reader.
  const RowMistake read = RowMistake::kRead, written = RowMistake::kWritten;
  const int both = 2 * heads.qk_head_dim, of_k = heads.num_kv_heads * heads.qk_head_dim;
  const int of_q = heads.num_q_heads * heads.qk_head_dim;
  ASSERT_GE(of_q, 4 * heads.qk_head_dim);
  expect(misplaced(misplaced(model_, "q", read, both), "k", read, both), "rows_read", both);
  expect(misplaced(model_, "k", read, of_k), "key_rows_read", of_k);
  expect(misplaced(model_, "q", read, of_q), "query_rows_read", of_q);
  expect(misplaced(model_, "q", written, of_q), "query_rows_written", of_q);
}

TEST_F(ModelFilesTest, WhatTheFilesSayOtherwiseIsNamedWithItsNumber) {
  const Report report =
      against(folder(model_, with_member(llama_config(model_.spec), "rope_theta", Json(123456.0))));
  ASSERT_EQ(report.faults.size(), 1U) << to_text(report);
  EXPECT_EQ(report.faults.front().slug, "rope.base");
  EXPECT_EQ(report.faults.front().parameters.front().value, 123456);
}

TEST_F(ModelFilesTest, AWindowOfAnotherSizeIsNotAWindowThatIsNotThere) {
  const Json mistral = with_member(llama_config(model_.spec), "model_type", "mistral");
  const auto with_window = [&](const Json& window) {
    return folder(model_, with_member(mistral, "sliding_window", window));
  };
  const std::string ours = with_window(16);
  const auto slug = [&](const std::string& theirs) {
    const Report report = check_model_files(ours, theirs).value();
    EXPECT_EQ(report.faults.size(), 1U) << to_text(report);
    return report.faults.empty() ? "" : report.faults.front().slug;
  };
  EXPECT_EQ(slug(with_window(17)), "mask.window_off_by_one");
  EXPECT_EQ(slug(with_window(Json())), "mask.window_scope");
}

TEST_F(ModelFilesTest, AScaleOfQueriesIsMeasured) {
  TestModel scaled = model_;
  for (auto& [name, tensor] : scaled.tensors) {
    if (!name.ends_with(".q.weight")) continue;
    for (float& x : tensor.values) x *= 0.25F;
  }
  const Report report = against(folder(scaled, llama_config(model_.spec)));
  ASSERT_EQ(report.verdict, Verdict::kFault) << to_text(report);
  EXPECT_EQ(report.faults.front().slug, "score.scale");
  EXPECT_NEAR(report.faults.front().parameters.front().value, 0.25, 1e-6);
}

TEST_F(ModelFilesTest, APermutationOfFusedRowsIsNamed) {
  // Query rows and key rows of one tensor shuffled among each other, as when groups lie one behind the other.
  TestModel wrong = model_;
  for (int layer = 0; layer < 3; ++layer) {
    auto& q = wrong.tensors.at(fmt::format("layer.{}.q.weight", layer));
    auto& k = wrong.tensors.at(fmt::format("layer.{}.k.weight", layer));
    const std::int64_t cols = q.shape[1];
    for (std::int64_t i = 3; i < 11; ++i) {
      std::swap_ranges(q.values.begin() + i * cols, q.values.begin() + (i + 1) * cols,
                       k.values.begin() + i * cols);
    }
  }
  const Report report = against(folder(wrong, llama_config(model_.spec)));
  ASSERT_EQ(report.verdict, Verdict::kFault) << to_text(report);
  EXPECT_EQ(report.faults.front().slug, "head.fused_qkv_layout");
}

TEST_F(ModelFilesTest, OtherWeightsAreUnknownWithTheirPlace) {
  TestModel other = model_;
  other.tensors.at("layer.1.down.weight").values[5] += 3.0F;
  const Report report = against(folder(other, llama_config(model_.spec)));
  EXPECT_EQ(report.verdict, Verdict::kUnknown) << to_text(report);
  EXPECT_TRUE(report.faults.empty());
  ASSERT_TRUE(report.first_difference);
  EXPECT_EQ(report.first_difference->tensor, "layer 1, down, relative error");
}

TEST_F(ModelFilesTest, AMissingFileIsAnError) {
  EXPECT_EQ(check_model_files(gguf_, folder_.file("none.gguf")).error().kind, ErrorKind::kNoInput);
}

}  // namespace
}  // namespace sightline::subjects
