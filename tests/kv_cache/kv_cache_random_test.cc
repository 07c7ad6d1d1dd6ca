// Random sequences of operations against a plain list.
#include <gtest/gtest-spi.h>
#include <gtest/gtest.h>
#include <rapidcheck.h>

#include <tuple>
#include <vector>

#include "kv_cache/random_steps.h"

namespace sightline {
namespace {

using test::CacheModel;

// A CacheStep, so that a failing run shrinks.
using Step = std::tuple<int, int, int, int>;

rc::Gen<std::vector<Step>> steps() {
  return rc::gen::container<std::vector<Step>>(rc::gen::tuple(rc::gen::inRange(0, test::kNumCacheStepKinds),
                                                              rc::gen::inRange(0, 5), rc::gen::inRange(0, 90),
                                                              rc::gen::inRange(0, 90)));
}

void run(const std::vector<Step>& list, const KvCacheOptions& options,
         const std::vector<AttentionSpec>& layers = test::mixed_layers()) {
  // Failures are caught here and handed to rapidcheck, which shrinks the list of steps.
  ::testing::TestPartResultArray failures;
  {
    const ::testing::ScopedFakeTestPartResultReporter reporter(&failures);
    CacheModel model(layers, options);
    for (const Step& step : list) {
      const auto [kind, which, x, y] = step;
      test::play(model, {kind, which, x, y});
      model.check();
      if (failures.size() > 0) break;
    }
  }
  if (failures.size() > 0) RC_FAIL(failures.GetTestPartResult(0).message());
}

KvCacheOptions options_of(int page_size, StorageType type, bool poison, std::int64_t max_pages) {
  KvCacheOptions options;
  options.page_size = page_size;
  options.key_type = options.value_type = type;
  options.poison = poison;
  options.max_pages = max_pages;
  return options;
}

TEST(KvCacheRandomTest, OperationsEqualAPlainList) {
  EXPECT_TRUE(rc::check([] { run(*steps(), options_of(16, StorageType::kF32, true, 0)); }));
}

TEST(KvCacheRandomTest, OperationsEqualAPlainListInBf16WithoutPoison) {
  EXPECT_TRUE(rc::check([] { run(*steps(), options_of(48, StorageType::kBf16, false, 0)); }));
}

TEST(KvCacheRandomTest, OperationsEqualAPlainListWhenPagesRunOut) {
  EXPECT_TRUE(rc::check([] { run(*steps(), options_of(16, StorageType::kF32, true, 14)); }));
}

TEST(KvCacheRandomTest, OperationsEqualAPlainListWhenLayersOfOneShapeShareFreePages) {
  std::vector<AttentionSpec> layers(3);
  for (AttentionSpec& layer : layers) layer.heads = {2, 1, 4, 3};
  layers[1].mask = *parse_mask("causal & window(5)");
  layers[2].mask = *parse_mask("causal & (window(30) | first(2))");
  EXPECT_TRUE(rc::check([&] { run(*steps(), options_of(16, StorageType::kF32, true, 0), layers); }));
  EXPECT_TRUE(rc::check([&] { run(*steps(), options_of(16, StorageType::kF32, true, 12), layers); }));
}

}  // namespace
}  // namespace sightline
