#include "checker/relations.h"

#include <algorithm>

#include "checker/answer_change.h"
#include "checker/ask.h"
#include "checker/faulted_calls.h"
#include "checker/simulate.h"

namespace sightline::checker {
namespace {

constexpr std::int64_t kShift = 1000;

bool every_row(std::int64_t) { return true; }

// Key `key` of `o` becomes another: loud enough to be noticed by whoever looks.
void edit(Observation& o, std::int64_t key) {
  const HeadSpec& heads = o.spec.heads;
  const auto turn = [&](std::vector<double>& x, std::int64_t width) {
    for (std::int64_t i = key * width; i < (key + 1) * width; ++i) {
      x[static_cast<std::size_t>(i)] = round_to(o.type, 3.0 - 2.0 * x[static_cast<std::size_t>(i)]);
    }
  };
  turn(o.k, std::int64_t{heads.num_kv_heads} * heads.qk_head_dim);
  turn(o.v, std::int64_t{heads.num_kv_heads} * heads.v_head_dim);
}

bool sees(const Observation& o, std::int64_t row, std::int64_t key) { return sees(o, o.spec.mask, row, key); }

bool is_blind_to(const Observation& o, std::int64_t key) {
  for (std::int64_t row = 0; row < o.q_len(); ++row) {
    if (!sees(o, row, key)) return true;
  }
  return false;
}

// True when no query of a chunk may see a key that only a later chunk brings.
bool chunks_change_nothing(const Observation& chunks) {
  const std::int64_t first = chunks.kv_len() - chunks.q_len();
  std::int64_t end = chunks.q_len();
  for (auto begin = chunks.call_begins.rbegin(); begin != chunks.call_begins.rend(); end = *begin++) {
    for (std::int64_t row = *begin; row < end; ++row) {
      for (std::int64_t key = first + end; key < chunks.kv_len(); ++key) {
        if (sees(chunks, row, key)) return false;
      }
    }
  }
  return true;
}

}  // namespace

Result<RelationResult> hold_repeat(Subject& subject, const RelationInputs& in) {
  Observation again = without_outputs(*in.whole);
  SIGHTLINE_CHECK(ask(subject, again));
  return RelationResult{"the same question twice", worst_change(*in.whole, again, in.bounds, every_row)};
}

Result<RelationResult> hold_gradient_repeat(Subject& subject, const Observation& answered) {
  Observation again = without_outputs(answered);
  SIGHTLINE_CHECK(ask(subject, again));
  if (again.d_q.size() != answered.d_q.size() || again.d_k.size() != answered.d_k.size() ||
      again.d_v.size() != answered.d_v.size()) {
    return fail(ErrorKind::kInvalidContent, "it gave other gradients than the first time");
  }
  SIGHTLINE_TRY(const Prediction declared, Simulator(answered, all_rows(answered)).predict({}));
  RelationResult result{"the same gradients twice", 0};
  result.worst = std::max({worst_change(answered.d_q, again.d_q, declared.d_q.bounds),
                           worst_change(answered.d_k, again.d_k, declared.d_k.bounds),
                           worst_change(answered.d_v, again.d_v, declared.d_v.bounds)});
  return result;
}

Result<std::vector<RelationResult>> hold_relations(Subject& subject, const RelationInputs& in) {
  const Observation& whole = *in.whole;
  std::vector<RelationResult> results;
  if (in.chunks != nullptr && chunks_change_nothing(*in.chunks)) {
    results.push_back({"whole = chunks", worst_change(whole, *in.chunks, in.bounds, every_row)});
  }
  const std::int64_t key = whole.kv_len() / 2;
  if (is_blind_to(whole, key)) {
    Observation edited = without_outputs(whole);
    edit(edited, key);
    SIGHTLINE_CHECK(ask(subject, edited));
    results.push_back(
        {fmt::format("an edit of token {} leaves the rows alone that must not see it", key),
         worst_change(whole, edited, in.bounds, [&](std::int64_t row) { return !sees(whole, row, key); })});
  }
  if (subject.traits().takes_positions && whole.spec.rope.pairing != RopePairing::kNone &&
      whole.spec.rope.scaling.kind == RopeScalingKind::kNone) {
    Observation shifted = without_outputs(whole);
    shifted.q_rope_pos.clear();
    shifted.kv_rope_pos.clear();
    for (const TokenCoord& coord : whole.q_coords) shifted.q_rope_pos.push_back(coord.pos + kShift);
    for (const TokenCoord& coord : whole.kv_coords) shifted.kv_rope_pos.push_back(coord.pos + kShift);
    SIGHTLINE_CHECK(ask(subject, shifted));
    results.push_back({fmt::format("all rotary positions + {} = as before", kShift),
                       worst_change(whole, shifted, out_bounds(shifted), every_row)});
  }
  return results;
}

}  // namespace sightline::checker
