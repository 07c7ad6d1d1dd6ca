// What a model file says, without its weights: the spec, what was assumed while reading it, the types of
// its tensors, and how much memory it will take.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "sightline/base/error.h"
#include "sightline/base/json.h"
#include "sightline/spec/model.h"

namespace sightline {

/// A key that the caller states, whatever the file says of it.
struct StatedKey {
  std::string key;
  Json value;  ///< bool, integer, number or string
};

/// --matmul: the arithmetic of linear layers, chosen when the weights are packed.
enum class Matmul : std::uint8_t {
  kNative,  ///< as each tensor is stored: bf16 in bf16, quantised in int8 dot products, all others in f32
  kBf16,    ///< all weights rounded to bf16
  kF32      ///< all weights dequantised to f32: what checks compare against
};
[[nodiscard]] const char* to_string(Matmul matmul);

/// Statements of the caller for what a file leaves out or says in a way we refuse to guess; each overrides
/// or supplies exactly one key. Empty: the file must say it.
struct LoadOptions {
  /// --rope-pairing: the order of q and k rows in the file. kInterleaved: neighbours; kHalfSplit: halves;
  /// kNone: the model does not rotate.
  std::optional<RopePairing> rope_pairing;
  std::optional<RopeScaling> rope_scaling;  ///< --rope-scaling; its magnitude follows from kind and factor
  std::optional<double> rope_theta;         ///< --rope-theta
  std::optional<std::int64_t> window;       ///< --window: sliding window of every layer, 0: none
  std::string pre_tokenizer;                ///< --pre: stated in place of tokenizer.ggml.pre
  /// --ignore-key: keys that we do not know and that the caller states to be without meaning.
  std::vector<std::string> ignored_keys;
  /// --override-kv: any other key of a GGUF file or of config.json.
  std::vector<StatedKey> stated_keys;
  Matmul matmul = Matmul::kF32;
};

/// One thing that was not in the file in so many words: which key, what was taken, and why that is right.
struct Assumption {
  std::string key;
  std::string taken;
  std::string reason;
  bool operator==(const Assumption&) const = default;
};

/// What a model file says, without its weights: cheap to open, reads no tensor data.
struct ModelInfo {
  std::string path;
  std::string file_kind;  ///< "GGUF v3", "Hugging Face folder (safetensors)"
  /// True for a GGUF file that holds a tokenizer and no tensors: `spec` is then empty.
  bool vocabulary_only = false;
  ModelSpec spec;
  std::vector<Assumption> assumptions;
  /// What is odd about the files but no error, one line each.
  std::vector<std::string> warnings;
  /// Row order of q and k in the file and the internal pairing they are brought to.
  std::string qk_row_order;
  struct TypeCount {
    std::string type;
    std::int64_t num_tensors = 0;
    std::int64_t bytes = 0;
  };
  std::vector<TypeCount> tensor_types;  ///< in the order of first use
  Matmul matmul = Matmul::kF32;
  std::int64_t packed_weight_bytes = 0;  ///< what the weights take once packed for `matmul`
  std::optional<std::string> tokenizer;  ///< describe(), when the file holds one
  std::int64_t tokenizer_bytes = 0;      ///< of the vocabulary's texts in the file
  bool has_chat_template = false;
};

/// Opens a GGUF file or a Hugging Face folder and says what it means.
///
/// Read: GGUF of architecture "llama"; folders with config.json of model_type llama, mistral and gpt2. The
/// one kind of tensor whose data are read are tables of rotary divisors: they are meaning, not weights.
/// Errors: kNoInput; kInvalidContent (malformed, unsupported architecture or type, hyperparameters out of
/// range, tensor shapes that do not follow from them: both shapes are named; keys and tensors that we do not
/// know: the option that states them is named); kConfiguration when a stated option contradicts the model.
[[nodiscard]] Result<ModelInfo> read_model_info(const std::string& path, const LoadOptions& options = {});

/// Bytes of a run by part, before it happens. Caches store keys and values of every layer at `context`
/// tokens; activations are those of one forward call of `chunk` tokens and one row of logits.
struct MemoryTable {
  std::int64_t context = 0;
  std::int64_t chunk = 0;
  std::int64_t weights = 0;
  std::int64_t cache_f32 = 0;
  std::int64_t cache_bf16 = 0;
  std::int64_t activations = 0;
  std::int64_t workspace = 0;  ///< scratch of attention (a thread each) and of linear layers
  std::int64_t metadata = 0;   ///< tokenizer, coordinates and page tables, an estimate
};
/// `context` 0: the length the model was trained for.
[[nodiscard]] MemoryTable memory_table(const ModelInfo& info, std::int64_t context = 0,
                                       std::int64_t chunk = 512);

/// The meaning of each layer, equal neighbours folded: "layers 0..29".
struct LayerGroup {
  int begin = 0, end = 0;  ///< half open
  std::string attention;   ///< describe(AttentionSpec)
  std::string rest;        ///< feed-forward, biases, norms on q and k
};
[[nodiscard]] std::vector<LayerGroup> layer_groups(const ModelSpec& spec);

/// Everything above as one JSON object, with the whole spec.
[[nodiscard]] Json to_json(const ModelInfo& info);
[[nodiscard]] Json to_json(const MemoryTable& table);

}  // namespace sightline
