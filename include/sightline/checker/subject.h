// What can be checked: anything that answers an attention call. Adapters to libraries, processes and
// languages live elsewhere; the checker knows only this.
#pragma once

#include <span>

#include "sightline/base/error.h"
#include "sightline/checker/observation.h"

namespace sightline::checker {

/// What a subject takes beside q, k and v. A question never holds what its subject cannot be told: without
/// `takes_positions` tokens stand at 0, 1, 2, ...; without `takes_segments` they are one document.
struct SubjectTraits {
  bool takes_positions = false;  ///< positions and rotary positions of its own choosing
  bool takes_segments = false;   ///< documents, spans and flags of tokens
  bool takes_padding = false;    ///< tokens that are not valid
  bool takes_gradients = false;  ///< d_out, and answers with d_q, d_k, d_v
  bool takes_chunks = true;      ///< fewer queries than keys
  bool takes_drafts = false;     ///< a draft tree: parents, and the depths at which its nodes stand
  bool takes_batch = false;      ///< several sequences in one call: answer_batch
  bool holds_cache = false;  ///< keeps keys between calls: what it asks of a call are the newest rows of k, v
  double cache_bytes_per_token = 0;  ///< what one layer's cache grows by with a token; 0: not told
};

/// The declared mask of a call, [q_len, kv_len], 1 = visible: for subjects that take an array. Cost: every
/// pair.
[[nodiscard]] std::vector<std::uint8_t> visible_pairs(const Observation& call);

/// One implementation, driven call by call.
class Subject {
 public:
  virtual ~Subject() = default;
  [[nodiscard]] virtual SubjectTraits traits() const = 0;
  /// Forgets the keys of the sequence so far. Errors: as of answer.
  virtual Result<void> begin_sequence() { return {}; }
  /// Answers one call: fills `out`, and any of lse, weights and, when d_out is given, d_q, d_k, d_v, of the
  /// sizes that validate(Observation) asks for. The keys are those of the whole sequence so far; when the
  /// queries are the newest tokens (is_self_attention), the rows before them were given by earlier calls.
  ///
  /// Errors: whatever kept it from answering; the check then says `broken` with the message.
  virtual Result<void> answer(Observation& call) = 0;
  /// Answers `rows` in one call, each as answer() does: sequences of equal lengths that know nothing of each
  /// other, each with coordinates of its own as far as the traits go. Asked only where traits().takes_batch.
  virtual Result<void> answer_batch(std::span<Observation> rows);

 protected:
  Subject() = default;
  Subject(const Subject&) = default;
  Subject& operator=(const Subject&) = default;
};

}  // namespace sightline::checker
