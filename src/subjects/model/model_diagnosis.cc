#include "sightline/subjects/model/model_diagnosis.h"

#include <algorithm>
#include <cmath>

#include "sightline/checker/named_fault.h"
#include "subjects/model/faulted_run.h"
#include "subjects/model/layer_findings.h"
#include "subjects/model/validate_text.h"

namespace sightline::subjects {
namespace {

using checker::Report;
using checker::Verdict;

constexpr double kExcluded = 10.0;  // tolerances
constexpr int kRefinements = 14;    // golden sections of a continuous parameter
constexpr std::size_t kMaxRefined = 3;

// Values of a row's one parameter worth trying on a model, usual ones first. A model answers wildly to a
// wrong number, so continuous ones are tried on a fine grid, and refined within `ratio` of the best.
struct Values {
  std::vector<double> coarse;
  double ratio = 1;  // 1: not refined
};

Values on_grid(std::vector<double> usual, double low, double high, double ratio) {
  for (double x = low; x <= high * 1.0001; x *= ratio) {
    if (std::abs(std::log(x)) > 1e-9) usual.push_back(x);
  }
  return {std::move(usual), ratio};
}

Values values_of(const FaultParameter& parameter) {
  const std::string_view name = parameter.name;
  if (name == "theta") return on_grid({1e4, 5e5, 1e6, 1e5}, 10, 1e7, std::pow(10.0, 0.125));
  if (name == "factor" || name == "times") return on_grid({0.5, 2}, 0.125, 8, std::exp2(0.25));
  if (name == "offset") return {{0, 1, -1, 2, -2, 3, -3, 4, -4, 8, -8}};
  if (name == "keys") return {{1, -1, 2, -2}};
  return {{parameter.value}};
}

struct Candidate {
  Fault fault;
  double worst = 0;
  double mean_square = 0;
  int num_excluding = 0;
};

class ModelDiagnosis {
 public:
  ModelDiagnosis(Model& model, const Tokenizer& tokenizer, std::span<const ModelObservation> observations,
                 const ModelDiagnosisOptions& options)
      : model_(model),
        runner_(model, tokenizer, options.tolerance),
        observations_(observations),
        options_(options) {
    for (const ModelObservation& o : observations) {
      if (!o.logprobs.empty() && (shortest_ == nullptr || o.ids.size() < shortest_->ids.size()))
        shortest_ = &o;
    }
  }

  Result<Report> report() {
    Report report;
    progress(0, "as declared");
    double declared = 0;
    for (const ModelObservation& o : observations_) {
      if (!o.logprobs.empty()) {
        SIGHTLINE_TRY(const auto misfit, runner_.misfit(o, std::nullopt));
        if (misfit->worst > declared) {
          declared = misfit->worst;
          report.first_difference = {"logprobs", {misfit->token}, misfit->expected, misfit->got};
        }
      }
    }
    SIGHTLINE_TRY(layers_, find_in_layers(model_, observations_, options_.tolerance));
    report.evidence.push_back(
        {"tolerances lie between the observed log-probabilities and the declared run", declared});
    report.evidence.insert(report.evidence.end(), layers_.evidence.begin(), layers_.evidence.end());
    if (layers_.first) report.first_difference = layers_.first;
    if (!layers_.faults.empty()) {
      report.verdict = Verdict::kFault;
      report.faults = layers_.faults;
      report.summary = layers_.summary();
      return report;
    }
    if (declared <= 1 && !layers_.first) {
      report.first_difference.reset();
      report.verdict = options_.tolerance > 2e-3 ? Verdict::kRounding : Verdict::kAgrees;
      report.summary =
          report.verdict == Verdict::kAgrees
              ? "agrees: what was seen is what the file says"
              : fmt::format("rounding: within {:g} nats of what the file says", options_.tolerance);
      return report;
    }
    std::vector<Candidate> candidates;
    if (shortest_ != nullptr) {
      SIGHTLINE_TRY(candidates, search());
    }
    conclude(candidates, declared, report);
    return report;
  }

 private:
  void progress(int done, std::string_view step) {
    if (options_.progress) options_.progress(done, static_cast<int>(fault_table().size()) + 1, step);
  }

  // The best value of every row that the engine can run, measured on the shortest text, then held against
  // all.
  Result<std::vector<Candidate>> search() {
    std::vector<Candidate> candidates;
    int done = 0;
    for (const FaultKind& kind : fault_table()) {
      progress(++done, kind.slug);
      if (!runs_in_engine(kind)) continue;
      const Values values = kind.parameters.empty() ? Values{{0.0}} : values_of(kind.parameters.front());
      std::optional<Candidate> best;
      for (const double value : values.coarse) {
        SIGHTLINE_CHECK(try_value(kind, value, best));
        if (best && best->worst <= 1) break;
      }
      if (best) candidates.push_back(*best);
    }
    std::ranges::stable_sort(candidates, {}, &Candidate::mean_square);
    const std::size_t num_refined = std::min(kMaxRefined, candidates.size());
    for (std::size_t i = 0; i < num_refined; ++i) SIGHTLINE_CHECK(refine(candidates[i]));
    for (Candidate& candidate : candidates) SIGHTLINE_CHECK(hold_against_all(candidate));
    std::ranges::stable_sort(candidates, {}, &Candidate::worst);
    return candidates;
  }

  Result<void> try_value(const FaultKind& kind, double value, std::optional<Candidate>& best) {
    Fault fault{&kind, {}};
    if (!kind.parameters.empty()) fault.values = {value};
    for (std::size_t i = 1; i < kind.parameters.size(); ++i) fault.values.push_back(kind.parameters[i].value);
    SIGHTLINE_TRY(const auto misfit, runner_.misfit(*shortest_, fault));
    if (misfit && (!best || misfit->mean_square < best->mean_square)) {
      best = Candidate{std::move(fault), misfit->worst, misfit->mean_square, 0};
    }
    return {};
  }

  // Golden section on the logarithm around the best coarse value; then the nearest round number that fits.
  Result<void> refine(Candidate& candidate) {
    const FaultKind& kind = *candidate.fault.kind;
    if (candidate.worst <= 1 || kind.parameters.empty() || values_of(kind.parameters.front()).ratio == 1)
      return {};
    constexpr double kGolden = 0.6180339887498949;
    const double center = std::log(candidate.fault.values.front());
    const double reach = std::log(values_of(kind.parameters.front()).ratio);
    double low = center - reach, high = center + reach;
    std::optional<Candidate> best = candidate;
    const auto at_value = [&](double x) -> Result<double> {
      std::optional<Candidate> tried;
      SIGHTLINE_CHECK(try_value(kind, std::exp(x), tried));
      if (tried && tried->mean_square < best->mean_square) best = tried;
      return tried ? tried->mean_square : INFINITY;
    };
    double a = high - kGolden * (high - low), b = low + kGolden * (high - low);
    SIGHTLINE_TRY(double at_a, at_value(a));
    SIGHTLINE_TRY(double at_b, at_value(b));
    for (int i = 0; i < kRefinements; ++i) {
      if (at_a <= at_b) {
        high = b;
        b = a;
        at_b = at_a;
        a = high - kGolden * (high - low);
        SIGHTLINE_TRY(at_a, at_value(a));
      } else {
        low = a;
        a = b;
        at_a = at_b;
        b = low + kGolden * (high - low);
        SIGHTLINE_TRY(at_b, at_value(b));
      }
    }
    const double exact = best->fault.values.front();
    for (const double digits : {1e1, 1e2, 1e3}) {
      const double unit = std::pow(10.0, std::floor(std::log10(exact))) / digits;
      std::optional<Candidate> round;
      SIGHTLINE_CHECK(try_value(kind, std::round(exact / unit) * unit, round));
      if (!round || round->worst > 1) continue;
      best = round;
      break;
    }
    candidate = *best;
    return {};
  }

  Result<void> hold_against_all(Candidate& candidate) {
    // What the shortest text excludes is not run on the others; one exclusion is then all that is known.
    candidate.num_excluding = candidate.worst > kExcluded ? 1 : 0;
    const bool is_hopeless = candidate.worst > 1e3;
    for (const ModelObservation& o : observations_) {
      if (&o == shortest_ || o.logprobs.empty()) continue;
      if (is_hopeless) {
        ++candidate.num_excluding;
        continue;
      }
      SIGHTLINE_TRY(const auto misfit, runner_.misfit(o, candidate.fault));
      if (!misfit) continue;
      candidate.worst = std::max(candidate.worst, misfit->worst);
      if (misfit->worst > kExcluded) ++candidate.num_excluding;
    }
    return {};
  }

  void conclude(const std::vector<Candidate>& candidates, double declared, Report& report) const {
    report.ranked.push_back({"the file as it is", declared});
    for (const Candidate& candidate : candidates) {
      if (report.ranked.size() == checker::kMaxRanked) break;
      report.ranked.push_back({to_string(candidate.fault), candidate.worst});
    }
    std::ranges::stable_sort(report.ranked, {}, &checker::RankedHypothesis::misfit);
    std::vector<const Candidate*> fitting;
    for (const Candidate& candidate : candidates) {
      const bool is_new = std::ranges::none_of(
          fitting, [&](const Candidate* c) { return c->fault.kind->slug == candidate.fault.kind->slug; });
      if (candidate.worst <= 1 && is_new) fitting.push_back(&candidate);
    }
    if (fitting.empty()) {
      report.verdict = Verdict::kUnknown;
      report.summary = "unknown: it differs from what the file says, and no known fault explains it";
      if (layers_.first)
        report.summary += fmt::format("; {} is the first that differs", layers_.first->tensor);
      return;
    }
    std::string names;
    for (const Candidate* candidate : fitting) {
      const FaultKind& kind = *candidate->fault.kind;
      checker::NamedFault named = checker::named_fault(candidate->fault);
      named.misfit = candidate->worst;
      named.certain = fitting.size() == 1 && std::ranges::all_of(candidates, [&](const Candidate& other) {
                        return other.fault.kind->slug == kind.slug || other.num_excluding >= 2;
                      });
      report.faults.push_back(std::move(named));
      names += (names.empty() ? "" : ", or ") + to_string(candidate->fault);
    }
    report.verdict = fitting.size() == 1 ? Verdict::kFault : Verdict::kAmbiguous;
    report.summary = fitting.size() == 1 ? fmt::format("fault: {}: {}", names, report.faults.front().what)
                                         : "ambiguous: these texts cannot tell apart " + names;
  }

  Model& model_;
  ModelRunner runner_;
  std::span<const ModelObservation> observations_;
  const ModelDiagnosisOptions& options_;
  const ModelObservation* shortest_ = nullptr;
  LayerFindings layers_;
};

}  // namespace

Result<Report> diagnose_model(Model& model, const Tokenizer& tokenizer,
                              std::span<const ModelObservation> observations,
                              const ModelDiagnosisOptions& options) {
  SIGHTLINE_CHECK(validate_texts(model, observations, options.tolerance));
  return ModelDiagnosis(model, tokenizer, observations, options).report();
}

}  // namespace sightline::subjects
