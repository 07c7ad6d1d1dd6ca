// One checked attention call with rotated queries and keys, and the meaning of one of its pairs.
// Forward and backward both stand on this; it sums nothing.
#pragma once

#include <vector>

#include "deviant_coords.h"
#include "sightline/reference/attention.h"
#include "sightline/reference/rotate.h"

namespace sightline::reference {

/// One pair of query and key before the softmax.
struct PairScore {
  bool counts = false;    ///< takes part in the softmax
  bool from_dot = false;  ///< its logit depends on q and k (not so under Deviation::fill_value)
  double logit = 0;
  double d_logit_d_dot = 0;  ///< scale times the slope of the softcap
};

class AttentionCall {
 public:
  static Result<AttentionCall> make(const AttentionSpec& spec, const AttentionInputs& inputs,
                                    const Deviation& deviation, const char* function);

  std::int64_t q_len() const { return in_.q.shape[0]; }
  std::int64_t kv_len() const { return in_.k.shape[0]; }
  int num_q_heads() const { return spec_.heads.num_q_heads; }
  int num_kv_heads() const { return spec_.heads.num_kv_heads; }
  int qk_dim() const { return spec_.heads.qk_head_dim; }
  int v_dim() const { return spec_.heads.v_head_dim; }
  bool has_bias() const { return in_.bias.data != nullptr && !deviation_.bias_is_ignored; }
  bool has_sink() const { return !spec_.score.sink_logits.empty(); }
  const AttentionInputs& in() const { return in_; }
  const AttentionSpec& spec() const { return spec_; }
  const Deviation& deviation() const { return deviation_; }

  int kv_head(int q_head) const;
  /// The key head that the gradient of query head `q_head` reaches.
  int gradient_kv_head(int q_head) const;
  /// The head whose bias query head `q_head` takes.
  int bias_head(int q_head) const;

  /// Which keys query row i sees under `mask`, bias aside.
  std::vector<bool> visible_keys(const MaskSpec& mask, std::int64_t i) const;
  /// Keys and values of 0 that query row i reads besides.
  std::int64_t num_zero_keys(std::int64_t i) const;
  PairScore pair_score(int h, std::int64_t i, std::int64_t j, bool visible) const;
  /// What dropout multiplies the weight by: 0 or 1 / (1 - rate).
  double keep_factor(int h, std::int64_t i, std::int64_t j, std::uint64_t seed_offset = 0) const;
  double sink_logit(int h) const;

  /// True when query i meets key j with its second rotation (PositionPolicy::kInCache).
  bool meets_as_first(std::int64_t j) const;
  /// The query as it meets key j, and the key, both rotated.
  const double* rotated_q(std::int64_t i, int h, std::int64_t j) const;
  const double* rotated_k(std::int64_t j, int g) const;

  /// Takes a gradient of a rotated query (its usual or its second rotation) or key back through the rotation.
  void unrotate_d_q(std::int64_t i, bool as_first, std::span<double> d_head) const;
  void unrotate_d_k(std::int64_t j, std::span<double> d_head) const;

 private:
  AttentionCall(const AttentionSpec& spec, const AttentionInputs& inputs, const Deviation& deviation);
  Result<void> check(const char* function) const;
  void rotate_all();
  std::int64_t q_rope_pos(std::int64_t i) const;
  std::int64_t kv_rope_pos(std::int64_t j) const;
  std::int64_t q_rope_pos_as_first(std::int64_t i) const;
  std::int64_t call_rope_length() const;
  void turn(std::span<const CosSin> turns, std::span<double> head) const;
  bool is_moved_over_all(std::int64_t j) const;
  void move_over_all(std::span<double> head) const;
  std::vector<CosSin> turns_at(std::span<const double> frequencies, std::int64_t rope_pos,
                               Turn turn = Turn::kForward) const;

  const AttentionSpec& spec_;
  const AttentionInputs& in_;
  const Deviation& deviation_;
  DeviantCoords seen_;
  ReachBack reach_;
  bool in_cache_ = false;
  std::vector<double> q_frequencies_;
  std::vector<std::vector<double>> kv_frequencies_;  // per key under kv_rope_length, else one entry
  std::vector<double> rotated_q_, rotated_q_as_first_, rotated_k_;
};

}  // namespace sightline::reference
