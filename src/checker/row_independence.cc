#include "checker/row_independence.h"

#include <algorithm>

#include "checker/answer_change.h"
#include "checker/ask.h"

namespace sightline::checker {
namespace {

constexpr std::size_t kNumRows = 3;
constexpr std::int64_t kTurn = 5;   // tokens that the inputs of a row are turned by, times its number
constexpr std::int64_t kAway = 37;  // positions between rows
// Positions left out in the middle of a row, times its number: a mere shift of all would change no rotation.
constexpr std::int64_t kGap = 3;
constexpr std::int64_t kPads = 2;  // padding in front, times the number of the row

// Another thing that a row may be answered with.
struct Mixture {
  std::string_view what;
  std::string_view slug;
  void (*take)(const Observation& other, Observation& row);
};

void take_positions(const std::vector<TokenCoord>& from, std::vector<TokenCoord>& to) {
  for (std::size_t i = 0; i < to.size(); ++i) {
    to[i].pos = from[i].pos;
    to[i].segment_start = from[i].segment_start;
  }
}

void take_query_positions(const Observation& other, Observation& row) {
  take_positions(other.q_coords, row.q_coords);
  row.q_rope_pos = other.q_rope_pos;
}

void take_all_positions(const Observation& other, Observation& row) {
  take_query_positions(other, row);
  take_positions(other.kv_coords, row.kv_coords);
  row.kv_rope_pos = other.kv_rope_pos;
}

void take_validity(const Observation& other, Observation& row) {
  const auto take = [](const std::vector<TokenCoord>& from, std::vector<TokenCoord>& to) {
    for (std::size_t i = 0; i < to.size(); ++i) to[i].valid = from[i].valid;
  };
  take(other.q_coords, row.q_coords);
  take(other.kv_coords, row.kv_coords);
}

constexpr std::string_view kIndexing = "batch.kernel_indexing";
constexpr Mixture kMixtures[] = {
    {"the positions", "rope.batch_row", take_all_positions},
    {"the positions of queries", "rope.batch_row", take_query_positions},
    {"the padding", kIndexing, take_validity},
    {"the keys", kIndexing, [](const Observation& other, Observation& row) { row.k = other.k; }},
    {"the values", kIndexing, [](const Observation& other, Observation& row) { row.v = other.v; }},
    {"the keys and values", kIndexing,
     [](const Observation& other, Observation& row) {
       row.k = other.k;
       row.v = other.v;
     }},
    {"the queries", kIndexing, [](const Observation& other, Observation& row) { row.q = other.q; }},
    {"the whole input", kIndexing, [](const Observation& other, Observation& row) { row = other; }},
};

// The tokens of one array, the first `tokens` of them moved to the end.
void turn(std::vector<double>& x, std::int64_t tokens, std::int64_t num_tokens) {
  if (num_tokens == 0) return;
  const std::int64_t width = std::ssize(x) / num_tokens;
  std::ranges::rotate(x, x.begin() + (tokens % num_tokens) * width);
}

std::vector<Observation> make_rows(const Observation& whole, const SubjectTraits& traits) {
  std::vector<Observation> rows(kNumRows, without_outputs(whole));
  for (std::size_t r = 1; r < kNumRows; ++r) {
    Observation& row = rows[r];
    const auto number = static_cast<std::int64_t>(r);
    turn(row.q, number * kTurn, row.q_len());
    turn(row.k, number * kTurn, row.kv_len());
    turn(row.v, number * kTurn, row.kv_len());
    for (std::vector<TokenCoord>* coords : {&row.q_coords, &row.kv_coords}) {
      for (std::size_t i = 0; i < coords->size(); ++i) {
        TokenCoord& coord = (*coords)[i];
        if (traits.takes_positions) {
          coord.pos += number * (kAway + (2 * i < coords->size() ? 0 : kGap));
          coord.segment_start += number * kAway;
        }
        if (traits.takes_padding && static_cast<std::int64_t>(i) < number * kPads) coord.valid = false;
      }
    }
  }
  return rows;
}

Result<void> answer_together(Subject& subject, std::vector<Observation>& rows) {
  SIGHTLINE_CHECK(subject.begin_sequence());
  SIGHTLINE_CHECK(subject.answer_batch(rows));
  for (std::size_t r = 0; r < rows.size(); ++r) {
    if (rows[r].out.empty()) return fail(ErrorKind::kInvalidContent, "row {} was answered without out", r);
    if (const Result<void> valid = validate(rows[r]); !valid) {
      return fail(ErrorKind::kInvalidContent, "row {}: its answer does not fit the question: {}", r,
                  valid.error().message);
    }
  }
  return {};
}

// How well one mixture, taken from one way to pick the other row, explains a row.
struct Explanation {
  const Mixture* mixture = nullptr;
  std::size_t other = 0;
  double misfit = 0;
};

Result<std::vector<Explanation>> explain(Subject& subject, const std::vector<Observation>& rows,
                                         std::size_t r, std::span<const double> bounds) {
  std::vector<Explanation> all;
  for (const Mixture& mixture : kMixtures) {
    Explanation best{&mixture, 0, std::numeric_limits<double>::infinity()};
    for (std::size_t other = 0; other < rows.size(); ++other) {
      if (other == r) continue;
      Observation mixed = without_outputs(rows[r]);
      mixture.take(without_outputs(rows[other]), mixed);
      SIGHTLINE_CHECK(ask(subject, mixed));
      const double misfit = worst_change(rows[r].out, mixed.out, bounds);
      if (misfit < best.misfit) best = {&mixture, other, misfit};
    }
    all.push_back(best);
  }
  return all;
}

NamedFault named(const std::vector<std::size_t>& differing,
                 const std::vector<std::vector<Explanation>>& by_row, std::size_t mixture) {
  const Explanation& first = by_row.front()[mixture];
  NamedFault fault = named_fault(first.mixture->slug);
  fault.variant = "";
  fault.what = fmt::format("row {} of a batch is answered with {} of row {}", differing.front(),
                           first.mixture->what, first.other);
  fault.parameters = {{"row", static_cast<double>(differing.front()), "row of the batch"},
                      {"taken_from", static_cast<double>(first.other), "row that it is answered with"}};
  for (const auto& explanations : by_row) fault.misfit = std::max(fault.misfit, explanations[mixture].misfit);
  return fault;
}

}  // namespace

Result<RowIndependence> hold_row_independence(Subject& subject, const RelationInputs& in) {
  std::vector<Observation> rows = make_rows(*in.whole, subject.traits());
  SIGHTLINE_CHECK(answer_together(subject, rows));
  RowIndependence result;
  result.relation.name = "a row of a batch = the row alone";
  std::vector<std::size_t> differing;
  std::vector<std::vector<Explanation>> by_row;
  for (std::size_t r = 0; r < rows.size(); ++r) {
    Observation alone = without_outputs(rows[r]);
    SIGHTLINE_CHECK(ask(subject, alone));
    // Row 0 asks what the whole asked.
    const std::vector<double> own = r == 0 ? std::vector<double>{} : out_bounds(alone);
    const std::span<const double> bounds = r == 0 ? in.bounds : own;
    const double worst = worst_change(rows[r].out, alone.out, bounds);
    result.relation.worst = std::max(result.relation.worst, worst);
    if (worst <= RelationResult::kLargest) continue;
    if (differing.empty()) result.first_row = fmt::format("row {} differs first", r);
    differing.push_back(r);
    SIGHTLINE_TRY(std::vector<Explanation> explanations, explain(subject, rows, r, bounds));
    by_row.push_back(std::move(explanations));
  }
  if (differing.empty()) return result;
  double next_best = std::numeric_limits<double>::infinity();
  for (std::size_t m = 0; m < std::size(kMixtures); ++m) {
    NamedFault fault = named(differing, by_row, m);
    if (fault.misfit <= RelationResult::kLargest) {
      result.faults.push_back(std::move(fault));
    } else {
      next_best = std::min(next_best, fault.misfit);
    }
  }
  if (result.faults.size() == 1) {
    result.faults.front().certain = differing.size() > 1 && next_best > 10 * RelationResult::kLargest;
  }
  return result;
}

}  // namespace sightline::checker
