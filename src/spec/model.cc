#include "sightline/spec/model.h"

#include <cmath>

#include "spec/fields.h"
#include "spec/json_fields.h"

namespace sightline {

namespace {

// Sizes beyond these are no decoder, and products of them stay within int64.
constexpr std::int64_t kMaxWidth = std::int64_t{1} << 20;
constexpr std::int64_t kMaxRows = std::int64_t{1} << 27;
constexpr std::int64_t kMaxLayers = 4096;

Result<void> expect_range(const std::string& name, std::int64_t value, std::int64_t least,
                          std::int64_t most) {
  if (value >= least && value <= most) return {};
  return fail(ErrorKind::kInvalidArgument, "model: {} = {}, expected {} to {}", name, value, least, most);
}

Result<void> expect_finite(const char* name, double value) {
  if (std::isfinite(value)) return {};
  return fail(ErrorKind::kInvalidArgument, "model: {} = {}, expected finite", name, value);
}

Result<void> validate_layer(const LayerSpec& layer, std::size_t layer_idx) {
  const std::string name = fmt::format("layers[{}]", layer_idx);
  if (const auto ok = validate(layer.attention); !ok) {
    return fail(ok.error().kind, "model: {}.attention: {}", name, ok.error().message);
  }
  return expect_range(name + ".ffn.ffn_dim", layer.ffn.ffn_dim, 1, kMaxWidth);
}

}  // namespace

Result<void> validate(const ModelSpec& spec) {
  SIGHTLINE_CHECK(expect_range("vocab_size", spec.vocab_size, 1, kMaxRows));
  SIGHTLINE_CHECK(expect_range("model_dim", spec.model_dim, 1, kMaxWidth));
  SIGHTLINE_CHECK(expect_range("context_length", spec.context_length, 1, std::int64_t{1} << 40));
  SIGHTLINE_CHECK(expect_range("num_learned_positions", spec.num_learned_positions, 0, kMaxRows));
  SIGHTLINE_CHECK(
      expect_range("number of layers", static_cast<std::int64_t>(spec.layers.size()), 1, kMaxLayers));
  SIGHTLINE_CHECK(expect_finite("embedding_scale", spec.embedding_scale));
  SIGHTLINE_CHECK(expect_finite("residual_scale", spec.residual_scale));
  SIGHTLINE_CHECK(expect_finite("logit_scale", spec.logit_scale));
  if (!std::isfinite(spec.norm.epsilon) || spec.norm.epsilon < 0) {
    return fail(ErrorKind::kInvalidArgument, "model: norm.epsilon = {}, expected finite and 0 or more",
                spec.norm.epsilon);
  }
  if (spec.norm.bias && spec.norm.kind != NormKind::kLayer) {
    return fail(ErrorKind::kInvalidArgument, "model: norm.bias stands with kind layer only");
  }
  if (!std::isfinite(spec.final_logit_softcap) || spec.final_logit_softcap < 0) {
    return fail(ErrorKind::kInvalidArgument,
                "model: final_logit_softcap = {}, expected 0 (off) or finite and positive",
                spec.final_logit_softcap);
  }
  for (std::size_t i = 0; i < spec.layers.size(); ++i) SIGHTLINE_CHECK(validate_layer(spec.layers[i], i));
  return {};
}

Json to_json(const ModelSpec& spec) { return json_fields::write(spec); }
Result<ModelSpec> model_spec_from_json(const Json& json) {
  return json_fields::read_struct<ModelSpec>("model", json);
}

ParameterCount count_parameters(const ModelSpec& spec) {
  const std::int64_t dim = spec.model_dim;
  const std::int64_t norm = dim * (spec.norm.kind == NormKind::kLayer && spec.norm.bias ? 2 : 1);
  // A parallel block has one branch point: attention and feed-forward share the norm before them.
  std::int64_t norms_per_layer = 0;
  const bool sequential = spec.residual == ResidualKind::kSequential;
  if (spec.norm_placement != NormPlacement::kAfter) norms_per_layer += sequential ? 2 : 1;
  if (spec.norm_placement != NormPlacement::kBefore) norms_per_layer += 2;

  ParameterCount out;
  out.embedding = (std::int64_t{spec.vocab_size} + spec.num_learned_positions) * dim;
  out.head =
      (spec.tied_head ? 0 : std::int64_t{spec.vocab_size} * dim) + (spec.head_bias ? spec.vocab_size : 0);
  out.norms = norm;  // the one before the head
  for (const LayerSpec& layer : spec.layers) {
    const HeadSpec& heads = layer.attention.heads;
    const std::int64_t q_width = std::int64_t{heads.num_q_heads} * heads.qk_head_dim;
    const std::int64_t k_width = std::int64_t{heads.num_kv_heads} * heads.qk_head_dim;
    const std::int64_t v_width = std::int64_t{heads.num_kv_heads} * heads.v_head_dim;
    const std::int64_t o_width = std::int64_t{heads.num_q_heads} * heads.v_head_dim;
    out.attention += dim * (q_width + k_width + v_width + o_width);
    if (layer.qkv_bias) out.attention += q_width + k_width + v_width;
    if (layer.output_bias) out.attention += dim;
    out.attention += static_cast<std::int64_t>(layer.attention.score.sink_logits.size());
    const std::int64_t ffn_dim = layer.ffn.ffn_dim;
    out.ffn += dim * ffn_dim * (layer.ffn.gated ? 3 : 2);
    if (layer.ffn.bias) out.ffn += ffn_dim * (layer.ffn.gated ? 2 : 1) + dim;
    out.norms += norm * norms_per_layer;
    if (layer.qk_norm == QkNorm::kPerHead) out.norms += 2 * heads.qk_head_dim;
    if (layer.qk_norm == QkNorm::kFullWidth) out.norms += q_width + k_width;
  }
  return out;
}

std::int64_t kv_cache_bytes(const ModelSpec& spec, std::int64_t num_tokens, int bytes_k, int bytes_v) {
  std::int64_t per_token = 0;
  for (const LayerSpec& layer : spec.layers) {
    const HeadSpec& heads = layer.attention.heads;
    per_token += std::int64_t{heads.num_kv_heads} *
                 (std::int64_t{heads.qk_head_dim} * bytes_k + std::int64_t{heads.v_head_dim} * bytes_v);
  }
  return per_token * num_tokens;
}

}  // namespace sightline
