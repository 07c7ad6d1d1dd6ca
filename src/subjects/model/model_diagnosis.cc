#include "sightline/subjects/model/model_diagnosis.h"

#include <algorithm>
#include <cmath>

#include "sightline/checker/named_fault.h"
#include "subjects/model/candidate_search.h"
#include "subjects/model/layer_findings.h"
#include "subjects/model/telling_text.h"
#include "subjects/model/validate_text.h"

namespace sightline::subjects {
namespace {

using checker::Report;
using checker::Verdict;

// Within noise: another fault that lies ten standard deviations (one bound) further off, over all texts, is
// excluded by the one that lies nearer.
constexpr double kFurtherOff = 1.0;

class ModelDiagnosis {
 public:
  ModelDiagnosis(Model& model, const Tokenizer& tokenizer, std::span<const ModelObservation> observations,
                 const ModelDiagnosisOptions& options)
      : model_(model),
        runner_(model, tokenizer, options),
        observations_(observations),
        options_(options),
        is_noisy_(options.types && *options.types != ForeignTypes{}) {}

  Result<Report> report() {
    SIGHTLINE_TRY(Report report, explained());
    const auto num_late = std::ranges::count_if(observations_, &ModelObservation::is_late);
    if (num_late == 0) return report;
    report.evidence.push_back(
        {fmt::format("{} texts are paired one row late: each token stands beside what the "
                     "row after it gives that token.",
                     num_late),
         static_cast<double>(num_late)});
    if (checker::exit_code(report.verdict) != 0) return report;
    report.verdict = Verdict::kConvention;
    report.summary =
        "convention: each token is paired with the row after it, one row late; read so, " + report.summary;
    return report;
  }

 private:
  Result<Report> explained() {
    Report report;
    if (options_.progress) options_.progress(0, CandidateSearch::num_steps() + 1, "as declared");
    SIGHTLINE_TRY(const double declared, hold_declared(report));
    SIGHTLINE_TRY(layers_, find_in_layers(model_, observations_, options_.tolerance));
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
      say_what_fits(report);
      return report;
    }
    std::vector<Candidate> candidates;
    if (!texts_.empty()) {
      SIGHTLINE_TRY(candidates,
                    CandidateSearch(runner_, model_.spec(), texts_, is_noisy_, options_.progress).run());
    }
    SIGHTLINE_CHECK(conclude(candidates, declared, report));
    return report;
  }

  // In bounds; the texts with log-probabilities become texts_.
  Result<double> hold_declared(Report& report) {
    double declared = 0, sum_square = 0, num_values = 0;
    for (const ModelObservation& o : observations_) {
      if (o.logprobs.empty()) continue;
      SIGHTLINE_TRY(auto bounds, runner_.bounds(o, std::nullopt));
      SIGHTLINE_TRY(const auto misfit, runner_.misfit(o, std::nullopt, *bounds));
      if (misfit->worst > declared) {
        declared = misfit->worst;
        report.first_difference = {"logprobs", {misfit->token}, misfit->expected, misfit->got};
      }
      if (misfit->first >= 0) {
        const std::int64_t known = o.chunk > 0 ? 0 : misfit->first;  // in pieces already: nothing to ask
        first_wrong_ = first_wrong_ < 0 ? known : std::min(first_wrong_, known);
      }
      const auto size = static_cast<double>(std::ssize(o.logprobs) - o.num_unseen);
      sum_square += misfit->square;
      num_values += size;
      widest_ = std::max(widest_, *std::ranges::max_element(bounds->each));
      largest_difference_ = std::max(largest_difference_, std::abs(misfit->expected - misfit->got));
      texts_.push_back({&o, std::move(*bounds), misfit->worst, misfit->square});
    }
    report.evidence.push_back(
        {fmt::format("The declared run lies {:.3g} bounds of rounding from the observed log-probabilities at "
                     "most; up to 1 is rounding.",
                     declared),
         declared});
    if (is_noisy_ && num_values > 0) {
      report.evidence.push_back({fmt::format("The widest bound, from runs rounded to {}, is {:.3g} nats.",
                                             to_string(*options_.types), widest_),
                                 widest_});
      const double mean = std::sqrt(sum_square / num_values);
      report.evidence.push_back(
          {fmt::format("The root mean square of all differences from the declared run is {:.3g} bounds.",
                       mean),
           mean});
    }
    return declared;
  }

  void say_what_fits(Report& report) const {
    const bool is_exact = is_noisy_ ? largest_difference_ <= options_.tolerance : options_.tolerance <= 2e-3;
    report.verdict = is_exact ? Verdict::kAgrees : Verdict::kRounding;
    if (is_exact) {
      report.summary = "agrees: what was seen is what the file says";
    } else if (is_noisy_) {
      report.summary = fmt::format("rounding: differs from what the file says by what {} explains",
                                   to_string(*options_.types));
    } else {
      report.summary = fmt::format("rounding: within {:g} nats of what the file says", options_.tolerance);
    }
  }

  Result<void> conclude(const std::vector<Candidate>& candidates, double declared, Report& report) const {
    report.ranked.push_back({"the file as it is", declared});
    for (const Candidate& candidate : candidates) {
      if (report.ranked.size() == checker::kMaxRanked) break;
      report.ranked.push_back({to_string(candidate.fault), candidate.worst});
    }
    std::ranges::stable_sort(report.ranked, {}, &checker::RankedHypothesis::misfit);
    double nearest = INFINITY;
    for (const Candidate& candidate : candidates) {
      if (candidate.worst <= 1) nearest = std::min(nearest, candidate.sum_square);
    }
    std::vector<const Candidate*> fitting;
    for (const Candidate& candidate : candidates) {
      const bool is_new = std::ranges::none_of(
          fitting, [&](const Candidate* c) { return c->fault.kind->slug == candidate.fault.kind->slug; });
      const bool is_further_off = is_noisy_ && candidate.sum_square > nearest + kFurtherOff;
      if (candidate.worst <= 1 && is_new && !is_further_off) fitting.push_back(&candidate);
    }
    if (fitting.empty()) {
      report.verdict = Verdict::kUnknown;
      report.summary = "unknown: it differs from what the file says, and no known fault explains it";
      if (layers_.first)
        report.summary += fmt::format("; {} is the first that differs", layers_.first->tensor);
      ask_for_chunks(report);
      return {};
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
    if (fitting.size() == 1) return {};
    std::vector<Fault> faults;
    for (const Candidate* candidate : fitting) faults.push_back(candidate->fault);
    const double needed = is_noisy_ ? widest_ : kExcluded * options_.tolerance;
    SIGHTLINE_TRY(report.next_probe,
                  telling_text(runner_, {texts_, faults, model_.spec().context_length, needed}));
    return {};
  }

  // Where every text begins as the file says and then does not, another program may have fed it in pieces.
  void ask_for_chunks(Report& report) const {
    if (first_wrong_ <= 0) return;
    report.next_probe = fmt::format(
        "the first {} log-probabilities of a text agree: if the other program fed its tokens in pieces of {} "
        "(or of a divisor of it), say --chunk {}; faults of a cache show only then",
        first_wrong_, first_wrong_, first_wrong_);
  }

  Model& model_;
  ModelRunner runner_;
  std::span<const ModelObservation> observations_;
  const ModelDiagnosisOptions& options_;
  bool is_noisy_;
  std::vector<BoundedText> texts_;
  double largest_difference_ = 0;
  double widest_ = 0;              // bound of one log-probability, nats
  std::int64_t first_wrong_ = -1;  // the earliest query of any text that the declared run misses; -1: none
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
