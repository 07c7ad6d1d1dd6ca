// What text would tell apart the faults that explain all others: a question for whoever runs the other
// program.
#pragma once

#include <span>
#include <string>

#include "subjects/model/candidate_search.h"

namespace sightline::subjects {

struct TellingTextQuestion {
  std::span<const BoundedText> texts;  ///< that were seen
  std::span<const Fault> faults;       ///< two or more, which explain them all
  std::int64_t context = 0;            ///< tokens of a text at most
  double needed = 0;  ///< nats by which a log-probability must differ to tell two faults apart
};

/// In words, the first of a few changed texts (longer ones, the same in pieces, token by token) on which
/// every two faults give another log-probability, or the one that tells most pairs apart; or that none of
/// them does. Cost: up to five runs of each fault and of the file, of 1024 tokens at most.
[[nodiscard]] Result<std::string> telling_text(const ModelRunner& runner,
                                               const TellingTextQuestion& question);

}  // namespace sightline::subjects
