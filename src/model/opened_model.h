// A model file opened and understood: what read_model_info tells and what loading the weights needs.
#pragma once

#include "model/model_files.h"
#include "model/weight_layout.h"
#include "sightline/model/model_info.h"

namespace sightline {

struct OpenedModel {
  ModelFiles files;
  WeightLayout layout;
  ModelInfo info;
};

/// Errors: those of read_model_info.
[[nodiscard]] Result<OpenedModel> open_model(const std::string& path, const LoadOptions& options);

}  // namespace sightline
