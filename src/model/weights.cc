#include "model/weights.h"

#include <cstring>
#include <functional>
#include <utility>

#include "sightline/base/rng.h"

namespace sightline {

namespace {

Result<PackedLinear> load_group(const PackedGroup& group, const TensorSource& source) {
  WeightReader reader(source, group.ref);
  const auto read = [&](std::int64_t begin, std::int64_t end, auto out) {
    return reader.read(begin, end, out);
  };
  const auto [rows, cols] = std::pair(group.ref.rows, group.ref.cols);
  switch (group.as.storage) {
    case WeightStorage::kF32:
      return PackedLinear::pack(rows, cols, read);
    case WeightStorage::kBf16:
      return PackedLinear::pack_bf16(rows, cols, read);
    case WeightStorage::kQuantised:
      return PackedLinear::pack_quantised(group.as.kind, rows, cols, read);
  }
  return fail(ErrorKind::kInternal, "load_group: no such storage");
}

// Where matrices come from, and how they are kept.
struct MatrixSource {
  const TensorSource& tensors;
  Matmul matmul;
};

Result<PackedLinear> load_matrix(const WeightRef& ref, const MatrixSource& source) {
  std::vector<PackedLinear> parts;
  for (const PackedGroup& group : packed_groups(ref, source.tensors, source.matmul)) {
    SIGHTLINE_TRY(PackedLinear part, load_group(group, source.tensors));
    parts.push_back(std::move(part));
  }
  return PackedLinear::stack(std::move(parts));
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

Result<LayerWeights> load_layer(const LayerRefs& refs, const MatrixSource& matrices) {
  const TensorSource& source = matrices.tensors;
  LayerWeights layer;
  SIGHTLINE_TRY(layer.attention_norm, load_norm(refs.attention_norm, source));
  SIGHTLINE_TRY(layer.attention_post_norm, load_norm(refs.attention_post_norm, source));
  SIGHTLINE_TRY(layer.qkv, load_matrix(refs.qkv, matrices));
  SIGHTLINE_TRY(layer.qkv_bias, load_rows(refs.qkv_bias, source));
  SIGHTLINE_TRY(layer.q_norm, load_rows(refs.q_norm, source));
  SIGHTLINE_TRY(layer.k_norm, load_rows(refs.k_norm, source));
  SIGHTLINE_TRY(layer.output, load_matrix(refs.output, matrices));
  SIGHTLINE_TRY(layer.output_bias, load_rows(refs.output_bias, source));
  SIGHTLINE_TRY(layer.ffn_norm, load_norm(refs.ffn_norm, source));
  SIGHTLINE_TRY(layer.ffn_post_norm, load_norm(refs.ffn_post_norm, source));
  SIGHTLINE_TRY(layer.up, load_matrix(refs.up, matrices));
  SIGHTLINE_TRY(layer.up_bias, load_rows(refs.up_bias, source));
  SIGHTLINE_TRY(layer.down, load_matrix(refs.down, matrices));
  SIGHTLINE_TRY(layer.down_bias, load_rows(refs.down_bias, source));
  return layer;
}

void for_each_span(const ModelWeights& weights,
                   const std::function<void(std::span<const std::byte>)>& visit) {
  const auto floats = [&](const AlignedBuffer<float>& buffer) { visit(std::as_bytes(buffer.span())); };
  const auto packed = [&](const PackedLinear& matrix) {
    for (const PackedLinear::Piece& piece : matrix.pieces()) visit(piece.bytes.span());
  };
  const auto norm = [&](const NormWeights& n) {
    floats(n.weight);
    floats(n.bias);
  };
  const auto linear = [&](const PackedLinear& matrix, const AlignedBuffer<float>& bias) {
    packed(matrix);
    floats(bias);
  };
  packed(weights.embedding);
  floats(weights.positions);
  for (const LayerWeights& layer : weights.layers) {
    norm(layer.attention_norm);
    norm(layer.attention_post_norm);
    linear(layer.qkv, layer.qkv_bias);
    floats(layer.q_norm);
    floats(layer.k_norm);
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

Result<ModelWeights> load_weights(const WeightLayout& layout, const TensorSource& source, Matmul matmul) {
  const MatrixSource matrices{source, matmul};
  ModelWeights weights;
  SIGHTLINE_TRY(weights.embedding, load_matrix(layout.embedding, matrices));
  SIGHTLINE_TRY(weights.positions, load_rows(layout.positions, source));
  weights.layers.reserve(layout.layers.size());
  for (const LayerRefs& refs : layout.layers) {
    SIGHTLINE_TRY(LayerWeights layer, load_layer(refs, matrices));
    weights.layers.push_back(std::move(layer));
  }
  SIGHTLINE_TRY(weights.final_norm, load_norm(layout.final_norm, source));
  if (layout.head.present()) {
    SIGHTLINE_TRY(weights.head, load_matrix(layout.head, matrices));
  }
  SIGHTLINE_TRY(weights.head_bias, load_rows(layout.head_bias, source));
  return weights;
}

std::int64_t num_bytes(const ModelWeights& weights) {
  std::int64_t bytes = 0;
  for_each_span(weights, [&](std::span<const std::byte> s) { bytes += static_cast<std::int64_t>(s.size()); });
  return bytes;
}

std::uint64_t hash(const ModelWeights& weights) {
  // Four independent chains, so that half a gigabyte takes a fraction of a second.
  std::uint64_t lanes[4] = {1, 2, 3, 4};
  std::uint64_t count = 0;
  for_each_span(weights, [&](std::span<const std::byte> s) {
    for (std::size_t i = 0; i + 4 <= s.size(); i += 4) {  // every span is whole words
      std::uint32_t word;
      std::memcpy(&word, s.data() + i, sizeof(word));
      std::uint64_t& lane = lanes[count++ % 4];
      lane = (lane ^ word) * 0x9e3779b97f4a7c15ULL;
      lane ^= lane >> 29;
    }
  });
  return mix64(mix64(mix64(mix64(lanes[0] ^ count) ^ lanes[1]) ^ lanes[2]) ^ lanes[3]);
}

}  // namespace sightline
