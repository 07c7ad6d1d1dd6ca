#include "subjects/model/telling_text.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "sightline/checker/parting.h"

namespace sightline::subjects {
namespace {

constexpr std::int64_t kLongest = 1024;
constexpr std::int64_t kPiece = 16;

struct Text {
  std::vector<TokenId> ids;
  std::int64_t chunk = 0;

  [[nodiscard]] std::string words() const {
    std::string text = fmt::format("a text of {} tokens", ids.size());
    if (chunk == 1) return text + " fed one at a time (--chunk 1)";
    if (chunk > 1) return text + fmt::format(" fed in pieces of {} (--chunk {})", chunk, chunk);
    return text + " in one forward";
  }
};

// The texts that were seen, one after another and again, up to `length` tokens.
std::vector<TokenId> joined(std::span<const BoundedText> texts, std::int64_t length) {
  std::vector<TokenId> ids;
  while (std::ssize(ids) < length) {
    for (const BoundedText& text : texts) {
      ids.insert(ids.end(), text.observation->ids.begin(), text.observation->ids.end());
    }
  }
  ids.resize(static_cast<std::size_t>(length));
  return ids;
}

// Shorter ones first; a piece shorter than the text, or it would be no piece.
std::vector<Text> texts_to_try(const TellingTextQuestion& question) {
  std::int64_t longest = 0;
  for (const BoundedText& text : question.texts)
    longest = std::max(longest, std::ssize(text.observation->ids));
  const std::int64_t most = std::min(question.context, kLongest);
  const std::int64_t few = std::min(most, std::max<std::int64_t>(64, longest));
  std::vector<Text> tried;
  for (const std::int64_t length : {few, std::min(most, 4 * few), most}) {
    if (tried.empty() || length > std::ssize(tried.back().ids))
      tried.push_back({joined(question.texts, length), 0});
  }
  const auto ids = tried.front().ids;
  for (const std::int64_t chunk : {kPiece, std::int64_t{1}}) {
    if (chunk < few) tried.push_back({ids, chunk});
  }
  return tried;
}

double difference(const std::vector<double>& a, const std::vector<double>& b) {
  double most = 0;
  for (std::size_t i = 0; i < a.size(); ++i) {
    const double d = std::abs(a[i] - b[i]);
    most = std::max(most, std::isfinite(d) ? d : std::numeric_limits<double>::infinity());
  }
  return most;
}

// Distances in nats.
Result<checker::Parting> part_on(const ModelRunner& runner, const TellingTextQuestion& question,
                                 const Text& text) {
  const ModelObservation asked{.ids = text.ids, .chunk = text.chunk, .logprobs = {}, .tensors = {}};
  SIGHTLINE_TRY(const auto right, runner.logprobs(asked, std::nullopt));
  std::vector<std::vector<double>> answers;
  for (const Fault& fault : question.faults) {
    SIGHTLINE_TRY(const auto answer, runner.logprobs(asked, fault));
    answers.push_back(answer ? *answer : *right);  // a fault that does not apply answers rightly
  }
  return checker::part(answers, question.needed, difference);
}

}  // namespace

Result<std::string> telling_text(const ModelRunner& runner, const TellingTextQuestion& question) {
  const auto num_faults = static_cast<int>(question.faults.size());
  const int num_pairs = num_faults * (num_faults - 1) / 2;
  std::string best, tried;
  int most = 0;
  for (const Text& text : texts_to_try(question)) {
    SIGHTLINE_TRY(const checker::Parting parting, part_on(runner, question, text));
    tried += (tried.empty() ? "" : ", ") + text.words();
    if (parting.num_parted <= most) continue;
    most = parting.num_parted;
    best = text.words();
    if (most == num_pairs) {
      return best + fmt::format(": there some log-probability differs by {:.2g} nats or more", parting.least);
    }
  }
  if (most == 0) return "none found: nothing of " + tried + " tells them apart";
  return best + fmt::format(": that tells apart {} of {} pairs", most, num_pairs);
}

}  // namespace sightline::subjects
