// What a Model holds. Private; tests make a Model of a spec and a tensor source through make_model.
#pragma once

#include <vector>

#include "model/activations.h"
#include "model/weights.h"
#include "sightline/model/model.h"

namespace sightline {

struct Model::Impl {
  Impl(ModelInfo info_in, ModelWeights weights_in, ThreadPool& pool_in)
      : info(std::move(info_in)), weights(std::move(weights_in)), pool(pool_in), context(pool_in) {}

  ModelInfo info;
  ModelWeights weights;
  ThreadPool& pool;
  AttentionContext context;
  Activations activations;
  std::int64_t max_plan_bytes = 0;
};

/// A model of any spec from the tensors of any source, under the given layout: how tests and trainers make
/// one without a file family. Errors (kInvalidArgument, kInvalidContent): spec or layout do not fit.
[[nodiscard]] Result<Model> make_model(const ModelSpec& spec, const WeightLayout& layout,
                                       const TensorSource& source, ThreadPool& pool,
                                       Matmul matmul = Matmul::kF32);

}  // namespace sightline
