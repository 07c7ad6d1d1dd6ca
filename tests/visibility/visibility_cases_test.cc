// The text cases once more, through the tile map and both of its paths.
#include <gtest/gtest.h>

#include "cases/case_file.h"
#include "visibility/build_visibility.h"

namespace sightline {
namespace {

// The picture of a map of a single key tile.
std::string picture(const VisibilityMap& map) {
  std::string out;
  for (std::int64_t q = 0; q < map.num_q(); ++q) {
    const auto runs = map.runs(q / map.tile().q);
    for (std::int64_t k = 0; k < map.num_kv(); ++k) {
      bool sees = false;
      if (!runs.empty() && runs[0].kind == TileKind::kFull) sees = true;
      if (!runs.empty() && runs[0].kind == TileKind::kPartialBits) {
        sees =
            (map.bits(runs[0].bits_idx)[static_cast<std::size_t>(q % map.tile().q)].words[0] >> k & 1U) != 0;
      }
      for (const KeyRange& range : map.ranges(q)) sees |= range.begin <= k && k < range.end;
      out += sees ? '1' : '0';
      out += k + 1 < map.num_kv() ? ' ' : '\n';
    }
  }
  return out;
}

TEST(VisibilityCasesTest, EveryPictureIsWhatTheTileMapHolds) {
  const auto files = testing::all_case_files();
  ASSERT_GE(files.size(), 25u) << "run through ctest, or set SIGHTLINE_SOURCE_DIR";
  for (const auto& file : files) {
    const auto one = testing::read_case(file);
    ASSERT_TRUE(one) << one.error().message;
    for (const int q_rows : {1, 2, 32}) {
      for (const auto path : {VisibilityPath::kAuto, VisibilityPath::kBits}) {
        const MaskTables tables = one->tables();
        const VisibilityInput input{one->mask, tables, one->q, one->kv, {}, {}, {q_rows, 128}};
        const auto map = build_visibility_by(input, path);
        ASSERT_TRUE(map) << one->name << ": " << map.error().message;
        EXPECT_EQ(picture(*map), one->visible) << one->name;
      }
    }
  }
}

}  // namespace
}  // namespace sightline
