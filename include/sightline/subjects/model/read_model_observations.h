// Token ids with log-probabilities or hidden states, as another program saved them.
#pragma once

#include <filesystem>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "sightline/subjects/model/model_diagnosis.h"

namespace sightline::subjects {

/// Reads texts from a dump (.npz, .safetensors, folder of .npy) or from a .json file.
///
/// Dump: `input_ids` [tokens] or [texts, tokens]; `logprobs` one fewer a text, or `logits` [.., tokens,
/// vocabulary]; `hidden.N` [.., tokens, width], the state after block N, and `layer.N.q`, `.k`, `.v`,
/// `.attention`,
/// `.output` (see LayerTensor). `names` are pairs (our name, the dump's). JSON: an object or an array of them
/// with `ids` (or `input_ids`, or `prompt_ids` followed by `ids`, as `generate --json --echo` writes) and
/// `logprobs`, numbers or objects with `logprob`; a first one that is null is left out. Errors: those of
/// read_dump; kInvalidContent: what is missing, or of another shape or type.
[[nodiscard]] Result<std::vector<ModelObservation>> read_model_observations(
    const std::filesystem::path& path, std::span<const std::pair<std::string, std::string>> names = {});

}  // namespace sightline::subjects
