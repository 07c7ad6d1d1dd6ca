#include "gguf_edit.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <limits>
#include <type_traits>
#include <utility>

#include "formats/byte_builder.h"

namespace sightline {

namespace {

using testing_formats::ByteBuilder;

constexpr int kMaxEdits = 8;
constexpr std::uint64_t kMaxTensorBytes = std::uint64_t{1} << 20;

/// Keys that readers look for and that a small model does not have.
constexpr std::array kMoreKeys{
    "general.alignment",
    "general.type",
    "llama.attention.causal",
    "llama.attention.scale",
    "llama.attention.sliding_window",
    "llama.attn_logit_softcapping",
    "llama.expert_count",
    "llama.final_logit_softcapping",
    "llama.rope.scale_linear",
    "llama.rope.scaling.attn_factor",
    "llama.rope.scaling.factor",
    "llama.rope.scaling.original_context_length",
    "llama.rope.scaling.type",
    "llama.rope.scaling.yarn_beta_fast",
    "llama.rope.scaling.yarn_beta_slow",
    "llama.rope.scaling.yarn_ext_factor",
    "tokenizer.chat_template",
    "tokenizer.ggml.add_bos_token",
    "tokenizer.ggml.add_eos_token",
    "tokenizer.ggml.add_space_prefix",
    "tokenizer.ggml.eot_token_id",
    "tokenizer.ggml.merges",
    "tokenizer.ggml.pre",
    "split.count",
    "unheard.of",
};
constexpr std::array kMoreStrings{
    "linear",
    "yarn",
    "longrope",
    "none",
    "llama",
    "gpt2",
    "llama-bpe",
    "model",
    "a b",
    "\u2581a",
    "",
    "<s>",
    "{{ messages[0].content }}",
    "<0x41>",
};
constexpr std::array kMoreTensors{
    "output.weight",
    "rope_freqs.weight",
    "rope_factors_short.weight",
    "rope_factors_long.weight",
    "blk.0.attn_q.bias",
    "blk.0.attn_k.bias",
    "blk.0.attn_v.bias",
    "blk.0.attn_output.bias",
    "blk.0.ffn_up.bias",
    "blk.1.attn_norm.weight",
    "unheard.of",
};
constexpr std::array<float, 10> kFloats{0.0F,
                                        -0.0F,
                                        1.0F,
                                        -1.0F,
                                        1e-5F,
                                        1e-40F,
                                        1e-30F,
                                        3e38F,
                                        std::numeric_limits<float>::infinity(),
                                        std::numeric_limits<float>::quiet_NaN()};

std::size_t at(std::int64_t i) { return static_cast<std::size_t>(i); }

/// Small numbers, borders of the integer types, or any.
std::int64_t read_int(FuzzInput& in) {
  constexpr std::array<std::int64_t, 14> kBorders{
      -1,      0,       127,        128,     255,       256,       65535,
      1 << 20, 1 << 24, 2147483647, 1 << 30, INT64_MIN, INT64_MAX, std::int64_t{1} << 32};
  const std::uint8_t kind = in.byte();
  if (kind < 128) return kind;
  return kind < 240 ? kBorders[kind % kBorders.size()] : static_cast<std::int64_t>(in.bits(8));
}

std::string read_string(FuzzInput& in) {
  if (in.flag()) return in.pick(kMoreStrings);
  return std::string(in.text_until('\n').substr(0, 200));
}

GgufArray read_array(FuzzInput& in) {
  const std::int64_t count = in.below(8);
  if (in.flag()) {
    GgufStrings strings;
    for (std::int64_t i = 0; i < count; ++i) strings.push_back(read_string(in));
    return strings;
  }
  if (in.flag()) return std::vector<float>(at(count), in.pick(kFloats));
  std::vector<std::int32_t> ints;
  for (std::int64_t i = 0; i < count; ++i) ints.push_back(static_cast<std::int32_t>(read_int(in)));
  return ints;
}

GgufValue read_value(FuzzInput& in) {
  switch (in.below(8)) {
    case 0:
      return in.pick(kFloats);
    case 1:
      return static_cast<double>(in.pick(kFloats));
    case 2:
      return read_string(in);
    case 3:
      return in.flag();
    case 4:
      return read_array(in);
    case 5:
      return read_int(in);
    case 6:
      return static_cast<std::int32_t>(read_int(in));
    default:
      return static_cast<std::uint32_t>(read_int(in));
  }
}

/// Another number or text of the same type.
void change_value(FuzzInput& in, GgufValue& value);

void change_array(FuzzInput& in, GgufArray& array) {
  const std::int64_t where = in.below(65536);
  const bool resizes = in.one_in(4);
  std::visit(
      [&](auto& v) {
        using T = std::decay_t<decltype(v)>;
        if constexpr (std::is_same_v<T, GgufStrings>) {
          GgufStrings changed;
          const std::size_t size = resizes ? at(where % 300) : v.size();
          const std::string text = read_string(in);
          for (std::size_t i = 0; i < size; ++i) {
            const bool is_changed = v.empty() || i == at(where) % v.size();
            changed.push_back(is_changed ? std::string_view(text) : v[i % v.size()]);
          }
          v = std::move(changed);
        } else if constexpr (!std::is_same_v<T, std::monostate> && !std::is_same_v<T, GgufBools>) {
          using Element = typename T::value_type;
          if (resizes) v.resize(at(where % 300));
          if (v.empty()) return;
          GgufValue element = Element{};
          change_value(in, element);
          v[at(where) % v.size()] = std::get<Element>(element);
        }
      },
      array);
}

void change_value(FuzzInput& in, GgufValue& value) {
  std::visit(
      [&](auto& v) {
        using T = std::decay_t<decltype(v)>;
        if constexpr (std::is_same_v<T, GgufArray>) {
          change_array(in, v);
        } else if constexpr (std::is_same_v<T, std::string>) {
          v = read_string(in);
        } else if constexpr (std::is_same_v<T, bool>) {
          v = !v;
        } else if constexpr (std::is_floating_point_v<T>) {
          v = static_cast<T>(in.flag() ? in.pick(kFloats) : static_cast<float>(read_int(in)));
        } else {
          v = static_cast<T>(read_int(in));
        }
      },
      value);
}

/// As many bytes as type and shape ask for, where that can be.
void fit_data(GgufParts::Tensor& tensor) {
  const auto num_elements = checked_num_elements(tensor.shape);
  if (!num_elements) return;
  const auto num_bytes = row_bytes(tensor.type, static_cast<std::uint64_t>(*num_elements));
  if (num_bytes && *num_bytes <= kMaxTensorBytes) tensor.data.resize(*num_bytes, std::byte{0x3C});
}

void change_tensor(FuzzInput& in, std::vector<GgufParts::Tensor>& tensors) {
  if (tensors.empty()) return;
  GgufParts::Tensor& tensor = tensors[at(in.below(std::ssize(tensors)))];
  switch (in.below(8)) {
    case 0:
      if (!tensor.shape.empty()) tensor.shape[at(in.below(std::ssize(tensor.shape)))] = read_int(in);
      break;
    case 1:
      tensor.type = in.pick(data_types()).type;
      break;
    case 2:
      tensor.name = in.pick(tensors).name;
      return;
    case 3:
      tensor.name = in.pick(kMoreTensors);
      return;
    case 4:
      std::erase_if(tensors, [&](const auto& t) { return &t == &tensor; });
      return;
    case 5: {
      GgufParts::Tensor more = tensor;
      more.name = in.pick(kMoreTensors);
      if (in.flag()) more.shape = {in.below(64)};
      fit_data(more);
      tensors.push_back(std::move(more));
      return;
    }
    case 6: {
      const float x = in.pick(kFloats);
      const std::size_t begin = in.flag() ? 0 : at(in.below(65536)) * sizeof(float);
      for (std::size_t i = begin; i + sizeof(x) <= tensor.data.size(); i += sizeof(x)) {
        std::memcpy(tensor.data.data() + i, &x, sizeof(x));
        if (begin != 0) break;
      }
      return;
    }
    default:
      tensor.data.resize(at(in.below(65536)), static_cast<std::byte>(in.byte()));
      return;
  }
  if (!in.one_in(4)) fit_data(tensor);
}

void change_entry(FuzzInput& in, std::vector<GgufEntry>& entries) {
  if (entries.empty()) return;
  GgufEntry& entry = entries[at(in.below(std::ssize(entries)))];
  switch (in.below(6)) {
    case 0:
      entry.value = read_value(in);
      break;
    case 1:
      std::erase_if(entries, [&](const auto& e) { return &e == &entry; });
      break;
    case 2:
      entries.push_back({in.pick(kMoreKeys), read_value(in), 0});
      break;
    case 3:
      entry.key = in.flag() ? std::string(in.pick(kMoreKeys)) : read_string(in);
      break;
    default:
      change_value(in, entry.value);
  }
}

// ---- writing

void put_array(ByteBuilder& out, const GgufArray& array) {
  out.u32(static_cast<std::uint32_t>(array.index())).u64(num_elements(array));
  std::visit(
      [&](const auto& v) {
        using T = std::decay_t<decltype(v)>;
        if constexpr (std::is_same_v<T, GgufStrings>) {
          for (std::size_t i = 0; i < v.size(); ++i) out.str(v[i]);
        } else if constexpr (std::is_same_v<T, GgufBools>) {
          for (const std::uint8_t x : v.values) out.u8(x);
        } else if constexpr (!std::is_same_v<T, std::monostate>) {
          for (const auto x : v) out.put(x);
        }
      },
      array);
}

void put_value(ByteBuilder& out, const GgufValue& value) {
  out.u32(static_cast<std::uint32_t>(value.index()));
  std::visit(
      [&](const auto& v) {
        using T = std::decay_t<decltype(v)>;
        if constexpr (std::is_same_v<T, GgufArray>) {
          put_array(out, v);
        } else if constexpr (std::is_same_v<T, std::string>) {
          out.str(v);
        } else {
          out.put(v);
        }
      },
      value);
}

std::vector<std::byte> write(const GgufParts& parts) {
  ByteBuilder out = testing_formats::gguf_start(parts.tensors.size(), parts.entries.size());
  for (const GgufEntry& entry : parts.entries) put_value(out.str(entry.key), entry.value);
  const auto padded = [](std::uint64_t n) { return (n + 31) / 32 * 32; };
  std::uint64_t offset = 0;
  for (const GgufParts::Tensor& tensor : parts.tensors) {
    const std::vector<std::uint64_t> dims(tensor.shape.rbegin(), tensor.shape.rend());
    const auto type = static_cast<std::uint32_t>(data_type_info(tensor.type).gguf_id);
    out.append(testing_formats::table_row(tensor.name, dims, type, offset));
    offset += padded(tensor.data.size());
  }
  out.pad(32);
  for (const GgufParts::Tensor& tensor : parts.tensors) {
    out.raw({reinterpret_cast<const char*>(tensor.data.data()), tensor.data.size()}).pad(32);
  }
  return std::move(out.bytes());
}

}  // namespace

Result<GgufParts> read_parts(const std::string& path) {
  SIGHTLINE_TRY(const GgufFile file, GgufFile::open(path));
  GgufParts parts{file.metadata().entries(), {}};
  for (const TensorInfo& info : file.tensors()) {
    parts.tensors.push_back({info.name, info.type, info.shape, std::vector<std::byte>(info.num_bytes)});
    SIGHTLINE_CHECK(file.read_into(info, parts.tensors.back().data));
  }
  return parts;
}

std::vector<std::byte> edited_gguf(GgufParts parts, FuzzInput& in) {
  std::vector<std::pair<std::size_t, std::byte>> patches;
  std::size_t size_limit = SIZE_MAX;
  for (int i = 0; i < kMaxEdits && !in.empty(); ++i) {
    const std::int64_t kind = in.below(16);
    if (kind < 8) {
      change_entry(in, parts.entries);
    } else if (kind < 14) {
      change_tensor(in, parts.tensors);
    } else if (kind == 14) {
      patches.emplace_back(in.below(65536), static_cast<std::byte>(in.byte()));
    } else {
      size_limit = static_cast<std::size_t>(in.below(65536));
    }
  }
  std::vector<std::byte> bytes = write(parts);
  for (const auto& [where, value] : patches) {
    if (where < bytes.size()) bytes[where] = value;
  }
  bytes.resize(std::min(bytes.size(), size_limit));
  return bytes;
}

}  // namespace sightline
