// The tile map against the definition, pair by pair.
#include "sightline/visibility/visibility_map.h"

#include <gtest/gtest.h>

#include "spec/random_spec.h"
#include "visibility/build_visibility.h"

namespace sightline {
namespace {

using testing::disturb;
using testing::random_in;
using testing::random_mask;
using testing::random_sequence;
using testing::RandomTables;

struct Problem {
  MaskSpec mask;
  std::vector<TokenCoord> q, kv;
  std::vector<std::int64_t> q_row_idx, kv_row_idx;  // empty: identity
  RandomTables tables;
  MaskTables view;
  TileShape tile;

  [[nodiscard]] VisibilityInput input() const { return {mask, view, q, kv, q_row_idx, kv_row_idx, tile}; }
  [[nodiscard]] std::string describe() const {
    return fmt::format("{} with {} queries, {} keys, tile {}", to_string(mask), q.size(), kv.size(), tile.q);
  }
};

std::vector<std::int64_t> random_rows(Rng& rng, std::int64_t n, std::int64_t num_rows) {
  std::vector<std::int64_t> out;
  for (std::int64_t i = 0; i < n; ++i) out.push_back(random_in(rng, 0, num_rows - 1));
  return out;
}

Problem random_problem(std::uint64_t seed, std::span<const MaskOp> ops) {
  Rng rng(seed);
  MaskSpec mask = random_mask(rng, random_in(rng, 1, 6), ops);
  const auto num_kv = random_in(rng, 0, rng.next_below(3) == 0 ? 700 : 150);
  auto kv = random_sequence(rng, num_kv);
  // Queries: the last of the keys (a chunk or a decode step), or others.
  std::vector<TokenCoord> q = kv;
  if (rng.next_below(3) == 0) q = random_sequence(rng, random_in(rng, 0, 90));
  if (rng.next_below(2) == 0 && !q.empty())
    q.erase(q.begin(), q.begin() + random_in(rng, 0, std::ssize(q) - 1));
  if (q.size() > 100) q.resize(100);
  disturb(rng, kv);
  if (rng.next_below(3) == 0) disturb(rng, q);
  const bool rows = rng.next_below(3) == 0;
  const auto q_rows = std::max<std::int64_t>(std::ssize(q), 1);
  const auto kv_rows = std::max<std::int64_t>(std::ssize(kv), 1);
  RandomTables tables(rng, q_rows, kv_rows);
  Problem out{std::move(mask), std::move(q), std::move(kv), {}, {}, std::move(tables), {}, {}};
  if (rows) {
    out.q_row_idx = random_rows(rng, std::ssize(out.q), q_rows);
    out.kv_row_idx = random_rows(rng, std::ssize(out.kv), kv_rows);
  }
  out.tile.q = static_cast<int>(random_in(rng, 1, 40));
  out.view = out.tables.view();
  return out;
}

// The pairs a map holds, read the way attention reads them: full runs without a test, partial runs through
// ranges or bits. Empty text: well formed.
std::string read_map(const VisibilityMap& map, std::vector<std::uint8_t>& seen) {
  const std::int64_t num_q = map.num_q();
  const std::int64_t num_kv = map.num_kv();
  seen.assign(static_cast<std::size_t>(num_q * num_kv), 0);
  for (std::int64_t q_tile = 0; q_tile < map.num_q_tiles(); ++q_tile) {
    const std::int64_t q_begin = q_tile * map.tile().q;
    const std::int64_t q_end = std::min(q_begin + map.tile().q, num_q);
    std::int64_t last_tile = 0;
    for (const TileRun& run : map.runs(q_tile)) {
      if (run.kv_tile_begin < last_tile || run.kv_tile_end <= run.kv_tile_begin)
        return "runs overlap or are empty";
      if (run.kind == TileKind::kPartialBits && run.kv_tile_end != run.kv_tile_begin + 1)
        return "a bit run is long";
      last_tile = run.kv_tile_end;
      for (std::int64_t q = q_begin; q < q_end; ++q) {
        const std::int64_t key_end = std::min<std::int64_t>(run.kv_tile_end * 128, num_kv);
        for (std::int64_t k = run.kv_tile_begin * 128; k < key_end; ++k) {
          bool sees = run.kind == TileKind::kFull;
          if (run.kind == TileKind::kPartialRanges) {
            for (const KeyRange& range : map.ranges(q)) sees |= range.begin <= k && k < range.end;
          } else if (run.kind == TileKind::kPartialBits) {
            const BitRow& row = map.bits(run.bits_idx)[static_cast<std::size_t>(q - q_begin)];
            sees = (row.words[k % 128 / 64] >> (k % 64) & 1U) != 0;
          }
          seen[static_cast<std::size_t>(q * num_kv + k)] = sees;
        }
      }
    }
    if (last_tile > (num_kv + 127) / 128) return "a run ends beyond the keys";
  }
  for (std::int64_t q = 0; q < num_q; ++q) {
    std::int64_t last = -1;
    for (const KeyRange& range : map.ranges(q)) {
      if (range.begin <= last || range.end <= range.begin || range.end > num_kv)
        return "ranges touch or are empty";
      last = range.end;
    }
  }
  return {};
}

// The first pair or tile on which the map and the definition differ. Empty text: none.
std::string compare(const Problem& problem, const VisibilityMap& map) {
  std::vector<std::uint8_t> seen;
  if (std::string error = read_map(map, seen); !error.empty()) return error;
  const VisibilityInput input = problem.input();
  std::int64_t visible_pairs = 0;
  for (std::int64_t q = 0; q < map.num_q(); ++q) {
    for (std::int64_t k = 0; k < map.num_kv(); ++k) {
      const bool expected = is_visible(problem.mask, problem.view, input.q_ref(q), input.kv_ref(k));
      visible_pairs += expected;
      if (expected != (seen[static_cast<std::size_t>(q * map.num_kv() + k)] != 0)) {
        return fmt::format("query {} and key {}: expected {}", q, k, expected);
      }
    }
  }
  if (visible_pairs != map.num_visible_pairs()) return "num_visible_pairs is wrong";
  // Full if and only if every pair that exists is visible, absent if and only if none is.
  for (std::int64_t q_tile = 0; q_tile < map.num_q_tiles(); ++q_tile) {
    for (std::int64_t kv_tile = 0; kv_tile * 128 < map.num_kv(); ++kv_tile) {
      std::int64_t visible = 0;
      std::int64_t pairs = 0;
      for (std::int64_t q = q_tile * map.tile().q;
           q < std::min<std::int64_t>((q_tile + 1) * map.tile().q, map.num_q()); ++q) {
        for (std::int64_t k = kv_tile * 128; k < std::min<std::int64_t>(kv_tile * 128 + 128, map.num_kv());
             ++k) {
          visible += seen[static_cast<std::size_t>(q * map.num_kv() + k)];
          ++pairs;
        }
      }
      const TileRun* found = nullptr;
      for (const TileRun& run : map.runs(q_tile)) {
        if (run.kv_tile_begin <= kv_tile && kv_tile < run.kv_tile_end) found = &run;
      }
      if ((found == nullptr) != (visible == 0))
        return fmt::format("tile {}, {} is wrongly absent", q_tile, kv_tile);
      if (found != nullptr && (found->kind == TileKind::kFull) != (visible == pairs)) {
        return fmt::format("tile {}, {} has the wrong kind", q_tile, kv_tile);
      }
    }
  }
  return {};
}

TEST(VisibilityTest, TileMapEqualsIsVisibleForAllPairs) {
  for (std::uint64_t seed = 0; seed < 3000; ++seed) {
    const Problem problem = random_problem(seed, testing::kAllOps);
    const auto map = build_visibility(problem.mask, problem.view, problem.q, problem.kv, problem.q_row_idx,
                                      problem.kv_row_idx, problem.tile);
    ASSERT_TRUE(map) << map.error().message;
    ASSERT_EQ(compare(problem, *map), "") << "seed " << seed << ": " << problem.describe();
  }
}

TEST(VisibilityTest, RangesAndBitsGiveTheSameMapForEveryOperator) {
  int on_ranges = 0;
  for (std::uint64_t seed = 0; seed < 2000; ++seed) {
    const Problem problem = random_problem(seed + 100000, testing::kRangeOps);
    const auto automatic = build_visibility_by(problem.input(), VisibilityPath::kAuto);
    const auto bits = build_visibility_by(problem.input(), VisibilityPath::kBits);
    ASSERT_TRUE(automatic && bits);
    on_ranges += automatic->num_bit_tiles() == 0;
    ASSERT_EQ(compare(problem, *bits), "") << "seed " << seed << ": " << problem.describe();
    std::vector<std::uint8_t> a;
    std::vector<std::uint8_t> b;
    ASSERT_EQ(read_map(*automatic, a), "");
    ASSERT_EQ(read_map(*bits, b), "");
    ASSERT_EQ(a, b) << "seed " << seed << ": " << problem.describe();
  }
  EXPECT_GT(on_ranges, 1000) << "the range path was hardly tested";
}

TEST(VisibilityTest, EachRangeRuleAloneTakesTheRangePathOnRisingPositions) {
  for (const MaskOp op : testing::kRangeOps) {
    Rng rng(7);
    const auto tokens = coords_range(0, 400);
    const RandomTables tables(rng, 400, 400);
    const std::vector<std::int32_t> committed(400, -1);
    MaskTables view = tables.view();
    view.kv_node = committed;
    const std::array<MaskOp, 1> one{op};
    const MaskSpec mask = testing::random_leaf(rng, one);
    const auto map = build_visibility(mask, view, tokens, tokens, {}, {}, {});
    ASSERT_TRUE(map) << to_string(mask);
    EXPECT_EQ(map->num_bit_tiles(), 0) << to_string(mask);
  }
}

TEST(VisibilityTest, MemoryOfRangeRulesGrowsWithTokensNotPairs) {
  for (const char* text :
       {"causal", "causal & window(512)", "causal & segment & (window(256) | first(4))", "causal & segment",
        "(causal | span) & window(512) & ahead(511)", "causal & chunk(256)"}) {
    const MaskSpec mask = *parse_mask(text);
    std::size_t bytes[2];
    for (int i = 0; i < 2; ++i) {
      auto tokens = coords_range(0, 8192 << i);
      for (auto& token : tokens) {
        token.segment = static_cast<std::int32_t>(token.pos / 1000);
        token.segment_start = token.pos / 1000 * 1000;
        token.span = token.pos / 300 % 5 == 0 ? static_cast<std::int32_t>(token.pos / 300) + 1 : 0;
      }
      const auto map = build_visibility(mask, {}, tokens, tokens, {}, {}, {});
      ASSERT_TRUE(map);
      EXPECT_EQ(map->num_bit_tiles(), 0) << text;
      bytes[i] = map->bytes();
    }
    EXPECT_LT(bytes[1], bytes[0] * 21 / 10) << text;  // 4 times for pairs
    EXPECT_LT(bytes[1], std::size_t{16384} * 96) << text;
  }
}

TEST(VisibilityTest, EqualPartialTilesAreStoredOnce) {
  const auto tokens = coords_range(0, 4096);
  const auto map = build_visibility(*parse_mask("causal & dilated(4)"), {}, tokens, tokens, {}, {}, {});
  ASSERT_TRUE(map);
  // 32 query tiles of each key tile lie below the diagonal and look alike; on it there are 4 kinds.
  EXPECT_EQ(map->num_bit_tiles(), 5);
}

TEST(VisibilityTest, ManyRangesFallBackToBits) {
  auto tokens = coords_range(0, 1024);
  for (auto& token : tokens) token.flags = static_cast<std::uint32_t>(token.pos % 2);
  const auto map = build_visibility(mask_rule(MaskOp::kKeyIs, 0), {}, tokens, tokens, {}, {}, {});
  ASSERT_TRUE(map);
  EXPECT_EQ(map->num_bit_tiles(), 1);
  EXPECT_EQ(map->num_visible_pairs(), 1024 * 512);
}

TEST(VisibilityTest, CausalDiagonalIsNeverFull) {
  const auto tokens = coords_range(0, 1000);
  const auto map = build_visibility(MaskSpec{}, {}, tokens, tokens, {}, {}, {});
  ASSERT_TRUE(map);
  for (std::int64_t q_tile = 0; q_tile < map->num_q_tiles(); ++q_tile) {
    const auto runs = map->runs(q_tile);
    EXPECT_EQ(runs.back().kind, TileKind::kPartialRanges);
    EXPECT_EQ(runs.back().kv_tile_begin, q_tile * 32 / 128);
  }
}

TEST(VisibilityTest, NoQueriesOrNoKeysGiveAnEmptyMap) {
  const auto tokens = coords_range(0, 40);
  const auto no_keys = build_visibility(MaskSpec{}, {}, tokens, {}, {}, {}, {});
  ASSERT_TRUE(no_keys);
  EXPECT_EQ(no_keys->num_q_tiles(), 2);
  EXPECT_TRUE(no_keys->runs(0).empty());
  EXPECT_TRUE(no_keys->ranges(39).empty());
  const auto no_queries = build_visibility(MaskSpec{}, {}, {}, tokens, {}, {}, {});
  ASSERT_TRUE(no_queries);
  EXPECT_EQ(no_queries->num_q_tiles(), 0);
}

TEST(VisibilityTest, RefusalsNameTheArgument) {
  const auto tokens = coords_range(0, 4);
  const std::vector<std::int64_t> three{0, 1, 2};
  const std::vector<std::int64_t> negative{0, 1, 2, -1};
  const MaskSpec dense = mask_rule(MaskOp::kDense);
  const auto message = [](const Result<VisibilityMap>& result) {
    return result ? std::string("no error") : result.error().message;
  };
  EXPECT_NE(message(build_visibility(MaskSpec{{}}, {}, tokens, tokens, {}, {}, {})).find("leaves 0 values"),
            std::string::npos);
  EXPECT_NE(message(build_visibility(MaskSpec{}, {}, tokens, tokens, {}, {}, {32, 64})).find("32 x 64"),
            std::string::npos);
  EXPECT_NE(message(build_visibility(dense, {}, tokens, tokens, {}, {}, {})).find("dense"),
            std::string::npos);
  EXPECT_NE(message(build_visibility(dense, {}, tokens, tokens, three, {}, {})).find("q_row_idx has 3"),
            std::string::npos);
  EXPECT_NE(message(build_visibility(dense, {}, tokens, tokens, {}, negative, {})).find("kv_row_idx[3] = -1"),
            std::string::npos);
  auto far = tokens;
  far[3].pos = std::int64_t{1} << 62;
  EXPECT_NE(message(build_visibility(MaskSpec{}, {}, tokens, far, {}, {}, {})).find("2^60"),
            std::string::npos);
  EXPECT_NE(message(build_visibility(MaskSpec{}, {}, far, tokens, {}, {}, {})).find("query 3"),
            std::string::npos);
}

}  // namespace
}  // namespace sightline
