#include "subjects/model/faulted_run.h"

#include <algorithm>
#include <cmath>
#include <map>

#include "sightline/generate/generate.h"

namespace sightline::subjects {
namespace {

constexpr double kRatioCap = 1e4;

std::size_t at(std::int64_t i) { return static_cast<std::size_t>(i); }

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

Result<std::optional<checker::Difference>> ModelRunner::first_layer(const ModelObservation& o) const {
  std::map<std::int64_t, const HiddenStates*> wanted;
  for (const HiddenStates& hidden : o.hidden) wanted[hidden.layer] = &hidden;
  const std::int64_t length = std::ssize(o.ids);
  std::optional<checker::Difference> first;
  const TensorTap tap = [&](std::string_view name, StridedView<const float, 2> rows) {
    if (first) return;
    for (const auto& [layer, hidden] : wanted) {
      if (name != fmt::format("layer.{}.output", layer)) continue;
      double square = 0;
      for (const double x : hidden->rows) square += x * x;
      const double bound = tolerance_ * std::sqrt(square / static_cast<double>(hidden->rows.size()));
      for (std::int64_t i = 0; i < rows.shape[0] && !first; ++i) {
        for (std::int64_t j = 0; j < rows.shape[1] && !first; ++j) {
          const double got = hidden->rows[at(i * rows.shape[1] + j)];
          const double ours = rows(i, j);
          if (!(std::abs(got - ours) <= bound))
            first = checker::Difference{std::string(name), {i, j}, ours, got};
        }
      }
    }
  };
  SIGHTLINE_TRY(KvCache cache, make_cache(model_, {.context = length}));
  const std::vector<SequenceId> sequences{cache.add_sequence()};
  const std::vector<std::int64_t> offsets{0, length};
  const std::vector<TokenCoord> coords = coords_range(0, length);
  const std::vector<std::int64_t> last{length - 1};
  ForwardBatch batch;
  batch.sequences = sequences;
  batch.offsets = offsets;
  batch.token_ids = o.ids;
  batch.q_coords = coords;
  batch.logit_rows = last;
  std::vector<float> logits(at(model_.spec().vocab_size));
  SIGHTLINE_CHECK(model_.forward(
      batch, cache, dense_view<float, 2>(logits.data(), {1, model_.spec().vocab_size}), {}, tap));
  return first;
}

}  // namespace sightline::subjects
