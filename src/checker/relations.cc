#include "checker/relations.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "checker/ask.h"
#include "checker/faulted_calls.h"
#include "checker/simulate.h"

namespace sightline::checker {
namespace {

constexpr std::int64_t kShift = 1000;

// Rounding bounds of the declared outputs, all rows.
std::vector<double> bounds_of(const Observation& o) {
  Observation only_out = without_outputs(o);
  only_out.out = o.out;
  // The spec was validated: what is declared can always be predicted.
  return Simulator(only_out, all_rows(o)).predict({})->out.bounds;
}

// A change in rounding bounds; NaN agrees with NaN alone.
double change(double a, double b, double bound) {
  if (a == b || (std::isnan(a) && std::isnan(b))) return 0.0;
  const double difference = std::abs(a - b);
  return std::isfinite(difference) ? difference / bound : std::numeric_limits<double>::infinity();
}

// The largest change of the rows that `counts`.
template <typename Counts>
double worst_change(const Observation& a, const Observation& b, const std::vector<double>& bounds,
                    Counts counts) {
  const std::int64_t width = std::int64_t{a.spec.heads.num_q_heads} * a.spec.heads.v_head_dim;
  double worst = 0;
  for (std::int64_t row = 0; row < a.q_len(); ++row) {
    if (!counts(row)) continue;
    for (std::int64_t i = row * width; i < (row + 1) * width; ++i) {
      const auto at = static_cast<std::size_t>(i);
      worst = std::max(worst, change(a.out[at], b.out[at], bounds[at]));
    }
  }
  return worst;
}

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

bool sees(const Observation& o, std::int64_t row, std::int64_t key) {
  return is_visible(o.spec.mask, {}, {o.q_coords[static_cast<std::size_t>(row)], row},
                    {o.kv_coords[static_cast<std::size_t>(key)], key});
}

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

Result<RelationResult> hold_repeat(Subject& subject, const Observation& whole) {
  Observation again = without_outputs(whole);
  SIGHTLINE_CHECK(ask(subject, again));
  return RelationResult{"the same question twice", worst_change(whole, again, bounds_of(whole), every_row)};
}

Result<std::vector<RelationResult>> hold_relations(Subject& subject, const RelationInputs& in) {
  const Observation& whole = *in.whole;
  const std::vector<double> bounds = bounds_of(whole);
  std::vector<RelationResult> results;
  if (in.chunks != nullptr && chunks_change_nothing(*in.chunks)) {
    results.push_back({"whole = chunks", worst_change(whole, *in.chunks, bounds, every_row)});
  }
  const std::int64_t key = whole.kv_len() / 2;
  if (is_blind_to(whole, key)) {
    Observation edited = without_outputs(whole);
    edit(edited, key);
    SIGHTLINE_CHECK(ask(subject, edited));
    results.push_back(
        {fmt::format("an edit of token {} leaves the rows alone that must not see it", key),
         worst_change(whole, edited, bounds, [&](std::int64_t row) { return !sees(whole, row, key); })});
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
                       worst_change(whole, shifted, bounds_of(shifted), every_row)});
  }
  return results;
}

}  // namespace sightline::checker
