// What the rest of the library sees of the kernels: plain argument structs and one table of functions per
// instruction set. Knows no spec, allocates nothing, starts no thread, checks nothing: callers validate.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

#include "sightline/base/error.h"
#include "sightline/kernels/linear_args.h"

namespace sightline::kernels {

inline constexpr int kTileKeys = 128;  ///< keys of one score tile: ordinals [128 b, 128 b + 128)
inline constexpr int kChunkKeys = 16;  ///< keys that lie together in one page; the step of trimming
inline constexpr int kTileChunks = kTileKeys / kChunkKeys;
inline constexpr int kGroupRows = 12;     ///< rows that one micro-kernel call takes
inline constexpr int kPanelColumns = 32;  ///< outputs of one panel of linear weights
inline constexpr int kMaxSumLanes = 16;   ///< floats that the running sum of one row takes

/// One panel of a linear layer: y[i][n] = (accumulate ? y[i][n] : 0) + sum over k ascending of
/// x[i][k] * panel[k][n], one chain per output (fused where the table says so). A row's bits do not depend
/// on num_rows or on where k is cut, as long as the pieces follow each other with `accumulate`.
struct LinearArgs {
  const float* x = nullptr;  ///< [num_rows, num_k], row stride x_stride
  std::ptrdiff_t x_stride = 0;
  /// Instead of x, when not null: rows packed as [ceil(num_rows / 12)][num_k][12]; what lies in the places
  /// of rows that do not exist is read and ignored.
  const float* x_packed = nullptr;
  const float* panel = nullptr;  ///< [num_k][32]
  float* y = nullptr;            ///< [num_rows, 32], row stride y_stride
  std::ptrdiff_t y_stride = 0;
  std::int64_t num_rows = 0;
  std::int64_t num_k = 0;
  bool accumulate = false;
  /// Memory that is read after this call: asked for while it computes. 0: none.
  const void* prefetch = nullptr;
  std::int64_t prefetch_bytes = 0;
};

/// One row of an activation, y = act(x) or, with `up`, act(x) * up; y may be x or up. silu(x) = x sigmoid(x);
/// gelu in its tanh form. A number's bits do not depend on where in the row it stands.
struct ActivationArgs {
  enum class Kind : std::uint8_t { kSilu, kGeluTanh };
  Kind kind = Kind::kSilu;
  const float* x = nullptr;
  const float* up = nullptr;  ///< null: none
  float* y = nullptr;
  std::int64_t size = 0;
};

/// Rows of one work item against one tile of keys; shared by the three attention kernels. Rows are taken in
/// groups of kGroupRows; each group has its own trimmed stretch of the tile.
struct GroupRange {
  std::int16_t chunk_begin = 0, chunk_end = 0;  ///< chunks of 16 keys whose scores are computed; equal: none
  std::int16_t key_begin = 0, key_end = 0;      ///< keys that some row of the group sees lie in here
  bool all_visible = false;                     ///< every row sees every key of its chunks
};

/// scores[row][key] = sum over dim ascending of q[row][dim] * k[dim][key], one chain per pair.
struct ScoreArgs {
  const float* q = nullptr;  ///< [num_groups][qk_head_dim][12]
  int qk_head_dim = 0;
  int num_rows = 0;
  /// Keys: chunk c of the tile is [qk_head_dim][16] at keys[c].
  const float* keys[kTileChunks] = {};
  const GroupRange* groups = nullptr;  ///< [num_groups]
  float* scores = nullptr;             ///< [num_groups * 12][kTileKeys]
};

/// Natural logits from dot products, in place, for what is not just a scale:
///   s = dot * scale; s = cap * tanh(s / cap); s += bias; s += slope * (k_pos - q_pos).
struct ModifyArgs {
  float* scores = nullptr;  ///< one row of a tile
  int key_begin = 0, key_end = 0;
  float scale = 1.0F;
  float softcap = 0.0F;         ///< 0: off
  const float* bias = nullptr;  ///< [kTileKeys], null: none
  bool has_alibi = false;
  float alibi_slope = 0.0F;
  const std::int32_t* k_pos = nullptr;  ///< [kTileKeys]
  std::int32_t q_pos = 0;
  float* cap_slope = nullptr;  ///< [kTileKeys] out, not null only with a softcap: 1 - tanh^2
};

/// The softmax of one tile, online: moves each row's maximum M, scales its sums, replaces scores by p,
/// exactly 0 where not visible and below 2^-126, and adds them to the sums by lane (key mod num_sum_lanes).
///   dot products: p = exp2(score * scale - M), M an even integer in log2 units, or minus infinity;
///   natural logits: p = e^(score - M), M the largest of them, so that logits far from 0 lose nothing to
///   units.
struct SoftmaxArgs {
  float* scores = nullptr;  ///< [num_groups * 12][kTileKeys], in and out
  int num_rows = 0;
  bool is_natural = false;  ///< scores are natural logits, as modify_scores leaves them
  float scale = 1.0F;       ///< of dot products, to log2 units, > 0
  const GroupRange* groups = nullptr;
  const std::uint64_t* words = nullptr;  ///< [num_rows][2]: visible keys by bit; unused in all_visible groups
  float* row_max = nullptr;              ///< [num_rows]: M, minus infinity before the first visible key
  float* row_sum = nullptr;              ///< [num_rows][kMaxSumLanes]
  float* rescale = nullptr;              ///< [num_rows] out: what the outputs take, for old M - new M
};

/// out[row][dim] = out[row][dim] * rescale[row] + sum over keys ascending of p[row][key] * v[key][dim], one
/// chain per output.
struct ValueArgs {
  const float* p = nullptr;  ///< [num_groups * 12][kTileKeys]
  int num_rows = 0;
  int padded_v_dim = 0;  ///< a multiple of 16
  /// Values: chunk c is [padded_v_dim / 16][16 keys][16] at values[c].
  const float* values[kTileChunks] = {};
  const GroupRange* groups = nullptr;
  /// Not null: the careful path. Only pairs whose bit is set are added, so what is not seen may be NaN.
  const std::uint64_t* words = nullptr;
  const float* rescale = nullptr;  ///< [num_rows]
  float* out = nullptr;            ///< [num_groups * 12][padded_v_dim]
};

/// Weights again from the log-sum-exp of their row, and the gradient of the logits, both exactly 0 where not
/// visible:
///   w = exp2(score * scale - lse) * share or, natural, e^(score - lse) * share;  dS = w (dP kept - delta);
///   P = w kept.
/// In groups with a chunk, what lies outside their chunks becomes 0 too; other groups are left alone.
struct SoftmaxBackwardArgs {
  float* scores = nullptr;     ///< [num_groups * 12][kTileKeys]: in as softmax_tile takes them, out P
  float* d_weights = nullptr;  ///< the same shape: in dP = dO . v, out dS
  int num_rows = 0;
  bool is_natural = false;
  float scale = 1.0F;  ///< of dot products, to log2 units
  const GroupRange* groups = nullptr;
  const std::uint64_t* words = nullptr;  ///< as in SoftmaxArgs
  const float* lse = nullptr;            ///< [num_rows], in log2 units or natural, as the scores
  const float* share = nullptr;          ///< [num_rows]: 1, or what the rounding of lse is made up for by
  const float* delta = nullptr;          ///< [num_rows]: rowsum(dO * O) - d_lse
  const float* kept = nullptr;           ///< shaped as scores: 0 or 1 / (1 - rate); null: no dropout
};

/// out[dim][key] += sum over rows ascending of x[row][dim] * w[row][key], one chain per output: dV^T from dO
/// and P, dK^T from q and dS. Only groups with a chunk are read.
struct OuterArgs {
  const float* x = nullptr;  ///< [num_groups][dims][12]
  int dims = 0;
  int num_rows = 0;
  const float* w = nullptr;  ///< [num_groups * 12][kTileKeys], as softmax_backward leaves it
  const GroupRange* groups = nullptr;
  /// Not null: the careful path. Only pairs whose bit is set are added, so that x of a row may be NaN where
  /// the row does not see the key. [num_rows][2]; unused in all_visible groups.
  const std::uint64_t* words = nullptr;
  float* out = nullptr;  ///< [dims][kTileKeys]
};

/// One instruction set.
struct KernelTable {
  std::string_view name;         ///< as SIGHTLINE_ISA takes it
  std::string_view description;  ///< one line for people: vectors, and whether multiply-adds are fused
  bool fused_multiply_add = false;
  int vector_floats = 0;  ///< floats in one vector
  int num_sum_lanes = 0;  ///< lanes that row sums are kept in

  void (*linear_rows)(const LinearArgs&) = nullptr;
  void (*activate_row)(const ActivationArgs&) = nullptr;
  void (*attention_scores)(const ScoreArgs&) = nullptr;
  /// to[dim][row] = rows[row][dim] for `width` rows (a multiple of 4): queries by 12, keys by 16.
  void (*pack_columns)(const float* const* rows, int width, int dims, float* to) = nullptr;
  void (*modify_scores)(const ModifyArgs&) = nullptr;
  void (*softmax_tile)(const SoftmaxArgs&) = nullptr;
  void (*attention_values)(const ValueArgs&) = nullptr;
  void (*softmax_backward)(const SoftmaxBackwardArgs&) = nullptr;
  void (*attention_outer)(const OuterArgs&) = nullptr;
  void (*quantize_rows)(const QuantizeArgs&) = nullptr;
  void (*linear_quant)(const LinearQuantArgs&) = nullptr;
  bool int8_dot = false;  ///< linear_quant runs on the CPU's int8 dot products
  bool bf16_dot = false;  ///< linear_bf16 runs on the CPU's bf16 dot products
  void (*linear_bf16)(const LinearBf16Args&) = nullptr;
  /// Brings one row to the form linear_bf16 reads: (num_k + 1) / 2 pairs, the last padded with 0. With
  /// bf16_dot a pair is two bf16 (nearest, ties to even; subnormals become 0), else two f32.
  void (*pack_bf16_row)(const float* x, std::int64_t num_k, void* pairs) = nullptr;
  /// Sum of one row's lanes, in a fixed order.
  float (*sum_lanes)(const float* row_sum) = nullptr;
  /// Runs `num_steps` rounds of independent multiply-adds in registers; returns floating point operations.
  double (*calibrate_peak)(std::int64_t num_steps) = nullptr;
  /// Reads `size` floats; returns a number that depends on all of them.
  float (*read_all)(const float* data, std::size_t size) = nullptr;
};

/// The table of this process: the best that the CPU has, or the one that the environment variable
/// SIGHTLINE_ISA names. A name that is unknown or not supported here gives the portable table; programs ask
/// selection_error() at start and refuse. Chosen once, at the first call.
[[nodiscard]] const KernelTable& active_table();
/// Why SIGHTLINE_ISA could not be followed; no error when it is unset or was followed.
[[nodiscard]] Result<void> selection_error();
/// The table for a name: portable, avx2, avx512, avx512_vnni (int8 dot products beside it), avx512_bf16 (and
/// bf16 dot products). Empty: the best.
/// Errors: kInvalidArgument for an unknown name, kConfiguration for one that this CPU does not support.
[[nodiscard]] Result<const KernelTable*> select_isa(std::string_view name);
/// Every table that this CPU supports, slowest first.
[[nodiscard]] std::span<const KernelTable* const> available_tables();

}  // namespace sightline::kernels
