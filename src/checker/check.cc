#include "sightline/checker/check.h"

#include <algorithm>
#include <cmath>

#include "checker/answer_change.h"
#include "checker/ask.h"
#include "checker/probes.h"
#include "checker/relations.h"
#include "checker/row_independence.h"
#include "checker/visible_set.h"
#include "sightline/checker/diagnose.h"

namespace sightline::checker {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::int64_t kMinTokens = 8;
constexpr std::int64_t kMaxTokens = 4096;

// Counts steps, and says when the time is over.
class Steps {
 public:
  Steps(const CheckOptions& options, int total) : options_(options), total_(total), began_(Clock::now()) {}

  void begin(std::string_view step) {
    if (options_.progress) options_.progress(done_, total_, step);
    ++done_;
  }
  [[nodiscard]] bool is_over() const {
    return options_.budget.count() > 0 && Clock::now() - began_ > options_.budget;
  }

 private:
  const CheckOptions& options_;
  int total_;
  Clock::time_point began_;
  int done_ = 0;
};

// A subject that is asked nothing once the time is over: kTryLater, which then says nothing of the subject.
class TimedSubject : public Subject {
 public:
  TimedSubject(Subject& subject, const Steps& steps) : subject_(subject), steps_(steps) {}

  [[nodiscard]] SubjectTraits traits() const override { return subject_.traits(); }
  Result<void> begin_sequence() override { return subject_.begin_sequence(); }
  Result<void> answer(Observation& call) override {
    if (has_answered_ && steps_.is_over()) return fail(ErrorKind::kTryLater, "the time of the check is over");
    SIGHTLINE_CHECK(subject_.answer(call));
    has_answered_ = true;
    return {};
  }
  Result<void> answer_batch(std::span<Observation> rows) override {
    if (steps_.is_over()) return fail(ErrorKind::kTryLater, "the time of the check is over");
    return subject_.answer_batch(rows);
  }

 private:
  Subject& subject_;
  const Steps& steps_;
  bool has_answered_ = false;
};

// The report of a subject that gave no answer; nothing where it was not asked any more.
std::optional<Report> broken_by(std::string_view step, const Error& error) {
  if (error.kind == ErrorKind::kTryLater) return std::nullopt;
  return broken_report(step, error.message);
}

// What was asked beside the probes themselves.
struct SelfEvidence {
  std::vector<RelationResult> relations;
  std::optional<VisibleSet> visible_set;
  std::vector<NamedFault> faults;        // that no sequence of calls shows, each by itself
  std::vector<NamedFault> alternatives;  // of one more; several: they explain it alike
  double cache_times = 0;                // bytes of a cached token over those it needs; 0: not told
  std::string where;                     // the first place that shows them, in words
};

void add_evidence(SelfEvidence self, Report& report) {
  for (const RelationResult& relation : self.relations) {
    const std::string change =
        std::isinf(relation.worst)
            ? "a number became NaN or infinite, or the reverse"
            : fmt::format("the largest change is {:.3g} times the rounding bound", relation.worst);
    report.evidence.push_back(
        {fmt::format("{} {}; {}.", relation.holds() ? "holds:" : "FAILS:", relation.name, change),
         relation.worst});
  }
  if (self.cache_times > 0) {
    report.evidence.push_back(
        {fmt::format("A token takes {:.3g} times the bytes in the cache that its key heads need.",
                     self.cache_times),
         self.cache_times});
  }
  if (!self.visible_set) return;
  const std::string difference = first_difference(*self.visible_set);
  const std::int64_t num_different = self.visible_set->num_different();
  report.evidence.push_back(
      {fmt::format("{} pairs differ between the measured and the declared visible set{}{}.", num_different,
                   difference.empty() ? "" : ": ", difference),
       static_cast<double>(num_different)});
  report.visible_set = std::move(self.visible_set);
}

// Keys and values that are stored once for each query head show in no answer, only in the bytes they take.
void weigh_cache(const SubjectTraits& traits, const Observation& whole, SelfEvidence& self) {
  if (traits.cache_bytes_per_token <= 0) return;
  const HeadSpec& heads = whole.spec.heads;
  const double needed =
      1.0 * heads.num_kv_heads * (heads.qk_head_dim + heads.v_head_dim) * bytes_of(whole.type);
  const double times = traits.cache_bytes_per_token / needed;
  self.cache_times = times;
  const double group = static_cast<double>(heads.num_q_heads) / heads.num_kv_heads;
  if (group <= 1 || std::abs(times - group) > 0.05 * group) return;
  NamedFault fault = named_fault("cache.gqa_expansion");
  fault.parameters = {{"times", times, "bytes of a token over those of its key heads"}};
  // A wider type of the cache takes a power of two times the bytes as well.
  const double power = std::log2(group);
  fault.certain = power != std::floor(power);
  self.faults.push_back(std::move(fault));
}

// Holds the relations and measures the visible set; gives the report if the subject fails.
std::optional<Report> ask_beside(Subject& subject, const std::vector<Probe>& probes, Steps& steps,
                                 SelfEvidence& self) {
  const Observation& whole = probes.front().question;
  weigh_cache(subject.traits(), whole, self);
  const Observation* chunks = probes.size() > 1 && probes[1].name == "chunks" ? &probes[1].question : nullptr;
  steps.begin("the same question twice");
  const std::vector<double> bounds = out_bounds(whole);
  const RelationInputs in{&whole, bounds, chunks};
  const Result<RelationResult> repeat = hold_repeat(subject, in);
  if (!repeat) return broken_by("asked the same question twice", repeat.error());
  if (!repeat->holds()) return broken_report("asked the same question twice", "it answered otherwise");
  self.relations.push_back(*repeat);
  steps.begin("relations");
  const Result<std::vector<RelationResult>> held = hold_relations(subject, in);
  if (!held) return broken_by("asked for a relation", held.error());
  self.relations.insert(self.relations.end(), held->begin(), held->end());
  if (subject.traits().takes_batch) {
    steps.begin("rows of a batch");
    Result<RowIndependence> rows = hold_row_independence(subject, in);
    if (!rows) return broken_by("asked three rows at once", rows.error());
    if (rows->relation.holds() && rows->relation.worst > 0) {
      rows->relation.name += ", not to the bit (batch.reduction_order)";
    }
    self.relations.push_back(rows->relation);
    self.alternatives = std::move(rows->faults);
    self.where = std::move(rows->first_row);
  }
  if (const Observation& last = probes.back().question; !last.d_q.empty()) {
    steps.begin("the same gradients twice");
    Result<RelationResult> gradients = hold_gradient_repeat(subject, last);
    if (!gradients) return broken_by("asked for the same gradients twice", gradients.error());
    if (gradients->holds() && gradients->worst > 0)
      gradients->name += ", not to the bit (grad.nondeterminism)";
    self.relations.push_back(*gradients);
    if (!gradients->holds()) self.faults.push_back(named_fault("grad.nondeterminism"));
  }
  steps.begin("the visible set");
  Result<VisibleSet> set = measure_visible_set(subject, chunks != nullptr ? *chunks : whole);
  if (!set) return broken_by("asked with one-hot values", set.error());
  self.visible_set = std::move(*set);
  return std::nullopt;
}

std::string names_of(const std::vector<NamedFault>& faults, std::string_view between) {
  std::string names;
  for (const NamedFault& fault : faults) {
    names += fmt::format("{}{}: {}", names.empty() ? "" : between, full_name(fault), fault.what);
  }
  return names;
}

// Puts what no sequence of calls shows beside what the diagnosis of the probes found.
void add_faults(const SelfEvidence& self, Report& report) {
  if (self.faults.empty() && self.alternatives.empty()) return;
  std::string names = names_of(self.faults, ", and ");
  if (!self.alternatives.empty()) {
    names += (names.empty() ? "" : ", and ") + names_of(self.alternatives, ", or ");
  }
  if (exit_code(report.verdict) == 0) {
    const bool is_ambiguous = self.faults.empty() && self.alternatives.size() > 1;
    report.verdict = is_ambiguous ? Verdict::kAmbiguous : Verdict::kFault;
    report.summary = fmt::format("{}: {}", to_string(report.verdict), names);
  } else {
    report.summary += "; beside it " + names;
  }
  for (const auto* faults : {&self.faults, &self.alternatives}) {
    report.faults.insert(report.faults.end(), faults->begin(), faults->end());
  }
}

// What the answers mean when the diagnosis of the probes alone is not the last word.
void judge(const SelfEvidence& self, Report& report) {
  if (report.verdict == Verdict::kUnknown) {
    if (self.visible_set && self.visible_set->num_different() > 0) {
      report.summary += "; measured: " + first_difference(*self.visible_set);
    }
  }
  add_faults(self, report);
  if (exit_code(report.verdict) != 0) return;
  const auto failed =
      std::ranges::find_if(self.relations, [](const RelationResult& r) { return !r.holds(); });
  if (failed != self.relations.end()) {
    report.verdict = Verdict::kUnknown;
    report.summary = fmt::format("unknown: every answer is as declared, and yet a relation fails: {}{}{}",
                                 failed->name, self.where.empty() ? "" : "; ", self.where);
  } else if (self.visible_set && self.visible_set->num_different() > 0) {
    report.verdict = Verdict::kUnknown;
    report.summary = "unknown: random inputs are answered as declared, queries of zeros are not: " +
                     first_difference(*self.visible_set);
  }
}

}  // namespace

Result<Report> check(Subject& subject, const AttentionSpec& spec, const CheckOptions& options) {
  SIGHTLINE_CHECK(validate(spec));
  if (uses(spec.mask, MaskOp::kDense)) {
    return fail(ErrorKind::kInvalidArgument, "check: the mask '{}' needs a matrix, which no probe has",
                to_string(spec.mask));
  }
  if (uses(spec.mask, MaskOp::kTree) && !subject.traits().takes_drafts) {
    return fail(ErrorKind::kInvalidArgument,
                "check: the mask '{}' needs a draft tree, and the subject is not told one (drafts)",
                to_string(spec.mask));
  }
  if (options.num_tokens != 0 && (options.num_tokens < kMinTokens || options.num_tokens > kMaxTokens)) {
    return fail(ErrorKind::kInvalidArgument, "check: num_tokens = {}, expected {} to {}", options.num_tokens,
                kMinTokens, kMaxTokens);
  }
  std::vector<Probe> probes = make_probes(spec, subject.traits(), options);
  Steps steps(options, static_cast<int>(probes.size()) + 6);
  TimedSubject timed(subject, steps);
  std::size_t num_asked = 0;
  for (Probe& probe : probes) {
    if (num_asked > 0 && steps.is_over()) break;
    steps.begin(probe.name);
    if (const Result<void> asked = ask(timed, probe.question); !asked) {
      const auto broken = broken_by(fmt::format("asked the probe '{}'", probe.name), asked.error());
      if (broken) return *broken;
      break;
    }
    ++num_asked;
  }
  const bool all_asked = num_asked == probes.size();
  probes.resize(num_asked);

  SelfEvidence self;
  if (!steps.is_over()) {
    if (const std::optional<Report> broken = ask_beside(timed, probes, steps, self)) return *broken;
  }

  steps.begin("diagnosis");
  std::vector<Observation> observations;
  for (const Probe& probe : probes) observations.push_back(probe.question);
  SIGHTLINE_TRY(Report report, diagnose(observations, {.stop = options.stop}));
  judge(self, report);
  add_evidence(std::move(self), report);
  report.blind_spots = blind_spots(spec, subject.traits(), probes.front().question.q_len());
  if (!all_asked || !report.visible_set) {
    report.blind_spots.push_back(fmt::format("the time was over after {} probes", num_asked));
  }
  return report;
}

}  // namespace sightline::checker
