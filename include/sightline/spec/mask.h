// Who may see whom. The definition that the oracle, the visibility planner, the cache and the checker
// derive from. True always means visible.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "sightline/base/error.h"
#include "sightline/base/strided_view.h"
#include "sightline/spec/coords.h"

namespace sightline {

/// Operators of the postfix program.
enum class MaskOp : std::uint8_t {
  kAll,      ///< always
  kNone,     ///< never
  kCausal,   ///< k.pos <= q.pos
  kWindow,   ///< window(n): q.pos - k.pos < n; n keys counting the query's own; silent about the future
  kAhead,    ///< ahead(n): k.pos - q.pos <= n; causal is ahead(0)
  kFirst,    ///< first(n): k.pos - k.segment_start < n
  kSegment,  ///< the same segment
  kChunk,    ///< chunk(n): the same segment and the same floor((pos - segment_start) / n)
  kSpan,     ///< the same segment and the same span, not 0
  kDilated,  ///< dilated(n): (q.pos - k.pos) mod n = 0
  kTree,     ///< k is committed, is q itself, or is its ancestor in the draft tree (tables)
  kQueryIs,  ///< query_is(b): bit b of the query's flags
  kKeyIs,    ///< key_is(b): bit b of the key's flags
  kDense,    ///< the caller's own matrix says so, by row indices (tables)
  kAnd,
  kOr,
  kNot,
};

struct MaskNode {
  MaskOp op = MaskOp::kAll;
  std::int64_t n = 0;  ///< tokens for window, ahead, first, chunk, dilated; bit for query_is, key_is
  bool operator==(const MaskNode&) const = default;
};

/// A mask: a postfix program, printed and parsed as text such as `causal & (window(4096) | first(4))`.
/// Plain data. An empty program is invalid; the default is `causal`.
struct MaskSpec {
  std::vector<MaskNode> nodes{{MaskOp::kCausal, 0}};
  bool operator==(const MaskSpec&) const = default;
};

/// Data that `dense` and `tree` look up. Unused parts stay empty.
struct MaskTables {
  /// dense: [num_q_rows, num_kv_rows], nonzero = visible; strides may be 0.
  StridedView<const std::uint8_t, 2> dense{};
  /// tree: node of each query row and key row, -1 where the token is committed (not in the tree).
  std::span<const std::int32_t> q_node{};
  std::span<const std::int32_t> kv_node{};
  /// tree: parent of each node, -1 for a root; parent[i] < i.
  std::span<const std::int32_t> parent{};
};

inline constexpr int kMaxMaskNodes = 256;
inline constexpr int kMaxMaskDepth = 32;  ///< values on the evaluation stack
/// Largest n of a rule. Positions are meant to stay within it too, so that differences cannot overflow.
inline constexpr std::int64_t kMaxMaskTokens = std::int64_t{1} << 60;

/// The builders: `mask_rule(MaskOp::kCausal) & mask_rule(MaskOp::kWindow, 4)`.
[[nodiscard]] MaskSpec mask_rule(MaskOp op, std::int64_t n = 0);
[[nodiscard]] MaskSpec operator&(const MaskSpec& a, const MaskSpec& b);
[[nodiscard]] MaskSpec operator|(const MaskSpec& a, const MaskSpec& b);
[[nodiscard]] MaskSpec operator!(const MaskSpec& a);

/// THE DEFINITION: may query q see key k? An invalid query or key: false.
/// Requires validate(mask), and validate_tables for the rows used. Cost: one step a node.
[[nodiscard]] bool is_visible(const MaskSpec& mask, const MaskTables& tables, const TokenRef& q,
                              const TokenRef& k);

/// One leaf of the program on one pair, padding aside: what is_visible combines.
[[nodiscard]] bool leaf_sees(const MaskNode& leaf, const MaskTables& tables, const TokenRef& q,
                             const TokenRef& k);

/// Errors (kInvalidArgument): not exactly one value left, over kMaxMaskNodes or kMaxMaskDepth, n < 1 for
/// window, first, chunk, dilated, n < 0 for ahead, n over kMaxMaskTokens, a bit outside [0, 31], n given to
/// a rule that takes none.
[[nodiscard]] Result<void> validate(const MaskSpec& mask);

/// Errors (kInvalidArgument): a table that the mask uses is missing, too small for the rows, or a parent
/// is not before its node.
[[nodiscard]] Result<void> validate_tables(const MaskSpec& mask, const MaskTables& tables,
                                           std::int64_t num_q_rows, std::int64_t num_kv_rows);

/// Text form: `!` binds tightest, then `&`, then `|`; parentheses; white space free. Names as in MaskOp
/// (`causal`, `window(4096)`, `first(4)`, `query_is(0)`, ...).
/// Errors (kInvalidArgument) name the column (bytes, counted from 1), what was expected there and what was
/// found; `error_column`, where given, receives that column for a caret line.
[[nodiscard]] Result<MaskSpec> parse_mask(std::string_view text, std::size_t* error_column = nullptr);
/// Text that parses back to an equal program, with the fewest parentheses.
[[nodiscard]] std::string to_string(const MaskSpec& mask);
[[nodiscard]] std::string to_string(const MaskNode& leaf);
[[nodiscard]] bool is_leaf(MaskOp op);
[[nodiscard]] bool uses(const MaskSpec& mask, MaskOp op);

/// True when the program alone proves that no query sees a later position (k.pos > q.pos).
/// Sound, not complete: false means "not proved". `tree` counts as not proved.
[[nodiscard]] bool is_causal(const MaskSpec& mask);

/// True when the program alone proves that no query sees another segment. Sound, not complete.
[[nodiscard]] bool implies_segment(const MaskSpec& mask);

/// How far back the program alone proves that queries can see; decides which pages a window frees.
/// Holds for coordinates in which the tokens of one segment share segment_start. Sound, not complete.
struct ReachBack {
  bool bounded = false;
  std::int64_t window = 0;     ///< keys with q.pos - k.pos >= window are invisible, unless kept first
  std::int64_t num_first = 0;  ///< keys with k.pos - k.segment_start < num_first may stay visible
};
[[nodiscard]] ReachBack reach_back(const MaskSpec& mask);

struct WhyLeaf {
  MaskNode leaf;
  bool sees = false;
  bool decided = false;  ///< flipping this leaf alone would flip the answer
};
struct Why {
  bool visible = false;
  bool padding = false;  ///< an invalid query or key settled it
  std::vector<WhyLeaf> leaves;
  std::string text;  ///< one sentence for people
};
/// Why a pair is visible or not: the leaves with their verdicts and those that decided.
/// Requires and costs as is_visible, once for each leaf.
[[nodiscard]] Why why(const MaskSpec& mask, const MaskTables& tables, const TokenRef& q, const TokenRef& k);

struct DrawOptions {
  bool labels = false;  ///< positions on both axes
};
/// The 0/1 picture, one line a query, one column a key: "1 1 0\n1 1 1\n". With labels: positions on both
/// axes. Row i of `q` and `kv` is row_idx i. Cost: one is_visible a pair; meant for small pictures.
[[nodiscard]] std::string draw(const MaskSpec& mask, const MaskTables& tables, std::span<const TokenCoord> q,
                               std::span<const TokenCoord> kv, DrawOptions options = {});

/// Coordinates of positions begin..end-1 in one segment that starts at 0.
[[nodiscard]] std::vector<TokenCoord> coords_range(std::int64_t begin, std::int64_t end);

}  // namespace sightline
