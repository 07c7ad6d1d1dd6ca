// What a cache means, seen through attention: engine on pages against the oracle's plain list and plain f32
// code on a list, by the error rule.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <vector>

#include "kv_cache/trace_run.h"

namespace sightline {
namespace {

using test::QueryResult;
using test::TraceRun;

KvCacheOptions poisoned(int page_size = 16) {
  KvCacheOptions options;
  options.page_size = page_size;
  options.poison = true;
  return options;
}

AttentionSpec rotating(RopePairing pairing = RopePairing::kHalfSplit, int rotary_dim = 16,
                       const char* mask = "causal") {
  AttentionSpec spec;
  spec.heads = {4, 2, 16, 12};
  spec.mask = *parse_mask(mask);
  spec.rope.pairing = pairing;
  spec.rope.rotary_dim = rotary_dim;
  spec.rope.theta = 1000.0;
  return spec;
}

std::vector<AttentionSpec> rope_variants() {
  std::vector<AttentionSpec> specs;
  for (const RopePairing pairing : {RopePairing::kHalfSplit, RopePairing::kInterleaved}) {
    for (const int rotary_dim : {16, 6}) {
      for (const CacheStage stage : {CacheStage::kAfterRotation, CacheStage::kBeforeRotation}) {
        for (const double magnitude : {1.0, 1.2}) {
          specs.push_back(rotating(pairing, rotary_dim));
          specs.back().rope.cache_stage = stage;
          specs.back().rope.cos_sin_magnitude = magnitude;
        }
      }
    }
  }
  return specs;
}

bool same_bits(const std::vector<float>& a, const std::vector<float>& b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0;
}

// The oracle's list holds unrotated keys and rotates them at their present positions: it *is* the fresh
// cache.
TEST(KvCacheAttentionTest, ShiftedCacheEqualsFreshKeysAtTheNewPositions) {
  for (const AttentionSpec& spec : rope_variants()) {
    TraceRun run(spec, poisoned());
    const int a = run.add_sequence();
    run.append(a, 60);
    ASSERT_TRUE(run.evict(a, 4, 30));
    ASSERT_TRUE(run.shift(a, 30, 60, -26));
    EXPECT_EQ(run.next_pos(a), 34);
    EXPECT_TRUE(run.query(a, 10).within_rule()) << describe(spec);
    run.append(a, 5);
    EXPECT_TRUE(run.query(a, 5).within_rule()) << describe(spec);
  }
}

TEST(KvCacheAttentionTest, ShiftedCacheEqualsFreshKeysAfterAHundredShifts) {
  for (const AttentionSpec& spec : rope_variants()) {
    TraceRun run(spec, poisoned());
    const int a = run.add_sequence();
    run.append(a, 40);
    for (int i = 0; i < 100; ++i) ASSERT_TRUE(run.shift(a, 8, 40, i % 2 == 0 ? 7 : -6));
    EXPECT_TRUE(run.query(a, 6).within_rule()) << describe(spec);
  }
}

TEST(KvCacheAttentionTest, ShiftOfABf16CacheKeepsTheErrorRuleOfItsType) {
  KvCacheOptions options = poisoned();
  options.key_type = options.value_type = StorageType::kBf16;
  TraceRun run(rotating(), options);
  const int a = run.add_sequence();
  run.append(a, 40);
  for (int i = 0; i < 10; ++i) ASSERT_TRUE(run.shift(a, 8, 40, 3));
  EXPECT_TRUE(run.query(a, 6).within_rule());
}

TEST(KvCacheAttentionTest, MovingACounterWithoutReRotatingIsCaught) {
  for (const RopePairing pairing : {RopePairing::kHalfSplit, RopePairing::kInterleaved}) {
    TraceRun run(rotating(pairing), poisoned(), false);
    const int a = run.add_sequence();
    run.append(a, 60);
    ASSERT_TRUE(run.evict(a, 4, 30));
    EXPECT_TRUE(run.query(a, 10).within_rule()) << "before the shift they agree";
    ASSERT_TRUE(run.shift(a, 30, 60, -26));
    EXPECT_FALSE(run.query(a, 10).within_rule());
  }
}

TEST(KvCacheAttentionTest, EvictionEqualsTheTraceOfTheOracle) {
  for (const char* mask : {"causal", "causal & window(20)", "causal & (window(20) | first(3))"}) {
    TraceRun run(rotating(RopePairing::kHalfSplit, 16, mask), poisoned());
    const int a = run.add_sequence();
    run.append(a, 50);
    const int b = run.fork(a);
    ASSERT_TRUE(run.evict(a, 10, 40));
    run.append(a, 7);
    EXPECT_TRUE(run.query(a, 7).within_rule()) << mask;
    run.append(b, 7);
    EXPECT_TRUE(run.query(b, 7).within_rule()) << mask;
    ASSERT_TRUE(run.evict(a, 0, 2));
    run.append(a, 30);
    EXPECT_TRUE(run.query(a, 30).within_rule()) << mask;
  }
}

// StreamingLLM: kept first tokens at a capped distance; stored keys are those of the text.
TEST(KvCacheAttentionTest, InCachePositionsEqualTheTraceOfTheOracle) {
  AttentionSpec spec = rotating(RopePairing::kHalfSplit, 16, "causal & (first(4) | window(24))");
  spec.rope.position_policy = PositionPolicy::kInCache;
  TraceRun run(spec, poisoned());
  AttentionSpec text_spec = spec;
  text_spec.rope.position_policy = PositionPolicy::kText;
  TraceRun text(text_spec, poisoned());
  const int a = run.add_sequence();
  const int b = text.add_sequence();
  for (const std::int64_t n : {20, 30, 1, 1, 60, 1}) {
    run.append(a, n);
    text.append(b, n);
    const QueryResult got = run.query(a, n);
    const QueryResult other = text.query(b, n);
    EXPECT_TRUE(got.within_rule()) << run.length(a);
    EXPECT_TRUE(other.within_rule()) << text.length(b);
    EXPECT_EQ(same_bits(got.engine, other.engine), run.length(a) <= 28) << run.length(a);
  }
  EXPECT_EQ(run.cache().view(a, 0)->page(1, 0).keys, nullptr) << "the window frees its pages here, too";
}

TEST(KvCacheAttentionTest, AppendAcrossPageEdgesKeepsPositionsToTheBit) {
  for (const int page_size : {16, 64, 128, 256}) {
    std::vector<float> whole;
    for (const std::int64_t chunk : {300, 1, 3, 16, 17, 64, 100}) {
      // Equal random numbers: one append of all tokens draws keys first, then values, so chunks differ.
      KvCacheOptions options = poisoned(page_size);
      auto cache = KvCache::create({rotating()}, options);
      ASSERT_TRUE(cache);
      const SequenceId id = cache->add_sequence();
      Rng rng(3);
      std::vector<float> keys;
      std::vector<float> values;
      for (int i = 0; i < 300 * 2 * 16; ++i) keys.push_back(static_cast<float>(rng.next_normal()));
      for (int i = 0; i < 300 * 2 * 12; ++i) values.push_back(static_cast<float>(rng.next_normal()));
      for (std::int64_t begin = 0; begin < 300; begin += chunk) {
        const std::int64_t n = std::min<std::int64_t>(chunk, 300 - begin);
        ASSERT_TRUE(cache->append(id, coords_range(begin, begin + n), {}));
        ASSERT_TRUE(cache->write(id, 0, dense_view<const float, 3>(keys.data() + begin * 32, {n, 2, 16}),
                                 dense_view<const float, 3>(values.data() + begin * 24, {n, 2, 12})));
      }
      std::vector<float> stored;
      const KvView view = *cache->view(id, 0);
      for (std::int64_t i = 0; i < 300; ++i) {
        const KvPage& page = view.page(i / page_size, 1);
        for (int d = 0; d < 16; ++d) {
          stored.push_back(static_cast<const float*>(
              page.keys)[view.layout.key_offset(StorageType::kF32, static_cast<int>(i % page_size), d)]);
        }
      }
      if (whole.empty()) whole = stored;
      EXPECT_TRUE(same_bits(stored, whole)) << page_size << " chunk " << chunk;
    }
  }
}

TEST(KvCacheAttentionTest, PoisonNeverReachesAnOutputAndChangesNoBit) {
  for (const int page_size : {16, 64, 128, 256}) {
    for (const StorageType type : {StorageType::kF32, StorageType::kBf16}) {
      KvCacheOptions options = poisoned(page_size);
      options.key_type = options.value_type = type;
      TraceRun with(rotating(RopePairing::kInterleaved, 6), options);
      options.poison = false;
      TraceRun without(rotating(RopePairing::kInterleaved, 6), options);
      for (TraceRun* run : {&with, &without}) {
        const int a = run->add_sequence();
        run->append(a, 300);
        ASSERT_TRUE(run->truncate(a, 290));
        ASSERT_TRUE(run->evict(a, 20, 200));
        run->append(a, 1);
        const int b = run->fork(a);
        run->append(b, 3);
        ASSERT_TRUE(run->shift(b, 200, 294, -180));
      }
      for (int sequence : {0, 1}) {
        const QueryResult poison = with.query(sequence, 5);
        const QueryResult zeros = without.query(sequence, 5);
        for (const float x : poison.engine) ASSERT_TRUE(std::isfinite(x)) << page_size;
        EXPECT_TRUE(same_bits(poison.engine, zeros.engine)) << page_size << " sequence " << sequence;
        EXPECT_TRUE(poison.within_rule()) << page_size;
      }
    }
  }
}

// Random steps; every append is followed by queries at its positions, the last one many times over, so that
// the largest error is one of hundreds.
void play_random(const AttentionSpec& spec, std::uint64_t seed) {
  TraceRun run(spec, poisoned());
  Rng rng(seed);
  int num_sequences = 1;
  run.add_sequence();
  for (int step = 0; step < 25; ++step) {
    const int sequence = static_cast<int>(rng.next_below(static_cast<std::uint64_t>(num_sequences)));
    const std::int64_t length = run.length(sequence);
    const auto below = [&rng](std::int64_t n) {
      return static_cast<std::int64_t>(rng.next_below(static_cast<std::uint64_t>(n)));
    };
    const std::int64_t begin = below(length + 1);
    const std::int64_t end = begin + below(length - begin + 1);
    const std::int64_t kind = length == 0 ? 9 : below(10);
    if (kind == 0) run.truncate(sequence, std::max<std::int64_t>(1, length - below(5)));
    if (kind == 1 && run.evict(sequence, begin, end)) run.shift(sequence, end, length, begin - end);
    if (kind == 2) run.evict(sequence, begin, end);
    if (kind == 3) run.shift(sequence, begin, length, below(9));
    if (kind == 4 && num_sequences < 3) {
      run.fork(sequence);
      ++num_sequences;
    }
    if (kind < 5) continue;
    const std::int64_t first = run.next_pos(sequence);
    const std::int64_t last = first + (kind == 5 ? below(40) : below(3));
    if (!run.append(sequence, coords_range(first, last + 1))) continue;
    std::vector<TokenCoord> coords = coords_range(first, last + 1);
    while (coords.size() < 24) coords.push_back(coords.back());
    ASSERT_TRUE(run.query(sequence, coords).within_rule()) << "seed " << seed << " step " << step;
  }
}

TEST(KvCacheAttentionTest, RandomTracesEqualTheOracle) {
  for (const char* mask : {"causal", "causal & (window(21) | first(3))"}) {
    for (std::uint64_t seed = 0; seed < 40; ++seed) {
      play_random(rotating(RopePairing::kHalfSplit, 12, mask), seed);
      ASSERT_FALSE(HasFatalFailure()) << mask;
    }
  }
}

}  // namespace
}  // namespace sightline
