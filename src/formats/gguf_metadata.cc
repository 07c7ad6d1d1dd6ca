#include "sightline/formats/gguf_metadata.h"

#include <algorithm>
#include <array>
#include <numeric>
#include <optional>
#include <type_traits>
#include <utility>

#include "quote_name.h"

namespace sightline {

namespace {

constexpr std::array kTypeNames{"u8",   "i8",     "u16",   "i16", "u32", "i32", "f32",
                                "bool", "string", "array", "u64", "i64", "f64"};
static_assert(kTypeNames.size() == std::variant_size_v<GgufValue>);
static_assert(kTypeNames.size() == std::variant_size_v<GgufArray>);

// "u32 7", "array of 3 strings": for messages.
std::string describe_typed(const GgufValue& value) {
  if (std::holds_alternative<GgufArray>(value)) return describe(value);
  return fmt::format("{} {}", gguf_type_name(value.index()), describe(value));
}

template <typename T>
constexpr bool kIsInteger = std::is_integral_v<T> && !std::is_same_v<T, bool>;

// The value as int64 when it is an integer that fits one.
std::optional<std::int64_t> to_int64(const GgufValue& value) {
  return std::visit(
      [](const auto& v) -> std::optional<std::int64_t> {
        using T = std::decay_t<decltype(v)>;
        if constexpr (kIsInteger<T>) {
          if (std::in_range<std::int64_t>(v)) return static_cast<std::int64_t>(v);
        }
        return std::nullopt;
      },
      value);
}

bool is_integer(const GgufValue& value) {
  return std::visit([](const auto& v) { return kIsInteger<std::decay_t<decltype(v)>>; }, value);
}

std::string range_text(std::int64_t min, std::int64_t max) {
  if (min == INT64_MIN && max == INT64_MAX) return "an integer";
  return max == INT64_MAX ? fmt::format("an integer of at least {}", min)
                          : fmt::format("an integer from {} to {}", min, max);
}

}  // namespace

const char* gguf_type_name(std::size_t type) { return type < kTypeNames.size() ? kTypeNames[type] : "?"; }

std::size_t num_elements(const GgufArray& array) {
  return std::visit(
      [](const auto& v) -> std::size_t {
        using T = std::decay_t<decltype(v)>;
        if constexpr (std::is_same_v<T, GgufBools>) {
          return v.values.size();
        } else if constexpr (std::is_same_v<T, std::monostate>) {
          return 0;
        } else {
          return v.size();
        }
      },
      array);
}

std::string describe(const GgufValue& value) {
  return std::visit(
      [](const auto& v) -> std::string {
        using T = std::decay_t<decltype(v)>;
        if constexpr (std::is_same_v<T, GgufArray>) {
          return fmt::format("[{} {}]", num_elements(v), gguf_type_name(v.index()));
        } else if constexpr (std::is_same_v<T, std::string>) {
          return quote_name(v);
        } else {
          return fmt::format("{}", v);
        }
      },
      value);
}

Result<GgufMetadata> GgufMetadata::create(std::string file, std::vector<GgufEntry> entries) {
  GgufMetadata metadata;
  metadata.by_key_.resize(entries.size());
  std::iota(metadata.by_key_.begin(), metadata.by_key_.end(), 0U);
  std::ranges::sort(metadata.by_key_, {},
                    [&](std::uint32_t i) { return std::pair(std::string_view(entries[i].key), i); });
  for (std::size_t i = 1; i < metadata.by_key_.size(); ++i) {
    const auto& entry = entries[metadata.by_key_[i]];
    if (entries[metadata.by_key_[i - 1]].key == entry.key) {
      return fail(ErrorKind::kInvalidContent, "{}: byte {}: key {} occurs twice", file, entry.file_offset,
                  quote_name(entry.key));
    }
  }
  metadata.file_ = std::move(file);
  metadata.entries_ = std::move(entries);
  return metadata;
}

void GgufMetadata::set(std::string key, GgufValue value) {
  const auto key_of = [&](std::uint32_t i) { return std::string_view(entries_[i].key); };
  const auto it = std::ranges::lower_bound(by_key_, std::string_view(key), {}, key_of);
  if (it != by_key_.end() && key_of(*it) == key) {
    entries_[*it] = {std::move(key), std::move(value), 0};
    return;
  }
  by_key_.insert(it, static_cast<std::uint32_t>(entries_.size()));
  entries_.push_back({std::move(key), std::move(value), 0});
}

const GgufEntry* GgufMetadata::find(std::string_view key) const {
  const auto key_of = [&](std::uint32_t i) { return std::string_view(entries_[i].key); };
  const auto it = std::ranges::lower_bound(by_key_, key, {}, key_of);
  return it != by_key_.end() && key_of(*it) == key ? &entries_[*it] : nullptr;
}

tl::unexpected<Error> GgufMetadata::error(std::string_view key, std::string_view text) const {
  const auto* entry = find(key);
  if (entry == nullptr || entry->file_offset == 0) {
    return fail(ErrorKind::kInvalidContent, "{}: key {}: {}", file_, quote_name(key), text);
  }
  return fail(ErrorKind::kInvalidContent, "{}: byte {}: key {}: {}", file_, entry->file_offset,
              quote_name(key), text);
}

Result<const GgufEntry*> GgufMetadata::require(std::string_view key, std::string_view expected) const {
  const auto* entry = find(key);
  if (entry == nullptr) return error(key, fmt::format("missing, expected {}", expected));
  return entry;
}

Result<std::int64_t> GgufMetadata::get_int(std::string_view key, std::int64_t min, std::int64_t max) const {
  SIGHTLINE_TRY(const GgufEntry* entry, require(key, range_text(min, max)));
  const auto value = to_int64(entry->value);
  if (!value || *value < min || *value > max) {
    return error(key, fmt::format("expected {}, got {}", range_text(min, max), describe_typed(entry->value)));
  }
  return *value;
}

Result<double> GgufMetadata::get_float(std::string_view key) const {
  SIGHTLINE_TRY(const GgufEntry* entry, require(key, "f32"));
  if (const auto* f = std::get_if<float>(&entry->value)) return static_cast<double>(*f);
  if (const auto* d = std::get_if<double>(&entry->value)) return *d;
  return error(key, fmt::format("expected f32, got {}", describe_typed(entry->value)));
}

Result<bool> GgufMetadata::get_bool(std::string_view key) const {
  SIGHTLINE_TRY(const GgufEntry* entry, require(key, "bool"));
  if (const auto* b = std::get_if<bool>(&entry->value)) return *b;
  return error(key, fmt::format("expected bool, got {}", describe_typed(entry->value)));
}

Result<std::string> GgufMetadata::get_string(std::string_view key) const {
  SIGHTLINE_TRY(const GgufEntry* entry, require(key, "string"));
  if (const auto* s = std::get_if<std::string>(&entry->value)) return *s;
  return error(key, fmt::format("expected string, got {}", describe_typed(entry->value)));
}

template <typename T>
Result<const T*> GgufMetadata::require_array(std::string_view key, std::string_view expected) const {
  SIGHTLINE_TRY(const GgufEntry* entry, require(key, expected));
  if (const auto* array = std::get_if<GgufArray>(&entry->value)) {
    if (const auto* values = std::get_if<T>(array)) return values;
  }
  return error(key, fmt::format("expected {}, got {}", expected, describe_typed(entry->value)));
}

Result<const GgufStrings*> GgufMetadata::get_strings(std::string_view key) const {
  return require_array<GgufStrings>(key, "an array of string");
}

Result<std::span<const float>> GgufMetadata::get_floats(std::string_view key) const {
  SIGHTLINE_TRY(const auto* values, require_array<std::vector<float>>(key, "an array of f32"));
  return std::span<const float>(*values);
}

Result<std::span<const std::uint8_t>> GgufMetadata::get_bools(std::string_view key) const {
  SIGHTLINE_TRY(const auto* values, require_array<GgufBools>(key, "an array of bool"));
  return std::span<const std::uint8_t>(values->values);
}

Result<std::vector<std::int64_t>> GgufMetadata::get_ints(std::string_view key, std::int64_t min,
                                                         std::int64_t max) const {
  const std::string expected = fmt::format("an array, each {}", range_text(min, max));
  SIGHTLINE_TRY(const GgufEntry* entry, require(key, expected));
  const auto* array = std::get_if<GgufArray>(&entry->value);
  if (array == nullptr)
    return error(key, fmt::format("expected {}, got {}", expected, describe_typed(entry->value)));
  return std::visit(
      [&](const auto& v) -> Result<std::vector<std::int64_t>> {
        if constexpr (requires { typename std::decay_t<decltype(v)>::value_type; }) {
          using T = typename std::decay_t<decltype(v)>::value_type;
          if constexpr (kIsInteger<T>) {
            std::vector<std::int64_t> out;
            out.reserve(v.size());
            for (const T x : v) {
              if (!std::in_range<std::int64_t>(x) || static_cast<std::int64_t>(x) < min ||
                  static_cast<std::int64_t>(x) > max) {
                return error(key, fmt::format("expected {}, got {} at index {}", expected, x, out.size()));
              }
              out.push_back(static_cast<std::int64_t>(x));
            }
            return out;
          }
        }
        return error(key, fmt::format("expected {}, got {}", expected, describe_typed(entry->value)));
      },
      *array);
}

Result<std::vector<std::int64_t>> GgufMetadata::get_ints_per(std::string_view key, std::size_t count,
                                                             std::int64_t min, std::int64_t max) const {
  SIGHTLINE_TRY(const GgufEntry* entry, require(key, range_text(min, max)));
  if (is_integer(entry->value)) {
    SIGHTLINE_TRY(const std::int64_t value, get_int(key, min, max));
    return std::vector<std::int64_t>(count, value);
  }
  SIGHTLINE_TRY(std::vector<std::int64_t> values, get_ints(key, min, max));
  if (values.size() != count) {
    return error(key, fmt::format("expected one number or {} of them, got {}", count, values.size()));
  }
  return values;
}

}  // namespace sightline
