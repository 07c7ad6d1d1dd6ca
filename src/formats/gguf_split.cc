#include "gguf_split.h"

#include <utility>

#include "quote_name.h"

namespace sightline {

namespace fs = std::filesystem;

namespace {

constexpr std::string_view kNo = "split.no";
constexpr std::string_view kCount = "split.count";
constexpr std::string_view kTensors = "split.tensors.count";
constexpr std::int64_t kMaxParts = 1024;

std::string part_suffix(std::int64_t no, std::int64_t count) {
  return fmt::format("-{:05}-of-{:05}.gguf", no + 1, count);
}

Result<GgufHeader> read_part(const ByteSource& bytes, std::int64_t no, std::int64_t count,
                             std::int64_t num_tensors) {
  SIGHTLINE_TRY(GgufHeader part, read_gguf_header(bytes));
  const std::pair<std::string_view, std::int64_t> expected[] = {
      {kNo, no}, {kCount, count}, {kTensors, num_tensors}};
  for (const auto& [key, value] : expected) {
    SIGHTLINE_TRY(const std::int64_t got, part.metadata.get_int(key));
    if (got != value)
      return part.metadata.error(key, fmt::format("expected {} in this part, got {}", value, got));
  }
  return part;
}

}  // namespace

Result<void> open_gguf_parts(const fs::path& path, GgufHeader& first, std::vector<BytesPtr>& files) {
  if (!first.metadata.has(kCount)) return {};
  SIGHTLINE_TRY(const std::int64_t count, first.metadata.get_int(kCount, 0, kMaxParts));
  if (count <= 1) return {};
  SIGHTLINE_TRY(const std::int64_t num_tensors, first.metadata.get_int(kTensors, 0, kMaxTensors));
  SIGHTLINE_TRY(const std::int64_t no, first.metadata.get_int(kNo, 0, count - 1));
  if (no != 0)
    return first.metadata.error(
        kNo, fmt::format("open the first part of the set of {}, not part {}", count, no + 1));

  const std::string name = path.string();
  const std::string suffix = part_suffix(0, count);
  if (!name.ends_with(suffix)) {
    return first.metadata.error(
        kCount, fmt::format("the name of the first of {} parts must end in {}", count, quote_name(suffix)));
  }
  const std::string prefix = name.substr(0, name.size() - suffix.size());
  for (std::int64_t i = 1; i < count; ++i) {
    auto bytes = open_bytes(prefix + part_suffix(i, count));
    if (!bytes)
      return fail(ErrorKind::kInvalidContent, "{}: part {} of {}: {}", name, i + 1, count,
                  bytes.error().message);
    SIGHTLINE_TRY(GgufHeader part, read_part(**bytes, i, count, num_tensors));
    for (auto& info : part.tensors) {
      info.file_idx = static_cast<std::uint32_t>(files.size());
      first.tensors.push_back(std::move(info));
    }
    for (auto& text : part.warnings) first.warnings.push_back(std::move(text));
    files.push_back(std::move(*bytes));
  }
  if (first.tensors.size() != static_cast<std::size_t>(num_tensors)) {
    return first.metadata.error(
        kTensors, fmt::format("expected {} tensors in all parts, got {}", num_tensors, first.tensors.size()));
  }
  return {};
}

}  // namespace sightline
