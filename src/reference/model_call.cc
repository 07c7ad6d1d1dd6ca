#include "model_call.h"

namespace sightline::reference {

Result<void> check_model_call(const ModelSpec& spec, const ModelWeights& weights, const ModelInputs& inputs,
                              const char* function) {
  SIGHTLINE_CHECK(validate(spec));
  std::vector<std::pair<std::string, std::size_t>> expected, got;
  const ModelWeights zeros = zero_weights(spec);
  for_each(zeros, [&](const std::string& name, const auto& x) { expected.emplace_back(name, x.size()); });
  for_each(weights, [&](const std::string& name, const auto& x) { got.emplace_back(name, x.size()); });
  for (std::size_t i = 0; i < std::max(expected.size(), got.size()); ++i) {
    const auto [want, want_size] =
        i < expected.size() ? expected[i] : std::pair<std::string, std::size_t>{"none", 0};
    const auto [have, have_size] = i < got.size() ? got[i] : std::pair<std::string, std::size_t>{"none", 0};
    if (want == have && want_size == have_size) continue;
    return fail(ErrorKind::kInvalidArgument, "{}: weight {} with {} entries, expected {} with {}", function,
                have, have_size, want, want_size);
  }
  const std::size_t num_tokens = inputs.token_ids.size();
  if (inputs.coords.size() != num_tokens ||
      (!inputs.rope_pos.empty() && inputs.rope_pos.size() != num_tokens)) {
    return fail(ErrorKind::kInvalidArgument, "{}: {} token ids, {} coords, {} rope_pos", function, num_tokens,
                inputs.coords.size(), inputs.rope_pos.size());
  }
  for (std::size_t i = 0; i < num_tokens; ++i) {
    const std::int32_t id = inputs.token_ids[i];
    if (id < 0 || id >= spec.vocab_size) {
      return fail(ErrorKind::kInvalidArgument, "{}: token_ids[{}] = {} is outside [0, {})", function, i, id,
                  spec.vocab_size);
    }
    if (spec.num_learned_positions == 0 || !inputs.coords[i].valid) continue;
    const std::int64_t p = model_rope_pos(inputs, i);
    if (p < 0 || p >= spec.num_learned_positions) {
      return fail(ErrorKind::kInvalidArgument, "{}: row {} has learned position {}, the table has {}",
                  function, i, p, spec.num_learned_positions);
    }
  }
  return {};
}

std::int64_t model_rope_pos(const ModelInputs& inputs, std::size_t row) {
  return inputs.rope_pos.empty() ? inputs.coords[row].pos : inputs.rope_pos[row];
}

AttentionInputs layer_attention_inputs(const HeadSpec& heads, const ModelInputs& inputs,
                                       const LayerActivations& layer) {
  const auto num_tokens = static_cast<std::int64_t>(inputs.token_ids.size());
  AttentionInputs in;
  in.q = dense_view<const double, 3>(layer.q.data(), {num_tokens, heads.num_q_heads, heads.qk_head_dim});
  in.k = dense_view<const double, 3>(layer.k.data(), {num_tokens, heads.num_kv_heads, heads.qk_head_dim});
  in.v = dense_view<const double, 3>(layer.v.data(), {num_tokens, heads.num_kv_heads, heads.v_head_dim});
  in.q_coords = in.kv_coords = inputs.coords;
  in.q_rope_pos = in.kv_rope_pos = inputs.rope_pos;
  in.rope_length = inputs.rope_length;
  in.tables = inputs.tables;
  return in;
}

const std::vector<double>& head_weight(const ModelWeights& weights) {
  return weights.head.weight.empty() ? weights.embedding : weights.head.weight;
}

}  // namespace sightline::reference
