#include "sightline/kernels/page_layout.h"

#include <gtest/gtest.h>

#include <set>

#include "sightline/kernels/kernel_table.h"

namespace sightline {
namespace {

TEST(PageLayoutTest, EveryNumberOfAPageHasAPlaceOfItsOwnWithinIt) {
  for (const int page_size : {16, 48, 128}) {
    for (const auto& [qk_head_dim, v_head_dim] : {std::pair{1, 1}, std::pair{7, 17}, std::pair{64, 32}}) {
      const PageLayout layout{page_size, qk_head_dim, v_head_dim};
      for (const StorageType type : {StorageType::kF32, StorageType::kBf16}) {
        std::set<std::size_t> keys, values;
        for (int token = 0; token < page_size; ++token) {
          for (int dim = 0; dim < qk_head_dim; ++dim) keys.insert(layout.key_offset(type, token, dim));
          for (int dim = 0; dim < layout.padded_v_dim(); ++dim) {
            values.insert(layout.value_offset(type, token, dim));
          }
        }
        EXPECT_EQ(keys.size(), static_cast<std::size_t>(page_size * qk_head_dim));
        EXPECT_LT(*keys.rbegin(), layout.key_size(type));
        EXPECT_EQ(values.size(), layout.value_size()) << "padding included";
        EXPECT_EQ(*values.rbegin(), layout.value_size() - 1);
      }
    }
  }
}

// The streams of kernel_table.h: chunk c of the keys is [qk_head_dim][16], of the values [dims / 16][16][16].
TEST(PageLayoutTest, SixteenTokensLieTogetherAsTheKernelsReadThem) {
  static_assert(kernels::kChunkKeys == kPageLanes);
  const PageLayout layout{64, 5, 20};
  for (int chunk = 0; chunk < 4; ++chunk) {
    const std::size_t key = layout.key_offset(StorageType::kF32, 16 * chunk, 0);
    const std::size_t value = layout.value_offset(StorageType::kF32, 16 * chunk, 0);
    EXPECT_EQ(key, static_cast<std::size_t>(chunk) * 5 * 16);
    EXPECT_EQ(value, static_cast<std::size_t>(chunk) * 2 * 16 * 16);
    for (int token = 0; token < 16; ++token) {
      const auto t = static_cast<std::size_t>(token);
      for (std::size_t dim = 0; dim < 5; ++dim) {
        EXPECT_EQ(layout.key_offset(StorageType::kF32, 16 * chunk + token, static_cast<int>(dim)),
                  key + dim * 16 + t);
      }
      for (std::size_t dim = 0; dim < 20; ++dim) {
        EXPECT_EQ(layout.value_offset(StorageType::kF32, 16 * chunk + token, static_cast<int>(dim)),
                  value + dim / 16 * 256 + t * 16 + dim % 16);
      }
    }
  }
}

TEST(PageLayoutTest, Bf16KeepsTwoDimsOfAKeyAndTwoTokensOfAValueTogether) {
  const PageLayout layout{32, 5, 20};
  constexpr StorageType kType = StorageType::kBf16;
  for (const int token : {0, 3, 16, 31}) {
    EXPECT_EQ(layout.key_offset(kType, token, 1), layout.key_offset(kType, token, 0) + 1);
    EXPECT_EQ(layout.key_offset(kType, token, 3), layout.key_offset(kType, token, 2) + 1);
  }
  for (const int dim : {0, 15, 16, 19}) {
    EXPECT_EQ(layout.value_offset(kType, 1, dim), layout.value_offset(kType, 0, dim) + 1);
    EXPECT_EQ(layout.value_offset(kType, 17, dim), layout.value_offset(kType, 16, dim) + 1);
  }
  EXPECT_EQ(layout.key_size(kType), std::size_t{32 * 6}) << "the odd half of a pair is stored";
}

}  // namespace
}  // namespace sightline
