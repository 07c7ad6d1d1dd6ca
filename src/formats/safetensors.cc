#include "sightline/formats/safetensors.h"

#include <algorithm>
#include <map>

#include "quote_name.h"
#include "safetensors_header.h"
#include "sightline/base/file.h"
#include "sightline/base/json.h"

namespace sightline {

namespace fs = std::filesystem;

namespace {

constexpr const char* kSingleFile = "model.safetensors";
constexpr const char* kIndexFile = "model.safetensors.index.json";

// The path of a shard: a plain file name, inside the folder also after links are followed.
Result<fs::path> shard_path(const fs::path& folder, const std::string& index, const std::string& name) {
  const auto refuse = [&](std::string_view why) {
    return fail(ErrorKind::kInvalidContent, "{}: weight_map: shard {} {}", index, quote_name(name), why);
  };
  if (name.empty() || name == "." || name == ".." ||
      name.find_first_of(std::string_view("/\\\0", 3)) != name.npos) {
    return refuse("is no plain file name");
  }
  std::error_code error;
  const fs::path root = fs::canonical(folder, error);
  if (error) return refuse("has no folder: " + error.message());
  const fs::path resolved = fs::canonical(root / name, error);
  if (error) return refuse("cannot be found: " + error.message());
  if (resolved.parent_path() != root) return refuse("leads out of the folder");
  return resolved;
}

}  // namespace

Result<SafetensorsFile> SafetensorsFile::open(const fs::path& path) {
  std::error_code error;
  if (!fs::is_directory(path, error)) {
    SIGHTLINE_TRY(BytesPtr bytes, open_bytes(path));
    return open(std::move(bytes));
  }
  if (fs::exists(path / kSingleFile, error)) {
    SIGHTLINE_TRY(BytesPtr bytes, open_bytes(path / kSingleFile));
    return open(std::move(bytes));
  }
  if (fs::exists(path / kIndexFile, error)) return open_index(path);
  return fail(ErrorKind::kNoInput, "{}: holds neither {} nor {}", path.string(), kSingleFile, kIndexFile);
}

Result<SafetensorsFile> SafetensorsFile::open(BytesPtr bytes) {
  std::string name = bytes->name();
  return open_files(std::move(name), {std::move(bytes)});
}

Result<SafetensorsFile> SafetensorsFile::open_files(std::string name, std::vector<BytesPtr> files) {
  std::vector<TensorInfo> tensors;
  SafetensorsMetadata metadata;
  for (std::size_t i = 0; i < files.size(); ++i) {
    SIGHTLINE_TRY(SafetensorsHeader header, read_safetensors_header(*files[i]));
    if (i == 0) metadata = std::move(header.metadata);
    for (auto& info : header.tensors) {
      info.file_idx = static_cast<std::uint32_t>(i);
      tensors.push_back(std::move(info));
    }
    if (tensors.size() > kMaxTensors) {
      return fail(ErrorKind::kInvalidContent, "{}: more than {} tensors", name, kMaxTensors);
    }
  }
  SIGHTLINE_TRY(TensorSource base,
                TensorSource::create(std::move(name), std::move(files), std::move(tensors)));
  SafetensorsFile file(std::move(base));
  file.metadata_ = std::move(metadata);
  return file;
}

Result<SafetensorsFile> SafetensorsFile::open_index(const fs::path& folder) {
  const fs::path index_path = folder / kIndexFile;
  const std::string index = index_path.string();
  SIGHTLINE_TRY(const std::string text, read_file(index_path, kSafetensorsMaxHeaderBytes));
  SIGHTLINE_TRY(const Json json,
                parse_json(text, index, {.max_bytes = kSafetensorsMaxHeaderBytes, .max_depth = 8}));
  const Json* map = json.find("weight_map");
  if (map == nullptr || map->as_object() == nullptr) {
    return fail(ErrorKind::kInvalidContent, "{}: weight_map: expected an object", index);
  }
  const JsonObject& weights = *map->as_object();
  if (weights.empty() || weights.size() > kMaxTensors) {
    return fail(ErrorKind::kInvalidContent, "{}: weight_map: {} tensors, expected 1 to {}", index,
                weights.size(), kMaxTensors);
  }

  std::map<std::string, std::uint32_t> shards;  // in name order, which is the order of their numbers
  for (const auto& [tensor, shard] : weights) {
    if (shard.as_string() == nullptr) {
      return fail(ErrorKind::kInvalidContent, "{}: weight_map: shard of {} is no string", index,
                  quote_name(tensor));
    }
    shards.emplace(*shard.as_string(), 0);
  }
  std::vector<BytesPtr> files;
  for (auto& [name, file_idx] : shards) {
    SIGHTLINE_TRY(const fs::path path, shard_path(folder, index, name));
    SIGHTLINE_TRY(BytesPtr bytes, open_bytes(path));
    file_idx = static_cast<std::uint32_t>(files.size());
    files.push_back(std::move(bytes));
  }
  SIGHTLINE_TRY(SafetensorsFile file, open_files(folder.string(), std::move(files)));
  for (const auto& [tensor, shard] : weights) {
    const auto* info = file.find(tensor);
    if (info == nullptr || info->file_idx != shards[*shard.as_string()]) {
      return fail(ErrorKind::kInvalidContent, "{}: weight_map: tensor {} is not in shard {}", index,
                  quote_name(tensor), quote_name(*shard.as_string()));
    }
  }
  if (file.tensors().size() > weights.size()) {
    file.add_warning(fmt::format("{}: weight_map leaves out {} tensors that the shards hold", index,
                                 file.tensors().size() - weights.size()));
  }
  return file;
}

}  // namespace sightline
