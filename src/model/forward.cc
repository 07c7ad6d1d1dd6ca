#include "model/forward.h"

#include <algorithm>
#include <cmath>

#include "sightline/ops/elementwise.h"
#include "sightline/ops/embedding.h"
#include "sightline/ops/linear.h"

namespace sightline {

namespace {

constexpr const char* kName = "Model::forward";

StridedView<float, 2> columns(StridedView<float, 2> view, std::int64_t begin, std::int64_t width) {
  return {view.data + begin, {view.shape[0], width}, view.strides};
}

StridedView<const float, 2> row_range(StridedView<const float, 2> view, std::int64_t begin,
                                      std::int64_t end) {
  return {view.data + begin * view.strides[0], {end - begin, view.shape[1]}, view.strides};
}

StridedView<float, 2> row_range(StridedView<float, 2> view, std::int64_t begin, std::int64_t end) {
  return {view.data + begin * view.strides[0], {end - begin, view.shape[1]}, view.strides};
}

/// Columns of `view` as heads: [rows, num_heads, head_dim].
StridedView<float, 3> as_heads(StridedView<float, 2> view, int num_heads, int head_dim) {
  return {view.data, {view.shape[0], num_heads, head_dim}, {view.strides[0], head_dim, 1}};
}

ActivationKind activation_kind(Activation activation) {
  switch (activation) {
    case Activation::kSilu:
      return ActivationKind::kSilu;
    case Activation::kGeluTanh:
      return ActivationKind::kGeluTanh;
    case Activation::kGeluErf:
      return ActivationKind::kGeluErf;
    case Activation::kRelu:
      return ActivationKind::kRelu;
  }
  return ActivationKind::kSilu;
}

/// Layers that one plan serves: equal masks over equal caches. A window decides which pages are freed, so
/// equal masks also mean equal storage.
bool share_plan(const AttentionSpec& a, const AttentionSpec& b) {
  return a.mask == b.mask && a.heads == b.heads && a.rope.position_policy == b.rope.position_policy;
}

}  // namespace

ForwardCall::ForwardCall(Model::Impl& model, const ForwardBatch& batch, KvCache& cache,
                         std::span<const AttentionSpec> specs, const TensorTap& tap)
    : model_(model),
      batch_(batch),
      cache_(cache),
      specs_(specs),
      tap_(tap),
      spec_(model.info.spec),
      act_(model.activations),
      num_tokens_(static_cast<std::int64_t>(batch.token_ids.size())),
      kv_coords_(batch.kv_coords.empty() ? batch.q_coords : batch.kv_coords),
      kv_rope_pos_(batch.kv_rope_pos.empty() ? batch.q_rope_pos : batch.kv_rope_pos) {
  extras_.rope_length = cache.options().rope_length;
}

const AttentionSpec& ForwardCall::attention_spec(std::size_t layer_idx) const {
  return specs_.empty() ? spec_.layers[layer_idx].attention : specs_[layer_idx];
}

StridedView<float, 2> ForwardCall::rows(AlignedBuffer<float>& buffer, std::int64_t width) const {
  return dense_view(buffer.data(), {num_tokens_, width});
}

void ForwardCall::report(std::size_t layer_idx, const char* name, StridedView<const float, 2> view) const {
  if (tap_) tap_(fmt::format("layer.{}.{}", layer_idx, name), view);
}

std::string ForwardCall::layer_name(std::size_t layer_idx, const char* name) const {
  return batch_.change_rows == nullptr ? std::string() : fmt::format("layer.{}.{}", layer_idx, name);
}

StridedView<const float, 2> ForwardCall::changed(const std::string& name, StridedView<const float, 2> rows) {
  if (batch_.change_rows == nullptr) return rows;
  act_.changed.reserve_discard(static_cast<std::size_t>(rows.size()));
  const StridedView<float, 2> copy = dense_view(act_.changed.data(), {rows.shape[0], rows.shape[1]});
  for (std::int64_t i = 0; i < rows.shape[0]; ++i) {
    std::copy_n(rows.data + i * rows.strides[0], rows.shape[1], copy.data + i * copy.strides[0]);
  }
  (*batch_.change_rows)(name, copy);
  return copy;
}

void ForwardCall::change_qkv(std::size_t layer_idx, const char* name, StridedView<float, 2> rows) const {
  if (batch_.change_rows != nullptr) (*batch_.change_rows)(layer_name(layer_idx, name), rows);
}

Result<void> ForwardCall::run(StridedView<float, 2> logits) {
  act_.reserve(spec_, num_tokens_, static_cast<std::int64_t>(batch_.logit_rows.size()));
  auto result = append();
  if (result) result = make_plans();
  if (result) result = run_layers(logits);
  if (!result) roll_back();
  return result;
}

Result<void> ForwardCall::append() {
  for (std::size_t s = 0; s < batch_.sequences.size(); ++s) {
    const auto begin = static_cast<std::size_t>(batch_.offsets[s]);
    const auto count = static_cast<std::size_t>(batch_.offsets[s + 1]) - begin;
    SIGHTLINE_TRY(const std::int64_t length, cache_.length(batch_.sequences[s]));
    SIGHTLINE_CHECK(cache_.append(batch_.sequences[s], kv_coords_.subspan(begin, count),
                                  kv_rope_pos_.empty() ? kv_rope_pos_ : kv_rope_pos_.subspan(begin, count)));
    old_lengths_.push_back(length);
  }
  return {};
}

void ForwardCall::roll_back() {
  for (std::size_t s = 0; s < old_lengths_.size(); ++s) {
    // Taking back an append that waits for rows of some layer cannot fail.
    (void)cache_.truncate(batch_.sequences[s], old_lengths_[s]);
  }
}

Result<void> ForwardCall::read_views(std::size_t layer_idx) {
  views_.clear();
  for (const SequenceId sequence : batch_.sequences) {
    SIGHTLINE_TRY(KvView view, cache_.view(sequence, static_cast<int>(layer_idx)));
    views_.push_back(view);
  }
  return {};
}

Result<void> ForwardCall::make_plans() {
  const QueryBatch queries{batch_.offsets, batch_.q_coords, batch_.q_rope_pos};
  std::int64_t plan_bytes = 0;
  for (std::size_t i = 0; i < spec_.layers.size(); ++i) {
    const AttentionSpec& attention = attention_spec(i);
    SIGHTLINE_CHECK(read_views(i));
    for (const KvView& view : views_) {
      const HeadSpec& heads = attention.heads;
      if (view.num_kv_heads == heads.num_kv_heads && view.layout.qk_head_dim == heads.qk_head_dim &&
          view.layout.v_head_dim == heads.v_head_dim) {
        continue;
      }
      return fail(ErrorKind::kInvalidArgument,
                  "{}: layer {}: the cache holds {} heads of {} and {}, the model has {} of {} and {}", kName,
                  i, view.num_kv_heads, view.layout.qk_head_dim, view.layout.v_head_dim, heads.num_kv_heads,
                  heads.qk_head_dim, heads.v_head_dim);
    }
    std::size_t plan_idx = 0;
    while (plan_idx < plans_.size() && !share_plan(attention, attention_spec(plans_[plan_idx].layer_idx))) {
      ++plan_idx;
    }
    if (plan_idx == plans_.size()) {
      SIGHTLINE_TRY(AttentionPlan plan, plan_attention(attention, queries, PagedKv{views_}, extras_));
      plan_bytes += static_cast<std::int64_t>(plan.bytes());
      plans_.push_back({i, std::move(plan)});
    }
    plan_of_layer_.push_back(plan_idx);
  }
  model_.max_plan_bytes = std::max(model_.max_plan_bytes, plan_bytes);
  return {};
}

Result<void> ForwardCall::run_layers(StridedView<float, 2> logits) {
  embed();
  const StridedView<float, 2> hidden = rows(act_.hidden, spec_.model_dim);
  const StridedView<float, 2> normed = rows(act_.normed, spec_.model_dim);
  const bool norm_before = spec_.norm_placement != NormPlacement::kAfter;
  const bool is_parallel = spec_.residual == ResidualKind::kParallel;
  // Under kParallel both branches read the same rows, and the stream is the sum of all three.
  const StridedView<float, 2> input = norm_before || is_parallel ? normed : hidden;
  for (std::size_t i = 0; i < spec_.layers.size(); ++i) {
    const LayerWeights& weights = model_.weights.layers[i];
    if (norm_before) {
      norm(weights.attention_norm, hidden, normed);
    } else if (is_parallel) {
      std::copy_n(hidden.data, hidden.size(), normed.data);
    }
    SIGHTLINE_CHECK(attention_block(i, input));
    add_branch(weights.attention_post_norm);
    if (norm_before && !is_parallel) norm(weights.ffn_norm, hidden, normed);
    ffn_block(i, input);
    add_branch(weights.ffn_post_norm);
    report(i, "output", hidden);
  }
  head(logits);
  return {};
}

void ForwardCall::embed() {
  const StridedView<float, 2> hidden = rows(act_.hidden, spec_.model_dim);
  embedding_forward(model_.weights.embedding, batch_.token_ids, static_cast<float>(spec_.embedding_scale),
                    hidden, model_.pool);
  if (spec_.num_learned_positions == 0) return;
  for (std::int64_t i = 0; i < num_tokens_; ++i) {
    const TokenCoord& coord = batch_.q_coords[static_cast<std::size_t>(i)];
    if (!coord.valid) continue;
    const std::int64_t pos =
        batch_.q_rope_pos.empty() ? coord.pos : batch_.q_rope_pos[static_cast<std::size_t>(i)];
    const float* const row = model_.weights.positions.data() + pos * spec_.model_dim;
    float* const to = hidden.data + i * spec_.model_dim;
    for (int d = 0; d < spec_.model_dim; ++d) to[d] += row[d];
  }
}

Result<void> ForwardCall::attention_block(std::size_t layer_idx, StridedView<const float, 2> input) {
  const LayerSpec& layer = spec_.layers[layer_idx];
  const LayerWeights& weights = model_.weights.layers[layer_idx];
  const HeadSpec& heads = layer.attention.heads;
  const std::int64_t q_width = std::int64_t{heads.num_q_heads} * heads.qk_head_dim;
  const std::int64_t k_width = std::int64_t{heads.num_kv_heads} * heads.qk_head_dim;
  const std::int64_t v_width = std::int64_t{heads.num_kv_heads} * heads.v_head_dim;
  const StridedView<float, 2> qkv = rows(act_.qkv, q_width + k_width + v_width);
  const StridedView<float, 2> q = columns(qkv, 0, q_width);
  const StridedView<float, 2> k = columns(qkv, q_width, k_width);
  const StridedView<float, 2> v = columns(qkv, q_width + k_width, v_width);

  linear_forward(weights.qkv, changed(layer_name(layer_idx, "qkv_input"), input), weights.qkv_bias.span(),
                 qkv, model_.pool);
  if (layer.qk_norm != QkNorm::kNone) normalise_qk(layer, weights);
  change_qkv(layer_idx, "q", q);
  change_qkv(layer_idx, "k", k);
  change_qkv(layer_idx, "v", v);
  report(layer_idx, "q", q);
  report(layer_idx, "k", k);
  report(layer_idx, "v", v);
  SIGHTLINE_CHECK(write_cache(layer_idx, as_heads(k, heads.num_kv_heads, heads.qk_head_dim),
                              as_heads(v, heads.num_kv_heads, heads.v_head_dim)));
  SIGHTLINE_CHECK(read_views(layer_idx));

  const StridedView<float, 2> attended =
      rows(act_.attended, std::int64_t{heads.num_q_heads} * heads.v_head_dim);
  const QueryBatch queries{batch_.offsets, batch_.q_coords, batch_.q_rope_pos};
  SIGHTLINE_CHECK(attention_forward(
      attention_spec(layer_idx), plans_[plan_of_layer_[layer_idx]].plan,
      as_heads(q, heads.num_q_heads, heads.qk_head_dim), queries, PagedKv{views_}, extras_,
      as_heads(attended, heads.num_q_heads, heads.v_head_dim), StridedView<float, 2>{}, model_.context));
  report(layer_idx, "attention", attended);
  linear_forward(weights.output, changed(layer_name(layer_idx, "attention"), attended),
                 weights.output_bias.span(), rows(act_.branch, spec_.model_dim), model_.pool);
  return {};
}

void ForwardCall::normalise_qk(const LayerSpec& layer, const LayerWeights& weights) {
  const HeadSpec& heads = layer.attention.heads;
  const std::int64_t q_width = std::int64_t{heads.num_q_heads} * heads.qk_head_dim;
  const std::int64_t k_width = std::int64_t{heads.num_kv_heads} * heads.qk_head_dim;
  const std::int64_t v_width = std::int64_t{heads.num_kv_heads} * heads.v_head_dim;
  const StridedView<float, 2> qkv = rows(act_.qkv, q_width + k_width + v_width);
  const auto epsilon = static_cast<float>(spec_.norm.epsilon);
  const auto apply = [&](std::int64_t begin, std::int64_t width, const AlignedBuffer<float>& weight) {
    const auto step = static_cast<std::int64_t>(weight.size());
    for (std::int64_t at = begin; at < begin + width; at += step) {
      const StridedView<float, 2> part = columns(qkv, at, step);
      if (spec_.norm.kind == NormKind::kRms) {
        rms_norm_forward(part, weight.span(), epsilon, part, model_.pool);
      } else {
        layer_norm_forward(part, weight.span(), {}, epsilon, part, model_.pool);
      }
    }
  };
  apply(0, q_width, weights.q_norm);
  apply(q_width, k_width, weights.k_norm);
}

Result<void> ForwardCall::write_cache(std::size_t layer_idx, StridedView<const float, 3> k,
                                      StridedView<const float, 3> v) {
  const std::size_t num_sequences = batch_.sequences.size();
  const auto write_one = [&](std::size_t s) {
    const std::int64_t begin = batch_.offsets[s];
    const std::int64_t count = batch_.offsets[s + 1] - begin;
    auto keys = k;
    auto values = v;
    keys.data += begin * k.strides[0];
    values.data += begin * v.strides[0];
    keys.shape[0] = values.shape[0] = count;
    return cache_.write(batch_.sequences[s], static_cast<int>(layer_idx), keys, values);
  };
  if (num_sequences == 1) return write_one(0);
  std::vector<Result<void>> results(num_sequences);
  model_.pool.parallel_for(static_cast<std::int64_t>(num_sequences), [&](std::int64_t s, int) {
    results[static_cast<std::size_t>(s)] = write_one(static_cast<std::size_t>(s));
  });
  for (Result<void>& result : results) {
    if (!result) return std::move(result);
  }
  return {};
}

void ForwardCall::ffn_block(std::size_t layer_idx, StridedView<const float, 2> input) {
  const FfnSpec& ffn = spec_.layers[layer_idx].ffn;
  const LayerWeights& weights = model_.weights.layers[layer_idx];
  const ActivationKind kind = activation_kind(ffn.activation);
  const StridedView<float, 2> branch = rows(act_.branch, spec_.model_dim);
  const std::int64_t width = std::int64_t{ffn.ffn_dim} * (ffn.gated ? 2 : 1);
  for (std::int64_t begin = 0; begin < num_tokens_; begin += kFfnRows) {
    const std::int64_t end = std::min(begin + kFfnRows, num_tokens_);
    const StridedView<float, 2> inner = dense_view(act_.ffn.data(), {end - begin, width});
    const StridedView<float, 2> first = columns(inner, 0, ffn.ffn_dim);
    linear_forward(weights.up, changed(layer_name(layer_idx, "ffn_input"), row_range(input, begin, end)),
                   weights.up_bias.span(), inner, model_.pool);
    if (ffn.gated) {
      gated_activation_forward(kind, first, columns(inner, ffn.ffn_dim, ffn.ffn_dim), first, model_.pool);
    } else {
      activation_forward(kind, first, first, model_.pool);
    }
    linear_forward(weights.down, changed(layer_name(layer_idx, "ffn_inner"), first), weights.down_bias.span(),
                   row_range(branch, begin, end), model_.pool);
  }
}

void ForwardCall::add_branch(const NormWeights& post_norm) {
  const StridedView<float, 2> branch = rows(act_.branch, spec_.model_dim);
  if (post_norm.present()) norm(post_norm, branch, branch);
  add_scaled(rows(act_.hidden, spec_.model_dim), branch, static_cast<float>(spec_.residual_scale),
             model_.pool);
}

void ForwardCall::norm(const NormWeights& weights, StridedView<const float, 2> x, StridedView<float, 2> y) {
  const auto epsilon = static_cast<float>(spec_.norm.epsilon);
  if (spec_.norm.kind == NormKind::kRms) {
    rms_norm_forward(x, weights.weight.span(), epsilon, y, model_.pool);
  } else {
    layer_norm_forward(x, weights.weight.span(), weights.bias.span(), epsilon, y, model_.pool);
  }
}

void ForwardCall::head(StridedView<float, 2> logits) {
  const auto num_rows = static_cast<std::int64_t>(batch_.logit_rows.size());
  if (num_rows == 0) return;
  const StridedView<float, 2> picked =
      dense_view(act_.head_rows.data(), {num_rows, std::int64_t{spec_.model_dim}});
  for (std::int64_t i = 0; i < num_rows; ++i) {
    const std::int64_t row = batch_.logit_rows[static_cast<std::size_t>(i)];
    std::copy_n(act_.hidden.data() + row * spec_.model_dim, spec_.model_dim,
                picked.data + i * spec_.model_dim);
  }
  norm(model_.weights.final_norm, picked, picked);
  if (tap_) tap_("final_norm", picked);
  const PackedLinear& table = spec_.tied_head ? model_.weights.embedding : model_.weights.head;
  linear_forward(table, changed("head_input", picked), model_.weights.head_bias.span(), logits, model_.pool);
  const auto scale = static_cast<float>(spec_.logit_scale);
  const auto cap = static_cast<float>(spec_.final_logit_softcap);
  if (scale == 1.0F && cap == 0.0F) return;
  model_.pool.parallel_for(num_rows, [&](std::int64_t i, int) {
    float* const row = logits.data + i * logits.strides[0];
    for (int t = 0; t < spec_.vocab_size; ++t) {
      row[t] *= scale;
      if (cap > 0.0F) row[t] = cap * std::tanh(row[t] / cap);
    }
  });
}

}  // namespace sightline
