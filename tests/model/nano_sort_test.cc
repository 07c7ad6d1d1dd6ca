// The engine against intermediate tensors that others published for a small GPT-2 type model, through a
// Hugging Face folder made of their weights.
#include <gtest/gtest.h>

#include <cmath>

#include "model/model_runner.h"
#include "model/nano_sort_folder.h"
#include "sightline/attention/attention.h"

namespace sightline {
namespace {

using namespace testing;  // NOLINT: fixtures of tests/model

constexpr std::int64_t kBatch = NanoSort::kBatch, kLength = NanoSort::kLength, kHeads = NanoSort::kHeads,
                       kHeadDim = NanoSort::kHeadDim;

class NanoSortTest : public ::testing::Test {
 protected:
  void SetUp() override {
    const auto files = open_nano_sort();
    if (!files) GTEST_SKIP() << "SIGHTLINE_TEST_DATA: nano-sort/model.json or partials.json is not there";
    partials_ = files->partials;
    write_nano_sort_hf(folder_.file("hf"), *files);
    loaded_ = load_file(folder_.file("hf"), 2);
    for (const float id : partial("idx")) ids_.push_back(static_cast<std::int32_t>(id));
  }

  std::vector<float> partial(const std::string& name) const {
    return nano_sort_tensor(*partials_.find(name)).values;
  }

  Tokens sequence(std::int64_t b) const {
    return tokens_of({ids_.begin() + b * kLength, ids_.begin() + (b + 1) * kLength});
  }

  /// Sequence b of a published tensor.
  std::vector<float> published(const std::string& name, std::int64_t b) const {
    const std::vector<float> all = partial(name);
    const auto size = static_cast<std::int64_t>(all.size()) / kBatch;
    return {all.begin() + b * size, all.begin() + (b + 1) * size};
  }

  /// [heads, length, dim] as published to [length, heads * dim].
  static std::vector<float> heads_beside(const std::vector<float>& x) {
    std::vector<float> y(x.size());
    for (std::int64_t h = 0; h < kHeads; ++h) {
      for (std::int64_t i = 0; i < kLength; ++i) {
        std::copy_n(x.begin() + (h * kLength + i) * kHeadDim, kHeadDim,
                    y.begin() + (i * kHeads + h) * kHeadDim);
      }
    }
    return y;
  }

  static void expect_near(const std::vector<float>& ours, const std::vector<float>& theirs,
                          const std::string& what) {
    ASSERT_EQ(ours.size(), theirs.size()) << what;
    double largest = 0;
    for (std::size_t i = 0; i < ours.size(); ++i) {
      const double d = std::abs(static_cast<double>(ours[i]) - static_cast<double>(theirs[i]));
      largest = std::isnan(d) ? 1e9 : std::max(largest, d);
    }
    EXPECT_LT(largest, kNanoSortPrecision) << what;
  }

  TempFolder folder_;
  Json partials_;
  LoadedModel loaded_;
  std::vector<std::int32_t> ids_;
};

TEST_F(NanoSortTest, ProjectionsAttentionBlocksAndLogitsAreThePublishedOnes) {
  for (std::int64_t b = 0; b < kBatch; ++b) {
    std::map<std::string, std::vector<float>> tapped;
    RunOptions options;
    options.tap = [&](std::string_view name, StridedView<const float, 2> rows) {
      std::vector<float>& out = tapped[std::string(name)];
      for (std::int64_t i = 0; i < rows.shape[0]; ++i) {
        for (std::int64_t j = 0; j < rows.shape[1]; ++j) out.push_back(rows(i, j));
      }
    };
    const std::vector<float> logits = run_tokens(*loaded_.model, sequence(b), options);
    expect_near(tapped["layer.0.q"], heads_beside(published("q", b)), "q");
    expect_near(tapped["layer.0.k"], heads_beside(published("k", b)), "k");
    expect_near(tapped["layer.0.v"], heads_beside(published("v", b)), "v");
    expect_near(tapped["layer.0.attention"], published("y", b), "attention");
    for (const char* i : {"0", "1", "2"}) {
      expect_near(tapped[std::string("layer.") + i + ".output"], published(std::string("block") + i, b), i);
    }
    expect_near(tapped["final_norm"], published("ln_f", b), "final norm");
    expect_near(logits, published("lm_head", b), "logits");
  }
}

TEST_F(NanoSortTest, LogSumExpIsThatOfThePublishedScores) {
  const AttentionSpec spec = loaded_.model->attention_specs()[0];
  ThreadPool pool(1);
  AttentionContext context(pool);
  for (std::int64_t b = 0; b < kBatch; ++b) {
    const std::vector<float> q = heads_beside(published("q", b));
    const std::vector<float> k = heads_beside(published("k", b));
    const std::vector<float> v = heads_beside(published("v", b));
    const std::vector<TokenCoord> coords = coords_range(0, kLength);
    const std::int64_t offsets[] = {0, kLength};
    const auto view = [](const std::vector<float>& x) {
      return dense_view(x.data(), std::array<std::int64_t, 3>{kLength, kHeads, kHeadDim});
    };
    const QueryBatch queries{offsets, coords, {}};
    ContiguousKv kv;
    kv.kv_offsets = offsets;
    kv.coords = coords;
    kv.k = view(k);
    kv.v = view(v);
    std::vector<float> out(q.size());
    std::vector<float> lse(kLength * kHeads);
    const auto plan = plan_attention(spec, queries, kv, {});
    ASSERT_TRUE(plan) << plan.error().message;
    const auto done =
        attention_forward(spec, *plan, view(q), queries, kv, {},
                          dense_view(out.data(), std::array<std::int64_t, 3>{kLength, kHeads, kHeadDim}),
                          dense_view(lse.data(), std::array<std::int64_t, 2>{kLength, kHeads}), context);
    ASSERT_TRUE(done) << done.error().message;
    expect_near(out, published("y", b), "attention");
    // Published scores [heads, length, length] are scaled and not yet hidden from the future.
    const std::vector<float> scores = published("att", b);
    std::vector<float> expected(lse.size());
    for (std::int64_t h = 0; h < kHeads; ++h) {
      for (std::int64_t i = 0; i < kLength; ++i) {
        double sum = 0;
        for (std::int64_t j = 0; j <= i; ++j) {
          sum += std::exp(
              static_cast<double>(scores[static_cast<std::size_t>((h * kLength + i) * kLength + j)]));
        }
        expected[static_cast<std::size_t>(i * kHeads + h)] = static_cast<float>(std::log(sum));
      }
    }
    expect_near(lse, expected, "log-sum-exp");
  }
}

}  // namespace
}  // namespace sightline
