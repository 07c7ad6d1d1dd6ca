#include "sightline/formats/gguf_writer.h"

#include <bit>
#include <cstring>
#include <type_traits>

#include "gguf_header.h"
#include "quote_name.h"
#include "sightline/base/checked.h"
#include "tensor_writer_plan.h"

namespace sightline {

namespace {

template <typename T>
void put(std::string& out, T value) {
  static_assert(std::is_arithmetic_v<T>);
  out.append(reinterpret_cast<const char*>(&value), sizeof(T));
}

void put_string(std::string& out, std::string_view text) {
  put(out, static_cast<std::uint64_t>(text.size()));
  out.append(text);
}

void put_array(std::string& out, const GgufArray& array) {
  put(out, static_cast<std::uint32_t>(array.index()));
  put(out, static_cast<std::uint64_t>(num_elements(array)));
  std::visit(
      [&](const auto& v) {
        using T = std::decay_t<decltype(v)>;
        if constexpr (std::is_same_v<T, GgufStrings>) {
          for (std::size_t i = 0; i < v.size(); ++i) put_string(out, v[i]);
        } else if constexpr (std::is_same_v<T, GgufBools>) {
          for (const auto byte : v.values) put(out, static_cast<std::uint8_t>(byte != 0));
        } else if constexpr (!std::is_same_v<T, std::monostate>) {
          out.append(reinterpret_cast<const char*>(v.data()), v.size() * sizeof(v[0]));
        }
      },
      array);
}

void put_value(std::string& out, const GgufValue& value) {
  put(out, static_cast<std::uint32_t>(value.index()));
  std::visit(
      [&](const auto& v) {
        using T = std::decay_t<decltype(v)>;
        if constexpr (std::is_same_v<T, GgufArray>) {
          put_array(out, v);
        } else if constexpr (std::is_same_v<T, std::string>) {
          put_string(out, v);
        } else if constexpr (std::is_same_v<T, bool>) {
          put(out, static_cast<std::uint8_t>(v));
        } else {
          put(out, v);
        }
      },
      value);
}

Result<std::uint64_t> check_metadata(const std::vector<GgufEntry>& metadata) {
  if (metadata.size() > kGgufMaxKeys) {
    return fail(ErrorKind::kInvalidArgument, "create_gguf: {} keys, over the limit of {}", metadata.size(),
                kGgufMaxKeys);
  }
  std::uint64_t alignment = kGgufDefaultAlignment;
  for (const auto& entry : metadata) {
    const auto* array = std::get_if<GgufArray>(&entry.value);
    if (!is_gguf_key(entry.key) || (array != nullptr && std::holds_alternative<std::monostate>(*array))) {
      return fail(ErrorKind::kInvalidArgument, "create_gguf: key {} or its array is refused",
                  quote_name(entry.key));
    }
    if (entry.key != "general.alignment") continue;
    const auto* value = std::get_if<std::uint32_t>(&entry.value);
    if (value == nullptr || !std::has_single_bit(*value) || *value > kGgufMaxAlignment) {
      return fail(ErrorKind::kInvalidArgument,
                  "create_gguf: general.alignment must be a u32 power of two up to {}", kGgufMaxAlignment);
    }
    alignment = *value;
  }
  auto copy = metadata;
  auto checked = GgufMetadata::create("create_gguf", std::move(copy));
  if (!checked) return fail(ErrorKind::kInvalidArgument, "{}", checked.error().message);
  return alignment;
}

Result<std::string> tensor_table(const std::vector<TensorDecl>& tensors, std::uint64_t alignment) {
  std::string out;
  std::uint64_t offset = 0;
  for (const auto& tensor : tensors) {
    const auto& type = data_type_info(tensor.type);
    if (tensor.name.size() > kGgufMaxNameBytes || tensor.shape.size() > kGgufMaxRank || type.gguf_id < 0) {
      return fail(
          ErrorKind::kInvalidArgument,
          "create_gguf: tensor {}: name of {} bytes (at most {}), rank {} (at most {}) or type {} is refused",
          quote_name(tensor.name), tensor.name.size(), kGgufMaxNameBytes, tensor.shape.size(), kGgufMaxRank,
          type.name);
    }
    put_string(out, tensor.name);
    put(out, static_cast<std::uint32_t>(tensor.shape.size()));
    for (std::size_t i = tensor.shape.size(); i-- > 0;) put(out, tensor.shape[i]);  // fastest first
    put(out, static_cast<std::uint32_t>(type.gguf_id));
    put(out, offset);
    const auto end = checked_add(offset, num_bytes(tensor));
    const auto padded = end ? checked_align(*end, alignment) : std::nullopt;
    if (!padded) return fail(ErrorKind::kInvalidArgument, "create_gguf: the sizes of the tensors overflow");
    offset = *padded;
  }
  return out;
}

}  // namespace

Result<TensorWriter> create_gguf(const std::filesystem::path& path, const std::vector<GgufEntry>& metadata,
                                 std::vector<TensorDecl> tensors, bool overwrite) {
  SIGHTLINE_TRY(const std::uint64_t alignment, check_metadata(metadata));
  SIGHTLINE_CHECK(check_tensor_decls("create_gguf", tensors));
  SIGHTLINE_TRY(const std::string table, tensor_table(tensors, alignment));
  std::string header = "GGUF";
  put(header, std::uint32_t{3});
  put(header, static_cast<std::uint64_t>(tensors.size()));
  put(header, static_cast<std::uint64_t>(metadata.size()));
  for (const auto& entry : metadata) {
    put_string(header, entry.key);
    put_value(header, entry.value);
  }
  header += table;
  header.resize((header.size() + alignment - 1) / alignment * alignment, '\0');

  TensorWriterPlan plan;
  plan.files.push_back({path, std::move(header), tensors.size()});
  plan.tensors = std::move(tensors);
  plan.alignment = alignment;
  plan.overwrite = overwrite;
  return make_tensor_writer(std::move(plan));
}

}  // namespace sightline
