#include "subjects/model/faulted_run.h"

#include <algorithm>
#include <cmath>

#include "sightline/generate/generate.h"

namespace sightline::subjects {
namespace {

constexpr double kRatioCap = 1e4;

ModelMisfit compare(const std::vector<double>& observed, const std::vector<double>& ours, double tolerance) {
  ModelMisfit misfit;
  for (std::size_t i = 0; i < observed.size(); ++i) {
    const double difference = std::abs(observed[i] - ours[i]);
    const double ratio = std::isfinite(difference) ? difference / tolerance : INFINITY;
    misfit.mean_square += std::min(ratio, kRatioCap) * std::min(ratio, kRatioCap);
    if (misfit.token < 0 || ratio > misfit.worst) {
      misfit.worst = ratio;
      misfit.token = static_cast<std::int64_t>(i) + 1;
      misfit.expected = ours[i];
      misfit.got = observed[i];
    }
  }
  misfit.mean_square /= static_cast<double>(observed.size());
  return misfit;
}

}  // namespace

Result<std::optional<ModelMisfit>> ModelRunner::misfit(const ModelObservation& o,
                                                       std::optional<Fault> fault) const {
  GenerateHooks hooks;
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
  return compare(o.logprobs, ours, tolerance_);
}

}  // namespace sightline::subjects
