// What a family of models is: one file that translates the keys and tensor names of one file format into a
// ModelSpec and a WeightLayout. A new family is a new file and a row in families.cc.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "model/key_reader.h"
#include "model/model_files.h"
#include "model/weight_layout.h"
#include "sightline/model/model_info.h"

namespace sightline {

/// What a family makes of a file.
struct FamilyModel {
  ModelSpec spec;
  WeightLayout layout;
  std::vector<Assumption> assumptions;
  std::string qk_row_order;

  void assume(std::string key, std::string taken, std::string reason) {
    assumptions.push_back({std::move(key), std::move(taken), std::move(reason)});
  }
};

struct Family {
  bool is_gguf = false;
  std::string_view name;  ///< general.architecture, or model_type of config.json
  Result<FamilyModel> (*read)(const ModelFiles& files, const LoadOptions& options) = nullptr;
};

/// Every family, one row a format and name.
[[nodiscard]] std::span<const Family> families();

/// Finds the family by what the file says of itself, reads it and checks spec and layout.
/// Errors (kInvalidContent): an architecture that is not in the table, named with those that are.
[[nodiscard]] Result<FamilyModel> read_family(const ModelFiles& files, const LoadOptions& options);

Result<FamilyModel> read_llama_gguf(const ModelFiles& files, const LoadOptions& options);
Result<FamilyModel> read_llama_hf(const ModelFiles& files, const LoadOptions& options);
Result<FamilyModel> read_mistral_hf(const ModelFiles& files, const LoadOptions& options);
Result<FamilyModel> read_gpt2_hf(const ModelFiles& files, const LoadOptions& options);

// Limits of hyperparameters, shared by all families. Wider than any model that a CPU runs, narrow enough
// that every product of two of them fits an int64 and no list of layers is a way to exhaust memory.
inline constexpr std::int64_t kMaxLayers = 512;
inline constexpr std::int64_t kMaxWidth = std::int64_t{1} << 17;
inline constexpr std::int64_t kMaxHeads = 4096;
inline constexpr std::int64_t kMaxHeadDim = 4096;
inline constexpr std::int64_t kMaxFfnDim = std::int64_t{1} << 19;
inline constexpr std::int64_t kMaxVocabulary = std::int64_t{1} << 22;
inline constexpr std::int64_t kMaxContext = std::int64_t{1} << 24;
inline constexpr std::int64_t kMaxStatedContext = std::int64_t{1} << 40;  ///< above kMaxContext: capped
inline constexpr NumberRange kEpsilonRange{.min = 0, .max = 1, .above_min = true};
inline constexpr NumberRange kThetaRange{.min = 0, .max = 1e18, .above_min = true};
inline constexpr NumberRange kFactorRange{.min = 0, .max = 1e9, .above_min = true};

/// Head width and count: `hidden` must be a multiple of `num_heads` where no width is stated.
struct HeadKeys {
  std::string_view hidden, num_heads;
};
[[nodiscard]] Result<int> head_dim_from_width(const KeyReader& keys, HeadKeys names, std::int64_t hidden,
                                              std::int64_t num_heads);

/// Reads the context length: 0 is refused, over kMaxContext is capped and noted.
[[nodiscard]] Result<std::int64_t> read_context_length(const KeyReader& keys, std::string_view key,
                                                       FamilyModel& model);

/// Applies the caller's statements on rotation and window to every layer, noting each.
/// `file_order`: row order of q and k that this kind of file has; returns the one to use.
/// Errors (kConfiguration): a statement about rotation for a model that has none.
[[nodiscard]] Result<RowOrder> apply_statements(const LoadOptions& options, RowOrder file_order,
                                                std::string_view file_order_source, FamilyModel& model);

/// `causal`, with a window when `window` is above 0.
[[nodiscard]] MaskSpec causal_mask(std::int64_t window);

}  // namespace sightline
