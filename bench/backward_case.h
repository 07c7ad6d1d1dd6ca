// The backward of an attention case from arrays: its upstream gradient, its gradients, and their check
// against the float64 oracle.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "bench/attention_case.h"
#include "sightline/attention/attention_backward.h"

namespace sightline::bench {

class BackwardBody {
 public:
  /// Runs the forward, draws an upstream gradient and runs the backward once. One sequence, no cache.
  [[nodiscard]] static Result<std::unique_ptr<BackwardBody>> make(const Bench& bench, AttentionCase c);

  /// One backward of all rows; the call that `make` made cannot fail.
  void run();
  /// Runs the backward of a loss of a few rows alone, and holds every gradient that these rows pass on
  /// against the oracle: d_q of the rows, d_k and d_v of all keys, by the error rule for gradients (factor
  /// 3).
  [[nodiscard]] Result<std::string> check();
  [[nodiscard]] const AttentionBody& forward() const { return *forward_; }
  /// Floating point operations of the visible pairs.
  [[nodiscard]] double work() const;
  /// Scratch of the backward over the bytes of q, k and v.
  [[nodiscard]] double memory_ratio() const;

 private:
  BackwardBody(const Bench& bench, std::unique_ptr<AttentionBody> forward)
      : forward_(std::move(forward)), context_(*bench.pool, bench.table) {}
  [[nodiscard]] Result<void> backward(const std::vector<float>& d_out);

  std::unique_ptr<AttentionBody> forward_;
  AttentionContext context_;
  std::vector<float> lse_, d_out_, d_q_, d_k_, d_v_;
};

/// As checked_row of a forward.
[[nodiscard]] Result<Row> checked_row(BackwardBody& body, Limit limit, std::string_view more = {});
/// A row of the backward alone, as a fraction of the f32 peak.
[[nodiscard]] Result<void> run_backward_case(const Bench& bench, const AttentionCase& c);

}  // namespace sightline::bench
