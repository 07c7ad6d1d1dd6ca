// What a call is refused for, and what it counts.
#include <gtest/gtest.h>

#include <algorithm>

#include "attention/allocation_count.h"
#include "attention/batch.h"

namespace sightline::test {
namespace {

/// A valid call whose parts the tests spoil one at a time.
struct Call {
  explicit Call(AttentionSpec s, std::int64_t num_q = 10, std::int64_t num_kv = 40) {
    batch.spec = std::move(s);
    add_sequence(batch, num_q, num_kv, 1);
    out.resize(static_cast<std::size_t>(num_q * batch.spec.heads.num_q_heads * batch.spec.heads.v_head_dim),
               5.0F);
    const HeadSpec& heads = batch.spec.heads;
    queries = {batch.q_offsets, batch.q_coords, {}};
    kv.kv_offsets = batch.kv_offsets;
    kv.coords = batch.kv_coords;
    kv.k = dense_view<const float, 3>(batch.k.data(), {num_kv, heads.num_kv_heads, heads.qk_head_dim});
    kv.v = dense_view<const float, 3>(batch.v.data(), {num_kv, heads.num_kv_heads, heads.v_head_dim});
    q = dense_view<const float, 3>(batch.q.data(), {num_q, heads.num_q_heads, heads.qk_head_dim});
    out_view = dense_view<float, 3>(out.data(), {num_q, heads.num_q_heads, heads.v_head_dim});
  }
  [[nodiscard]] Result<AttentionPlan> plan() const { return plan_attention(batch.spec, queries, kv, extras); }

  Batch batch;
  std::vector<float> out;
  QueryBatch queries;
  ContiguousKv kv;
  AttentionExtras extras;
  StridedView<const float, 3> q;
  StridedView<float, 3> out_view;
};

void expect_refused(const Result<void>& got, std::initializer_list<const char*> words) {
  ASSERT_FALSE(got.has_value());
  EXPECT_EQ(got.error().kind, ErrorKind::kInvalidArgument);
  for (const char* word : words) {
    EXPECT_NE(got.error().message.find(word), std::string::npos) << got.error().message << " lacks " << word;
  }
}

Result<void> planned(const Call& call) {
  SIGHTLINE_TRY(const AttentionPlan plan, call.plan());
  return {};
}

TEST(AttentionPlanTest, RefusesHeadsThatDoNotDivideAndWidthsOutOfRangeByName) {
  for (const auto& [q_heads, kv_heads, dim, word] : {std::tuple{8, 3, 16, "num_kv_heads"},
                                                     {4, 0, 16, "num_kv_heads"},
                                                     {0, 1, 16, "num_q_heads"},
                                                     {4, 2, 0, "qk_head_dim"},
                                                     {4, 2, 4097, "qk_head_dim"}}) {
    Call call(make_spec(4, 2, 16, 16));
    call.batch.spec.heads = {q_heads, kv_heads, dim, 16};
    expect_refused(planned(call), {"plan_attention", word});
  }
}

TEST(AttentionPlanTest, RefusesASequenceWithoutQueriesAndOffsetsThatDoNotFit) {
  const auto with_offsets = [](std::vector<std::int64_t> offsets) {
    Call call(make_spec(1, 1, 8, 8));
    call.queries.q_offsets = offsets;
    return planned(call);
  };
  expect_refused(with_offsets({0, 0, 10}), {"q_offsets", "no token"});
  expect_refused(with_offsets({0, 12, 10}), {"q_offsets"});
  expect_refused(with_offsets({0, 9}), {"q_offsets", "9"});
  expect_refused(with_offsets({1, 10}), {"q_offsets"});
  expect_refused(with_offsets({0}), {"q_offsets"});
  expect_refused(with_offsets({}), {"q_offsets"});
}

TEST(AttentionPlanTest, RefusesPositionsThatDoNotFit32Bits) {
  for (const std::int64_t pos : {std::int64_t{-1}, std::int64_t{1} << 31, INT64_MAX, INT64_MIN}) {
    Call call(make_spec(1, 1, 8, 8));
    call.batch.kv_coords[3].pos = pos;
    expect_refused(planned(call), {"plan_attention", "pos"});
    call.batch.kv_coords[3].valid = false;
    EXPECT_TRUE(planned(call).has_value()) << "a pad's position is ignored";
  }
}

TEST(AttentionPlanTest, RefusesCoordinatesWhoseDifferencesWouldOverflow) {
  for (const std::int64_t x : {(std::int64_t{1} << 53) + 1, INT64_MAX, INT64_MIN}) {
    Call call(make_spec(1, 1, 8, 8));
    call.batch.kv_coords[3].segment_start = x;
    expect_refused(planned(call), {"plan_attention", "kv.coords[3].segment_start"});
    Call rotated(make_spec(1, 1, 8, 8));
    std::vector<std::int64_t> rope_pos(rotated.batch.kv_coords.size(), 0);
    rope_pos[2] = x;
    rotated.kv.rope_pos = rope_pos;
    expect_refused(planned(rotated), {"plan_attention", "kv.rope_pos[2]"});
    rotated.batch.kv_coords[2].valid = false;
    EXPECT_TRUE(planned(rotated).has_value()) << "a pad's position is ignored";
  }
}

TEST(AttentionPlanTest, RefusesEmptyWindowAndMissingTables) {
  Call call(make_spec(1, 1, 8, 8));
  call.batch.spec.mask = {{{MaskOp::kWindow, 0}}};
  expect_refused(planned(call), {"window"});
  call.batch.spec.mask = mask_rule(MaskOp::kDense);
  expect_refused(planned(call), {"dense"});
  call.batch.spec = make_spec(1, 1, 8, 8);
  call.batch.spec.rope.pairing = RopePairing::kHalfSplit;
  call.batch.spec.rope.rotary_dim = 8;
  call.batch.spec.rope.length_policy = RopeLengthPolicy::kCurrentLength;
  expect_refused(planned(call), {"length_policy"});
}

TEST(AttentionPlanTest, RefusesOrdinalsThatRepeat) {
  Call call(make_spec(1, 1, 8, 8));
  std::vector<std::int64_t> ordinals(40);
  for (std::size_t i = 0; i < 40; ++i) ordinals[i] = static_cast<std::int64_t>(2 * i);
  call.kv.ordinals = ordinals;
  EXPECT_TRUE(planned(call).has_value());
  ordinals[7] = 12;
  expect_refused(planned(call), {"ordinals", "12"});
  ordinals[7] = -1;
  expect_refused(planned(call), {"ordinals", "-1"});
}

TEST(AttentionPlanTest, ForwardRefusesShapesAndForeignPlansAndWritesNothing) {
  ThreadPool pool(1);
  AttentionContext context(pool);
  Call call(make_spec(4, 2, 16, 16));
  const auto plan = call.plan();
  ASSERT_TRUE(plan.has_value());
  const auto forward = [&](const Call& c, const AttentionSpec& spec) {
    return attention_forward(spec, *plan, c.q, c.queries, c.kv, c.extras, c.out_view, {}, context);
  };
  const auto spoiled = [&](auto spoil) {
    Call c = call;
    spoil(c);
    return forward(c, call.batch.spec);
  };
  expect_refused(spoiled([](Call& c) { c.q.shape[2] = 15; }), {"attention_forward", "q", "15", "16"});
  expect_refused(spoiled([](Call& c) { c.kv.k.shape[1] = 4; }), {"kv.k", "4", "2"});
  expect_refused(spoiled([](Call& c) { c.kv.v.shape[0] = 39; }), {"kv.v", "39"});
  expect_refused(spoiled([](Call& c) { c.out_view.shape[0] = 9; }), {"out", "9"});
  expect_refused(spoiled([](Call& c) { c.q.data = nullptr; }), {"q", "no data"});
  AttentionSpec other = call.batch.spec;
  other.mask = parse_mask("all").value();
  expect_refused(forward(call, other), {"plan", "causal", "all"});
  other = call.batch.spec;
  other.heads.num_kv_heads = 4;
  expect_refused(forward(call, other), {"plan"});
  const Call shorter(make_spec(4, 2, 16, 16), 9, 40);
  expect_refused(forward(shorter, call.batch.spec), {"plan"});
  for (const float x : call.out) EXPECT_EQ(x, 5.0F);
  EXPECT_TRUE(forward(call, call.batch.spec).has_value());
}

TEST(AttentionPlanTest, ServesLayersWithAndWithoutRotationButNotAnotherPositionPolicy) {
  AttentionSpec in_cache = make_spec(4, 2, 16, 16, "causal & (window(8) | first(3))");
  in_cache.rope.pairing = RopePairing::kHalfSplit;
  in_cache.rope.rotary_dim = 16;
  in_cache.rope.position_policy = PositionPolicy::kInCache;
  AttentionSpec unrotated = in_cache;
  unrotated.rope.pairing = RopePairing::kNone;
  AttentionSpec by_text = in_cache;
  by_text.rope.position_policy = PositionPolicy::kText;
  ThreadPool pool(1);
  AttentionContext context(pool);
  const auto forward = [&](Call& c, const AttentionPlan& plan, const AttentionSpec& spec) {
    return attention_forward(spec, plan, c.q, c.queries, c.kv, c.extras, c.out_view, {}, context);
  };
  Call expected(in_cache);
  ASSERT_TRUE(forward(expected, *expected.plan(), in_cache));
  Call call(unrotated);
  ASSERT_TRUE(forward(call, *call.plan(), in_cache));
  EXPECT_TRUE(same_bits(call.out, expected.out));
  expect_refused(forward(call, *Call(by_text).plan(), in_cache), {"plan", "position_policy"});
  expect_refused(forward(call, *expected.plan(), by_text), {"plan", "position_policy"});
}

TEST(AttentionStatsTest, CausalComputesFewPairsThatNobodySees) {
  for (const auto& [length, most] : {std::pair{512, 1.05}, {2048, 1.02}, {100, 1.25}}) {
    Batch batch;
    batch.spec = make_spec(2, 2, 8, 8);
    add_sequence(batch, length, length, 1);
    const Output got = run_contiguous(batch);
    EXPECT_EQ(got.stats.pairs_visible, std::int64_t{2} * length * (length + 1) / 2);
    EXPECT_LE(static_cast<double>(got.stats.pairs_computed),
              most * static_cast<double>(got.stats.pairs_visible));
    EXPECT_GE(got.stats.pairs_computed, got.stats.pairs_visible);
  }
}

TEST(AttentionStatsTest, WindowCostsItsWidthNotTheLength) {
  Batch batch;
  batch.spec = make_spec(1, 1, 8, 8, "causal & window(64)");
  add_sequence(batch, 4000, 4000, 1);
  const Output got = run_contiguous(batch);
  EXPECT_LE(got.stats.pairs_computed, std::int64_t{4000} * (64 + 32));
}

TEST(AttentionStatsTest, BroadcastKeyHeadIsPackedOnceAndKeysAreNeverRepeated) {
  Call call(make_spec(8, 4, 16, 24));
  call.kv.k.strides[1] = 0;
  call.kv.v.strides[1] = 0;
  ThreadPool pool(2);
  AttentionContext context(pool);
  const auto plan = call.plan();
  ASSERT_TRUE(attention_forward(call.batch.spec, *plan, call.q, call.queries, call.kv, call.extras,
                                call.out_view, {}, context));
  EXPECT_EQ(context.stats().bytes_packed, 40 * (16 + 24) * 4);
  // The same as writing the head out four times.
  Batch repeated = call.batch;
  for (std::int64_t j = 0; j < 40; ++j) {
    for (int h = 0; h < 4; ++h) {
      std::copy_n(call.batch.k.begin() + j * 64, 16, repeated.k.begin() + j * 64 + h * 16);
      std::copy_n(call.batch.v.begin() + j * 96, 24, repeated.v.begin() + j * 96 + h * 24);
    }
  }
  const Output expected = run_contiguous(repeated);
  EXPECT_TRUE(same_bits(expected.out, call.out));
  EXPECT_EQ(expected.stats.bytes_packed, 4 * 40 * (16 + 24) * 4);
}

TEST(AttentionStatsTest, NothingIsAllocatedAfterTheFirstCall) {
  AttentionSpec spec = make_spec(4, 2, 32, 32, "causal & (window(64) | first(4))");
  spec.rope.pairing = RopePairing::kHalfSplit;
  spec.rope.rotary_dim = 32;
  spec.score.alibi_slopes = alibi_slopes(4);
  Call call(spec, 60, 300);
  ThreadPool pool(2);
  AttentionContext context(pool);
  const auto plan = call.plan();
  const auto forward = [&] {
    return attention_forward(call.batch.spec, *plan, call.q, call.queries, call.kv, call.extras,
                             call.out_view, {}, context);
  };
  ASSERT_TRUE(forward());
  const std::size_t bytes = context.scratch_bytes();
  const std::int64_t before = num_allocations();
  for (int i = 0; i < 3; ++i) {
    if (!forward()) break;
  }
  EXPECT_EQ(num_allocations() - before, 0);
  EXPECT_EQ(context.scratch_bytes(), bytes);
  EXPECT_GT(bytes, 0U);
}

TEST(AttentionStatsTest, PlanBytesGrowWithTokensNotWithPairs) {
  const auto bytes = [](std::int64_t n) {
    Batch batch;
    batch.spec = make_spec(1, 1, 8, 8, "causal & window(256)");
    add_sequence(batch, n, n, 1);
    ContiguousKv kv;
    kv.kv_offsets = batch.kv_offsets;
    kv.coords = batch.kv_coords;
    return plan_attention(batch.spec, {batch.q_offsets, batch.q_coords, {}}, kv, {}).value().bytes();
  };
  EXPECT_LT(bytes(8192), 9 * bytes(1024));
}

}  // namespace
}  // namespace sightline::test
