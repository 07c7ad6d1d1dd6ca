#include "model/weights.h"

#include <bit>
#include <functional>

#include "sightline/base/rng.h"

namespace sightline {

namespace {

Result<PackedLinear> load_matrix(const WeightRef& ref, const TensorSource& source) {
  WeightReader reader(source, ref);
  return PackedLinear::pack(ref.rows, ref.cols,
                            [&](std::int64_t begin, std::int64_t end, std::span<float> out) {
                              return reader.read(begin, end, out);
                            });
}

Result<AlignedBuffer<float>> load_rows(const WeightRef& ref, const TensorSource& source) {
  if (!ref.present()) return AlignedBuffer<float>();
  AlignedBuffer<float> rows(static_cast<std::size_t>(ref.rows * std::max<std::int64_t>(ref.cols, 1)));
  WeightReader reader(source, ref);
  SIGHTLINE_CHECK(reader.read(0, ref.rows, rows.span()));
  return rows;
}

Result<NormWeights> load_norm(const NormRef& ref, const TensorSource& source) {
  NormWeights norm;
  SIGHTLINE_TRY(norm.weight, load_rows(ref.weight, source));
  SIGHTLINE_TRY(norm.bias, load_rows(ref.bias, source));
  return norm;
}

Result<LayerWeights> load_layer(const LayerRefs& refs, const TensorSource& source) {
  LayerWeights layer;
  SIGHTLINE_TRY(layer.attention_norm, load_norm(refs.attention_norm, source));
  SIGHTLINE_TRY(layer.attention_post_norm, load_norm(refs.attention_post_norm, source));
  SIGHTLINE_TRY(layer.qkv, load_matrix(refs.qkv, source));
  SIGHTLINE_TRY(layer.qkv_bias, load_rows(refs.qkv_bias, source));
  SIGHTLINE_TRY(layer.q_norm, load_rows(refs.q_norm, source));
  SIGHTLINE_TRY(layer.k_norm, load_rows(refs.k_norm, source));
  SIGHTLINE_TRY(layer.output, load_matrix(refs.output, source));
  SIGHTLINE_TRY(layer.output_bias, load_rows(refs.output_bias, source));
  SIGHTLINE_TRY(layer.ffn_norm, load_norm(refs.ffn_norm, source));
  SIGHTLINE_TRY(layer.ffn_post_norm, load_norm(refs.ffn_post_norm, source));
  SIGHTLINE_TRY(layer.up, load_matrix(refs.up, source));
  SIGHTLINE_TRY(layer.up_bias, load_rows(refs.up_bias, source));
  SIGHTLINE_TRY(layer.down, load_matrix(refs.down, source));
  SIGHTLINE_TRY(layer.down_bias, load_rows(refs.down_bias, source));
  return layer;
}

std::span<const float> packed_span(const PackedLinear& linear) {
  return {linear.panel(0), linear.bytes() / sizeof(float)};
}

void for_each_span(const ModelWeights& weights, const std::function<void(std::span<const float>)>& visit) {
  const auto norm = [&](const NormWeights& n) {
    visit(n.weight.span());
    visit(n.bias.span());
  };
  const auto linear = [&](const PackedLinear& matrix, const AlignedBuffer<float>& bias) {
    visit(packed_span(matrix));
    visit(bias.span());
  };
  visit(packed_span(weights.embedding));
  visit(weights.positions.span());
  for (const LayerWeights& layer : weights.layers) {
    norm(layer.attention_norm);
    norm(layer.attention_post_norm);
    linear(layer.qkv, layer.qkv_bias);
    visit(layer.q_norm.span());
    visit(layer.k_norm.span());
    linear(layer.output, layer.output_bias);
    norm(layer.ffn_norm);
    norm(layer.ffn_post_norm);
    linear(layer.up, layer.up_bias);
    linear(layer.down, layer.down_bias);
  }
  norm(weights.final_norm);
  linear(weights.head, weights.head_bias);
}

}  // namespace

Result<ModelWeights> load_weights(const WeightLayout& layout, const TensorSource& source) {
  ModelWeights weights;
  SIGHTLINE_TRY(weights.embedding, load_matrix(layout.embedding, source));
  SIGHTLINE_TRY(weights.positions, load_rows(layout.positions, source));
  weights.layers.reserve(layout.layers.size());
  for (const LayerRefs& refs : layout.layers) {
    SIGHTLINE_TRY(LayerWeights layer, load_layer(refs, source));
    weights.layers.push_back(std::move(layer));
  }
  SIGHTLINE_TRY(weights.final_norm, load_norm(layout.final_norm, source));
  if (layout.head.present()) {
    SIGHTLINE_TRY(weights.head, load_matrix(layout.head, source));
  }
  SIGHTLINE_TRY(weights.head_bias, load_rows(layout.head_bias, source));
  return weights;
}

std::int64_t num_bytes(const ModelWeights& weights) {
  std::int64_t bytes = 0;
  for_each_span(weights,
                [&](std::span<const float> s) { bytes += static_cast<std::int64_t>(s.size_bytes()); });
  return bytes;
}

std::uint64_t hash(const ModelWeights& weights) {
  // Four independent chains, so that half a gigabyte takes a fraction of a second.
  std::uint64_t lanes[4] = {1, 2, 3, 4};
  std::uint64_t count = 0;
  for_each_span(weights, [&](std::span<const float> s) {
    for (const float x : s) {
      std::uint64_t& lane = lanes[count++ % 4];
      lane = (lane ^ std::bit_cast<std::uint32_t>(x)) * 0x9e3779b97f4a7c15ULL;
      lane ^= lane >> 29;
    }
  });
  return mix64(mix64(mix64(mix64(lanes[0] ^ count) ^ lanes[1]) ^ lanes[2]) ^ lanes[3]);
}

}  // namespace sightline
