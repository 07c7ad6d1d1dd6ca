#include "checker/simulate.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <memory>
#include <numeric>
#include <optional>
#include <utility>

#include "checker/faulted_calls.h"

namespace sightline::checker {
namespace {

std::size_t at(std::int64_t i) { return static_cast<std::size_t>(i); }

// One call's answers for some rows and heads, with the bounds of each.
class CallAnswers {
 public:
  // `rows`: of the observation. `only`: as in reference::Keep.
  static Result<CallAnswers> make(const Observation& o, const Faulted& faulted, const FaultedCall& call,
                                  std::span<const std::int64_t> rows, std::span<const std::uint8_t> only) {
    CallAnswers answers;
    answers.num_keys_ = call.num_keys;
    answers.rows_.assign(rows.begin(), rows.end());
    const CallInputs in(o, faulted.spec, arrays_of(o, faulted), faulted.calls, call, rows);
    // Features were rearranged for the whole observation, layouts are read by the caller.
    reference::Deviation deviation = reference::without_rearranging(faulted.deviation);
    deviation.out_layout = reference::OutLayout::kTokensFirst;
    const reference::Keep keep{.weights = true, .only = only};
    if (reference::misreads_inputs(deviation)) {
      SIGHTLINE_TRY(reference::MisreadInputs misread,
                    reference::MisreadInputs::make(faulted.spec, in.get(), deviation));
      SIGHTLINE_TRY(answers.got_, reference::attention_forward(faulted.spec, misread.get(), keep,
                                                               reference::as_read(deviation)));
      answers.v_ = std::make_unique<std::vector<double>>(misread.v());
      // Scores of keys that are too large round as widely; a bound that wide would let them explain anything.
      const bool grows = faulted.deviation.cached_key_factor > 1;
      answers.bounds_.emplace(o, o.q, grows ? o.k : misread.k(), *answers.v_);
    } else {
      SIGHTLINE_TRY(answers.got_, reference::attention_forward(faulted.spec, in.get(), keep, deviation));
      if (faulted.rearranged) {
        answers.bounds_.emplace(o, faulted.rearranged->q(), faulted.rearranged->k(), faulted.rearranged->v());
      }
    }
    if (answers.bounds_) answers.bounds_->widen_for(faulted.spec);
    return answers;
  }

  // Row `i` of those asked for.
  [[nodiscard]] RowResult row(const HeadSpec& heads, std::int64_t i, int h) const {
    const std::int64_t q_head = i * heads.num_q_heads + h;
    const auto num_rows = static_cast<std::int64_t>(rows_.size());
    return {rows_[at(i)],
            h,
            num_keys_,
            got_.weights.data() + (h * num_rows + i) * num_keys_,
            got_.out.data() + q_head * heads.v_head_dim,
            got_.lse[at(q_head)]};
  }
  [[nodiscard]] const RoundingBounds& bounds(const RoundingBounds& usual) const {
    return bounds_ ? *bounds_ : usual;
  }

 private:
  std::int64_t num_keys_ = 0;
  std::vector<std::int64_t> rows_;
  reference::AttentionOutputs got_;
  std::unique_ptr<std::vector<double>> v_;  // where the bounds find it, wherever this moves
  std::optional<RoundingBounds> bounds_;    // of arrays that are misread
};

void append_out(const HeadSpec& heads, const RowResult& result, const RoundingBounds& bounds,
                Prediction& to) {
  to.out.values.insert(to.out.values.end(), result.out, result.out + heads.v_head_dim);
  bounds.add_out(result, to.out.bounds);
}

// Entries of a call's rows and heads that are to be computed.
using Selection = std::vector<std::uint8_t>;

void append_anything(std::int64_t count, PredictedArray& to) {
  to.values.insert(to.values.end(), at(count), 0.0);
  to.bounds.insert(to.bounds.end(), at(count), std::numeric_limits<double>::infinity());
}

// Outputs of one call that are read in another layout: each row and head stands where another belongs.
Result<void> add_laid_out(const Observation& o, const RoundingBounds& usual_bounds, const Faulted& faulted,
                          const FaultedCall& call, std::span<const std::int64_t> rows,
                          const Selection& wanted, Prediction& to) {
  const HeadSpec& heads = o.spec.heads;
  const auto source = [&](std::int64_t row, int h) {
    reference::OutSource from = reference::out_source(faulted.deviation.out_layout, call.q_end - call.q_begin,
                                                      heads.num_q_heads, {row - call.q_begin, h});
    from.row += call.q_begin;
    return from;
  };
  std::vector<std::int64_t> sources;
  for (const std::int64_t row : rows) {
    for (int h = 0; h < heads.num_q_heads; ++h) sources.push_back(source(row, h).row);
  }
  std::ranges::sort(sources);
  sources.erase(std::unique(sources.begin(), sources.end()), sources.end());
  const auto idx_of = [&](std::int64_t row) {
    return std::ranges::lower_bound(sources, row) - sources.begin();
  };
  Selection only(sources.size() * at(heads.num_q_heads), 0);
  for (const std::int64_t row : rows) {
    for (int h = 0; h < heads.num_q_heads; ++h) {
      if (!wanted.empty() && wanted[at(h)] == 0) continue;
      const reference::OutSource from = source(row, h);
      only[at(idx_of(from.row) * heads.num_q_heads + from.head)] = 1;
    }
  }
  SIGHTLINE_TRY(const CallAnswers answers, CallAnswers::make(o, faulted, call, sources, only));
  for (const std::int64_t row : rows) {
    for (int h = 0; h < heads.num_q_heads; ++h) {
      if (!wanted.empty() && wanted[at(h)] == 0) {
        append_anything(heads.v_head_dim, to.out);
        continue;
      }
      const reference::OutSource from = source(row, h);
      append_out(heads, answers.row(heads, idx_of(from.row), from.head), answers.bounds(usual_bounds), to);
    }
  }
  return {};
}

// Adds the results of one call: rows [first_idx, ...) of the predicted `num_rows`.
Result<void> add_results(const Observation& o, const RoundingBounds& usual_bounds, const Faulted& faulted,
                         const FaultedCall& call, std::span<const std::int64_t> rows, const Selection& wanted,
                         std::int64_t first_idx, std::int64_t num_rows, Prediction& to) {
  const HeadSpec& heads = o.spec.heads;
  const bool as_read = faulted.deviation.out_layout == reference::OutLayout::kTokensFirst;
  if (!o.out.empty() && !as_read) {
    SIGHTLINE_CHECK(add_laid_out(o, usual_bounds, faulted, call, rows, wanted, to));
    if (o.lse.empty() && o.weights.empty()) return {};
  }
  Selection only;
  for (std::size_t i = 0; i < rows.size(); ++i) only.insert(only.end(), wanted.begin(), wanted.end());
  SIGHTLINE_TRY(const CallAnswers answers, CallAnswers::make(o, faulted, call, rows, only));
  const RoundingBounds& bounds = answers.bounds(usual_bounds);
  for (std::int64_t i = 0; i < static_cast<std::int64_t>(rows.size()); ++i) {
    for (int h = 0; h < heads.num_q_heads; ++h) {
      if (!wanted.empty() && wanted[at(h)] == 0) {
        if (!o.out.empty() && as_read) append_anything(heads.v_head_dim, to.out);
        if (!o.lse.empty()) append_anything(1, to.lse);
        if (!o.weights.empty()) {
          std::fill_n(to.weights.bounds.begin() + (h * num_rows + first_idx + i) * o.kv_len(), o.kv_len(),
                      std::numeric_limits<double>::infinity());
        }
        continue;
      }
      const RowResult result = answers.row(heads, i, h);
      if (!o.out.empty() && as_read) append_out(heads, result, bounds, to);
      if (!o.lse.empty()) {
        to.lse.values.push_back(result.lse);
        bounds.add_lse(result, to.lse.bounds);
      }
      if (!o.weights.empty()) {
        const std::int64_t offset = (h * num_rows + first_idx + i) * o.kv_len();
        std::copy_n(result.weights, call.num_keys, to.weights.values.begin() + offset);
        bounds.set_weights(result, to.weights.bounds.data() + offset);
      }
    }
  }
  return {};
}

// Anything may stand in rows of padding behind the last token.
void free_tail_padding(std::span<const TokenCoord> coords, PredictedArray& d) {
  if (d.values.empty() || coords.empty()) return;
  const std::size_t row_size = d.values.size() / coords.size();
  for (std::size_t i = coords.size(); i-- > 0 && !coords[i].valid;) {
    std::fill_n(d.values.begin() + static_cast<std::ptrdiff_t>(i * row_size), row_size, reference::kLeftover);
    std::fill_n(d.bounds.begin() + static_cast<std::ptrdiff_t>(i * row_size), row_size,
                std::numeric_limits<double>::infinity());
  }
}

// From the weights of the faulted forward.
Result<GradientErrors> gradient_errors(const Observation& o, const RoundingBounds& bounds,
                                       const Faulted& faulted, const reference::AttentionInputs& in) {
  const HeadSpec& heads = o.spec.heads;
  reference::Deviation deviation = faulted.deviation;
  deviation.out_layout = reference::OutLayout::kTokensFirst;
  deviation.lse_is_base_2 = false;
  const reference::Keep keep{.weights = true, .only = {}};
  SIGHTLINE_TRY(reference::AttentionOutputs got,
                reference::attention_forward(faulted.spec, in, keep, deviation));
  if (deviation.backward_mask) {
    // The backward's weights are e^(score - lse of the forward), also where only the backward looks.
    AttentionSpec wider = faulted.spec;
    wider.mask = *deviation.backward_mask;
    SIGHTLINE_TRY(reference::AttentionOutputs seen, reference::attention_forward(wider, in, keep, deviation));
    for (std::int64_t i = 0; i < o.q_len(); ++i) {
      for (int h = 0; h < heads.num_q_heads; ++h) {
        const auto row = at(i * heads.num_q_heads + h);
        const double times = std::exp(seen.lse[row] - got.lse[row]);
        if (!std::isfinite(times)) continue;
        double* weights = seen.weights.data() + (h * o.q_len() + i) * o.kv_len();
        for (std::int64_t j = 0; j < o.kv_len(); ++j) weights[j] *= times;
      }
    }
    got.weights = std::move(seen.weights);
  }
  GradientErrors errors;
  errors.d_q.assign(at(o.q_len() * heads.num_q_heads), 0.0);
  errors.d_k.assign(at(o.kv_len() * heads.num_kv_heads), 0.0);
  errors.d_v = errors.d_k;
  for (std::int64_t i = 0; i < o.q_len(); ++i) {
    for (int h = 0; h < heads.num_q_heads; ++h) {
      const std::int64_t row = i * heads.num_q_heads + h;
      const RowResult result{i,
                             h,
                             o.kv_len(),
                             got.weights.data() + (h * o.q_len() + i) * o.kv_len(),
                             got.out.data() + row * heads.v_head_dim,
                             got.lse[at(row)]};
      bounds.add_gradient_errors(result, o.d_out.data() + row * heads.v_head_dim, errors);
    }
  }
  return errors;
}

Result<void> add_gradients(const Observation& o, const RoundingBounds& bounds, const Faulted& faulted,
                           Prediction& to) {
  const HeadSpec& heads = o.spec.heads;
  std::vector<std::int64_t> all_rows(at(o.q_len()));
  std::iota(all_rows.begin(), all_rows.end(), 0);
  const CallInputs in(o, faulted.spec, {o.q, o.k, o.v}, faulted.calls, faulted.calls.all().front(), all_rows);
  reference::AttentionUpstream upstream;
  upstream.d_out =
      dense_view<const double, 3>(o.d_out.data(), {o.q_len(), heads.num_q_heads, heads.v_head_dim});
  reference::Deviation deviation = faulted.deviation;
  deviation.padding_unwritten = false;  // whatever stands there is no size to round at
  SIGHTLINE_TRY(const reference::AttentionGradients grads,
                reference::attention_backward(faulted.spec, in.get(), upstream, deviation));
  SIGHTLINE_TRY(const GradientErrors errors, gradient_errors(o, bounds, faulted, in.get()));
  if (!o.d_q.empty()) to.d_q = {grads.d_q, bounds.of_gradient(grads.d_q, errors.d_q)};
  if (!o.d_k.empty()) to.d_k = {grads.d_k, bounds.of_gradient(grads.d_k, errors.d_k)};
  if (!o.d_v.empty()) to.d_v = {grads.d_v, bounds.of_gradient(grads.d_v, errors.d_v)};
  if (faulted.deviation.padding_unwritten) {
    free_tail_padding(o.q_coords, to.d_q);
    free_tail_padding(o.kv_coords, to.d_k);
    free_tail_padding(o.kv_coords, to.d_v);
  }
  return {};
}

}  // namespace

Simulator::Simulator(const Observation& observation, std::vector<std::int64_t> rows, bool with_gradients)
    : observation_(&observation),
      rows_(std::move(rows)),
      with_gradients_(with_gradients),
      bounds_(observation) {}

Simulator::Simulator(const Observation& observation, std::vector<std::int64_t> rows, std::vector<int> heads)
    : Simulator(observation, std::move(rows), false) {
  heads_ = std::move(heads);
}

Result<Prediction> Simulator::predict(std::span<const Fault> faults) const {
  const Observation& o = *observation_;
  SIGHTLINE_TRY(const Faulted faulted, plant_all(o, faults));
  RoundingBounds bounds = bounds_;
  bounds.widen_for(faulted.spec);
  Prediction prediction;
  const auto num_rows = static_cast<std::int64_t>(rows_.size());
  if (!o.weights.empty()) {
    prediction.weights.values.assign(at(o.spec.heads.num_q_heads * num_rows * o.kv_len()), 0.0);
    prediction.weights.bounds.assign(prediction.weights.values.size(), RoundingBounds::kSmallest);
  }
  Selection wanted(heads_.empty() ? 0 : at(o.spec.heads.num_q_heads), 0);
  for (const int h : heads_) wanted[at(h)] = 1;
  auto begin = rows_.begin();
  for (const FaultedCall& call : faulted.calls.all()) {
    const auto end = std::lower_bound(begin, rows_.end(), call.q_end);
    const std::span<const std::int64_t> rows(begin, end);
    if (!rows.empty()) {
      SIGHTLINE_CHECK(
          add_results(o, bounds, faulted, call, rows, wanted, begin - rows_.begin(), num_rows, prediction));
    }
    begin = end;
  }
  if (with_gradients_ && (!o.d_q.empty() || !o.d_k.empty() || !o.d_v.empty())) {
    SIGHTLINE_CHECK(add_gradients(o, bounds, faulted, prediction));
  }
  return prediction;
}

}  // namespace sightline::checker
