// Drives a subject with probes and says what its answers mean.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <string_view>

#include "sightline/checker/report.h"
#include "sightline/checker/subject.h"

namespace sightline::checker {

/// Progress: `done` of `total` steps, and what comes now.
using CheckProgress = std::function<void(int done, int total, std::string_view step)>;

struct CheckOptions {
  ElementType type = ElementType::kF32;  ///< what the subject computes in; inputs are rounded to it
  /// Tokens of a probe; 0: as many as the windows of the mask need, at least 33.
  std::int64_t num_tokens = 0;
  std::uint64_t seed = 1;  ///< of the inputs
  /// No further question is asked once this has passed; what was answered by then is explained. 0: no limit.
  std::chrono::milliseconds budget{0};
  CheckProgress progress{};
  /// Asked while the answers are explained, before each simulation; true ends the check with kTryLater.
  std::function<bool()> stop{};
};

/// Asks `subject` what `spec` means: probes made for the spec (whole, in chunks, far positions, large logits,
/// documents, padding, gradients, each as far as the subject's traits go), then the relations that any right
/// implementation keeps (the same question twice, whole = chunks, a blind edit, a shift of all rotary
/// positions, rows of a batch = each row alone, the same gradients twice), the measured visible set, and the
/// diagnosis of all answers together.
///
/// `agrees` needs every relation and every answer. `broken`: it failed to answer, answered NaN or other
/// shapes that no fault explains, or answered twice the same question otherwise. Errors (kInvalidArgument):
/// an invalid spec, a mask that needs tables, fewer than 8 or more than 4096 tokens. Cost: up to 10 questions
/// of one call each, 4 more for a batch (and up to 48 when a row of it differs), and 1 + kv_len / v_head_dim
/// in up to 25 calls each (the chunks, and the visible set in them), plus that of diagnose. Deterministic for
/// a deterministic subject.
[[nodiscard]] Result<Report> check(Subject& subject, const AttentionSpec& spec,
                                   const CheckOptions& options = {});

}  // namespace sightline::checker
