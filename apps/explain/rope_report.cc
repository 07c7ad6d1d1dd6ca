#include "apps/explain/rope_report.h"

#include <cmath>
#include <numbers>

#include "apps/explain/text_table.h"
#include "sightline/spec/attention_spec.h"

namespace sightline::apps {

namespace {

double mean_score(const RopeSpec& rope, const std::vector<double>& frequencies, std::int64_t distance) {
  double sum = 0;
  for (const double frequency : frequencies) sum += std::cos(frequency * static_cast<double>(distance));
  return sum / static_cast<double>(frequencies.size()) * rope.cos_sin_magnitude * rope.cos_sin_magnitude;
}

// A bar of `width` characters for a value in [-1, 1], from the middle.
std::string bar(double value, int width) {
  const int middle = width / 2;
  const int end = middle + static_cast<int>(std::lround(std::min(1.0, std::max(-1.0, value)) * middle));
  std::string out(static_cast<std::size_t>(width + 1), ' ');
  for (int i = std::min(middle, end); i <= std::max(middle, end); ++i) out[static_cast<std::size_t>(i)] = '#';
  out[static_cast<std::size_t>(middle)] = '|';
  return out;
}

}  // namespace

Result<RopeReport> make_rope_report(const RopeSpec& rope, std::int64_t rope_length, std::int64_t distance) {
  SIGHTLINE_CHECK(validate(rope, rope.rotary_dim));
  if (rope.pairing == RopePairing::kNone) {
    return fail(ErrorKind::kInvalidArgument, "explain --rope: pairing none rotates nothing");
  }
  RopeReport report;
  report.rope = rope;
  report.rope_length = rope_length;
  report.distance = distance;
  const std::vector<double> frequencies = rope_frequencies(rope, rope_length);
  for (std::size_t i = 0; i < frequencies.size(); ++i) {
    report.pairs.push_back({rope_pair(rope, static_cast<int>(i)), frequencies[i],
                            2.0 * std::numbers::pi / frequencies[i],
                            frequencies[i] * static_cast<double>(distance)});
  }
  const std::int64_t last = std::max<std::int64_t>(distance, 4096);
  report.scores.push_back({0, mean_score(rope, frequencies, 0)});
  for (std::int64_t at = 1; at < last && at < INT64_MAX / 2; at *= 2) {
    report.scores.push_back({at, mean_score(rope, frequencies, at)});
  }
  report.scores.push_back({last, mean_score(rope, frequencies, last)});
  return report;
}

std::string to_text(const RopeReport& report) {
  using Align = TextTable::Align;
  AttentionSpec spec;  // for the words
  spec.heads.qk_head_dim = report.rope.rotary_dim;
  spec.rope = report.rope;
  std::string out =
      fmt::format("rope {} {} theta {}, scaling {}", to_string(report.rope.pairing), report.rope.rotary_dim,
                  report.rope.theta, to_string(report.rope.scaling.kind));
  if (report.rope.scaling.factor != 1.0) out += fmt::format(" x{}", report.rope.scaling.factor);
  if (report.rope.scaling.original_context > 0) {
    out += fmt::format(" from {} tokens", report.rope.scaling.original_context);
  }
  out += fmt::format(", for sequences of {}\n\nangle of each pair at distance {}\n\n", report.rope_length,
                     report.distance);
  TextTable pairs({Align::kRight, Align::kRight, Align::kRight, Align::kRight, Align::kRight, Align::kRight});
  pairs.add({"pair", "components", "radians per token", "tokens per turn", "radians", "turns"});
  for (std::size_t i = 0; i < report.pairs.size(); ++i) {
    const RopeReport::Pair& pair = report.pairs[i];
    pairs.add({fmt::format("{}", i), fmt::format("{}, {}", pair.components.first, pair.components.second),
               fmt::format("{:.6e}", pair.frequency), fmt::format("{:.2f}", pair.wavelength),
               fmt::format("{:.6f}", pair.angle),
               fmt::format("{:.4f}", pair.angle / (2.0 * std::numbers::pi))});
  }
  out += pairs.text();
  out += "\nscore against distance, of two equal vectors with the same length in every pair\n\n";
  TextTable scores({Align::kRight, Align::kRight, Align::kLeft});
  scores.add({"distance", "score", "-1                   0                   1"});
  const double top = std::max(1.0, report.rope.cos_sin_magnitude * report.rope.cos_sin_magnitude);
  for (const RopeReport::Score& score : report.scores) {
    scores.add(
        {fmt::format("{}", score.distance), fmt::format("{:.4f}", score.score), bar(score.score / top, 40)});
  }
  return out + scores.text();
}

Json to_json(const RopeReport& report) {
  JsonArray pairs;
  for (const RopeReport::Pair& pair : report.pairs) {
    pairs.push_back(
        Json(JsonObject{{"components", JsonArray{Json(pair.components.first), Json(pair.components.second)}},
                        {"radians_per_token", pair.frequency},
                        {"tokens_per_turn", pair.wavelength},
                        {"angle", pair.angle}}));
  }
  JsonArray scores;
  for (const RopeReport::Score& score : report.scores) {
    scores.push_back(Json(JsonObject{{"distance", score.distance}, {"score", score.score}}));
  }
  AttentionSpec spec;
  spec.rope = report.rope;
  return Json(JsonObject{{"rope", *to_json(spec).find("rope")},
                         {"rope_length", report.rope_length},
                         {"distance", report.distance},
                         {"pairs", std::move(pairs)},
                         {"scores", std::move(scores)}});
}

}  // namespace sightline::apps
