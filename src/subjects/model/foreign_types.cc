#include "sightline/subjects/model/foreign_types.h"

#include <algorithm>
#include <array>
#include <optional>
#include <utility>

namespace sightline::subjects {
namespace {

constexpr std::array<std::pair<RowType, std::string_view>, 5> kNames = {{{RowType::kF32, "f32"},
                                                                         {RowType::kBf16, "bf16"},
                                                                         {RowType::kF16, "f16"},
                                                                         {RowType::kQ8, "q8"},
                                                                         {RowType::kQ8K, "q8_k"}}};

std::optional<RowType> named(std::string_view text) {
  for (const auto& [type, name] : kNames) {
    if (name == text) return type;
  }
  return std::nullopt;
}

// What ggml turns rows into before they meet a matrix of this type.
RowType read_by_ggml(std::string_view stored) {
  if (stored == "F32") return RowType::kF32;
  if (stored == "F16") return RowType::kF16;
  if (stored == "BF16") return RowType::kBf16;
  return stored.ends_with("_K") || stored.starts_with("IQ") ? RowType::kQ8K : RowType::kQ8;
}

// From fine to coarse.
int coarseness(RowType type) {
  constexpr std::array kOrder = {RowType::kF32, RowType::kF16, RowType::kBf16, RowType::kQ8, RowType::kQ8K};
  return static_cast<int>(std::ranges::find(kOrder, type) - kOrder.begin());
}

}  // namespace

std::string_view to_string(RowType type) {
  for (const auto& [known, name] : kNames) {
    if (known == type) return name;
  }
  return "?";
}

Result<ForeignTypes> parse_foreign_types(std::string_view text,
                                         std::span<const ModelInfo::TypeCount> stored) {
  if (text == "llama.cpp") {
    ForeignTypes types{RowType::kF32, RowType::kF16};
    for (const ModelInfo::TypeCount& count : stored) {
      const RowType read = read_by_ggml(count.type);
      if (coarseness(read) > coarseness(types.inputs)) types.inputs = read;
    }
    return types;
  }
  const std::size_t slash = text.find('/');
  const std::optional<RowType> inputs = named(text.substr(0, slash));
  const std::optional<RowType> cache =
      slash == std::string_view::npos ? RowType::kF32 : named(text.substr(slash + 1));
  if (!inputs || !cache) {
    return fail(
        ErrorKind::kInvalidArgument,
        "check: types '{}' are not known: expected llama.cpp, or what products read and what the cache "
        "holds, such as q8/f16, of f32, bf16, f16, q8, q8_k",
        text.substr(0, 60));
  }
  return ForeignTypes{*inputs, *cache};
}

std::string to_string(const ForeignTypes& types) {
  return fmt::format("{}/{}", to_string(types.inputs), to_string(types.cache));
}

}  // namespace sightline::subjects
