// The ways of being wrong that neither a spec nor a trace nor coordinates can express. Only the oracle
// reads this; the engine has no such switch.
#pragma once

#include <cstdint>
#include <optional>

#include "sightline/spec/mask.h"
#include "sightline/spec/row_order.h"

namespace sightline::reference {

/// Stands for whatever was in memory before.
inline constexpr double kLeftover = 12345.0;

/// Which key head a query head reads.
enum class HeadMap : std::uint8_t {
  kGrouped,  ///< h / group_size: right
  kModulo,   ///< h mod num_kv_heads: key heads tiled instead of repeated
  kDivisor,  ///< h / num_kv_heads, the last key head at most: divided by the wrong number
};

/// What the softcap does to a scaled score x, with cap c.
enum class SoftcapForm : std::uint8_t {
  kCappedTanh,         ///< c tanh(x / c): right
  kScoreTimesTanh,     ///< x tanh(x / c): even in x
  kScoreTimesOwnTanh,  ///< x tanh(x): even in x, and the cap is nowhere
};

/// How the gradients of the query heads of a group meet in their key head.
enum class GqaReduction : std::uint8_t {
  kSum,        ///< right
  kMean,       ///< divided by group_size
  kLastHead,   ///< the last query head overwrites the others
  kFirstHead,  ///< the first query head alone
  kTiled,      ///< query head h adds to key head h mod num_kv_heads
};

/// A type to which intermediate numbers are rounded.
enum class Precision : std::uint8_t { kDouble, kFloat, kBf16, kF16 };

/// What of a rotation is rounded to Deviation::rope_precision.
enum class RopeStage : std::uint8_t {
  kNone,       ///< right
  kPosition,   ///< the position, before it is multiplied
  kFrequency,  ///< the frequencies
  kAngle,      ///< position times frequency
  kTable,      ///< cos and sin
};

/// By which position the mask looks at a query.
enum class QueryFrontier : std::uint8_t {
  kOwn,           ///< right
  kFirstKeys,     ///< less what the cache held before the call: row i stands at key i
  kPreviousCall,  ///< that of the row in a call before, of the same length
};

/// What a node of a draft tree sees.
enum class DraftTree : std::uint8_t {
  kAncestors,       ///< itself, its ancestors and what is committed: right
  kRows,            ///< itself, all drafts before it in the row, siblings among them, and what is committed
  kAncestorsAlone,  ///< itself and its ancestors
};

/// How heads and tokens of the outputs of a call are laid out when they are read back.
enum class OutLayout : std::uint8_t {
  kTokensFirst,      ///< [tokens, heads, dim]: right
  kHeadsFirst,       ///< written [heads, tokens, dim], read as [tokens, heads, dim]: transpose missing
  kTransposedTwice,  ///< written [tokens, heads, dim], read as [heads, tokens, dim] and transposed
};

/// How the memory of q, k and v is taken for heads and tokens.
enum class FusedLayout : std::uint8_t {
  kRight,
  kGroupsAsBlocks,  ///< stored by key head (its queries, k, v), split as all q, all k, all v
  kBlocksAsGroups,  ///< stored as all q, all k, all v, split by key head
  kHeadsFirst,      ///< each stored [tokens, heads, dim], read as [heads, tokens, dim]: transpose missing
};

/// One defaulted field for each way of being wrong; the default of every field is right.
struct Deviation {
  HeadMap head_map = HeadMap::kGrouped;
  /// Invisible pairs, padding included, get this score instead of being left out.
  std::optional<double> fill_value = std::nullopt;
  /// The fill is added to the scores of invisible pairs instead of replacing them.
  bool fill_is_added = false;
  /// The 0/1 mask is added to the scores and hides nothing.
  bool mask_is_added = false;
  /// A bias other than 0 hides its key, as a boolean whose true means hidden does.
  bool bias_hides = false;
  /// A row that sees nothing is 0/0 instead of 0, and so are all gradients that it reaches.
  bool empty_row_is_nan = false;
  SoftcapForm softcap_form = SoftcapForm::kCappedTanh;
  bool softcap_after_bias = false;
  /// The scale multiplies the bias too.
  bool scale_multiplies_bias = false;
  /// Calls of one token lack ALiBi: it was built for the length of the call, and is one number.
  bool alibi_lost_in_decode = false;
  /// The lse is given as a logarithm to base 2.
  bool lse_is_base_2 = false;
  int sink_count = 1;  ///< times the sink joins the denominator
  /// Of scores, weights and their sum.
  Precision softmax_precision = Precision::kDouble;
  RopeStage rope_rounded = RopeStage::kNone;
  Precision rope_precision = Precision::kDouble;
  /// Component i turns with i + qk_head_dim / 2, of the first rotary_dim / 2 pairs.
  bool rope_partner_of_head = false;
  /// Keys of the first call, all but its first `moved_kept`, come from as many positions further on and were
  /// turned back by a rotation over the whole head, whatever part of it rotates.
  std::int64_t moved_over_all = 0;
  std::int64_t moved_kept = 0;

  // Visibility alone; rotation and ALiBi stay right.
  QueryFrontier query_frontier = QueryFrontier::kOwn;
  DraftTree draft_tree = DraftTree::kAncestors;
  /// Chunks of `chunk(n)` begin this many tokens later than they should.
  std::int64_t chunk_origin = 0;
  /// Chunks of `chunk(n)` are counted from position 0, whatever the document.
  bool chunk_ignores_documents = false;
  /// Above 0: of what the mask lets a query see only its own block of as many positions and `num_blocks_back`
  /// blocks before.
  std::int64_t block_size = 0;
  std::int64_t num_blocks_back = 1;
  /// Rows of the keys are taken for positions, where those of documents restart.
  bool rows_are_positions = false;
  /// Windows hold this many keys more in calls of several tokens; those of one token are right.
  std::int64_t window_extra_in_prompts = 0;
  /// The length of the cache is the number of its keys that are not 0 (of head 0): a key of 0 is not counted,
  /// so that the newest slots are not read and the next token is written over the last.
  bool zero_keys_uncounted = false;
  /// Calls after the first take pads for keys at the position of the first token.
  bool pads_are_keys_later = false;
  /// The last keys of the call are not read.
  std::int64_t num_unread_newest = 0;
  /// Keys that were not there before the call are not read.
  bool own_keys_unread = false;
  /// Above 0: a ring of this many slots, in which the key at position p lies at p mod ring_slots over what
  /// was there, and is masked as if that were its position.
  std::int64_t ring_slots = 0;
  /// Above 0: as many slots, written with all keys of the call before any of its queries reads.
  std::int64_t num_slots_kept = 0;
  /// Above 0: a ring of as many slots, which the first call fills as far as it has tokens; each later token
  /// pushes the oldest slot out once no more than `early_ring_empty` are empty, where it should fill them
  /// first. Empty slots, keys and values of 0, are read until they leave.
  std::int64_t early_ring_slots = 0;
  std::int64_t early_ring_empty = 1;

  /// Keys and values of 0 that every query reads besides its own: slots behind the written ones.
  std::int64_t num_zero_keys = 0;
  /// Keys and values that were there before the call are read times these; all values times `value_factor`.
  double cached_key_factor = 1;
  double cached_value_factor = 1;
  double value_factor = 1;
  /// Keys, as they are cached, are read in place of values of the same width.
  bool keys_as_values = false;
  /// Features of q, k and v, for calls whose queries are all of their keys.
  FusedLayout fused_layout = FusedLayout::kRight;
  /// Features of q or of k stand as a projection gives them whose rows were ordered for heads of another
  /// width; 0: rightly.
  RowMistake row_mistake = RowMistake::kNone;
  int q_row_width = 0, k_row_width = 0;
  /// Of `out` alone, over the rows of the call.
  OutLayout out_layout = OutLayout::kTokensFirst;
  bool bias_is_ignored = false;
  /// Head g * group_size + i takes the bias of head i * num_kv_heads + g.
  bool bias_heads_transposed = false;

  // The forward alone; the backward stays right.
  /// The keys that were there before the call and the others are two parts, whose lse to base 2 are merged as
  /// natural logarithms.
  bool parts_merged_in_base_2 = false;

  // The backward alone; the forward stays right.
  bool omit_row_term = false;  ///< dS = P * dP
  /// Row terms are written [rows, heads] and read as [heads, rows].
  bool row_term_misread = false;
  bool omit_softcap_gradient = false;  ///< as if the cap had slope 1
  bool omit_sink_gradient = false;
  std::optional<MaskSpec> backward_mask = std::nullopt;  ///< visibility of the backward
  GqaReduction gqa_reduction = GqaReduction::kSum;
  std::uint64_t backward_dropout_seed_offset = 0;  ///< the backward draws with seed + offset
  /// Gradients that come out as exactly 0; of scores: everything but d_v.
  bool severed_d_q = false, severed_d_k = false, severed_d_v = false, severed_scores = false;
  /// The last rows of d_q, d_k and d_v are NaN.
  std::int64_t num_unwritten_rows = 0;
  /// Rows of d_q, d_k and d_v that are padding behind the last token hold `kLeftover`.
  bool padding_unwritten = false;

  bool operator==(const Deviation&) const = default;
};

}  // namespace sightline::reference
