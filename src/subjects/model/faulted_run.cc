#include "subjects/model/faulted_run.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "sightline/generate/generate.h"
#include "subjects/model/altered_settings.h"
#include "subjects/model/dithered_rows.h"

namespace sightline::subjects {
namespace {

constexpr double kRatioCap = 1e4;
constexpr int kDraws = 12;
constexpr double kDeviations = 10;       // a bound, in standard deviations
constexpr double kMeanDeviations = 1.5;  // that of the root mean square
constexpr double kOfTheMean = 0.25;

ModelMisfit compare(const ModelObservation& o, const std::vector<double>& ours,
                    const RoundingBounds& bounds) {
  const std::vector<double>& observed = o.logprobs;
  ModelMisfit misfit;
  for (auto i = static_cast<std::size_t>(o.num_unseen); i < observed.size(); ++i) {
    const double difference = std::abs(observed[i] - ours[i]);
    const double ratio = std::isfinite(difference) ? difference / bounds.each[i] : INFINITY;
    misfit.square += std::min(ratio, kRatioCap) * std::min(ratio, kRatioCap);
    if (misfit.first < 0 && ratio > 1) misfit.first = static_cast<std::int64_t>(i);
    if (misfit.token < 0 || ratio > misfit.worst) {
      misfit.worst = ratio;
      misfit.token = static_cast<std::int64_t>(i) + 1;
      misfit.expected = ours[i];
      misfit.got = observed[i];
    }
  }
  const double mean = misfit.square / static_cast<double>(std::ssize(observed) - o.num_unseen);
  misfit.worst = std::max(misfit.worst, std::sqrt(mean) / bounds.mean);
  return misfit;
}

}  // namespace

Result<std::optional<std::vector<double>>> ModelRunner::logprobs(const ModelObservation& o,
                                                                 const std::optional<Fault>& fault,
                                                                 const RowChange& rounding) const {
  if (options_.stop && options_.stop()) {
    return fail(ErrorKind::kTryLater, "the diagnosis of the model was stopped");
  }
  GenerateHooks hooks;
  hooks.change_rows = rounding;
  hooks.scores_late = o.is_late;
  bool changes = !fault;
  if (fault && fault->kind->on_spec != nullptr) {
    hooks.specs = model_.attention_specs();
    const std::vector<AttentionSpec> right = hooks.specs;
    if (!plant(*fault, std::span(hooks.specs))) return std::nullopt;
    changes = hooks.specs != right;
  }
  if (fault && fault->kind->on_call != nullptr) {
    hooks.change_call = [&](CallCoords& call) {
      const CallCoords right = call;
      Result<void> planted = plant(*fault, call);
      changes = changes || !(call == right);
      return planted;
    };
  }
  if (fault && moves_rows(*fault->kind)) {
    RowChange change = moved_rows(*fault, model_.spec());
    if (!change) return std::nullopt;
    hooks.change_rows = one_after_other(std::move(change), rounding);
    changes = true;
  }
  const std::int64_t length = std::ssize(o.ids);
  const GenerateOptions options{.max_tokens = 0,
                                .num_logprobs = 0,
                                .echo = true,
                                .chunk = o.chunk > 0 ? o.chunk : length,
                                .context = length};
  const Result<std::vector<GenerateResult>> results =
      generate(model_, tokenizer_, std::span(&o.ids, 1), options, hooks);
  if (!results && !fault) return tl::unexpected<Error>(results.error());
  if (!results || !changes) return std::nullopt;  // positions that the engine cannot take, or the right ones
  std::vector<double> ours;
  for (const TokenLogprob& entry : results->front().logprobs) {
    if (entry.logprob) ours.push_back(*entry.logprob);
  }
  return ours;
}

Result<std::optional<RoundingBounds>> ModelRunner::bounds(const ModelObservation& o,
                                                          const std::optional<Fault>& fault) const {
  RoundingBounds bounds{std::vector<double>(o.logprobs.size(), options_.tolerance), 1};
  if (!options_.types || *options_.types == ForeignTypes{}) return bounds;
  SIGHTLINE_TRY(const auto exact, logprobs(o, fault, {}));
  if (!exact) return std::nullopt;
  std::vector<double> squares(exact->size());
  for (int run = 0; run < kDraws; ++run) {
    SIGHTLINE_TRY(const auto drawn,
                  logprobs(o, fault, dithered(*options_.types, static_cast<std::uint64_t>(run) + 1)));
    if (!drawn) return std::nullopt;
    for (std::size_t i = 0; i < squares.size(); ++i) {
      const double difference = (*drawn)[i] - (*exact)[i];
      squares[i] += difference * difference / kDraws;
    }
  }
  const double mean =
      std::accumulate(squares.begin(), squares.end(), 0.0) / static_cast<double>(squares.size());
  for (std::size_t i = 0; i < squares.size(); ++i) {
    bounds.each[i] = std::max(options_.tolerance,
                              kDeviations * std::sqrt((1 - kOfTheMean) * squares[i] + kOfTheMean * mean));
  }
  bounds.mean = kMeanDeviations / kDeviations;
  return bounds;
}

Result<std::optional<ModelMisfit>> ModelRunner::misfit(const ModelObservation& o,
                                                       const std::optional<Fault>& fault,
                                                       const RoundingBounds& bounds) const {
  SIGHTLINE_TRY(const auto ours, logprobs(o, fault, {}));
  if (!ours) return std::nullopt;
  return compare(o, *ours, bounds);
}

}  // namespace sightline::subjects
