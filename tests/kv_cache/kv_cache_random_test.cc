// Random sequences of operations against a plain list.
#include <gtest/gtest-spi.h>
#include <gtest/gtest.h>
#include <rapidcheck.h>

#include <tuple>
#include <vector>

#include "kv_cache/cache_model.h"

namespace sightline {
namespace {

using test::CacheModel;

// An operation as four numbers, so that a failing run shrinks: kind, sequence, and two that kind reads.
using Step = std::tuple<int, int, int, int>;

rc::Gen<std::vector<Step>> steps() {
  return rc::gen::container<std::vector<Step>>(rc::gen::tuple(
      rc::gen::inRange(0, 12), rc::gen::inRange(0, 5), rc::gen::inRange(0, 90), rc::gen::inRange(0, 90)));
}

void play(CacheModel& model, const Step& step) {
  const auto [kind, which, x, y] = step;
  if (model.sequences().empty()) {
    model.add_sequence();
    return;
  }
  auto at = model.sequences().begin();
  std::advance(at, which % std::ssize(model.sequences()));
  const SequenceId id = at->first;
  const std::int64_t length = model.length(id);
  const std::int64_t begin = length == 0 ? 0 : x % (length + 1);
  const std::int64_t end = begin + (length == begin ? 0 : y % (length - begin + 1));
  switch (kind) {
    case 0:
      if (model.sequences().size() < 5) model.add_sequence();
      break;
    case 1:
      model.play_remove(id);
      break;
    case 2:
      if (model.sequences().size() < 5) model.play_fork(id);
      break;
    case 3:
      model.play_truncate(id, y % 4 == 0 ? begin : std::max<std::int64_t>(0, length - x % 6));
      break;
    case 4:
      model.play_evict(id, begin, end);
      break;
    case 5:
      model.play_shift(id, begin, end, y % 21 - 10);
      break;
    case 6: {  // what a full context does: drop a stretch, move the rest down by its length
      if (model.play_evict(id, begin, end)) model.play_shift(id, end, length, begin - end);
      break;
    }
    case 7: {  // left padding
      std::vector<TokenCoord> coords = coords_range(model.next_pos(id), model.next_pos(id) + x % 20);
      for (std::size_t i = 0; i < coords.size() && i < static_cast<std::size_t>(y % 5); ++i)
        coords[i].valid = false;
      model.play_append(id, coords, 3);
      break;
    }
    case 8:
      model.play_append(id, x);
      break;
    default:
      model.play_append(id, 1 + x % 3);
      break;
  }
}

void run(const std::vector<Step>& list, const KvCacheOptions& options,
         const std::vector<AttentionSpec>& layers = test::mixed_layers()) {
  // Failures are caught here and handed to rapidcheck, which shrinks the list of steps.
  ::testing::TestPartResultArray failures;
  {
    const ::testing::ScopedFakeTestPartResultReporter reporter(&failures);
    CacheModel model(layers, options);
    for (const Step& step : list) {
      play(model, step);
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
