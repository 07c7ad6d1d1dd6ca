// How each matrix of a model is kept in memory, and what that takes.
#include <algorithm>

#include "model/weight_layout.h"
#include "sightline/formats/quantize.h"

namespace sightline {

namespace {

PackedAs packed_as(const WeightRef& ref, const WeightPart& part, const TensorSource& source, Matmul matmul) {
  if (matmul == Matmul::kBf16) return {.storage = WeightStorage::kBf16};
  const TensorInfo* info = matmul == Matmul::kNative ? source.find(part.tensor) : nullptr;
  if (info == nullptr) return {};
  if (info->type == DataType::kBF16) return {.storage = WeightStorage::kBf16};
  const std::optional<QuantKind> kind = quant_kind(info->type);
  // Rows of a transposed tensor lie across its blocks.
  if (!kind || part.transposed || ref.cols % quant_traits(*kind).block_values != 0) return {};
  return {.storage = WeightStorage::kQuantised, .kind = *kind};
}

}  // namespace

const char* to_string(Matmul matmul) {
  switch (matmul) {
    case Matmul::kNative:
      return "native";
    case Matmul::kBf16:
      return "bf16";
    case Matmul::kF32:
      return "f32";
  }
  return "?";
}

std::vector<PackedGroup> packed_groups(const WeightRef& ref, const TensorSource& source, Matmul matmul) {
  std::vector<PackedGroup> groups;
  for (const WeightPart& part : ref.parts) {
    const PackedAs as = packed_as(ref, part, source, matmul);
    if (groups.empty() || groups.back().as != as) groups.push_back({as, {0, ref.cols, {}}});
    groups.back().ref.rows += part.num_rows;
    groups.back().ref.parts.push_back(part);
  }
  return groups;
}

std::int64_t packed_bytes(const WeightLayout& layout, const TensorSource& source, Matmul matmul) {
  std::int64_t bytes = 0;
  for_each_weight(layout, [&](std::string_view what, const WeightRef& ref) {
    if (ref.cols == 0 || what == "positions") {
      bytes += ref.rows * std::max<std::int64_t>(ref.cols, 1) * 4;
      return;
    }
    for (const PackedGroup& group : packed_groups(ref, source, matmul)) {
      bytes += PackedLinear::packed_bytes(group.as.storage, group.as.kind, group.ref.rows, ref.cols);
    }
  });
  return bytes;
}

}  // namespace sightline
