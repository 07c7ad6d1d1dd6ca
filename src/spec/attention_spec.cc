#include "sightline/spec/attention_spec.h"

#include "spec/fields.h"
#include "spec/json_fields.h"

namespace sightline {

Result<void> validate(const AttentionSpec& spec) {
  SIGHTLINE_CHECK(validate(spec.heads));
  SIGHTLINE_CHECK(validate(spec.mask));
  SIGHTLINE_CHECK(validate(spec.rope, spec.heads.qk_head_dim));
  SIGHTLINE_CHECK(validate(spec.score, spec.heads));
  if (spec.rope.position_policy == PositionPolicy::kInCache) {
    const ReachBack reach = reach_back(spec.mask);
    if (!reach.bounded || reach.num_first < 1) {
      return fail(ErrorKind::kInvalidArgument,
                  "attention spec: position_policy in_cache needs a mask like causal & (first(n) | "
                  "window(m)), got {}",
                  to_string(spec.mask));
    }
  }
  return {};
}

Json to_json(const AttentionSpec& spec) { return json_fields::write(spec); }
Result<AttentionSpec> attention_spec_from_json(const Json& json) {
  return json_fields::read_struct<AttentionSpec>("attention", json);
}

namespace {

std::string describe_heads(const HeadSpec& heads) {
  const char* kind = heads.num_kv_heads == heads.num_q_heads ? "MHA"
                     : heads.num_kv_heads == 1               ? "MQA"
                                                             : "GQA";
  std::string out = fmt::format("{} {} query / {} key heads of {}", kind, heads.num_q_heads,
                                heads.num_kv_heads, heads.qk_head_dim);
  if (heads.v_head_dim != heads.qk_head_dim) out += fmt::format(" (values {})", heads.v_head_dim);
  return out;
}

std::string describe_rope(const RopeSpec& rope) {
  if (rope.pairing == RopePairing::kNone) return "no rope";
  std::string out = fmt::format("rope {} {} theta {}", to_string(rope.pairing), rope.rotary_dim, rope.theta);
  const RopeScaling& scaling = rope.scaling;
  if (scaling.kind != RopeScalingKind::kNone) out += fmt::format(" {}", to_string(scaling.kind));
  if (scaling.factor != 1.0) out += fmt::format(" x{}", scaling.factor);
  if (scaling.original_context > 0 && scaling.kind != RopeScalingKind::kNone) {
    out += fmt::format(" from {}", scaling.original_context);
  }
  if (rope.cos_sin_magnitude != 1.0) out += fmt::format(" magnitude {:.6g}", rope.cos_sin_magnitude);
  if (rope.cache_stage == CacheStage::kBeforeRotation) out += ", keys cached before rotation";
  if (rope.position_policy == PositionPolicy::kInCache) out += ", in-cache positions";
  if (rope.length_policy == RopeLengthPolicy::kCurrentLength) out += ", by current length";
  return out;
}

std::string describe_score(const ScoreSpec& score, const HeadSpec& heads) {
  std::string out = fmt::format("scale {:.6g}", softmax_scale(score, heads));
  if (score.logit_softcap > 0) out += fmt::format(", softcap {}", score.logit_softcap);
  if (!score.alibi_slopes.empty()) out += ", ALiBi";
  if (!score.sink_logits.empty()) out += ", sink logits";
  if (score.dropout.rate > 0) out += fmt::format(", dropout {}", score.dropout.rate);
  return out;
}

}  // namespace

std::string describe(const AttentionSpec& spec) {
  return fmt::format("{}, {}, {}, {}", describe_heads(spec.heads), to_string(spec.mask),
                     describe_rope(spec.rope), describe_score(spec.score, spec.heads));
}

}  // namespace sightline
