// Where the weights of a ModelSpec lie in the tensors of a file, as data: which tensor, which of its rows,
// turned or not, and in which order q and k rows stand. Families write it; nobody else knows tensor names.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "sightline/base/error.h"
#include "sightline/formats/tensor_file.h"
#include "sightline/model/model_info.h"
#include "sightline/ops/packed_linear.h"
#include "sightline/spec/model.h"

namespace sightline {

/// The order of the rotated rows of each head of q and k. Internally every model is kHalves:
/// internal row i + b*r/2 is row 2i + b of a file with kNeighbours (r = rotary_dim, b in {0, 1}); rows behind
/// the rotary dims stay. Source: the permutation of llama's GGUF converter.
enum class RowOrder : std::uint8_t { kHalves, kNeighbours };

/// Rows of a matrix, or entries of a vector, taken from one tensor.
struct WeightPart {
  std::string tensor;
  std::int64_t num_rows = 0;
  std::int64_t first_row = 0;  ///< in the tensor: fused tensors hold several parts
  bool transposed = false;     ///< the file holds [in_dim, out_dim] (Conv1D)
  RowOrder order = RowOrder::kHalves;
  int head_dim = 0;    ///< for kNeighbours
  int rotary_dim = 0;  ///< for kNeighbours
};

/// A matrix [rows, cols] or a vector [rows] (cols 0), its parts stacked. No parts: absent.
struct WeightRef {
  std::int64_t rows = 0;
  std::int64_t cols = 0;
  std::vector<WeightPart> parts;
  [[nodiscard]] bool present() const { return !parts.empty(); }
};

struct NormRef {
  WeightRef weight, bias;
};

struct LayerRefs {
  NormRef attention_norm, attention_post_norm;  ///< before and after attention, by NormPlacement
  WeightRef qkv, qkv_bias;                      ///< q, k, v rows stacked
  WeightRef q_norm, k_norm;
  WeightRef output, output_bias;
  NormRef ffn_norm, ffn_post_norm;
  WeightRef up, up_bias;  ///< gate rows, then up rows, when gated
  WeightRef down, down_bias;
};

struct WeightLayout {
  WeightRef embedding;
  WeightRef positions;
  std::vector<LayerRefs> layers;
  NormRef final_norm;
  WeightRef head;  ///< absent when tied
  WeightRef head_bias;
  /// Tensors of the file that are known to hold no weight, as a suffix of their name (".attn.bias").
  std::vector<std::string> ignored_suffixes;
  std::vector<std::string> ignored_tensors;
};

/// How a family names its tensors: every part of a layer by its name, without and with the layer's number.
struct TensorNames {
  std::string embedding, positions, final_norm, head;
  std::function<std::string(int layer)> layer_prefix;
  std::string attention_norm, attention_post_norm, q_norm, k_norm, ffn_norm, ffn_post_norm;
  std::string q, k, v, output;  ///< separate projections
  std::string fused_qkv;        ///< instead of q, k, v: their rows stacked in one tensor
  std::string gate, up, down;
  bool transposed = false;  ///< linear weights are [in_dim, out_dim]
  RowOrder qk_order = RowOrder::kHalves;
};

/// Names of our own that cover every part a ModelSpec may have: "layer.0.q.weight", ... No file family has
/// them.
[[nodiscard]] TensorNames plain_tensor_names();

/// The layout of `spec` under these names, each with ".weight" and, where the spec has one, ".bias".
[[nodiscard]] WeightLayout make_layout(const ModelSpec& spec, const TensorNames& names);

/// Calls `visit` for every part that the layout holds, with what it is called in messages.
void for_each_weight(const WeightLayout& layout,
                     const std::function<void(std::string_view what, const WeightRef& ref)>& visit);

/// Holds the layout against the tensors of a file: present, readable, of the right shape; and every tensor of
/// the file used or ignored by name. Errors (kInvalidContent) name the tensor, its shape and the expected
/// one.
[[nodiscard]] Result<void> check_layout(const WeightLayout& layout, const TensorSource& source);

/// How the rows of a matrix are kept in memory.
struct PackedAs {
  WeightStorage storage = WeightStorage::kF32;
  QuantKind kind = QuantKind::kQ8_0;  ///< of quantised rows
  bool operator==(const PackedAs&) const = default;
};

/// Consecutive parts of a matrix that are kept one way, as a matrix of their own.
struct PackedGroup {
  PackedAs as;
  WeightRef ref;
};
/// The groups of a matrix, in order: its parts may be tensors of several types.
[[nodiscard]] std::vector<PackedGroup> packed_groups(const WeightRef& ref, const TensorSource& source,
                                                     Matmul matmul);

/// Bytes of all weights once packed: matrices in panels of 32 rows, vectors and positions as they are in f32.
[[nodiscard]] std::int64_t packed_bytes(const WeightLayout& layout, const TensorSource& source,
                                        Matmul matmul);

/// Reads rows [begin, end) of a matrix or vector into `out`, in internal order. Keeps one head (or, for
/// transposed tensors, the whole tensor) between calls, so ascending reads touch each byte once.
class WeightReader {
 public:
  WeightReader(const TensorSource& source, const WeightRef& ref) : source_(source), ref_(ref) {}
  [[nodiscard]] Result<void> read(std::int64_t begin, std::int64_t end, std::span<float> out);
  /// The same rows of a quantised matrix that is not transposed, as blocks.
  [[nodiscard]] Result<void> read(std::int64_t begin, std::int64_t end, std::span<QuantBlock> out);

 private:
  // T is float or QuantBlock.
  template <typename T>
  [[nodiscard]] Result<void> read_rows(std::int64_t begin, std::int64_t end, std::int64_t width,
                                       std::span<T> out);
  template <typename T>
  [[nodiscard]] Result<void> read_part(const WeightPart& part, std::int64_t begin, std::int64_t end,
                                       std::int64_t width, std::span<T> out);
  template <typename T>
  [[nodiscard]] Result<void> read_neighbours(const WeightPart& part, const TensorInfo& info,
                                             std::int64_t begin, std::int64_t end, std::int64_t width,
                                             std::span<T> out);
  [[nodiscard]] Result<void> read_transposed(const WeightPart& part, const TensorInfo& info,
                                             std::int64_t begin, std::int64_t end, std::span<float> out);
  [[nodiscard]] Result<void> fetch(const TensorInfo& info, std::int64_t begin, std::int64_t end,
                                   std::span<float> out) const;
  [[nodiscard]] Result<void> fetch(const TensorInfo& info, std::int64_t begin, std::int64_t end,
                                   std::span<QuantBlock> out);
  [[nodiscard]] std::vector<float>& held(float) { return held_; }
  [[nodiscard]] std::vector<QuantBlock>& held(QuantBlock) { return held_blocks_; }

  const TensorSource& source_;
  const WeightRef& ref_;
  std::vector<float> held_;
  std::vector<QuantBlock> held_blocks_;
  std::vector<std::byte> stored_;
  const TensorInfo* held_tensor_ = nullptr;
  std::int64_t held_begin_ = -1;
};

}  // namespace sightline
