// What was computed and what it should mean: the declared spec, the inputs of one sequence, and whatever
// arrays came out. The checker compares nothing else.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "sightline/base/error.h"
#include "sightline/spec/attention_spec.h"
#include "sightline/spec/coords.h"

namespace sightline::checker {

/// The type that the outputs were computed in. It decides how much difference is rounding.
enum class ElementType : std::uint8_t { kF64, kF32, kBf16, kF16 };
[[nodiscard]] std::string_view to_string(ElementType type);
/// "f64", "f32", "bf16" or "f16"; nothing for any other text.
[[nodiscard]] std::optional<ElementType> parse_element_type(std::string_view text);
/// Of one number: 8, 4, 2 or 2.
[[nodiscard]] int bytes_of(ElementType type);
/// The nearest number that the type holds.
[[nodiscard]] double round_to(ElementType type, double x);

/// One sequence: inputs as they were given to whoever is being checked, outputs as they came back. Arrays are
/// dense; an output that was not given is empty.
struct Observation {
  AttentionSpec spec;  ///< what was declared
  ElementType type = ElementType::kF32;

  std::vector<double> q;                  ///< [q_len, num_q_heads, qk_head_dim], before rotation
  std::vector<double> k;                  ///< [kv_len, num_kv_heads, qk_head_dim], before rotation
  std::vector<double> v;                  ///< [kv_len, num_kv_heads, v_head_dim]
  std::vector<TokenCoord> q_coords;       ///< [q_len]
  std::vector<TokenCoord> kv_coords;      ///< [kv_len]
  std::vector<std::int64_t> q_rope_pos;   ///< [q_len], empty: pos
  std::vector<std::int64_t> kv_rope_pos;  ///< [kv_len], empty: pos
  std::vector<double> bias;               ///< [num_q_heads, q_len, kv_len] or empty
  std::vector<std::uint8_t> dense;        ///< [q_len, kv_len], not 0: visible; where the mask says `dense`
  /// Where the mask says `tree`: the parent of each node of a draft tree, -1 for a root, each before its
  /// child. The nodes are the newest tokens: the last keys, and as many of the queries, in this order. Any
  /// others are committed.
  std::vector<std::int32_t> draft_parents;
  std::int64_t rope_length = 0;  ///< as in rope_frequencies
  /// Rows of q at which calls begin, ascending, the first 0; empty: one call. When the queries are the last
  /// tokens of the keys, each call appended its own tokens, and what stands before the first query was
  /// appended by a call before them.
  std::vector<std::int64_t> call_begins;
  std::vector<double> d_out;  ///< [q_len, num_q_heads, v_head_dim]: upstream of the gradients

  std::vector<double> out;      ///< [q_len, num_q_heads, v_head_dim]
  std::vector<double> lse;      ///< [q_len, num_q_heads], natural logarithm, with the sink
  std::vector<double> weights;  ///< [num_q_heads, q_len, kv_len]
  std::vector<double> d_q, d_k, d_v;

  [[nodiscard]] std::int64_t q_len() const { return static_cast<std::int64_t>(q_coords.size()); }
  [[nodiscard]] std::int64_t kv_len() const { return static_cast<std::int64_t>(kv_coords.size()); }
  /// True when the queries are the last tokens of the keys, so that calls append what they ask about.
  [[nodiscard]] bool is_self_attention() const;
};

/// One of the arrays that come back, by the name that every form of an observation gives it.
struct OutputArray {
  const char* name;
  std::vector<double> Observation::* array;
};
inline constexpr OutputArray kOutputArrays[] = {
    {"out", &Observation::out}, {"lse", &Observation::lse}, {"weights", &Observation::weights},
    {"d_q", &Observation::d_q}, {"d_k", &Observation::d_k}, {"d_v", &Observation::d_v},
};

/// `parents` as draft_parents. Errors (kInvalidArgument): a parent that is not before its child.
[[nodiscard]] Result<std::vector<std::int32_t>> draft_parents_from(std::span<const std::int64_t> parents);

/// Nodes of the draft tree at the end of `num_rows` rows, -1 where a row is committed.
[[nodiscard]] std::vector<std::int32_t> draft_nodes(std::int64_t num_rows, std::size_t num_drafts);

/// May query `row` see key `key`, as `mask` says of the observation's tokens? For masks without `dense`.
[[nodiscard]] bool sees(const Observation& o, const MaskSpec& mask, std::int64_t row, std::int64_t key);

/// Errors (kInvalidArgument): an invalid spec, an array of another size than the spec and lengths say, call
/// begins out of order, nothing observed at all, a mask whose `dense` or draft tree is missing, a tree whose
/// nodes stand in several calls.
[[nodiscard]] Result<void> validate(const Observation& observation);

}  // namespace sightline::checker
