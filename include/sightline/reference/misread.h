// Deviations that read the arrays of a call otherwise than they were meant: scales of a cache left out, keys
// in place of values, fused features split wrongly, features of q and k in another order, outputs laid out
// wrongly. The oracle applies them by itself; who predicts only some rows of a call applies them to the whole
// arrays first.
#pragma once

#include <vector>

#include "sightline/reference/attention.h"

namespace sightline::reference {

/// True when q, k or v are read otherwise under `deviation`.
[[nodiscard]] bool misreads_inputs(const Deviation& deviation);
/// True when features are read at other places, whatever the call.
[[nodiscard]] bool rearranges_features(const Deviation& deviation);
/// `deviation` with every feature where it is meant, and nothing else of it alone.
[[nodiscard]] Deviation without_rearranging(const Deviation& deviation);
[[nodiscard]] Deviation only_rearranging(const Deviation& deviation);
/// `deviation` without what misreads inputs or outputs.
[[nodiscard]] Deviation as_read(const Deviation& deviation);

/// The arrays of a call as they are read. Its inputs view its own arrays and those of the call.
class MisreadInputs {
 public:
  /// Errors (kInvalidArgument): features of fused arrays where the queries are not all of the keys; keys in
  /// place of values of another width. Requires shapes that agree with `spec`.
  static Result<MisreadInputs> make(const AttentionSpec& spec, const AttentionInputs& inputs,
                                    const Deviation& deviation);
  MisreadInputs(const MisreadInputs&) = delete;
  MisreadInputs(MisreadInputs&&) = default;

  [[nodiscard]] const AttentionInputs& get() const { return in_; }
  [[nodiscard]] const std::vector<double>& q() const { return q_; }
  [[nodiscard]] const std::vector<double>& k() const { return k_; }
  [[nodiscard]] const std::vector<double>& v() const { return v_; }

  /// Takes gradients of the arrays as read back to those of the arrays as meant.
  void take_back(AttentionGradients& grads) const;

 private:
  MisreadInputs(const AttentionSpec& spec, const AttentionInputs& inputs, const Deviation& deviation);
  void split_fused(bool back, std::vector<double>& q, std::vector<double>& k, std::vector<double>& v) const;
  void reorder_rows(bool back, std::vector<double>& q, std::vector<double>& k) const;
  void scale_cached(std::vector<double>& k, std::vector<double>& v) const;

  HeadSpec heads_;
  RopeSpec rope_;
  RowMistake row_mistake_;
  int q_row_width_, k_row_width_;
  FusedLayout fused_layout_;
  bool keys_as_values_;
  double cached_key_factor_, cached_value_factor_, value_factor_;
  AttentionInputs in_;
  std::vector<double> q_, k_, v_;
};

/// Row `row` of head `head`, counted within a call.
struct OutSource {
  std::int64_t row = 0;
  int head = 0;
};
/// Which row and head of the right output stands at [row, head] of a call of `num_rows` rows.
[[nodiscard]] OutSource out_source(OutLayout layout, std::int64_t num_rows, int num_heads, OutSource at);

}  // namespace sightline::reference
