#include <algorithm>

#include "quote_name.h"
#include "safetensors_header.h"
#include "sightline/base/json.h"
#include "sightline/formats/safetensors.h"
#include "tensor_writer_plan.h"

namespace sightline {

namespace fs = std::filesystem;

namespace {

Json to_json(const SafetensorsMetadata& metadata) {
  Json json{JsonObject{}};
  for (const auto& [key, value] : metadata) json.set(key, value);
  return json;
}

// The header of one file over `tensors`: length, JSON, spaces up to a multiple of 8.
Result<std::string> header_text(std::span<const TensorDecl> tensors, const SafetensorsMetadata& metadata) {
  Json json{JsonObject{}};
  if (!metadata.empty()) json.set("__metadata__", to_json(metadata));
  std::uint64_t offset = 0;
  for (const auto& tensor : tensors) {
    Json shape{JsonArray{}};
    for (const auto extent : tensor.shape) shape.push_back(extent);
    const std::uint64_t end = offset + num_bytes(tensor);
    Json entry;
    entry.set("dtype", to_string(tensor.type));
    entry.set("shape", std::move(shape));
    entry.set("data_offsets", JsonArray{Json(offset), Json(end)});
    json.set(tensor.name, std::move(entry));
    offset = end;
  }
  std::string text = json.dump();
  text.resize((text.size() + 7) / 8 * 8, ' ');
  if (text.size() > kSafetensorsMaxHeaderBytes) {
    return fail(ErrorKind::kInvalidArgument,
                "create_safetensors: a header of {} bytes is over the limit of {}", text.size(),
                kSafetensorsMaxHeaderBytes);
  }
  const std::uint64_t length = text.size();
  return std::string(reinterpret_cast<const char*>(&length), sizeof(length)) + text;
}

Result<void> check_decls(const std::vector<TensorDecl>& tensors, const SafetensorsMetadata& metadata) {
  SIGHTLINE_CHECK(check_tensor_decls("create_safetensors", tensors));
  const auto is_utf8 = [](std::string_view text) {
    const auto back = parse_json(Json(text).dump(), "name");
    return back && *back == Json(text);
  };
  for (const auto& tensor : tensors) {
    if (tensor.name == "__metadata__" || !is_utf8(tensor.name) ||
        !data_type_info(tensor.type).in_safetensors) {
      return fail(ErrorKind::kInvalidArgument, "create_safetensors: tensor {} of type {} cannot be stored",
                  quote_name(tensor.name), to_string(tensor.type));
    }
  }
  std::vector<std::string_view> keys;
  for (const auto& [key, value] : metadata) {
    if (!is_utf8(key) || !is_utf8(value)) {
      return fail(ErrorKind::kInvalidArgument, "create_safetensors: metadata of {} is not UTF-8",
                  quote_name(key));
    }
    keys.push_back(key);
  }
  std::ranges::sort(keys);
  if (std::ranges::adjacent_find(keys) != keys.end()) {
    return fail(ErrorKind::kInvalidArgument, "create_safetensors: a metadata key occurs twice");
  }
  return {};
}

// Index of the first tensor of each shard, in order; a shard holds at least one tensor.
std::vector<std::size_t> shard_begins(const std::vector<TensorDecl>& tensors, std::uint64_t max_shard_bytes) {
  std::vector<std::size_t> begins{0};
  std::uint64_t bytes = 0;
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    const std::uint64_t size = num_bytes(tensors[i]);
    if (i > begins.back() && (size > max_shard_bytes || bytes > max_shard_bytes - size)) {
      begins.push_back(i);
      bytes = 0;
    }
    bytes += size;
  }
  return begins;
}

}  // namespace

Result<TensorWriter> create_safetensors(const fs::path& path, std::vector<TensorDecl> tensors,
                                        const SafetensorsMetadata& metadata, bool overwrite) {
  SIGHTLINE_CHECK(check_decls(tensors, metadata));
  SIGHTLINE_TRY(std::string header, header_text(tensors, metadata));
  TensorWriterPlan plan;
  plan.files.push_back({path, std::move(header), tensors.size()});
  plan.tensors = std::move(tensors);
  plan.overwrite = overwrite;
  return make_tensor_writer(std::move(plan));
}

Result<TensorWriter> create_safetensors_folder(const fs::path& folder, std::vector<TensorDecl> tensors,
                                               const SafetensorsMetadata& metadata,
                                               std::uint64_t max_shard_bytes, bool overwrite) {
  SIGHTLINE_CHECK(check_decls(tensors, metadata));
  std::vector<std::size_t> begins = shard_begins(tensors, max_shard_bytes);
  const std::size_t num_shards = begins.size();
  if (num_shards == 1) {
    return create_safetensors(folder / "model.safetensors", std::move(tensors), metadata, overwrite);
  }
  begins.push_back(tensors.size());

  TensorWriterPlan plan;
  Json weight_map{JsonObject{}};
  std::uint64_t total = 0;
  for (std::size_t s = 0; s < num_shards; ++s) {
    const std::string name = fmt::format("model-{:05}-of-{:05}.safetensors", s + 1, num_shards);
    const auto part = std::span(tensors).subspan(begins[s], begins[s + 1] - begins[s]);
    SIGHTLINE_TRY(std::string header, header_text(part, metadata));
    plan.files.push_back({folder / name, std::move(header), part.size()});
    for (const auto& tensor : part) {
      weight_map.set(tensor.name, name);
      total += num_bytes(tensor);
    }
  }
  Json index;
  Json about;
  about.set("total_size", total);
  index.set("metadata", std::move(about));
  index.set("weight_map", std::move(weight_map));
  plan.index_path = folder / "model.safetensors.index.json";
  plan.index = index.dump(2) + "\n";
  plan.tensors = std::move(tensors);
  plan.overwrite = overwrite;
  return make_tensor_writer(std::move(plan));
}

}  // namespace sightline
