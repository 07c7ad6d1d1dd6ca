#include "model/key_reader.h"

#include <cmath>
#include <type_traits>
#include <utility>

namespace sightline {

namespace {

std::string describe(const KeyValue& value) {
  return std::visit(
      [](const auto& v) -> std::string {
        using T = std::decay_t<decltype(v)>;
        if constexpr (std::is_same_v<T, bool>) {
          return v ? "true" : "false";
        } else if constexpr (std::is_same_v<T, std::string>) {
          return Json(v.substr(0, 60)).dump();
        } else if constexpr (std::is_same_v<T, OtherValue>) {
          return v.description;
        } else if constexpr (std::is_arithmetic_v<T>) {
          return fmt::format("{}", v);
        } else {
          return fmt::format("a list of {}", v.size());
        }
      },
      value);
}

KeyValue from_json_value(const Json& json) {
  if (const bool* v = json.as_bool()) return *v;
  if (const std::int64_t* v = json.as_int()) return *v;
  if (const std::string* v = json.as_string()) return *v;
  double number = 0;
  if (json.get_number(number)) return number;
  if (const JsonArray* array = json.as_array()) {
    std::vector<std::int64_t> ints;
    std::vector<double> numbers;
    std::vector<std::string> strings;
    for (const Json& item : *array) {
      if (const std::int64_t* v = item.as_int()) ints.push_back(*v);
      if (item.get_number(number)) numbers.push_back(number);
      if (const std::string* v = item.as_string()) strings.push_back(*v);
    }
    if (ints.size() == array->size()) return ints;
    if (numbers.size() == array->size()) return numbers;
    if (strings.size() == array->size()) return strings;
    return OtherValue{"a list of mixed values"};
  }
  return OtherValue{"an object"};
}

KeyValue from_gguf_array(const GgufArray& array) {
  return std::visit(
      [&](const auto& v) -> KeyValue {
        using T = std::decay_t<decltype(v)>;
        if constexpr (std::is_same_v<T, GgufBools>) {
          return OtherValue{"a list of bools"};
        } else if constexpr (std::is_same_v<T, GgufStrings>) {
          return OtherValue{fmt::format("a list of {} strings", v.size())};
        } else if constexpr (std::is_same_v<T, std::monostate>) {
          return OtherValue{"a list of lists"};
        } else if constexpr (std::is_same_v<T, std::vector<float>> ||
                             std::is_same_v<T, std::vector<double>>) {
          return std::vector<double>(v.begin(), v.end());
        } else {
          std::vector<std::int64_t> ints;
          for (const auto x : v) {
            if (!std::in_range<std::int64_t>(x)) return OtherValue{"a list with a number over 2^63"};
            ints.push_back(static_cast<std::int64_t>(x));
          }
          return ints;
        }
      },
      array);
}

KeyValue from_gguf_value(const GgufValue& value) {
  return std::visit(
      [](const auto& v) -> KeyValue {
        using T = std::decay_t<decltype(v)>;
        if constexpr (std::is_same_v<T, bool> || std::is_same_v<T, std::string>) {
          return v;
        } else if constexpr (std::is_same_v<T, GgufArray>) {
          return from_gguf_array(v);
        } else if constexpr (std::is_floating_point_v<T>) {
          return static_cast<double>(v);
        } else {
          if (!std::in_range<std::int64_t>(v)) return OtherValue{fmt::format("{}", v)};
          return static_cast<std::int64_t>(v);
        }
      },
      value);
}

}  // namespace

KeyReader KeyReader::from_gguf(std::string source, const GgufMetadata& metadata,
                               std::span<const std::string> prefixes) {
  KeyReader reader;
  reader.source_ = std::move(source);
  for (const GgufEntry& entry : metadata.entries()) {
    for (const std::string& prefix : prefixes) {
      if (!entry.key.starts_with(prefix)) continue;
      const std::string where =
          entry.file_offset == 0 ? std::string() : fmt::format("byte {}: ", entry.file_offset);
      reader.entries_[entry.key] = {from_gguf_value(entry.value), where, Json()};
      break;
    }
  }
  return reader;
}

KeyReader KeyReader::from_json(std::string source, const Json& object) {
  KeyReader reader;
  reader.source_ = std::move(source);
  if (const JsonObject* members = object.as_object()) {
    for (const auto& [key, value] : *members) {
      if (value.is_null()) {
        reader.nulls_.insert(key);
        continue;
      }
      reader.entries_[key] = {from_json_value(value), "", value.as_object() != nullptr ? value : Json()};
    }
  }
  return reader;
}

tl::unexpected<Error> KeyReader::error(std::string_view key, std::string_view text, ErrorKind kind) const {
  const auto it = entries_.find(key);
  return fail(kind, "{}: {}key '{}': {}", source_, it == entries_.end() ? "" : it->second.where, key, text);
}

tl::unexpected<Error> KeyReader::missing(std::string_view key, std::string_view hint) const {
  return fail(ErrorKind::kInvalidContent, "{}: key '{}' is missing; {}", source_, key,
              hint.empty() ? missing_hint_ : hint);
}

const KeyReader::Entry* KeyReader::find(std::string_view key) const {
  const auto it = entries_.find(key);
  if (it == entries_.end()) return nullptr;
  it->second.read = true;
  return &it->second;
}

bool KeyReader::has(std::string_view key) const { return find(key) != nullptr; }

Result<const KeyReader::Entry*> KeyReader::require(std::string_view key) const {
  const Entry* entry = find(key);
  if (entry == nullptr) return missing(key);
  return entry;
}

Result<std::int64_t> KeyReader::get_int(std::string_view key, std::int64_t min, std::int64_t max) const {
  SIGHTLINE_TRY(const Entry* entry, require(key));
  const auto* value = std::get_if<std::int64_t>(&entry->value);
  if (value == nullptr || *value < min || *value > max) {
    return error(key,
                 fmt::format("expected an integer in [{}, {}], got {}", min, max, describe(entry->value)));
  }
  return *value;
}

Result<double> KeyReader::get_number(std::string_view key, NumberRange range) const {
  SIGHTLINE_TRY(const Entry* entry, require(key));
  double value = 0;
  bool is_number = true;
  if (const auto* v = std::get_if<double>(&entry->value)) {
    value = *v;
  } else if (const auto* i = std::get_if<std::int64_t>(&entry->value)) {
    value = static_cast<double>(*i);
  } else {
    is_number = false;
  }
  // Comparisons are written so that NaN is refused.
  const bool in_range =
      is_number && (range.above_min ? value > range.min : value >= range.min) && value <= range.max;
  if (!in_range) {
    return error(
        key, fmt::format("expected a number {} {} and at most {}, got {}", range.above_min ? "above" : "from",
                         range.min, range.max, describe(entry->value)));
  }
  return value;
}

Result<bool> KeyReader::get_bool(std::string_view key) const {
  SIGHTLINE_TRY(const Entry* entry, require(key));
  const auto* value = std::get_if<bool>(&entry->value);
  if (value == nullptr) {
    return error(key, fmt::format("expected true or false, got {}", describe(entry->value)));
  }
  return *value;
}

Result<std::string> KeyReader::get_string(std::string_view key) const {
  SIGHTLINE_TRY(const Entry* entry, require(key));
  const auto* value = std::get_if<std::string>(&entry->value);
  if (value == nullptr) {
    return error(key, fmt::format("expected a string, got {}", describe(entry->value)));
  }
  return *value;
}

Result<std::vector<double>> KeyReader::get_numbers(std::string_view key) const {
  SIGHTLINE_TRY(const Entry* entry, require(key));
  if (const auto* value = std::get_if<std::vector<double>>(&entry->value)) return *value;
  if (const auto* value = std::get_if<std::vector<std::int64_t>>(&entry->value)) {
    return std::vector<double>(value->begin(), value->end());
  }
  return error(key, fmt::format("expected a list of numbers, got {}", describe(entry->value)));
}

Result<std::vector<std::string>> KeyReader::get_strings(std::string_view key) const {
  SIGHTLINE_TRY(const Entry* entry, require(key));
  if (const auto* value = std::get_if<std::vector<std::string>>(&entry->value)) return *value;
  return error(key, fmt::format("expected a list of strings, got {}", describe(entry->value)));
}

Result<std::vector<std::int64_t>> KeyReader::get_ints_per(std::string_view key, std::size_t count,
                                                          std::int64_t min, std::int64_t max) const {
  SIGHTLINE_TRY(const Entry* entry, require(key));
  const auto* list = std::get_if<std::vector<std::int64_t>>(&entry->value);
  if (list == nullptr) {
    SIGHTLINE_TRY(const std::int64_t one, get_int(key, min, max));
    return std::vector<std::int64_t>(count, one);
  }
  if (list->size() != count) {
    return error(key, fmt::format("expected one number or {} (one a layer), got {}", count, list->size()));
  }
  for (std::size_t i = 0; i < count; ++i) {
    if ((*list)[i] < min || (*list)[i] > max) {
      return error(key,
                   fmt::format("layer {}: expected an integer in [{}, {}], got {}", i, min, max, (*list)[i]));
    }
  }
  return *list;
}

Result<std::int64_t> KeyReader::int_or(std::string_view key, std::int64_t fallback, std::int64_t min,
                                       std::int64_t max) const {
  if (!has(key)) return fallback;
  return get_int(key, min, max);
}

Result<double> KeyReader::number_or(std::string_view key, double fallback, NumberRange range) const {
  if (!has(key)) return fallback;
  return get_number(key, range);
}

Result<bool> KeyReader::bool_or(std::string_view key, bool fallback) const {
  if (!has(key)) return fallback;
  return get_bool(key);
}

Result<KeyReader> KeyReader::get_object(std::string_view key, std::string missing_hint) const {
  SIGHTLINE_TRY(const Entry* entry, require(key));
  if (entry->object.as_object() == nullptr) {
    return error(key, fmt::format("expected an object, got {}", describe(entry->value)));
  }
  KeyReader members = from_json(fmt::format("{}: {}", source_, key), entry->object);
  members.missing_hint_ = std::move(missing_hint);
  return members;
}

void KeyReader::ignore(std::span<const std::string_view> keys) const {
  for (const std::string_view key : keys) mark_read(key);
}

void KeyReader::ignore(std::span<const std::string> keys) const {
  for (const std::string& key : keys) mark_read(key);
}

Result<void> KeyReader::refuse_objects(std::string_view why) const {
  for (const auto& [key, entry] : entries_) {
    if (entry.object.as_object() != nullptr) return error(key, why);
  }
  return {};
}

Result<void> KeyReader::refuse_unread(std::string_view hint) const {
  for (const auto& [key, entry] : entries_) {
    if (entry.read) continue;
    return error(key, fmt::format("not known here, and it may change what the model means (got {}){}{}",
                                  describe(entry.value), hint.empty() ? "" : "; ", hint));
  }
  return {};
}

}  // namespace sightline
