#include "sightline/model/model.h"

#include "model/forward.h"
#include "model/model_impl.h"
#include "model/opened_model.h"

namespace sightline {

Model::Model(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Model::Model(Model&&) noexcept = default;
Model& Model::operator=(Model&&) noexcept = default;
Model::~Model() = default;

Result<Model> Model::load(const std::string& path, const LoadOptions& options, ThreadPool& pool) {
  SIGHTLINE_TRY(OpenedModel opened, open_model(path, options));
  if (opened.info.vocabulary_only) {
    return fail(ErrorKind::kInvalidContent, "{}: holds a vocabulary and no weights", path);
  }
  SIGHTLINE_TRY(ModelWeights weights, load_weights(opened.layout, opened.files.tensors(), options.matmul));
  return Model(std::make_unique<Impl>(std::move(opened.info), std::move(weights), pool));
}

const ModelInfo& Model::info() const { return impl_->info; }
const ModelSpec& Model::spec() const { return impl_->info.spec; }

std::vector<AttentionSpec> Model::attention_specs() const {
  std::vector<AttentionSpec> specs;
  for (const LayerSpec& layer : spec().layers) specs.push_back(layer.attention);
  return specs;
}

ModelMemory Model::memory() const {
  return {num_bytes(impl_->weights), impl_->activations.bytes(),
          static_cast<std::int64_t>(impl_->context.scratch_bytes()), impl_->max_plan_bytes};
}

std::uint64_t Model::weights_hash() const { return hash(impl_->weights); }

Result<void> Model::forward(const ForwardBatch& batch, KvCache& cache, StridedView<float, 2> logits,
                            std::span<const AttentionSpec> specs, const TensorTap& tap) {
  ForwardCall call(*impl_, batch, cache, specs, tap);
  SIGHTLINE_CHECK(call.check(logits));
  if (batch.token_ids.empty()) return {};
  return call.run(logits);
}

Result<Model> make_model(const ModelSpec& spec, const WeightLayout& layout, const TensorSource& source,
                         ThreadPool& pool, Matmul matmul) {
  SIGHTLINE_CHECK(validate(spec));
  SIGHTLINE_CHECK(check_layout(layout, source));
  SIGHTLINE_TRY(ModelWeights weights, load_weights(layout, source, matmul));
  ModelInfo info;
  info.path = source.name();
  info.spec = spec;
  info.matmul = matmul;
  info.packed_weight_bytes = packed_bytes(layout, source, matmul);
  return Model(std::make_unique<Model::Impl>(std::move(info), std::move(weights), pool));
}

}  // namespace sightline
