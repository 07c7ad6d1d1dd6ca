#include "sightline/reference/trace_player.h"

#include <gtest/gtest.h>

#include "reference/random_call.h"

namespace sightline::reference {
namespace {

/// Steps over the tokens of one random call: its keys, values and queries stand at rows 0 .. n - 1.
class Tape {
 public:
  Tape(AttentionSpec spec, std::int64_t num_tokens, std::uint64_t seed) : call_(spec, 0, num_tokens, seed) {}

  RandomCall& call() { return call_; }

  void append(int sequence, std::int64_t begin, std::int64_t end, std::int64_t moved_by = 0) {
    TraceStepData data;
    const AttentionInputs in = call_.inputs();
    data.k = rows(in.k, begin, end);
    data.v = rows(in.v, begin, end);
    add(TraceAppend{sequence, coords_range(begin + moved_by, end + moved_by), {}}, data);
  }
  void query(int sequence, std::int64_t begin, std::int64_t end, std::int64_t moved_by = 0) {
    TraceStepData data;
    data.q = rows(call_.inputs().q, begin, end);
    add(TraceQuery{sequence, coords_range(begin + moved_by, end + moved_by), {}}, data);
  }
  void step(TraceStep step) { add(std::move(step), {}); }

  /// All outputs of the queries, one after the other.
  std::vector<double> play(std::int64_t rope_length = 0) const {
    std::vector<double> all;
    const auto played = play_trace(call_.spec, trace_, data_, rope_length).value();
    for (const AttentionOutputs& outputs : played) {
      all.insert(all.end(), outputs.out.begin(), outputs.out.end());
    }
    return all;
  }
  Result<std::vector<AttentionOutputs>> try_play() const { return play_trace(call_.spec, trace_, data_); }

 private:
  static StridedView<const double, 3> rows(StridedView<const double, 3> view, std::int64_t begin,
                                           std::int64_t end) {
    view.data += begin * view.strides[0];
    view.shape[0] = end - begin;
    return view;
  }
  void add(TraceStep step, TraceStepData data) {
    trace_.steps.push_back(std::move(step));
    data_.push_back(data);
  }

  RandomCall call_;
  Trace trace_;
  std::vector<TraceStepData> data_;
};

AttentionSpec rotated_spec(const char* mask = "causal") {
  AttentionSpec spec = small_spec(mask);
  spec.rope = small_rope();
  return spec;
}

std::vector<double> tail(const std::vector<double>& x, std::size_t count) {
  return {x.end() - count, x.end()};
}

TEST(TracePlayerTest, TokenByTokenAndChunksEqualTheWholeCall) {
  for (const std::int64_t chunk : {1, 2, 5, 9}) {
    Tape tape(rotated_spec("causal & window(4)"), 9, 1);
    for (std::int64_t begin = 0; begin < 9; begin += chunk) {
      tape.append(0, begin, std::min<std::int64_t>(begin + chunk, 9));
      tape.query(0, begin, std::min<std::int64_t>(begin + chunk, 9));
    }
    EXPECT_EQ(tape.play(), tape.call().forward().out) << "chunk " << chunk;
  }
}

TEST(TracePlayerTest, ATruncatedDraftLeavesNoTrace) {
  Tape clean(rotated_spec(), 8, 2), drafted(rotated_spec(), 8, 2);
  clean.append(0, 0, 5);
  drafted.append(0, 0, 5);
  drafted.append(0, 6, 8);  // wrong drafts
  drafted.step(TraceTruncate{0, 5});
  for (Tape* tape : {&clean, &drafted}) {
    tape->append(0, 5, 7);
    tape->query(0, 5, 7);
  }
  EXPECT_EQ(clean.play(), drafted.play());
}

TEST(TracePlayerTest, EvictedTokensAreAsInvalidKeysAndOthersKeepTheirPositions) {
  Tape tape(rotated_spec(), 8, 3);
  tape.append(0, 0, 6);
  tape.step(TraceEvict{0, 2, 4});
  tape.append(0, 6, 8);
  tape.query(0, 6, 8);
  RandomCall whole = tape.call();
  for (const std::size_t j : {2U, 3U}) whole.kv_coords[j].valid = false;
  EXPECT_EQ(tape.play(), tail(whole.forward().out, 2 * 20));
}

TEST(TracePlayerTest, AForkLeavesItsOriginAlone) {
  Tape tape(rotated_spec(), 8, 4);
  tape.append(0, 0, 4);
  tape.step(TraceFork{0, 1});
  tape.append(1, 6, 8);
  tape.step(TraceEvict{1, 0, 2});
  tape.append(0, 4, 5);
  tape.query(0, 4, 5);
  RandomCall whole = tape.call();
  const std::vector<double> out = whole.forward().out;
  EXPECT_EQ(tape.play(), std::vector<double>(out.begin() + 4 * 20, out.begin() + 5 * 20));
}

TEST(TracePlayerTest, AShiftedKeyEqualsAFreshKeyAtTheNewPositionAlsoAfterManyShifts) {
  Tape shifted(rotated_spec(), 6, 5), fresh(rotated_spec(), 6, 5);
  shifted.append(0, 0, 5);
  for (int i = 0; i < 100; ++i) shifted.step(TraceShift{0, 0, 5, 3});
  fresh.append(0, 0, 5, 300);
  for (Tape* tape : {&shifted, &fresh}) {
    tape->append(0, 5, 6, 300);
    tape->query(0, 5, 6, 300);
  }
  // The list adds up whole positions and rotates once, so there is nothing to round.
  EXPECT_EQ(shifted.play(), fresh.play());
}

TEST(TracePlayerTest, MovingACounterWithoutRerotatingItsKeyShows) {
  for (const CacheStage stage : {CacheStage::kAfterRotation, CacheStage::kBeforeRotation}) {
    AttentionSpec spec = rotated_spec();
    spec.rope.cache_stage = stage;
    Tape right(spec, 8, 6), wrong(spec, 8, 6);
    for (Tape* tape : {&right, &wrong}) {
      tape->append(0, 0, 6);
      tape->step(TraceEvict{0, 0, 3});
      tape->step(TraceShift{0, 3, 6, -3, tape == &right});
      tape->append(0, 6, 8, -3);
      tape->query(0, 6, 8, -3);
    }
    const double difference = max_difference(right.play(), wrong.play());
    // Keys that are rotated when read cannot be forgotten.
    if (stage == CacheStage::kAfterRotation) {
      EXPECT_GT(difference, 1e-3);
    } else {
      EXPECT_EQ(difference, 0.0);
    }
  }
}

TEST(TracePlayerTest, AContextShiftIsSeenOnlyByKeysThatDidNotMove) {
  // Pure rope knows differences only: when everything moves, nothing changes.
  Tape shifted(rotated_spec(), 8, 7), still(rotated_spec(), 8, 7);
  for (Tape* tape : {&shifted, &still}) {
    tape->append(0, 0, 6);
    tape->step(TraceEvict{0, 0, 3});
    const std::int64_t delta = tape == &shifted ? -3 : 0;
    tape->step(TraceShift{0, 3, 6, delta});
    tape->append(0, 6, 8, delta);
    tape->query(0, 6, 8, delta);
  }
  EXPECT_LT(max_difference(shifted.play(), still.play()), 1e-13);
}

TEST(TracePlayerTest, AShiftMovesTheSegmentsStartSoThatKeptFirstKeysStayFirst) {
  const AttentionSpec spec = rotated_spec("causal & (first(2) | window(2))");
  Tape moved(spec, 8, 12), still(spec, 8, 12);
  for (Tape* tape : {&moved, &still}) {
    const std::int64_t delta = tape == &moved ? 5 : 0;
    tape->append(0, 0, 7);
    tape->step(TraceShift{0, 0, 7, delta});
    tape->query(0, 6, 7, delta);
  }
  EXPECT_LT(max_difference(moved.play(), still.play()), 1e-13);
}

TEST(TracePlayerTest, EvictionWithInCachePositionsEqualsTheMaskWithInCachePositions) {
  AttentionSpec spec = rotated_spec("causal & (first(2) | window(3))");
  spec.rope.position_policy = PositionPolicy::kInCache;
  Tape tape(spec, 12, 8);
  for (std::int64_t p = 0; p < 12; ++p) {
    tape.append(0, p, p + 1);
    if (p >= 5) tape.step(TraceEvict{0, p - 3, p - 2});
    tape.query(0, p, p + 1);
  }
  EXPECT_EQ(tape.play(), tape.call().forward().out);
}

TEST(TracePlayerTest, CachedKeysGoStaleUnderScalingByCurrentLengthUnlessStoredBeforeRotation) {
  for (const CacheStage stage : {CacheStage::kAfterRotation, CacheStage::kBeforeRotation}) {
    AttentionSpec spec = rotated_spec();
    spec.rope.scaling = {.kind = RopeScalingKind::kDynamicNtk,
                         .factor = 4,
                         .original_context = 4,
                         .short_divisors = {},
                         .long_divisors = {}};
    spec.rope.length_policy = RopeLengthPolicy::kCurrentLength;
    spec.rope.cache_stage = stage;
    Tape tape(spec, 8, 9);
    for (std::int64_t p = 0; p < 8; ++p) tape.append(0, p, p + 1);
    tape.query(0, 7, 8);
    const double difference = max_difference(tape.play(), tail(tape.call().forward().out, 20));
    if (stage == CacheStage::kAfterRotation) {
      EXPECT_GT(difference, 1e-4);
    } else {
      EXPECT_EQ(difference, 0.0);
    }
  }
}

TEST(TracePlayerTest, PaddingTakesNoOrdinalAndIsSeenByNobody) {
  const RandomCall call(rotated_spec(), 0, 3, 10);
  TracePlayer player = TracePlayer::create(call.spec, 0).value();
  TraceStepData data;
  data.k = call.inputs().k;
  data.v = call.inputs().v;
  TraceAppend append{0, call.kv_coords, {}};
  append.coords[1].valid = false;
  ASSERT_TRUE(player.play(append, data));
  EXPECT_EQ(player.length(0), 2);
  EXPECT_EQ(player.tokens(0)[1].coord, append.coords[2]);
  EXPECT_EQ(player.tokens(0)[1].ordinal, 1);
  data.q = call.inputs().q;
  const AttentionOutputs outputs =
      player.play(TraceQuery{0, call.q_coords, {}}, data, {.weights = true}).value();
  EXPECT_EQ(outputs.weights.size(), std::size_t{4 * 3 * 2});
}

TEST(TracePlayerTest, AStepThatFailsIsNamedAndChangesNothing) {
  Tape tape(rotated_spec(), 4, 11);
  tape.append(0, 0, 3);
  tape.step(TraceTruncate{0, 4});
  EXPECT_EQ(tape.try_play().error().message, "step 1: trace truncate: ordinals [4, 3) are not within [0, 3]");

  TracePlayer player = TracePlayer::create(rotated_spec(), 0).value();
  EXPECT_EQ(player.play(TraceEvict{7, 0, 0}, {}).error().message, "trace evict: no sequence 7");
  EXPECT_FALSE(player.play(TraceAppend{0, coords_range(0, 2), {}}, {}));
  EXPECT_FALSE(player.play(TraceFork{0, 1}, {}));
  EXPECT_EQ(player.length(0), 0);
  EXPECT_FALSE(TracePlayer::create(small_spec("causal & tree"), 0));
}

TEST(TracePlayerTest, AShiftThatWouldOverflowIsRefusedAndMovesNothing) {
  const RandomCall call(rotated_spec(), 0, 3, 12);
  TracePlayer player = TracePlayer::create(rotated_spec(), 0).value();
  TraceStepData data;
  data.k = call.inputs().k;
  data.v = call.inputs().v;
  ASSERT_TRUE(player.play(TraceAppend{0, coords_range(0, 3), {}}, data));
  for (const std::int64_t delta : {std::numeric_limits<std::int64_t>::max(),
                                   std::numeric_limits<std::int64_t>::min(), std::int64_t{1} << 53}) {
    const auto played = player.play(TraceShift{0, 0, 3, delta}, {});
    ASSERT_FALSE(played) << delta;
    EXPECT_NE(played.error().message.find("beyond 2^53"), std::string::npos) << played.error().message;
    for (std::size_t i = 0; i < 3; ++i) {
      EXPECT_EQ(player.tokens(0)[i].rope_pos, static_cast<std::int64_t>(i)) << "token 0 alone would fit";
    }
  }
  EXPECT_TRUE(player.play(TraceShift{0, 0, 3, (std::int64_t{1} << 53) - 2}, {}));
}

}  // namespace
}  // namespace sightline::reference
