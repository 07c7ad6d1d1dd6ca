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
#include "sightline/spec/model.h"
#include "sightline/text/chat_template.h"
#include "sightline/text/tokenizer.h"

namespace sightline {

/// Statements of the caller for what a file leaves out or says in a way we refuse to guess; each overrides
/// or supplies exactly one key. Empty: the file must say it.
struct LoadOptions {
  std::optional<RopePairing> rope_pairing;
  std::optional<RopeScaling> rope_scaling;
  std::optional<double> rope_theta;
  std::optional<std::int64_t> window;  ///< sliding window of every layer, 0: none
  std::string pre_tokenizer;           ///< stated in place of tokenizer.ggml.pre
};

/// One thing that was not in the file in so many words: which key, what was taken, and why that is right.
struct Assumption {
  std::string key;
  std::string taken;
  std::string reason;
};

/// What a model file says, without its weights: cheap to open, reads no tensor data.
struct ModelInfo {
  std::string path;
  std::string file_kind;  ///< "GGUF v3", "HF folder (safetensors)"
  ModelSpec spec;
  std::vector<Assumption> assumptions;
  /// Row order of q and k in the file and the internal pairing they are brought to.
  std::string qk_row_order;
  struct TypeCount {
    std::string type;
    std::int64_t num_tensors = 0;
    std::int64_t bytes = 0;
  };
  std::vector<TypeCount> tensor_types;
  std::optional<std::string> tokenizer;  ///< describe(), when the file holds one
  bool has_chat_template = false;
};

/// Opens a GGUF file or a Hugging Face folder and says what it means.
/// Errors: kNoInput; kInvalidContent (malformed, unsupported architecture or type, hyperparameters out of
/// range, tensor shapes that do not follow from them: both shapes are named); kConfiguration when a stated
/// option contradicts the file.
[[nodiscard]] Result<ModelInfo> read_model_info(const std::string& path, const LoadOptions& options = {});

/// Tokenizer and chat template of a model (also of a vocabulary-only GGUF).
struct ModelText {
  Tokenizer tokenizer;
  std::optional<ChatTemplate> chat_template;
};
[[nodiscard]] Result<ModelText> load_model_text(const std::string& path, const LoadOptions& options = {});

/// One forward call: tokens of several sequences, one after the other. Every token is appended to its
/// sequence in the cache and attends to all that the cache then holds, as the masks say.
struct ForwardBatch {
  std::span<const SequenceId> sequences;    ///< [num_sequences]
  std::span<const std::int64_t> offsets;    ///< [num_sequences + 1] into the arrays below
  std::span<const std::int32_t> token_ids;  ///< [num_tokens], within the vocabulary
  std::span<const TokenCoord> q_coords;     ///< [num_tokens] as queries
  std::span<const TokenCoord> kv_coords;    ///< [num_tokens] as appended keys; empty: equal to q_coords
  std::span<const std::int64_t>
      q_rope_pos;  ///< [num_tokens], empty: equal to pos; also indexes learned positions
  std::span<const std::int64_t> kv_rope_pos;  ///< [num_tokens], empty: equal to q_rope_pos
  std::span<const std::int64_t> logit_rows;   ///< rows of the batch whose logits are wanted, ascending
};

/// Bytes by part; "workspace" is the high-water mark of scratch.
struct ModelMemory {
  std::int64_t weights = 0;
  std::int64_t activations = 0;
  std::int64_t workspace = 0;
};

/// Called with intermediate tensors of a forward, for tests and reports: name such as "layer.0.q",
/// "layer.0.k" (unrotated), "layer.0.v", "layer.0.attention", "layer.0.output" (hidden state after the
/// block), "final_norm"; rows [num_tokens, width].
using TensorTap = std::function<void(std::string_view name, StridedView<const float, 2> rows)>;

class Model {
 public:
  /// Reads, packs and releases one tensor after the other: peak memory is the packed weights plus one panel.
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
  /// (pages). On error the cache is as it was.
  [[nodiscard]] Result<void> forward(const ForwardBatch& batch, KvCache& cache, StridedView<float, 2> logits,
                                     std::span<const AttentionSpec> specs = {}, const TensorTap& tap = {});

 private:
  struct Impl;
  explicit Model(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace sightline
