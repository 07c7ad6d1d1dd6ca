#include "sightline/checker/diagnose.h"

#include <algorithm>
#include <cmath>
#include <ranges>

#include "checker/idle_rules.h"
#include "checker/inside.h"
#include "checker/next_probe.h"
#include "checker/not_numbers.h"
#include "checker/ranking.h"
#include "checker/rounded_inside.h"
#include "checker/search.h"
#include "sightline/checker/named_fault.h"

namespace sightline::checker {
namespace {

constexpr std::size_t kMaxPairParts = 8;  ///< single faults that are tried two at a time

bool same_slugs(const Candidate& a, const Candidate& b) {
  return std::ranges::equal(
      a.faults, b.faults, {}, [](const Fault& f) { return f.kind->slug; },
      [](const Fault& f) { return f.kind->slug; });
}

NamedFault named(const Fault& fault, const Score& score, bool certain) {
  NamedFault out = named_fault(fault);
  out.misfit = score.worst;
  out.certain = certain;
  return out;
}

// Every single fault with its best parameter, best first; those that show nowhere are left out.
std::vector<Candidate> try_singles(const Searcher& searcher, const std::vector<Hypothesis>& all) {
  std::vector<Candidate> tried;
  for (const Hypothesis& hypothesis : all) {
    Candidate candidate = searcher.best(hypothesis);
    if (!candidate.faults.empty()) tried.push_back(std::move(candidate));
  }
  std::ranges::stable_sort(tried, {}, [](const Candidate& c) { return c.score.mean_square; });
  return tried;
}

// Two kinds at once, from those that alone come nearest; each parameter is measured again beside the other.
std::vector<Candidate> try_pairs(const Searcher& searcher, const std::vector<Hypothesis>& all,
                                 const std::vector<Candidate>& singles) {
  const auto hypothesis_of = [&](const Fault& fault) -> const Hypothesis& {
    return *std::ranges::find_if(all, [&](const Hypothesis& h) {
      return h.kind == fault.kind && std::ranges::equal(h.rest, fault.values | std::views::drop(1));
    });
  };
  std::vector<Candidate> pairs;
  const double declared = searcher.score({}).mean_square;
  const std::size_t n = std::min(kMaxPairParts, singles.size());
  for (std::size_t i = 0; i < n; ++i) {
    // Of two faults at once the larger one alone comes nearer than none.
    if (singles[i].score.mean_square >= declared) break;
    for (const Hypothesis& second : all) {
      const Fault& first = singles[i].faults.front();
      if (second.kind->slug == first.kind->slug) continue;
      Candidate pair = searcher.best(second, std::span(&first, 1));
      if (pair.faults.empty()) continue;
      if (pair.score.worst > kFits && !first.values.empty()) {
        // Measured beside the second, the first may be another number.
        const Candidate swapped = searcher.best(hypothesis_of(first), std::span(&pair.faults.back(), 1));
        if (!swapped.faults.empty() && swapped.score.mean_square < pair.score.mean_square) pair = swapped;
      }
      if (pair.score.worst <= kFits) pairs.push_back(std::move(pair));
    }
  }
  return pairs;
}

// Kinds with the number that each usually has, those that alone come nearest first. Beside a right forward
// only those that keep it right.
std::vector<Fault> usual_faults(const Searcher& searcher, const std::vector<Candidate>& singles) {
  const bool is_forward_right = searcher.is_forward_right();
  std::vector<Fault> usual;
  for (const Candidate& single : singles) {
    Fault fault{single.faults.front().kind, {}};
    const bool is_measured = std::ranges::any_of(fault.kind->parameters, [](const FaultParameter& p) {
      return p.name != "keys" && p.name != "offset";
    });
    if (is_measured) continue;
    for (const FaultParameter& parameter : fault.kind->parameters) fault.values.push_back(parameter.value);
    if (is_forward_right && !searcher.keeps_forward(std::span(&fault, 1))) continue;
    usual.push_back(std::move(fault));
  }
  return usual;
}

struct UsualPairs {
  std::vector<Candidate> fitting;
  std::int64_t num_untried = 0;
};

// Two kinds at once where neither alone comes near: all of them, as none has to be measured, the nearest ones
// first and as many as some seconds allow.
UsualPairs try_usual_pairs(const Searcher& searcher, const std::vector<Candidate>& singles) {
  constexpr double kMostProducts = 1.5e9;
  const std::vector<Fault> usual = usual_faults(searcher, singles);
  const double most = std::max(1.0, kMostProducts / searcher.cost_of_look());
  std::int64_t num_tried = 0;
  UsualPairs pairs;
  for (std::size_t j = 1; j < usual.size(); ++j) {
    for (std::size_t i = 0; i < j; ++i) {
      if (usual[i].kind->slug == usual[j].kind->slug) continue;
      if (static_cast<double>(num_tried) >= most) {
        ++pairs.num_untried;
        continue;
      }
      ++num_tried;
      std::vector<Fault> faults{usual[i], usual[j]};
      if (!searcher.may_fit(faults)) continue;
      const Score score = searcher.score(faults);
      if (score.worst <= kFits) pairs.fitting.push_back({std::move(faults), score});
    }
  }
  return pairs;
}

// Best first, and each with its faults in the order of the table.
std::vector<Candidate> in_order(std::vector<Candidate> pairs) {
  for (Candidate& pair : pairs) {
    std::ranges::sort(pair.faults, {}, [](const Fault& f) { return f.kind; });
  }
  std::ranges::stable_sort(pairs, {}, [](const Candidate& c) { return c.score.worst; });
  return pairs;
}

// One candidate of each set of slugs: the first, which is the best.
std::vector<Candidate> one_of_each(const std::vector<Candidate>& candidates) {
  std::vector<Candidate> distinct;
  for (const Candidate& c : candidates) {
    if (std::ranges::none_of(distinct, [&](const Candidate& d) { return same_slugs(c, d); })) {
      distinct.push_back(c);
    }
  }
  return distinct;
}

bool is_size_of_mask(const MaskSpec& mask, double n) {
  return std::ranges::any_of(mask.nodes, [&](const MaskNode& node) {
    return (node.op == MaskOp::kWindow || node.op == MaskOp::kChunk) && static_cast<double>(node.n) == n;
  });
}

// A ring is as large as a window; one that is not is less likely than a table that is too short.
// A parameter that had to be measured makes an explanation less simple than one that stands in the table.
int complexity(const MaskSpec& mask, const Candidate& candidate) {
  constexpr int kMeasured = 2;
  int sum = 0;
  for (const Fault& fault : candidate.faults) {
    if (fault.kind->is_unlikely) ++sum;
    for (std::size_t i = 0; i < fault.values.size(); ++i) {
      if (fault.kind->parameters[i].name == "slots") {
        sum += is_size_of_mask(mask, fault.values[i]) ? 0 : 2 * kMeasured;
        continue;
      }
      const double usual = fault.kind->parameters[i].value;
      if (std::abs(fault.values[i]) != std::abs(usual)) sum += kMeasured;
    }
  }
  return sum;
}

// Of several explanations that fit, the simplest: a window that reaches everything is no window.
std::vector<Candidate> simplest(const MaskSpec& mask, const std::vector<Candidate>& fitting) {
  if (fitting.empty()) return {};
  const auto of = [&](const Candidate& c) { return complexity(mask, c); };
  const int least = of(*std::ranges::min_element(fitting, {}, of));
  std::vector<Candidate> out;
  std::ranges::copy_if(fitting, std::back_inserter(out), [&](const Candidate& c) { return of(c) == least; });
  return out;
}

// At least two observations in which every other explanation is excluded.
bool is_certain(const Candidate& winner, const std::vector<Candidate>& all) {
  return std::ranges::all_of(all, [&](const Candidate& other) {
    return same_slugs(winner, other) || other.score.num_excluding >= 2;
  });
}

Evidence declared_lies(double worst) {
  return {fmt::format("The declared meaning {}; up to 1 is rounding.", lies_away(worst)), worst};
}

void add_rivals(const std::vector<Candidate>& all, const Candidate* winner, Report& report) {
  int added = 0;
  for (const Candidate& c : all) {
    if (added == 3) break;
    if (winner != nullptr && same_slugs(c, *winner)) continue;
    report.evidence.push_back({fmt::format("Next nearest: the best prediction of {} {}.", text_of(c.faults),
                                           lies_away(c.score.worst)),
                               c.score.worst});
    ++added;
  }
}

// Where some observations agree and one fault explains all others, yet not the first: rows of a batch, or
// calls, that are treated otherwise than their neighbours. Not named: what a fault does to some rows only is
// in no simulation of one sequence.
void add_split(std::span<const Observation> observations, const std::vector<Misfit>& declared,
               const std::function<bool()>& stop, Report& report) {
  std::vector<Observation> others;
  for (std::size_t i = 0; i < observations.size(); ++i) {
    if (declared[i].worst > kFits) others.push_back(observations[i]);
  }
  const std::size_t num_right = observations.size() - others.size();
  if (num_right == 0) return;
  const Searcher searcher(others, &stop);
  const std::vector<Candidate> singles = try_singles(searcher, hypotheses(others));
  if (searcher.is_stopped()) return;
  const auto fits = std::ranges::find_if(singles, [](const Candidate& c) { return c.score.worst <= kFits; });
  if (fits == singles.end()) return;
  report.summary = fmt::format(
      "unknown: {} of {} observations agree with the declared meaning, and {} explains the others alone: see "
      "rope.batch_row and batch.kernel_indexing",
      num_right, observations.size(), text_of(fits->faults));
  report.evidence.push_back(
      {fmt::format("{} of {} observations agree with the declared meaning.", num_right, observations.size()),
       static_cast<double>(num_right)});
  report.evidence.push_back({fmt::format("In the others the prediction of {} {}; up to 1 is rounding.",
                                         text_of(fits->faults), lies_away(fits->score.worst)),
                             fits->score.worst});
}

tl::unexpected<Error> stopped() { return fail(ErrorKind::kTryLater, "diagnose: stopped while searching"); }

void call_broken(const std::string& what, Report& report) {
  report.verdict = Verdict::kBroken;
  report.summary = "broken: " + what;
}

// Says what would explain the observations if their queries had come in several calls, where they are told as
// one and the first of them agree: the likeliest length of a call is up to the first that does not.
Result<void> guess_calls(std::span<const Observation> observations, const std::vector<double>& row_errors,
                         const std::function<bool()>& stop, Report& report) {
  const auto length =
      std::ranges::find_if(row_errors, [](double error) { return error > kFits; }) - row_errors.begin();
  const bool may_be_calls = std::ranges::all_of(observations, [&](const Observation& o) {
    return o.call_begins.size() <= 1 && o.d_q.empty() && o.d_k.empty() && o.d_v.empty() && o.q_len() > 1;
  });
  if (!may_be_calls || length == 0 || length == std::ssize(row_errors)) return {};
  std::vector<Observation> in_calls(observations.begin(), observations.end());
  for (Observation& o : in_calls) {
    o.call_begins.clear();
    for (std::int64_t begin = 0; begin < o.q_len(); begin += length) o.call_begins.push_back(begin);
  }
  SIGHTLINE_TRY(const Report guess, diagnose(in_calls, {.stop = stop}));
  report.next_probe = fmt::format(
      "the first {} of {} queries agree: if the queries came in calls of {} on a cache (--chunk {}, or "
      "call_begins 0, {}, ...), say so; ",
      length, row_errors.size(), length, length, length);
  if (guess.verdict == Verdict::kFault || guess.verdict == Verdict::kAmbiguous) {
    report.next_probe += "then it is " + guess.summary;
  } else {
    report.next_probe += "faults of a cache show only then";
  }
  return {};
}

// A fault that one long call and several short ones show alike: something begins again at a border.
bool begins_again(const Candidate& candidate) {
  return candidate.faults.size() == 1 && (candidate.faults.front().kind->slug == "rope.table_bounds" ||
                                          candidate.faults.front().kind->slug == "cache.ring_wrap");
}

bool is_half(ElementType type) { return type == ElementType::kBf16 || type == ElementType::kF16; }

Report agreement(std::span<const Observation> observations, double worst) {
  Report report;
  report.verdict = is_half(observations.front().type) ? Verdict::kRounding : Verdict::kAgrees;
  report.summary = report.verdict == Verdict::kAgrees
                       ? "agrees: what was seen is the declared meaning"
                       : fmt::format("rounding: what was seen is the declared meaning in {}",
                                     to_string(observations.front().type));
  report.evidence.push_back(declared_lies(worst));
  report.blind_spots = idle_rules(observations);
  for (const Observation& o : observations) {
    if (const std::int64_t step = row_step(o); step > 1) {
      report.blind_spots.push_back(fmt::format("of {} queries one in {} was compared", o.q_len(), step));
    }
  }
  return report;
}

}  // namespace

Result<Report> diagnose(std::span<const Observation> observations, const DiagnoseOptions& options) {
  if (observations.empty()) return fail(ErrorKind::kInvalidArgument, "diagnose: no observation");
  for (const Observation& o : observations) {
    SIGHTLINE_CHECK(validate(o));
    if (!(o.spec == observations.front().spec)) {
      return fail(ErrorKind::kInvalidArgument, "diagnose: the observations declare different specs");
    }
  }
  if (const std::string nan = input_without_numbers(observations); !nan.empty()) {
    Report report;
    call_broken(nan + ": nothing can be held against it", report);
    return report;
  }
  const Searcher searcher(observations, &options.stop);
  if (searcher.is_stopped()) return stopped();
  double worst = 0;
  std::optional<Difference> first;
  for (const Misfit& misfit : searcher.declared()) {
    worst = std::max(worst, misfit.worst);
    if (!first) first = misfit.first;
  }
  if (worst <= kFits) return agreement(observations, worst);

  const std::vector<Hypothesis> all = hypotheses(observations);
  const std::vector<Candidate> singles = try_singles(searcher, all);
  if (searcher.is_stopped()) return stopped();
  std::vector<Candidate> fitting;
  std::ranges::copy_if(singles, std::back_inserter(fitting),
                       [](const Candidate& c) { return c.score.worst <= kFits; });
  // Two faults that together see nothing would explain any array without numbers.
  const NotNumbers nan = std::isinf(worst) ? output_not_a_number(observations) : NotNumbers{};
  if (fitting.empty() && !nan.is_all) fitting = in_order(try_pairs(searcher, all, singles));
  UsualPairs usual;
  if (fitting.empty() && !nan.is_all) usual = try_usual_pairs(searcher, singles);
  if (fitting.empty()) fitting = in_order(std::move(usual.fitting));
  if (searcher.is_stopped()) return stopped();
  const bool is_estimate = fitting.empty();  // what rounds in a half type fits no prediction exactly
  if (is_estimate && !nan.is_all) fitting = rounded_inside(observations, searcher.declared());
  fitting = one_of_each(simplest(observations.front().spec.mask, fitting));

  Report report;
  report.first_difference = first;
  report.evidence.push_back(declared_lies(worst));
  if (usual.num_untried > 0) {
    report.evidence.push_back(
        {fmt::format("{} pairs of usual faults were not tried together: there are too many tokens.",
                     usual.num_untried),
         static_cast<double>(usual.num_untried)});
  }
  const auto most =
      std::ranges::max_element(searcher.declared(), {}, &Misfit::worst) - searcher.declared().begin();
  const Observation& telling = observations[static_cast<std::size_t>(most)];
  report.row_errors = row_errors(telling);
  const auto worst_row = std::ranges::max_element(report.row_errors) - report.row_errors.begin();
  const bool has_head = first && (first->tensor == "out" || first->tensor == "lse");
  report.inside = inside_view(telling, worst_row, has_head ? static_cast<int>(first->index[1]) : 0,
                              fitting.empty() ? nullptr : &fitting.front());
  std::vector<Candidate> tried = fitting;
  tried.insert(tried.end(), singles.begin(), singles.end());
  report.ranked = ranked(tried, worst);
  if (fitting.empty()) {
    report.summary = "unknown: it differs from the declared meaning, and no known fault explains it";
    add_split(observations, searcher.declared(), options.stop, report);
    add_rivals(singles, nullptr, report);
    if (!nan.what.empty()) {
      call_broken(nan.what + ", which no known fault explains", report);
    } else if (options.guesses_calls) {
      SIGHTLINE_CHECK(guess_calls(observations, report.row_errors, options.stop, report));
    }
    return report;
  }
  const bool is_ambiguous = fitting.size() > 1;
  report.verdict = is_ambiguous ? Verdict::kAmbiguous : Verdict::kFault;
  for (const Candidate& c : fitting) {
    const bool certain = !is_ambiguous && !is_estimate && is_certain(c, singles);
    for (const Fault& fault : c.faults) report.faults.push_back(named(fault, c.score, certain));
  }
  if (options.guesses_calls && begins_again(fitting.front())) {
    SIGHTLINE_CHECK(guess_calls(observations, report.row_errors, options.stop, report));
  }
  if (!is_ambiguous) {
    report.summary = fmt::format("fault: {}: {}", text_of(fitting.front().faults),
                                 fitting.front().faults.front().kind->what);
    add_rivals(singles, &fitting.front(), report);
    return report;
  }
  std::string names;
  for (const Candidate& c : fitting) names += (names.empty() ? "" : ", or ") + text_of(c.faults);
  report.summary = fmt::format("ambiguous: this input cannot tell apart {}", names);
  if (report.next_probe.empty())
    report.next_probe =
        next_probe(*std::ranges::max_element(observations, {}, &Observation::kv_len), fitting);
  return report;
}

}  // namespace sightline::checker
