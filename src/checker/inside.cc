#include "checker/inside.h"

#include <algorithm>
#include <numeric>

#include "checker/faulted_calls.h"
#include "checker/ranking.h"

namespace sightline::checker {
namespace {

// Weights of one head, [rows, view.num_keys] from view.key_begin on.
std::vector<double> weights_of(const Observation& o, const InsideView& view, std::span<const Fault> faults) {
  std::vector<std::int64_t> rows(static_cast<std::size_t>(view.num_queries));
  std::iota(rows.begin(), rows.end(), view.query_begin);
  Observation wanted = o;
  wanted.weights.assign(1, 0.0);  // asks for them; values are not read
  const Result<Prediction> got = Simulator(wanted, rows, std::vector{view.head}).predict(faults);
  if (!got) return {};
  std::vector<double> weights;
  const std::vector<double>& all = got->weights.values;
  for (std::int64_t i = 0; i < view.num_queries; ++i) {
    const auto row = all.begin() + (view.head * view.num_queries + i) * o.kv_len() + view.key_begin;
    weights.insert(weights.end(), row, row + view.num_keys);
  }
  return weights;
}

}  // namespace

InsideView inside_view(const Observation& o, std::int64_t row, int head, const Candidate* explanation) {
  InsideView view;
  view.head = head;
  view.num_queries = std::min(o.q_len(), kMaxInside);
  view.num_keys = std::min(o.kv_len(), kMaxInside);
  view.query_begin = std::clamp<std::int64_t>(row - kMaxInside / 4, 0, o.q_len() - view.num_queries);
  // The newest key of the last query shown, where queries are the newest tokens.
  const std::int64_t newest = o.kv_len() - o.q_len() + view.query_begin + view.num_queries;
  view.key_begin = std::clamp<std::int64_t>(newest - view.num_keys, 0, o.kv_len() - view.num_keys);
  view.declared = weights_of(o, view, {});
  view.angles = rope_frequencies(o.spec.rope, o.rope_length);
  if (explanation == nullptr) return view;
  view.explained_by = text_of(explanation->faults);
  view.explained = weights_of(o, view, explanation->faults);
  if (const Result<Faulted> faulted = plant_all(o, explanation->faults)) {
    view.explained_angles = rope_frequencies(faulted->spec.rope, o.rope_length);
  }
  return view;
}

}  // namespace sightline::checker
