// JSON of plain structs from one list of fields. A struct names its fields once, in
//   template <typename V> void visit_fields(V& visit, X& x) { visit("name", x.name); ... }
// and gets a writer and a reader that refuses unknown members by name and wrong types by path.
#pragma once

#include <charconv>
#include <cmath>
#include <concepts>
#include <limits>
#include <type_traits>
#include <vector>

#include "sightline/base/json.h"
#include "sightline/spec/mask.h"
#include "spec/words.h"

namespace sightline::json_fields {

template <typename T>
concept Enum = std::is_enum_v<T>;
template <typename T>
concept SmallInteger = std::integral<T> && !std::same_as<T, bool> && !std::same_as<T, std::uint64_t>;

template <typename T>
[[nodiscard]] Json write(const T& value);

class Writer {
 public:
  Json json{JsonObject{}};
  template <typename T>
  void operator()(const char* name, const T& value) {
    json.set(name, write(value));
  }
};

inline Json write_value(bool v) { return Json(v); }
template <SmallInteger T>
Json write_value(T v) {
  return Json(static_cast<std::int64_t>(v));
}
// Beyond int64 as decimal text, which JSON numbers would round.
inline Json write_value(std::uint64_t v) {
  if (v <= static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max())) {
    return Json(static_cast<std::int64_t>(v));
  }
  return Json(fmt::format("{}", v));
}
// JSON has no such numbers.
inline Json write_value(double v) {
  if (std::isnan(v)) return Json("nan");
  if (std::isinf(v)) return Json(v > 0 ? "inf" : "-inf");
  return Json(v);
}
inline Json write_value(const std::string& v) { return Json(v); }
inline Json write_value(const MaskSpec& v) { return Json(to_string(v)); }
template <Enum E>
Json write_value(E v) {
  return Json(word_of(v));
}
template <typename T>
Json write_value(const std::optional<T>& v) {
  return v ? write(*v) : Json(nullptr);
}
template <typename T>
Json write_value(const std::vector<T>& v) {
  JsonArray out;
  out.reserve(v.size());
  for (const T& element : v) out.push_back(write(element));
  return Json(std::move(out));
}

template <typename T>
Json write(const T& value) {
  if constexpr (requires(Writer& w) { visit_fields(w, const_cast<T&>(value)); }) {
    Writer writer;
    visit_fields(writer, const_cast<T&>(value));  // a Writer only reads
    return std::move(writer.json);
  } else {
    return write_value(value);
  }
}

inline tl::unexpected<Error> refuse(const std::string& path, std::string_view expected, const Json& got) {
  std::string text = got.dump();
  if (text.size() > 60) text = text.substr(0, 57) + "...";
  return fail(ErrorKind::kInvalidContent, "{}: expected {}, got {}", path, expected, text);
}

template <typename T>
[[nodiscard]] Result<void> read(const std::string& path, const Json& json, T& out);

// Reads the members that a struct lists; what is left over is unknown.
class Reader {
 public:
  Reader(const std::string& path, const JsonObject& object)
      : path_(path), object_(object), known_(object.size()) {}

  template <typename T>
  void operator()(const char* name, T& value) {
    for (std::size_t i = 0; i < object_.size(); ++i) {
      if (object_[i].first != name) continue;
      known_[i] = true;
      if (status_) status_ = read(path_ + '.' + name, object_[i].second, value);
    }
  }
  /// Accepts a member without reading it.
  void skip(std::string_view name) {
    for (std::size_t i = 0; i < object_.size(); ++i) {
      if (object_[i].first == name) known_[i] = true;
    }
  }

  [[nodiscard]] Result<void> finish() const {
    if (!status_) return status_;
    for (std::size_t i = 0; i < object_.size(); ++i) {
      if (!known_[i]) {
        return fail(ErrorKind::kInvalidContent, "{}: there is no member \"{}\"", path_,
                    object_[i].first.substr(0, 64));
      }
    }
    return {};
  }

 private:
  const std::string& path_;
  const JsonObject& object_;
  std::vector<bool> known_;
  Result<void> status_;
};

inline Result<void> read_value(const std::string& path, const Json& json, bool& out) {
  if (json.as_bool() == nullptr) return refuse(path, "true or false", json);
  out = *json.as_bool();
  return {};
}
template <SmallInteger T>
Result<void> read_value(const std::string& path, const Json& json, T& out) {
  if (json.as_int() == nullptr) return refuse(path, "an integer", json);
  if (!std::in_range<T>(*json.as_int())) {
    return refuse(
        path,
        fmt::format("an integer from {} to {}", std::numeric_limits<T>::min(), std::numeric_limits<T>::max()),
        json);
  }
  out = static_cast<T>(*json.as_int());
  return {};
}
inline Result<void> read_value(const std::string& path, const Json& json, std::uint64_t& out) {
  if (json.as_int() != nullptr && *json.as_int() >= 0) {
    out = static_cast<std::uint64_t>(*json.as_int());
    return {};
  }
  if (const std::string* text = json.as_string()) {
    const auto [end, status] = std::from_chars(text->data(), text->data() + text->size(), out);
    if (status == std::errc{} && end == text->data() + text->size()) return {};
  }
  return refuse(path, "an integer from 0, above 2^63 as decimal text", json);
}
inline Result<void> read_value(const std::string& path, const Json& json, double& out) {
  if (json.get_number(out)) return {};
  if (const std::string* text = json.as_string()) {
    if (*text == "nan" || *text == "inf" || *text == "-inf") {
      out = *text == "nan" ? std::numeric_limits<double>::quiet_NaN() : *text == "inf" ? INFINITY : -INFINITY;
      return {};
    }
  }
  return refuse(path, "a number, \"inf\", \"-inf\" or \"nan\"", json);
}
inline Result<void> read_value(const std::string& path, const Json& json, std::string& out) {
  if (json.as_string() == nullptr) return refuse(path, "text", json);
  out = *json.as_string();
  return {};
}
inline Result<void> read_value(const std::string& path, const Json& json, MaskSpec& out) {
  if (json.as_string() == nullptr) return refuse(path, "a mask as text", json);
  auto mask = parse_mask(*json.as_string());
  if (!mask) return fail(ErrorKind::kInvalidContent, "{}: {}", path, mask.error().message);
  out = std::move(*mask);
  return {};
}
template <Enum E>
Result<void> read_value(const std::string& path, const Json& json, E& out) {
  const std::string* text = json.as_string();
  const auto value = text != nullptr ? value_of<E>(*text) : std::nullopt;
  if (!value) return refuse(path, "one of " + all_words<E>(), json);
  out = *value;
  return {};
}
template <typename T>
Result<void> read_value(const std::string& path, const Json& json, std::optional<T>& out) {
  if (json.is_null()) {
    out.reset();
    return {};
  }
  T value{};
  SIGHTLINE_CHECK(read(path, json, value));
  out = std::move(value);
  return {};
}
template <typename T>
Result<void> read_value(const std::string& path, const Json& json, std::vector<T>& out) {
  if (json.as_array() == nullptr) return refuse(path, "an array", json);
  out.clear();
  out.reserve(json.as_array()->size());
  for (const Json& element : *json.as_array()) {
    T value{};
    SIGHTLINE_CHECK(read(fmt::format("{}[{}]", path, out.size()), element, value));
    out.push_back(std::move(value));
  }
  return {};
}

template <typename T>
Result<void> read(const std::string& path, const Json& json, T& out) {
  if constexpr (requires(Reader& r) { visit_fields(r, out); }) {
    if (json.as_object() == nullptr) return refuse(path, "an object", json);
    Reader reader(path, *json.as_object());
    visit_fields(reader, out);
    return reader.finish();
  } else {
    return read_value(path, json, out);
  }
}

/// A struct from JSON; `name` begins the path in messages.
template <typename T>
[[nodiscard]] Result<T> read_struct(const char* name, const Json& json) {
  T out{};
  SIGHTLINE_CHECK(read(std::string(name), json, out));
  return out;
}

}  // namespace sightline::json_fields
