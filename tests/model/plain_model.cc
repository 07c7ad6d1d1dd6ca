#include "model/plain_model.h"

#include <cmath>
#include <limits>

namespace sightline::testing {

namespace {

using Rows = std::vector<float>;

struct Plain {
  const TestModel& model;
  const reference::ModelInputs& inputs;
  std::size_t num_tokens = inputs.token_ids.size();

  const Rows* find(const std::string& name) const {
    const auto it = model.tensors.find(name);
    return it == model.tensors.end() ? nullptr : &it->second.values;
  }

  Rows linear(const Rows& x, const std::string& name, std::size_t in_dim) const {
    const Rows& w = *find(name + ".weight");
    const Rows* bias = find(name + ".bias");
    const std::size_t out_dim = w.size() / in_dim;
    const std::size_t rows = x.size() / in_dim;
    Rows y(rows * out_dim);
    for (std::size_t i = 0; i < rows; ++i) {
      for (std::size_t n = 0; n < out_dim; ++n) {
        float sum = 0;
        for (std::size_t k = 0; k < in_dim; ++k) sum += x[i * in_dim + k] * w[n * in_dim + k];
        y[i * out_dim + n] = bias == nullptr ? sum : sum + (*bias)[n];
      }
    }
    return y;
  }

  // Each run of `width` numbers is a row; the weight repeats when it is longer than a row.
  Rows norm(Rows x, const std::string& name, std::size_t width) const {
    const Rows& w = *find(name + ".weight");
    const Rows* bias = find(name + ".bias");
    const bool rms = model.spec.norm.kind == NormKind::kRms;
    for (std::size_t i = 0; i < x.size(); i += width) {
      float mean = 0;
      float square = 0;
      for (std::size_t d = 0; d < width && !rms; ++d) mean += x[i + d] / static_cast<float>(width);
      for (std::size_t d = 0; d < width; ++d) square += (x[i + d] - mean) * (x[i + d] - mean);
      const float scale =
          1 / std::sqrt(square / static_cast<float>(width) + static_cast<float>(model.spec.norm.epsilon));
      for (std::size_t d = 0; d < width; ++d) {
        x[i + d] = (x[i + d] - mean) * scale * w[d] + (bias == nullptr ? 0 : (*bias)[d]);
      }
    }
    return x;
  }

  std::int64_t rope_pos(std::size_t i) const {
    return inputs.rope_pos.empty() ? inputs.coords[i].pos : inputs.rope_pos[i];
  }

  void rotate(Rows& x, const RopeSpec& rope, std::size_t num_heads, std::size_t head_dim) const {
    if (rope.pairing == RopePairing::kNone) return;
    const std::vector<double> frequencies = rope_frequencies(rope, inputs.rope_length);
    for (std::size_t i = 0; i < num_tokens; ++i) {
      for (std::size_t p = 0; p < frequencies.size(); ++p) {
        const double angle = static_cast<double>(rope_pos(i)) * frequencies[p];
        const auto c = static_cast<float>(std::cos(angle) * rope.cos_sin_magnitude);
        const auto s = static_cast<float>(std::sin(angle) * rope.cos_sin_magnitude);
        const RopePair pair = rope_pair(rope, static_cast<int>(p));
        for (std::size_t h = 0; h < num_heads; ++h) {
          float& a = x[(i * num_heads + h) * head_dim + static_cast<std::size_t>(pair.first)];
          float& b = x[(i * num_heads + h) * head_dim + static_cast<std::size_t>(pair.second)];
          const float old = a;
          a = old * c - b * s;
          b = old * s + b * c;
        }
      }
    }
  }

  Rows attention(const Rows& q, const Rows& k, const Rows& v, const AttentionSpec& spec) const {
    const auto heads = static_cast<std::size_t>(spec.heads.num_q_heads);
    const auto kv_heads = static_cast<std::size_t>(spec.heads.num_kv_heads);
    const auto dim = static_cast<std::size_t>(spec.heads.qk_head_dim);
    const auto v_dim = static_cast<std::size_t>(spec.heads.v_head_dim);
    const auto scale = static_cast<float>(softmax_scale(spec.score, spec.heads));
    Rows out(num_tokens * heads * v_dim, 0.0F);
    for (std::size_t i = 0; i < num_tokens; ++i) {
      for (std::size_t h = 0; h < heads; ++h) {
        const auto g = static_cast<std::size_t>(kv_head_for(spec.heads, static_cast<int>(h)));
        Rows scores(num_tokens, -std::numeric_limits<float>::infinity());
        float top = -std::numeric_limits<float>::infinity();
        for (std::size_t j = 0; j < num_tokens; ++j) {
          if (!is_visible(spec.mask, inputs.tables, {inputs.coords[i], static_cast<std::int64_t>(i)},
                          {inputs.coords[j], static_cast<std::int64_t>(j)})) {
            continue;
          }
          float dot = 0;
          for (std::size_t d = 0; d < dim; ++d)
            dot += q[(i * heads + h) * dim + d] * k[(j * kv_heads + g) * dim + d];
          scores[j] = dot * scale;
          top = std::max(top, scores[j]);
        }
        float sum = 0;
        for (float& s : scores) sum += s = std::isinf(s) ? 0 : std::exp(s - top);
        for (std::size_t j = 0; j < num_tokens; ++j) {
          if (scores[j] == 0) continue;
          for (std::size_t d = 0; d < v_dim; ++d) {
            out[(i * heads + h) * v_dim + d] += scores[j] / sum * v[(j * kv_heads + g) * v_dim + d];
          }
        }
      }
    }
    return out;
  }

  static float activate(Activation kind, float x) {
    switch (kind) {
      case Activation::kSilu:
        return x / (1 + std::exp(-x));
      case Activation::kGeluTanh:
        return 0.5F * x * (1 + std::tanh(0.7978845608028654F * (x + 0.044715F * x * x * x)));
      case Activation::kGeluErf:
        return 0.5F * x * (1 + std::erf(x * 0.7071067811865476F));
      case Activation::kRelu:
        return std::max(x, 0.0F);
    }
    return x;
  }

  void add(Rows& hidden, const Rows& branch) const {
    for (std::size_t i = 0; i < hidden.size(); ++i) {
      hidden[i] += static_cast<float>(model.spec.residual_scale) * branch[i];
    }
  }

  Rows qkv_part(const Rows& x, const LayerSpec& layer, const std::string& name, int num_heads,
                bool normed) const {
    const auto width = static_cast<std::size_t>(model.spec.model_dim);
    const auto dim = static_cast<std::size_t>(layer.attention.heads.qk_head_dim);
    Rows y = linear(x, name, width);
    if (!normed || layer.qk_norm == QkNorm::kNone) return y;
    const std::size_t row =
        layer.qk_norm == QkNorm::kPerHead ? dim : dim * static_cast<std::size_t>(num_heads);
    return norm(std::move(y), name + "_norm", row);
  }

  void run_layer(Rows& hidden, std::size_t layer_idx) const {
    const LayerSpec& layer = model.spec.layers[layer_idx];
    const HeadSpec& heads = layer.attention.heads;
    const auto width = static_cast<std::size_t>(model.spec.model_dim);
    const std::string prefix = fmt::format("layer.{}.", layer_idx);
    const bool before = model.spec.norm_placement != NormPlacement::kAfter;
    const bool after = model.spec.norm_placement != NormPlacement::kBefore;
    Rows input = before ? norm(hidden, prefix + "attention_norm", width) : hidden;
    Rows q = qkv_part(input, layer, prefix + "q", heads.num_q_heads, true);
    Rows k = qkv_part(input, layer, prefix + "k", heads.num_kv_heads, true);
    const Rows v = qkv_part(input, layer, prefix + "v", heads.num_kv_heads, false);
    const auto dim = static_cast<std::size_t>(heads.qk_head_dim);
    rotate(q, layer.attention.rope, static_cast<std::size_t>(heads.num_q_heads), dim);
    rotate(k, layer.attention.rope, static_cast<std::size_t>(heads.num_kv_heads), dim);
    Rows branch =
        linear(attention(q, k, v, layer.attention), prefix + "o",
               static_cast<std::size_t>(heads.num_q_heads) * static_cast<std::size_t>(heads.v_head_dim));
    if (after) branch = norm(std::move(branch), prefix + "post_attention_norm", width);
    add(hidden, branch);
    if (model.spec.residual == ResidualKind::kSequential) {
      input = before ? norm(hidden, prefix + "ffn_norm", width) : hidden;
    }
    Rows inner = linear(input, prefix + "up", width);
    if (layer.ffn.gated) {
      const Rows gate = linear(input, prefix + "gate", width);
      for (std::size_t i = 0; i < inner.size(); ++i) inner[i] *= activate(layer.ffn.activation, gate[i]);
    } else {
      for (float& x : inner) x = activate(layer.ffn.activation, x);
    }
    branch = linear(inner, prefix + "down", static_cast<std::size_t>(layer.ffn.ffn_dim));
    if (after) branch = norm(std::move(branch), prefix + "post_ffn_norm", width);
    add(hidden, branch);
  }

  Rows run() const {
    const auto width = static_cast<std::size_t>(model.spec.model_dim);
    Rows hidden(num_tokens * width);
    const Rows* positions = find("positions.weight");
    for (std::size_t i = 0; i < num_tokens; ++i) {
      const auto id = static_cast<std::size_t>(inputs.token_ids[i]);
      for (std::size_t d = 0; d < width; ++d) {
        hidden[i * width + d] =
            static_cast<float>(model.spec.embedding_scale) * (*find("embedding.weight"))[id * width + d];
        if (positions != nullptr) {
          hidden[i * width + d] += (*positions)[static_cast<std::size_t>(rope_pos(i)) * width + d];
        }
      }
    }
    for (std::size_t layer = 0; layer < model.spec.layers.size(); ++layer) run_layer(hidden, layer);
    hidden = norm(std::move(hidden), "final_norm", width);
    Rows logits = linear(hidden, model.spec.tied_head ? "embedding" : "head", width);
    const auto cap = static_cast<float>(model.spec.final_logit_softcap);
    for (float& x : logits) {
      x *= static_cast<float>(model.spec.logit_scale);
      if (cap > 0) x = cap * std::tanh(x / cap);
    }
    return logits;
  }
};

}  // namespace

reference::ModelWeights as_reference(const TestModel& model) {
  reference::ModelWeights weights = reference::zero_weights(model.spec);
  reference::for_each(weights, [&](const std::string& name, std::vector<double>& values) {
    const std::string own = name == "embedding" || name == "positions" ? name + ".weight" : name;
    const std::vector<float>& from = model.tensors.at(own).values;
    values.assign(from.begin(), from.end());
  });
  return weights;
}

std::vector<float> plain_logits(const TestModel& model, const reference::ModelInputs& inputs) {
  return Plain{model, inputs}.run();
}

double largest_error(std::span<const double> ref, std::span<const float> out) {
  double largest = ref.size() == out.size() ? 0 : std::numeric_limits<double>::infinity();
  for (std::size_t i = 0; i < std::min(ref.size(), out.size()); ++i) {
    const double error = std::abs(ref[i] - static_cast<double>(out[i]));
    // NaN is never within a bound.
    largest = std::isnan(error) ? std::numeric_limits<double>::infinity() : std::max(largest, error);
  }
  return largest;
}

double allowed_error(std::span<const double> ref, std::span<const float> plain) {
  double rounding = 0;
  for (const double r : ref) {
    const auto f = static_cast<float>(r);
    const float there = f + 0.3F;
    rounding = std::max(rounding, std::abs(static_cast<double>(there - 0.3F) - static_cast<double>(f)));
  }
  return 2 * largest_error(ref, plain) + 2 * rounding;
}

}  // namespace sightline::testing
