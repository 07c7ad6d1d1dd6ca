// One forward call: checks, then the layers in order, each as its LayerSpec says.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "model/model_impl.h"

namespace sightline {

class ForwardCall {
 public:
  ForwardCall(Model::Impl& model, const ForwardBatch& batch, KvCache& cache,
              std::span<const AttentionSpec> specs, const TensorTap& tap);

  /// Errors (kInvalidArgument): sizes, ids, positions, specs whose heads are not the model's.
  [[nodiscard]] Result<void> check(StridedView<float, 2> logits) const;
  /// Appends, runs, writes logits; on error the appended tokens are dropped again.
  [[nodiscard]] Result<void> run(StridedView<float, 2> logits);

 private:
  struct PlanEntry {
    std::size_t layer_idx;  // the first layer it was made for
    AttentionPlan plan;
  };

  [[nodiscard]] const AttentionSpec& attention_spec(std::size_t layer_idx) const;
  [[nodiscard]] Result<void> append();
  void roll_back();
  [[nodiscard]] Result<void> read_views(std::size_t layer_idx);
  [[nodiscard]] Result<void> make_plans();
  [[nodiscard]] Result<void> run_layers(StridedView<float, 2> logits);

  void embed();
  [[nodiscard]] Result<void> attention_block(std::size_t layer_idx, StridedView<const float, 2> input);
  void normalise_qk(const LayerSpec& layer, const LayerWeights& weights);
  [[nodiscard]] Result<void> write_cache(std::size_t layer_idx, StridedView<const float, 3> k,
                                         StridedView<const float, 3> v);
  void ffn_block(std::size_t layer_idx, StridedView<const float, 2> input);
  void add_branch(const NormWeights& post_norm);
  void head(StridedView<float, 2> logits);

  void norm(const NormWeights& weights, StridedView<const float, 2> x, StridedView<float, 2> y);
  /// What a matrix product reads of `rows`: themselves, or a copy that the batch's change_rows has changed.
  [[nodiscard]] StridedView<const float, 2> changed(const std::string& name,
                                                    StridedView<const float, 2> rows);
  [[nodiscard]] std::string layer_name(std::size_t layer_idx, const char* name) const;
  void change_qkv(std::size_t layer_idx, const char* name, StridedView<float, 2> rows) const;
  void report(std::size_t layer_idx, const char* name, StridedView<const float, 2> rows) const;
  [[nodiscard]] StridedView<float, 2> rows(AlignedBuffer<float>& buffer, std::int64_t width) const;

  Model::Impl& model_;
  const ForwardBatch& batch_;
  KvCache& cache_;
  std::span<const AttentionSpec> specs_;
  const TensorTap& tap_;
  const ModelSpec& spec_;
  Activations& act_;
  std::int64_t num_tokens_;
  std::span<const TokenCoord> kv_coords_;
  std::span<const std::int64_t> kv_rope_pos_;
  AttentionExtras extras_;                 // the rope length of the cache
  std::vector<std::int64_t> old_lengths_;  // of the sequences appended so far
  std::vector<KvView> views_;
  std::vector<PlanEntry> plans_;
  std::vector<std::size_t> plan_of_layer_;
};

}  // namespace sightline
