#include "sightline/checker/loss.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <set>

#include "checker/loss_terms.h"
#include "checker/misfit.h"
#include "sightline/checker/named_fault.h"

namespace sightline::checker {
namespace {

Result<void> check_size(const char* name, std::size_t size, std::int64_t expected, bool is_optional) {
  if (static_cast<std::int64_t>(size) == expected || (is_optional && size == 0)) return {};
  return fail(ErrorKind::kInvalidArgument, "check_loss: {} has {} numbers, expected {}", name, size,
              expected);
}

Result<void> validate(const LossObservation& o) {
  if (o.num_rows < 1 || o.num_tokens < 2 || o.vocab_size < 1) {
    return fail(ErrorKind::kInvalidArgument,
                "check_loss: {} rows of {} tokens, vocabulary of {}; expected rows of at least 2 tokens",
                o.num_rows, o.num_tokens, o.vocab_size);
  }
  const std::int64_t positions = o.num_rows * o.num_tokens;
  const bool has_logits = !o.logits.empty();
  SIGHTLINE_CHECK(check_size("logits", o.logits.size(), positions * o.vocab_size, o.hidden_dim > 0));
  SIGHTLINE_CHECK(check_size("hidden", o.hidden.size(), positions * o.hidden_dim, has_logits));
  SIGHTLINE_CHECK(check_size("head", o.head.size(), o.vocab_size * o.hidden_dim, has_logits));
  SIGHTLINE_CHECK(check_size("labels", o.labels.size(), positions, false));
  SIGHTLINE_CHECK(check_size("input_ids", o.input_ids.size(), positions, true));
  SIGHTLINE_CHECK(check_size("micro_batches", o.micro_batch.size(), o.num_rows, true));
  SIGHTLINE_CHECK(check_size("d_head", o.d_head.size(), o.vocab_size * o.hidden_dim, true));
  if (!o.loss && o.d_head.empty()) {
    return fail(ErrorKind::kInvalidArgument, "check_loss: nothing was observed, expected loss or d_head");
  }
  if (!o.d_head.empty() && o.hidden.empty()) {
    return fail(ErrorKind::kInvalidArgument,
                "check_loss: d_head needs hidden, the states that the head reads");
  }
  for (const std::int64_t label : o.labels) {
    if (label == o.ignore_index || (label >= 0 && label < o.vocab_size)) continue;
    return fail(ErrorKind::kInvalidArgument, "check_loss: label {} is outside [0, {}) and not {}", label,
                o.vocab_size, o.ignore_index);
  }
  for (const std::int64_t id : o.input_ids) {
    if (id >= 0 && id < o.vocab_size) continue;
    return fail(ErrorKind::kInvalidArgument, "check_loss: input id {} is outside [0, {})", id, o.vocab_size);
  }
  for (const std::int64_t micro : o.micro_batch) {
    if (micro >= 0 && micro < o.num_rows) continue;
    return fail(ErrorKind::kInvalidArgument, "check_loss: micro-batch {} is outside [0, {})", micro,
                o.num_rows);
  }
  return {};
}

struct Named {
  LossMean mean;
  const char* variant;
  const char* what;
};
constexpr Named kMeans[] = {
    {LossMean::kMicroMeans, "micro_means",
     "the means of micro-batches are averaged, whatever their numbers of targets"},
    {LossMean::kRowMeans, "row_means", "the means of rows are averaged, whatever their numbers of targets"},
    {LossMean::kMicroSum, "means_added", "the means of micro-batches are added and never divided"},
    {LossMean::kDividedTwice, "divided_twice",
     "divided by the number of targets, and by that of micro-batches too"},
    {LossMean::kPositions, "all_positions", "positions without loss are counted in the mean"},
    {LossMean::kSum, "sum", "the sum is not divided at all"},
};

// What was observed and what a deviation predicts, in units of the rounding bound.
struct Fit {
  LossDeviation deviation;
  double worst = 0;
  std::int64_t num_excluding = 0;  // observations that put it beyond kExcluded
};

double ratio(double got, double expected, double bound) {
  const double difference = std::abs(got - expected);
  return std::isfinite(difference) ? difference / bound : std::numeric_limits<double>::infinity();
}

double misfit(const LossObservation& o, const LossPrediction& p) {
  double worst = o.loss ? ratio(*o.loss, p.loss, p.loss_bound) : 0.0;
  for (std::size_t i = 0; i < o.d_head.size(); ++i) {
    worst = std::max(worst, ratio(o.d_head[i], p.d_head[i], p.d_head_bound));
  }
  return p.num_targets == 0 ? std::numeric_limits<double>::infinity() : worst;
}

Fit fit(std::span<const LossObservation> all, const LossDeviation& deviation) {
  Fit fit{deviation};
  for (const LossObservation& o : all) {
    const double worst = misfit(o, predict_loss(o, deviation));
    fit.worst = std::max(fit.worst, worst);
    if (worst > kExcluded) ++fit.num_excluding;
  }
  return fit;
}

// Every deviation of at most two fields, fewest first.
std::vector<LossDeviation> deviations(std::span<const LossObservation> all) {
  std::set<std::int64_t> values;
  bool has_ignored = false, has_rows = false, has_micro = false;
  for (const LossObservation& o : all) {
    for (const std::int64_t label : o.labels) {
      if (label != o.ignore_index) values.insert(label);
      has_ignored = has_ignored || label == o.ignore_index;
    }
    has_rows = has_rows || o.num_rows > 1;
    has_micro = has_micro || !o.micro_batch.empty();
  }
  constexpr std::size_t kMaxValues = 64;
  const bool tries_values = values.size() <= kMaxValues;
  const bool has_ids = std::ranges::all_of(all, [](const auto& o) { return !o.input_ids.empty(); });
  std::vector<LossDeviation> list;
  const auto add = [&](LossDeviation deviation) {
    if (deviation.count() >= 1 && deviation.count() <= 2) list.push_back(deviation);
  };
  for (const std::int64_t shift : {1, 2, 0, 3, -1}) {
    std::vector<LossMean> means{LossMean::kAllTargets};
    for (const Named& named : kMeans) {
      const bool is_of_micro = named.mean == LossMean::kMicroMeans || named.mean == LossMean::kMicroSum ||
                               named.mean == LossMean::kDividedTwice;
      if (is_of_micro ? has_micro : named.mean != LossMean::kRowMeans || has_rows)
        means.push_back(named.mean);
    }
    for (const LossMean mean : means) {
      LossDeviation deviation;
      deviation.shift = shift;
      deviation.mean = mean;
      add(deviation);
      if (tries_values) {
        for (const std::int64_t value : values) {
          deviation.ignored_value = value;
          add(deviation);
        }
        deviation.ignored_value.reset();
      }
      deviation.counts_ignored = true;
      if (has_ids && has_ignored) add(deviation);
    }
  }
  std::ranges::stable_sort(list, {}, &LossDeviation::count);
  return list;
}

// The factor that brings the declared objective nearest to everything, by least squares in rounding bounds.
double measured_factor(std::span<const LossObservation> all) {
  double products = 0, squares = 0;
  for (const LossObservation& o : all) {
    const LossPrediction p = predict_loss(o, {});
    const auto look = [&](double got, double expected, double bound) {
      products += got / bound * expected / bound;
      squares += expected / bound * expected / bound;
    };
    if (o.loss) look(*o.loss, p.loss, p.loss_bound);
    for (std::size_t i = 0; i < o.d_head.size(); ++i) look(o.d_head[i], p.d_head[i], p.d_head_bound);
  }
  return products / squares;
}

NamedFault named(std::string_view slug, std::string variant, std::string what,
                 std::vector<MeasuredParameter> parameters) {
  NamedFault fault = named_fault(slug);
  fault.variant = std::move(variant);
  fault.what = std::move(what);
  fault.parameters = std::move(parameters);
  return fault;
}

std::vector<NamedFault> faults_of(const LossDeviation& d) {
  std::vector<NamedFault> faults;
  if (d.shift != 1) {
    const char* what = d.shift == 0  ? "outputs are compared with their own tokens: labels are not shifted"
                       : d.shift < 0 ? "outputs are compared with earlier tokens"
                                     : "targets are shifted more than once";
    faults.push_back(
        named("loss.label_shift", "", what,
              {{"shift", static_cast<double>(d.shift), "positions between an output and its target"}}));
  }
  if (d.ignored_value) {
    faults.push_back(named("loss.scope", "by_value", "labels of one value carry no loss, wherever they stand",
                           {{"value", static_cast<double>(*d.ignored_value), "the label"}}));
  }
  if (d.counts_ignored) {
    faults.push_back(named("loss.scope", "ignored", "positions whose label is to be ignored carry loss", {}));
  }
  for (const Named& mean : kMeans) {
    if (mean.mean == d.mean) faults.push_back(named("loss.normalisation", mean.variant, mean.what, {}));
  }
  if (d.factor != 1) {
    faults.push_back(named("loss.normalisation", "factor", "everything is multiplied by a number",
                           {{"factor", d.factor, "times the mean over all targets"}}));
  }
  return faults;
}

std::string text_of(const LossDeviation& deviation) {
  std::string text;
  for (const NamedFault& fault : faults_of(deviation)) {
    text += (text.empty() ? "" : " and ") + full_name(fault);
    for (const MeasuredParameter& p : fault.parameters) text += fmt::format(":{}={:.6g}", p.name, p.value);
  }
  return text;
}

std::set<std::string> slugs_of(const LossDeviation& deviation) {
  std::set<std::string> slugs;
  for (const NamedFault& fault : faults_of(deviation)) slugs.insert(fault.slug);
  return slugs;
}

std::optional<Difference> first_difference(const LossObservation& o) {
  const LossPrediction p = predict_loss(o, {});
  if (o.loss && ratio(*o.loss, p.loss, p.loss_bound) > kFits) return Difference{"loss", {}, p.loss, *o.loss};
  for (std::size_t i = 0; i < o.d_head.size(); ++i) {
    if (ratio(o.d_head[i], p.d_head[i], p.d_head_bound) <= kFits) continue;
    const auto idx = static_cast<std::int64_t>(i);
    return Difference{"d_head", {idx / o.hidden_dim, idx % o.hidden_dim}, p.d_head[i], o.d_head[i]};
  }
  return std::nullopt;
}

void rank(const std::vector<Fit>& tried, double declared, Report& report) {
  constexpr std::size_t kMaxRanked = 12;
  report.ranked.push_back({"the declared meaning", declared});
  for (const Fit& f : tried) report.ranked.push_back({text_of(f.deviation), f.worst});
  std::ranges::stable_sort(report.ranked, {}, &RankedHypothesis::misfit);
  if (report.ranked.size() > kMaxRanked) report.ranked.resize(kMaxRanked);
}

}  // namespace

Result<Report> check_loss(std::span<const LossObservation> observations) {
  if (observations.empty()) return fail(ErrorKind::kInvalidArgument, "check_loss: no observation");
  for (const LossObservation& o : observations) SIGHTLINE_CHECK(validate(o));
  const Fit declared = fit(observations, {});
  Report report;
  std::int64_t num_targets = 0, num_numbers = 0;
  for (const LossObservation& o : observations) {
    num_targets += predict_loss(o, {}).num_targets;
    num_numbers += static_cast<std::int64_t>(o.d_head.size()) + (o.loss ? 1 : 0);
    if (!report.first_difference) report.first_difference = first_difference(o);
  }
  report.evidence.push_back({"targets were declared", static_cast<double>(num_targets)});
  report.evidence.push_back(
      {fmt::format("The declared meaning {}; up to 1 is rounding.", lies_away(declared.worst)),
       declared.worst});
  if (declared.worst <= kFits) {
    const bool is_half =
        observations[0].type == ElementType::kBf16 || observations[0].type == ElementType::kF16;
    report.verdict = is_half ? Verdict::kRounding : Verdict::kAgrees;
    report.summary = fmt::format("{}: the loss is the declared one", to_string(report.verdict));
    return report;
  }
  std::vector<Fit> tried;
  for (const LossDeviation& deviation : deviations(observations))
    tried.push_back(fit(observations, deviation));
  if (num_numbers > 1) {
    LossDeviation scaled;
    scaled.factor = measured_factor(observations);
    // Behind the single ways that have a name, before two of them.
    const auto pair = std::ranges::find_if(tried, [](const Fit& f) { return f.deviation.count() > 1; });
    tried.insert(pair, fit(observations, scaled));
  }
  rank(tried, declared.worst, report);
  // The fewest ways of being wrong that explain everything; of one set of kinds the first.
  std::vector<Fit> fitting;
  for (const Fit& f : tried) {
    if (f.worst > kFits || (!fitting.empty() && f.deviation.count() > fitting.front().deviation.count()))
      continue;
    const auto same = [&](const Fit& other) { return slugs_of(other.deviation) == slugs_of(f.deviation); };
    if (std::ranges::none_of(fitting, same)) fitting.push_back(f);
  }
  if (fitting.empty()) {
    report.summary = "unknown: the loss is not the declared one, and no known fault explains it";
    return report;
  }
  const bool is_ambiguous = fitting.size() > 1;
  const std::set<std::string> slugs = slugs_of(fitting.front().deviation);
  const bool certain = !is_ambiguous && std::ranges::all_of(tried, [&](const Fit& f) {
    return f.deviation.count() > 1 || slugs_of(f.deviation) == slugs || f.num_excluding >= 2;
  });
  std::string names;
  for (const Fit& f : fitting) {
    names += (names.empty() ? "" : ", or ") + text_of(f.deviation);
    for (NamedFault& fault : faults_of(f.deviation)) {
      fault.misfit = f.worst;
      fault.certain = certain;
      report.faults.push_back(std::move(fault));
    }
  }
  report.verdict = is_ambiguous ? Verdict::kAmbiguous : Verdict::kFault;
  report.summary = is_ambiguous ? fmt::format("ambiguous: this step cannot tell apart {}", names)
                                : fmt::format("fault: {}: {}", names, report.faults.front().what);
  if (is_ambiguous) report.next_probe = "other logits, and micro-batches with other numbers of targets";
  return report;
}

}  // namespace sightline::checker
