#include "apps/relations.h"

#include <cmath>

namespace sightline::apps {

namespace {

RelationReport compare(std::string name, std::span<const double> a, std::span<const double> b,
                       double tolerance) {
  RelationReport report{.name = std::move(name), .holds = true, .exact = true};
  for (std::size_t i = 0; i < a.size(); ++i) {
    const double difference = std::abs(a[i] - b[i]);
    if (a[i] != b[i]) report.exact = false;
    if (difference > report.difference || std::isnan(difference)) {
      report.difference = difference;
      report.token = static_cast<std::int64_t>(i) + 1;
    }
  }
  report.holds = tolerance > 0 ? report.difference < tolerance : report.exact;
  return report;
}

constexpr std::int64_t kRopeShift = 1000;

}  // namespace

Result<std::vector<double>> score_prompt(const RelationInput& in, std::int64_t chunk,
                                         const std::vector<TokenId>& prompt, const GenerateHooks& hooks) {
  const GenerateOptions options{.max_tokens = 0, .num_logprobs = 0, .echo = true, .chunk = chunk};
  SIGHTLINE_TRY(const auto results, generate(in.model, in.tokenizer, std::span(&prompt, 1), options, hooks));
  std::vector<double> scores;
  for (const auto& entry : results.front().logprobs) {
    if (entry.logprob) scores.push_back(*entry.logprob);
  }
  return scores;
}

Result<RelationReport> whole_equals_chunks(const RelationInput& in) {
  SIGHTLINE_TRY(const auto whole, score_prompt(in, std::ssize(in.prompt), in.prompt, in.hooks));
  SIGHTLINE_TRY(const auto chunks, score_prompt(in, in.chunk, in.prompt, in.hooks));
  return compare(fmt::format("whole = chunks of {}", in.chunk), whole, chunks, 0);
}

Result<RelationReport> future_leaves_past_alone(const RelationInput& in) {
  SIGHTLINE_TRY(auto before, score_prompt(in, std::ssize(in.prompt), in.prompt, in.hooks));
  std::vector<TokenId> edited = in.prompt;
  edited.back() = edited.back() == 0 ? 1 : 0;
  SIGHTLINE_TRY(auto after, score_prompt(in, std::ssize(in.prompt), edited, in.hooks));
  before.pop_back();  // the edited token's own log-probability
  after.pop_back();
  return compare("a future edit leaves the past alone", before, after, 0);
}

Result<RelationReport> shift_changes_nothing(const RelationInput& in) {
  SIGHTLINE_TRY(const auto plain, score_prompt(in, in.chunk, in.prompt, in.hooks));
  GenerateHooks shifted = in.hooks;
  shifted.change_call = [&](CallCoords& call) -> Result<void> {
    for (auto& pos : call.q_rope_pos) pos += kRopeShift;
    for (auto& pos : call.kv_rope_pos) pos += kRopeShift;
    return in.hooks.change_call ? in.hooks.change_call(call) : Result<void>{};
  };
  SIGHTLINE_TRY(const auto moved, score_prompt(in, in.chunk, in.prompt, shifted));
  return compare(fmt::format("all rotary positions + {} = as before", kRopeShift), plain, moved,
                 kRoundingNats);
}

}  // namespace sightline::apps
