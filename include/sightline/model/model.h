// A decoder that executes a ModelSpec: weights packed once, one forward for prefill, chunk and decode on a
// mixed batch over a cache. What a layer means is in the spec; this folder holds no rule of its own.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "sightline/attention/attention.h"
#include "sightline/base/error.h"
#include "sightline/base/thread_pool.h"
#include "sightline/kv_cache/kv_cache.h"
#include "sightline/model/model_info.h"
#include "sightline/model/model_text.h"
#include "sightline/spec/model.h"

namespace sightline {

/// Changes rows in place before they are used, to run another arithmetic or other weights than the file's:
/// what a matrix product reads ("layer.0.qkv_input", "layer.0.attention", "layer.0.ffn_input",
/// "layer.0.ffn_inner", "head_input") and the projected "layer.0.q", "layer.0.k" (unrotated, in halves),
/// "layer.0.v". Rows [rows of the call, width], the inner ones in blocks of the call's rows.
using RowChange = std::function<void(std::string_view name, StridedView<float, 2> rows)>;

/// One forward call: tokens of several sequences, one after the other. Every token is appended to its
/// sequence in the cache and attends to all that the cache then holds, as the masks say.
struct ForwardBatch {
  std::span<const SequenceId> sequences;    ///< [num_sequences]
  std::span<const std::int64_t> offsets;    ///< [num_sequences + 1] into the arrays below
  std::span<const std::int32_t> token_ids;  ///< [num_tokens], within the vocabulary
  std::span<const TokenCoord> q_coords;     ///< [num_tokens] as queries; invalid ones are padding
  std::span<const TokenCoord> kv_coords;    ///< [num_tokens] as appended keys; empty: equal to q_coords
  std::span<const std::int64_t>
      q_rope_pos;  ///< [num_tokens], empty: equal to pos; also indexes learned positions
  std::span<const std::int64_t> kv_rope_pos;  ///< [num_tokens], empty: equal to q_rope_pos
  std::span<const std::int64_t> logit_rows;   ///< rows of the batch whose logits are wanted, ascending
  const RowChange* change_rows = nullptr;     ///< null: nothing is changed
};

/// Bytes by part. No part holds a gradient.
struct ModelMemory {
  std::int64_t weights = 0;
  std::int64_t activations = 0;  ///< of the largest call
  std::int64_t workspace = 0;    ///< scratch of attention, its high-water mark
  std::int64_t plans = 0;        ///< of the largest call: some bytes for each token that the cache holds
};

/// Called with intermediate tensors of a forward, for tests and reports: name such as "layer.0.q",
/// "layer.0.k" (unrotated, q and k in halves), "layer.0.v", "layer.0.attention" (before the output
/// projection), "layer.0.output" (hidden state after the block): rows [num_tokens, width]; "final_norm":
/// [logit_rows, width].
using TensorTap = std::function<void(std::string_view name, StridedView<const float, 2> rows)>;

class Model {
 public:
  /// Reads, packs and releases one tensor after the other: peak memory is the packed weights plus one panel
  /// (plus one tensor where weights are stored turned, as GPT-2's are). `pool` must outlive the model.
  /// Errors: those of read_model_info; kInvalidContent for a file that holds a vocabulary alone; kIo.
  [[nodiscard]] static Result<Model> load(const std::string& path, const LoadOptions& options,
                                          ThreadPool& pool);
  Model(Model&&) noexcept;
  Model& operator=(Model&&) noexcept;
  ~Model();

  [[nodiscard]] const ModelInfo& info() const;
  [[nodiscard]] const ModelSpec& spec() const;
  /// The attention spec of each layer, as a cache wants it.
  [[nodiscard]] std::vector<AttentionSpec> attention_specs() const;
  [[nodiscard]] ModelMemory memory() const;
  /// A hash of all packed weights; inference never changes it.
  [[nodiscard]] std::uint64_t weights_hash() const;

  /// Runs the batch: appends to `cache` and writes logits [logit_rows, vocab_size]. A row's bits do not
  /// depend on the batch it is in, chunking or threads. `specs`: attention specs to run instead of the
  /// model's own (a planted fault), empty: the model's. Errors: kInvalidArgument (sizes, ids), kOutOfMemory
  /// (pages). On error the cache is as it was. One call at a time.
  [[nodiscard]] Result<void> forward(const ForwardBatch& batch, KvCache& cache, StridedView<float, 2> logits,
                                     std::span<const AttentionSpec> specs = {}, const TensorTap& tap = {});

  struct Impl;
  explicit Model(std::unique_ptr<Impl> impl);

 private:
  std::unique_ptr<Impl> impl_;
};

}  // namespace sightline
