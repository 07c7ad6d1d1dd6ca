#include "sightline/checker/check.h"

#include <algorithm>
#include <cmath>

#include "checker/ask.h"
#include "checker/probes.h"
#include "checker/relations.h"
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

// The first output that is no number although the declared meaning has one.
std::string first_nan(const std::vector<Probe>& probes) {
  for (const Probe& probe : probes) {
    const std::vector<double>& out = probe.question.out;
    const auto bad = std::ranges::find_if(out, [](double x) { return !std::isfinite(x); });
    if (bad == out.end()) continue;
    const HeadSpec& heads = probe.question.spec.heads;
    const auto i = bad - out.begin();
    return fmt::format("out[{}, {}, {}] is {}", i / heads.v_head_dim / heads.num_q_heads,
                       i / heads.v_head_dim % heads.num_q_heads, i % heads.v_head_dim, *bad);
  }
  return {};
}

// What was asked beside the probes themselves.
struct SelfEvidence {
  std::vector<RelationResult> relations;
  std::optional<VisibleSet> visible_set;
};

void add_evidence(SelfEvidence self, Report& report) {
  for (const RelationResult& relation : self.relations) {
    report.evidence.push_back({fmt::format("{} {}: largest change in rounding bounds",
                                           relation.holds() ? "holds:" : "FAILS:", relation.name),
                               relation.worst});
  }
  if (!self.visible_set) return;
  const std::string difference = first_difference(*self.visible_set);
  report.evidence.push_back({difference.empty()
                                 ? "pairs differ between the measured and the declared visible set"
                                 : "pairs differ between the measured and the declared visible "
                                   "set: " +
                                       difference,
                             static_cast<double>(self.visible_set->num_different())});
  report.visible_set = std::move(self.visible_set);
}

// Holds the relations and measures the visible set; gives the report if the subject fails.
std::optional<Report> ask_beside(Subject& subject, const std::vector<Probe>& probes, Steps& steps,
                                 SelfEvidence& self) {
  const Observation& whole = probes.front().question;
  const Observation* chunks = probes.size() > 1 && probes[1].name == "chunks" ? &probes[1].question : nullptr;
  steps.begin("the same question twice");
  const Result<RelationResult> repeat = hold_repeat(subject, whole);
  if (!repeat) return broken_by("asked the same question twice", repeat.error());
  if (!repeat->holds()) return broken_report("asked the same question twice", "it answered otherwise");
  self.relations.push_back(*repeat);
  steps.begin("relations");
  const Result<std::vector<RelationResult>> held = hold_relations(subject, {&whole, chunks});
  if (!held) return broken_by("asked for a relation", held.error());
  self.relations.insert(self.relations.end(), held->begin(), held->end());
  steps.begin("the visible set");
  Result<VisibleSet> set = measure_visible_set(subject, chunks != nullptr ? *chunks : whole);
  if (!set) return broken_by("asked with one-hot values", set.error());
  self.visible_set = std::move(*set);
  return std::nullopt;
}

// What the answers mean when the diagnosis of the probes alone is not the last word.
void judge(const std::vector<Probe>& probes, const SelfEvidence& self, Report& report) {
  if (report.verdict == Verdict::kUnknown) {
    if (const std::string nan = first_nan(probes); !nan.empty()) {
      const Report other = broken_report("answering", nan + ", which no known fault explains");
      report.verdict = other.verdict;
      report.summary = other.summary;
    } else if (self.visible_set && self.visible_set->num_different() > 0) {
      report.summary += "; measured: " + first_difference(*self.visible_set);
    }
    return;
  }
  if (exit_code(report.verdict) != 0) return;
  const auto failed =
      std::ranges::find_if(self.relations, [](const RelationResult& r) { return !r.holds(); });
  if (failed != self.relations.end()) {
    report.verdict = Verdict::kUnknown;
    report.summary =
        fmt::format("unknown: every answer is as declared, and yet a relation fails: {}", failed->name);
  } else if (self.visible_set && self.visible_set->num_different() > 0) {
    report.verdict = Verdict::kUnknown;
    report.summary = "unknown: random inputs are answered as declared, queries of zeros are not: " +
                     first_difference(*self.visible_set);
  }
}

}  // namespace

Result<Report> check(Subject& subject, const AttentionSpec& spec, const CheckOptions& options) {
  SIGHTLINE_CHECK(validate(spec));
  if (uses(spec.mask, MaskOp::kDense) || uses(spec.mask, MaskOp::kTree)) {
    return fail(ErrorKind::kInvalidArgument, "check: the mask '{}' needs tables, which no probe has",
                to_string(spec.mask));
  }
  if (options.num_tokens != 0 && (options.num_tokens < kMinTokens || options.num_tokens > kMaxTokens)) {
    return fail(ErrorKind::kInvalidArgument, "check: num_tokens = {}, expected {} to {}", options.num_tokens,
                kMinTokens, kMaxTokens);
  }
  std::vector<Probe> probes = make_probes(spec, subject.traits(), options);
  Steps steps(options, static_cast<int>(probes.size()) + 4);
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
  SIGHTLINE_TRY(Report report, diagnose(observations));
  judge(probes, self, report);
  add_evidence(std::move(self), report);
  report.blind_spots = blind_spots(spec, subject.traits(), probes.front().question.q_len());
  if (!all_asked || !report.visible_set) {
    report.blind_spots.push_back(fmt::format("the time was over after {} probes", num_asked));
  }
  return report;
}

}  // namespace sightline::checker
