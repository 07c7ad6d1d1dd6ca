// The fields of each spec struct, named once: the JSON in and out are made from this list.
#pragma once

#include "sightline/spec/loss.h"
#include "sightline/spec/model.h"
#include "sightline/spec/trace.h"

namespace sightline {

template <typename V>
void visit_fields(V& visit, TokenCoord& x) {
  visit("pos", x.pos);
  visit("segment_start", x.segment_start);
  visit("segment", x.segment);
  visit("span", x.span);
  visit("flags", x.flags);
  visit("valid", x.valid);
}

template <typename V>
void visit_fields(V& visit, HeadSpec& x) {
  visit("num_q_heads", x.num_q_heads);
  visit("num_kv_heads", x.num_kv_heads);
  visit("qk_head_dim", x.qk_head_dim);
  visit("v_head_dim", x.v_head_dim);
}

template <typename V>
void visit_fields(V& visit, RopeScaling& x) {
  visit("kind", x.kind);
  visit("factor", x.factor);
  visit("original_context", x.original_context);
  visit("low_freq_factor", x.low_freq_factor);
  visit("high_freq_factor", x.high_freq_factor);
  visit("beta_fast", x.beta_fast);
  visit("beta_slow", x.beta_slow);
  visit("ramp", x.ramp);
  visit("truncate", x.truncate);
  visit("short_divisors", x.short_divisors);
  visit("long_divisors", x.long_divisors);
}

template <typename V>
void visit_fields(V& visit, RopeSpec& x) {
  visit("pairing", x.pairing);
  visit("rotary_dim", x.rotary_dim);
  visit("theta", x.theta);
  visit("scaling", x.scaling);
  visit("cos_sin_magnitude", x.cos_sin_magnitude);
  visit("cache_stage", x.cache_stage);
  visit("position_policy", x.position_policy);
  visit("length_policy", x.length_policy);
}

template <typename V>
void visit_fields(V& visit, DropoutSpec& x) {
  visit("rate", x.rate);
  visit("seed", x.seed);
  visit("layer", x.layer);
}

template <typename V>
void visit_fields(V& visit, ScoreSpec& x) {
  visit("softmax_scale", x.softmax_scale);
  visit("logit_softcap", x.logit_softcap);
  visit("alibi_slopes", x.alibi_slopes);
  visit("sink_logits", x.sink_logits);
  visit("dropout", x.dropout);
}

template <typename V>
void visit_fields(V& visit, AttentionSpec& x) {
  visit("heads", x.heads);
  visit("mask", x.mask);
  visit("rope", x.rope);
  visit("score", x.score);
}

template <typename V>
void visit_fields(V& visit, LossSpec& x) {
  visit("shift", x.shift);
  visit("prompt", x.prompt);
  visit("next_document", x.next_document);
  visit("normalisation", x.normalisation);
}

template <typename V>
void visit_fields(V& visit, NormSpec& x) {
  visit("kind", x.kind);
  visit("epsilon", x.epsilon);
  visit("bias", x.bias);
}

template <typename V>
void visit_fields(V& visit, FfnSpec& x) {
  visit("ffn_dim", x.ffn_dim);
  visit("activation", x.activation);
  visit("gated", x.gated);
  visit("bias", x.bias);
}

template <typename V>
void visit_fields(V& visit, LayerSpec& x) {
  visit("attention", x.attention);
  visit("qkv_bias", x.qkv_bias);
  visit("output_bias", x.output_bias);
  visit("qk_norm", x.qk_norm);
  visit("ffn", x.ffn);
}

template <typename V>
void visit_fields(V& visit, ModelSpec& x) {
  visit("family", x.family);
  visit("vocab_size", x.vocab_size);
  visit("model_dim", x.model_dim);
  visit("context_length", x.context_length);
  visit("embedding_scale", x.embedding_scale);
  visit("num_learned_positions", x.num_learned_positions);
  visit("norm", x.norm);
  visit("norm_placement", x.norm_placement);
  visit("residual", x.residual);
  visit("residual_scale", x.residual_scale);
  visit("layers", x.layers);
  visit("tied_head", x.tied_head);
  visit("head_bias", x.head_bias);
  visit("final_logit_softcap", x.final_logit_softcap);
  visit("logit_scale", x.logit_scale);
}

template <typename V>
void visit_fields(V& visit, TraceAppend& x) {
  visit("sequence", x.sequence);
  visit("coords", x.coords);
  visit("rope_pos", x.rope_pos);
}
template <typename V>
void visit_fields(V& visit, TraceQuery& x) {
  visit("sequence", x.sequence);
  visit("coords", x.coords);
  visit("rope_pos", x.rope_pos);
}
template <typename V>
void visit_fields(V& visit, TraceTruncate& x) {
  visit("sequence", x.sequence);
  visit("num_tokens", x.num_tokens);
}
template <typename V>
void visit_fields(V& visit, TraceEvict& x) {
  visit("sequence", x.sequence);
  visit("begin", x.begin);
  visit("end", x.end);
}
template <typename V>
void visit_fields(V& visit, TraceShift& x) {
  visit("sequence", x.sequence);
  visit("begin", x.begin);
  visit("end", x.end);
  visit("delta", x.delta);
  visit("rerotate", x.rerotate);
}
template <typename V>
void visit_fields(V& visit, TraceFork& x) {
  visit("from", x.from);
  visit("to", x.to);
}

}  // namespace sightline
