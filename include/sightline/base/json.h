// JSON as a small value type. Parsing is limited in depth, size and node count, refuses repeated
// keys and keeps integers apart from floating point. The parser behind it is nlohmann-json, which
// only json.cc includes.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "sightline/base/error.h"

namespace sightline {

class Json;
using JsonArray = std::vector<Json>;
using JsonMember = std::pair<std::string, Json>;
/// Members in the order of the text.
using JsonObject = std::vector<JsonMember>;

/// One JSON value. Integers outside int64 are read as double.
class Json {
 public:
  using Value = std::variant<std::nullptr_t, bool, std::int64_t, double, std::string, JsonArray, JsonObject>;

  Json() = default;
  Json(std::nullptr_t) {}                                          // NOLINT
  Json(bool v) : value_(v) {}                                      // NOLINT
  Json(std::int64_t v) : value_(v) {}                              // NOLINT
  Json(int v) : value_(static_cast<std::int64_t>(v)) {}            // NOLINT
  Json(std::uint32_t v) : value_(static_cast<std::int64_t>(v)) {}  // NOLINT
  Json(std::uint64_t v) : value_(static_cast<std::int64_t>(v)) {}  // NOLINT
  Json(double v) : value_(v) {}                                    // NOLINT
  Json(std::string v) : value_(std::move(v)) {}                    // NOLINT
  Json(std::string_view v) : value_(std::string(v)) {}             // NOLINT
  Json(const char* v) : value_(std::string(v)) {}                  // NOLINT
  Json(JsonArray v) : value_(std::move(v)) {}                      // NOLINT
  Json(JsonObject v) : value_(std::move(v)) {}                     // NOLINT

  [[nodiscard]] const Value& value() const { return value_; }
  [[nodiscard]] bool is_null() const { return std::holds_alternative<std::nullptr_t>(value_); }
  [[nodiscard]] const bool* as_bool() const { return std::get_if<bool>(&value_); }
  [[nodiscard]] const std::int64_t* as_int() const { return std::get_if<std::int64_t>(&value_); }
  [[nodiscard]] const std::string* as_string() const { return std::get_if<std::string>(&value_); }
  [[nodiscard]] const JsonArray* as_array() const { return std::get_if<JsonArray>(&value_); }
  [[nodiscard]] const JsonObject* as_object() const { return std::get_if<JsonObject>(&value_); }
  /// An integer or a floating point number as double; false for anything else.
  [[nodiscard]] bool get_number(double& out) const;
  /// The member `key` of an object, or null.
  [[nodiscard]] const Json* find(std::string_view key) const;

  /// Appends a member (objects) or an element (arrays); a null value becomes the container first.
  void set(std::string key, Json value);
  void push_back(Json value);

  bool operator==(const Json&) const;

  /// Text of this value. Doubles print so that they read back equal; NaN and infinities print as
  /// null; invalid UTF-8 in strings prints as U+FFFD. `indent` < 0 is one line.
  [[nodiscard]] std::string dump(int indent = -1) const;

 private:
  Value value_ = nullptr;
};

struct JsonLimits {
  std::size_t max_bytes = std::size_t{128} << 20;
  int max_depth = 64;
};

/// Parses one JSON text; white space around it is allowed, a byte order mark is not.
///
/// Errors: kInvalidContent with the byte offset: malformed text, invalid UTF-8, depth or size over
/// the limit, a repeated key in one object (`what` names the source in the message).
/// Cost: one pass, stack depth bounded by max_depth.
[[nodiscard]] Result<Json> parse_json(std::string_view text, std::string_view what, JsonLimits limits = {});

/// One step of a JSON text read without building a tree.
struct JsonEvent {
  enum class Kind {
    kNull,
    kBool,
    kInt,
    kDouble,
    kString,
    kKey,
    kBeginObject,
    kEndObject,
    kBeginArray,
    kEndArray
  };
  Kind kind = Kind::kNull;
  bool boolean = false;
  std::int64_t integer = 0;
  double number = 0;        // also for integers outside int64
  std::string_view text{};  // of kString and kKey; valid during the call
  std::size_t offset = 0;   // bytes read when the event was known: at most one past its last byte
};
using JsonHandler = std::function<Result<void>(const JsonEvent&)>;

/// Reads one JSON text and calls `handler` for each event; the first error it returns ends the reading and
/// is returned. For texts too large for a tree. Repeated keys are the handler's to refuse.
///
/// Errors: as parse_json, but for repeated keys; those of `handler`. Memory: the longest string and the
/// depth.
[[nodiscard]] Result<void> parse_json_events(std::string_view text, std::string_view what, JsonLimits limits,
                                             const JsonHandler& handler);

}  // namespace sightline
