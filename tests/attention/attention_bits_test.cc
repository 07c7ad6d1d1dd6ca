// One result: a row's bits do not depend on batch, chunks, pages, threads, padding, or company.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "attention/batch.h"
#include "sightline/base/rng.h"

namespace sightline::test {
namespace {

AttentionSpec rotary_spec(const std::string& mask) {
  AttentionSpec spec = make_spec(6, 2, 40, 24, mask);
  spec.rope.pairing = RopePairing::kHalfSplit;
  spec.rope.rotary_dim = 32;
  return spec;
}

class AttentionBitsTest : public ::testing::TestWithParam<const kernels::KernelTable*> {
 protected:
  [[nodiscard]] RunOptions options(int num_threads = 2) const { return {GetParam(), num_threads}; }
};

TEST_P(AttentionBitsTest, ChunksEqualWholeAcrossSplits) {
  Batch batch;
  batch.spec = rotary_spec("causal");
  add_sequence(batch, 2300, 2300, 1);
  const Output whole = run_contiguous(batch, options());
  for (const std::int64_t chunk : {1, 3, 17, 64}) {
    for (const std::int64_t begin : {0, 5, 100, 127, 1000, 2030, 2046, 2190}) {
      const std::int64_t end = begin + chunk;
      const Batch part = slice(batch, 0, begin, end, 0, end);
      const Output got = run_contiguous(part, options());
      for (std::int64_t i = begin; i < end; ++i) {
        ASSERT_TRUE(same_bits(whole.row(batch, i), got.row(part, i - begin)))
            << "chunk " << chunk << " row " << i;
      }
    }
  }
}

TEST_P(AttentionBitsTest, FewRowsThatRunSplitBySplitEqualManyRowsThatRunThemInTurn) {
  Batch batch;
  batch.spec = rotary_spec("causal");
  add_sequence(batch, 40, 9000, 9);
  const Output whole = run_contiguous(batch, options());
  for (const std::int64_t row : {0, 17, 39}) {
    const Batch part = slice(batch, 0, row, row + 1, 0, 9000);
    ASSERT_TRUE(same_bits(whole.row(batch, row), run_contiguous(part, options(3)).row(part, 0))) << row;
    ASSERT_TRUE(same_bits(whole.row(batch, row), run_paged(part, {}, options(3)).row(part, 0))) << row;
  }
}

TEST_P(AttentionBitsTest, PageSizesAndOrderEqualContiguous) {
  Batch batch;
  batch.spec = rotary_spec("causal");
  add_sequence(batch, 70, 2200, 2);
  add_sequence(batch, 1, 333, 3);
  const Output whole = run_contiguous(batch, options());
  EXPECT_GT(whole.stats.bytes_packed, 0);
  for (const int page_size : {16, 48, 64, 128, 256}) {
    for (const std::uint64_t seed : {1, 2}) {
      const Output got = run_paged(batch, {.page_size = page_size, .shuffle_seed = seed}, options());
      ASSERT_TRUE(same_bits(whole.out, got.out)) << page_size;
      ASSERT_TRUE(same_bits(whole.lse, got.lse)) << page_size;
      EXPECT_EQ(got.stats.bytes_packed, 0) << "pages are used in place";
    }
  }
}

TEST_P(AttentionBitsTest, KeysStoredBeforeRotationEqualKeysStoredAfter) {
  Batch batch;
  batch.spec = rotary_spec("causal");
  add_sequence(batch, 40, 300, 4);
  add_sequence(batch, 3, 77, 5);
  const Output after = run_paged(batch, {}, options());
  batch.spec.rope.cache_stage = CacheStage::kBeforeRotation;
  const Output before = run_paged(batch, {}, options());
  EXPECT_TRUE(same_bits(after.out, before.out));
  EXPECT_TRUE(same_bits(after.lse, before.lse));
}

TEST_P(AttentionBitsTest, Bf16PagesEqualKeysAndValuesRoundedByTheCaller) {
  for (const int dim : {40, 33}) {  // an odd width leaves half a pair open
    Batch batch;
    batch.spec = make_spec(6, 2, dim, 23, "causal");
    batch.spec.rope.pairing = RopePairing::kHalfSplit;
    batch.spec.rope.rotary_dim = 32;
    batch.spec.rope.cache_stage = CacheStage::kBeforeRotation;
    add_sequence(batch, 40, 300, 41);
    const Output unrounded = run_contiguous(batch, options());
    Batch rounded = batch;
    for (auto* values : {&rounded.k, &rounded.v}) {
      for (float& x : *values) x = to_f32(to_bf16(x));
    }
    const Output expected = run_contiguous(rounded, options());
    for (const int page_size : {16, 64, 256}) {
      const Output got = run_paged(
          batch, {.page_size = page_size, .key_type = StorageType::kBf16, .value_type = StorageType::kBf16},
          options());
      EXPECT_TRUE(same_bits(expected.out, got.out)) << dim << " pages of " << page_size;
      EXPECT_FALSE(same_bits(unrounded.out, got.out));
    }
  }
}

TEST_P(AttentionBitsTest, ThreadsDoNotMatter) {
  Batch batch;
  batch.spec = rotary_spec("causal & (window(700) | first(4))");
  add_sequence(batch, 150, 2500, 6);
  add_sequence(batch, 1, 2500, 7);
  add_sequence(batch, 33, 40, 8);
  const Output one = run_contiguous(batch, options(1));
  for (const int threads : {2, 3, 5}) {
    const Output many = run_contiguous(batch, options(threads));
    ASSERT_TRUE(same_bits(one.out, many.out)) << threads;
    ASSERT_TRUE(same_bits(one.lse, many.lse)) << threads;
  }
}

TEST_P(AttentionBitsTest, RowsOfABatchEqualTheSequenceAlone) {
  Batch batch;
  batch.spec = rotary_spec("causal");
  const std::pair<int, int> sizes[] = {{1, 1}, {5, 5}, {100, 260}, {1, 129}, {13, 2100}, {128, 128}};
  std::uint64_t seed = 10;
  for (const auto& [num_q, num_kv] : sizes) add_sequence(batch, num_q, num_kv, ++seed);
  const Output mixed = run_contiguous(batch, options());
  for (std::int64_t s = 0; s < batch.num_sequences(); ++s) {
    const std::int64_t num_q = sizes[s].first;
    const Batch alone = slice(batch, s, 0, num_q, 0, sizes[s].second);
    const Output got = run_contiguous(alone, options());
    for (std::int64_t i = 0; i < num_q; ++i) {
      ASSERT_TRUE(
          same_bits(mixed.row(batch, batch.q_offsets[static_cast<std::size_t>(s)] + i), got.row(alone, i)))
          << "sequence " << s << " row " << i;
    }
  }
}

TEST_P(AttentionBitsTest, LeftPaddingLeavesNoTrace) {
  Batch alone;
  alone.spec = rotary_spec("causal");
  add_sequence(alone, 150, 150, 20);
  const Output expected = run_contiguous(alone, options());
  for (const std::int64_t pads : {1, 16, 37, 128}) {
    Batch padded;
    padded.spec = alone.spec;
    std::vector<TokenCoord> coords(static_cast<std::size_t>(pads), TokenCoord{.pos = 7, .valid = false});
    for (const TokenCoord& c : alone.kv_coords) coords.push_back(c);
    add_sequence(padded, coords, coords, 21);
    const auto place = [&](const std::vector<float>& from, std::vector<float>& to) {
      std::copy(from.begin(), from.end(), to.end() - static_cast<std::ptrdiff_t>(from.size()));
    };
    place(alone.q, padded.q);
    place(alone.k, padded.k);
    place(alone.v, padded.v);
    const Output got = run_contiguous(padded, options());
    for (std::int64_t i = 0; i < 150; ++i) {
      ASSERT_TRUE(same_bits(expected.row(alone, i), got.row(padded, pads + i))) << pads << " pads, row " << i;
    }
    for (std::int64_t i = 0; i < pads; ++i) {
      for (const float x : got.row(padded, i)) EXPECT_TRUE(x == 0.0F || x == -HUGE_VALF);
    }
  }
}

TEST_P(AttentionBitsTest, PackedDocumentsEqualEachAloneOnlyUnderSegment) {
  for (const bool isolates : {true, false}) {
    Batch packed;
    packed.spec = rotary_spec(isolates ? "causal & segment" : "causal");
    std::vector<TokenCoord> coords;
    const std::int64_t lengths[] = {45, 150, 200};
    std::int64_t start = 0;
    for (int doc = 0; doc < 3; ++doc) {
      for (std::int64_t i = 0; i < lengths[doc]; ++i) {
        coords.push_back({.pos = start + i, .segment_start = start, .segment = doc});
      }
      start += lengths[doc];
    }
    add_sequence(packed, coords, coords, 30);
    for (const auto& c : coords) {
      packed.q_rope_pos.push_back(c.pos - c.segment_start);
      packed.kv_rope_pos.push_back(c.pos - c.segment_start);
    }
    const Output together = run_contiguous(packed, options());
    const Output in_pages = run_paged(packed, {}, options());
    EXPECT_TRUE(same_bits(together.out, in_pages.out)) << "documents of one cache sequence";
    start = 0;
    for (int doc = 0; doc < 3; ++doc) {
      Batch alone = slice(packed, 0, start, start + lengths[doc], start, start + lengths[doc]);
      alone.q_coords = alone.kv_coords = coords_range(0, lengths[doc]);
      const Output got = run_contiguous(alone, options());
      int differing = 0;
      for (std::int64_t i = 0; i < lengths[doc]; ++i) {
        if (!same_bits(together.row(packed, start + i), got.row(alone, i))) ++differing;
      }
      if (isolates || doc == 0) {
        EXPECT_EQ(differing, 0) << "document " << doc;
      } else {
        EXPECT_EQ(differing, lengths[doc]) << "nothing isolates documents but the mask";
      }
      start += lengths[doc];
    }
  }
}

TEST_P(AttentionBitsTest, KeysInAnyStorageOrderEqualSortedKeys) {
  Batch batch;
  batch.spec = rotary_spec("causal & window(100)");
  add_sequence(batch, 20, 300, 40);
  const Output sorted = run_contiguous(batch, options());
  Batch ring = batch;  // the first 120 keys move to the end
  const auto rotate = [](auto& values, std::ptrdiff_t width) {
    std::rotate(values.begin(), values.begin() + 120 * width, values.end());
  };
  rotate(ring.kv_coords, 1);
  rotate(ring.k, 2 * 40);
  rotate(ring.v, 2 * 24);
  const Output got = run_contiguous(ring, options());
  EXPECT_TRUE(same_bits(sorted.out, got.out));
  EXPECT_TRUE(same_bits(sorted.lse, got.lse));
}

TEST_P(AttentionBitsTest, EvictedKeysKeepTheOrdinalsOfOthers) {
  Batch full;
  full.spec = rotary_spec("causal & (window(64) | first(4))");
  add_sequence(full, 30, 700, 50);
  const Output expected = run_contiguous(full, options());
  Batch evicted;  // only keys that some query sees: the first 4 and the last 93
  evicted.spec = full.spec;
  evicted = slice(full, 0, 0, 30, 607, 700);
  const Batch first = slice(full, 0, 0, 30, 0, 4);
  evicted.kv_coords.insert(evicted.kv_coords.begin(), first.kv_coords.begin(), first.kv_coords.end());
  evicted.k.insert(evicted.k.begin(), first.k.begin(), first.k.end());
  evicted.v.insert(evicted.v.begin(), first.v.begin(), first.v.end());
  evicted.kv_offsets = {0, 97};
  for (const TokenCoord& c : evicted.kv_coords) evicted.ordinals.push_back(c.pos);
  EXPECT_TRUE(same_bits(expected.out, run_contiguous(evicted, options()).out));
  for (const int page_size : {16, 64}) {
    EXPECT_TRUE(same_bits(expected.out, run_paged(evicted, {.page_size = page_size}, options()).out))
        << page_size;
  }
}

TEST_P(AttentionBitsTest, GroupedHeadsEqualCopiedKeyHeads) {
  Batch grouped;
  grouped.spec = rotary_spec("causal");
  add_sequence(grouped, 50, 200, 60);
  Batch copied = grouped;
  copied.spec.heads.num_kv_heads = 6;
  copied.k.clear();
  copied.v.clear();
  for (std::int64_t j = 0; j < 200; ++j) {
    for (int h = 0; h < 6; ++h) {
      const auto k = grouped.k.begin() + (j * 2 + h / 3) * 40;
      const auto v = grouped.v.begin() + (j * 2 + h / 3) * 24;
      copied.k.insert(copied.k.end(), k, k + 40);
      copied.v.insert(copied.v.end(), v, v + 24);
    }
  }
  const Output a = run_contiguous(grouped, options());
  const Output b = run_contiguous(copied, options());
  EXPECT_TRUE(same_bits(a.out, b.out));
  EXPECT_TRUE(same_bits(a.lse, b.lse));
  EXPECT_EQ(a.stats.bytes_packed, 200 * 2 * (40 + 24) * 4);
  EXPECT_EQ(b.stats.bytes_packed, 3 * a.stats.bytes_packed);
}

// Logits that are more than a scale have a maximum that is no power of two, so every rescale rounds: where
// the maximum moves, and by which keys, may depend on nothing but the row.
TEST_P(AttentionBitsTest, ModifiedLogitsHaveOneResultToo) {
  constexpr std::int64_t kQueries = 60, kKeys = 4300;  // three splits
  for (const std::string what : {"alibi", "softcap and sinks", "bias"}) {
    Batch batch;
    batch.spec = rotary_spec("causal & (window(4000) | first(4))");
    ScoreSpec& score = batch.spec.score;
    add_sequence(batch, kQueries, kKeys, 70);
    if (what == "alibi") score.alibi_slopes = {0.5, 0.25, 0.125, 0.01, 0.001, 0.0};
    if (what == "softcap and sinks") {
      score.logit_softcap = 7.0;
      score.sink_logits = {0.5, -3.0, 9.0, 0.0, 40.0, -100.0};
    }
    if (what == "bias") {
      Rng rng(71);
      for (std::int64_t i = 0; i < 6 * kQueries * kKeys; ++i) {
        const auto x = static_cast<float>(rng.next_normal());
        batch.bias.push_back(x > 2.0F ? -HUGE_VALF : 3.0F * x);
      }
    }
    const Output whole = run_contiguous(batch, options());
    const auto expect_same = [&](const Output& got, const Batch& part, std::int64_t begin, const char* how) {
      for (std::int64_t i = 0; i < part.num_q(); ++i) {
        ASSERT_TRUE(same_bits(whole.row(batch, begin + i), got.row(part, i)))
            << what << ", " << how << ", row " << begin + i;
      }
    };
    for (const auto& [begin, end] : {std::pair{0, 1}, {5, 8}, {17, 40}, {59, 60}}) {
      const Batch part = slice(batch, 0, begin, end, 0, kKeys - kQueries + end);
      expect_same(run_contiguous(part, options(3)), part, begin, "chunk");
      expect_same(run_paged(part, {.page_size = 16}, options(1)), part, begin, "pages of 16");
    }
    expect_same(run_contiguous(batch, options(1)), batch, 0, "one thread");
    expect_same(run_paged(batch, {.page_size = 256}, options()), batch, 0, "pages of 256");
    Batch poisoned = batch;  // key 200 lies before every window, in a tile that some reach: the careful path
    std::fill_n(poisoned.v.begin() + 200 * 2 * 24, 2 * 24, std::numeric_limits<float>::quiet_NaN());
    const Output careful = run_contiguous(poisoned, options());
    EXPECT_GT(careful.stats.tiles_careful, 0);
    expect_same(careful, batch, 0, "careful");
  }
}

INSTANTIATE_TEST_SUITE_P(Tables, AttentionBitsTest,
                         ::testing::ValuesIn(kernels::available_tables().begin(),
                                             kernels::available_tables().end()),
                         [](const auto& table) { return std::string(table.param->name); });

}  // namespace
}  // namespace sightline::test
