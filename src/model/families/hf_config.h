// What families of Hugging Face folders share: reading config.json, and its rotary parameters in both forms.
#pragma once

#include "model/families/family.h"

namespace sightline {

/// config.json as keys; members that say nothing about the meaning of a forward are marked as read.
[[nodiscard]] KeyReader hf_keys(const ModelFiles& files, const LoadOptions& options);

/// Rotation of a head: `rope_theta` and `rope_scaling` (old form) or `rope_parameters` (new form), by
/// transformers' rules. `head_dim` is the width of a head, `context_length` its max_position_embeddings.
/// Errors (kInvalidContent): a rope type or member that is not known, named with --rope-scaling; parameters
/// nested by layer type.
[[nodiscard]] Result<RopeSpec> read_hf_rope(const KeyReader& keys, const LoadOptions& options, int head_dim,
                                            std::int64_t context_length, FamilyModel& model);

/// The name of an activation function as transformers spells it.
[[nodiscard]] Result<Activation> hf_activation(const KeyReader& keys, std::string_view key,
                                               std::string_view fallback, FamilyModel& model);

/// What holds where config.json does not say whether the head is the embedding table.
enum class HeadTie {
  kTiedByDefault,  ///< it is
  kByTensor,       ///< it is where there is no lm_head.weight
};
/// Whether the head is the embedding table. A stored head that is not used is noted.
[[nodiscard]] Result<bool> read_hf_tied_head(const KeyReader& keys, const TensorSource& tensors, HeadTie tie,
                                             FamilyModel& model);

}  // namespace sightline
