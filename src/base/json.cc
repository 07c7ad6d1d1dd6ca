#include "sightline/base/json.h"

#include <cmath>
#include <iterator>
#include <nlohmann/json.hpp>
#include <unordered_set>

namespace sightline {

namespace {

using Sax = nlohmann::json_sax<nlohmann::json>;

// Builds Json from parser events and stops at the first broken limit.
class Builder : public Sax {
 public:
  Builder(std::string_view what, JsonLimits limits) : what_(what), limits_(limits) {}

  bool null() override { return add(nullptr); }
  bool boolean(bool v) override { return add(v); }
  bool number_integer(number_integer_t v) override { return add(static_cast<std::int64_t>(v)); }
  bool number_unsigned(number_unsigned_t v) override {
    if (v > static_cast<number_unsigned_t>(INT64_MAX)) return add(static_cast<double>(v));
    return add(static_cast<std::int64_t>(v));
  }
  bool number_float(number_float_t v, const string_t&) override { return add(v); }
  bool string(string_t& v) override { return add(std::move(v)); }
  bool binary(binary_t&) override { return false; }
  bool start_object(std::size_t) override { return open(JsonObject{}); }
  bool end_object() override { return close(); }
  bool start_array(std::size_t) override { return open(JsonArray{}); }
  bool end_array() override { return close(); }
  bool key(string_t& v) override {
    if (!stack_.back().keys.insert(v).second) {
      return refuse(fmt::format("{}: key \"{}\" occurs twice", what_, v.substr(0, 64)));
    }
    stack_.back().key = v;
    return true;
  }
  bool parse_error(std::size_t position, const std::string&, const nlohmann::detail::exception&) override {
    return refuse(fmt::format("{}: malformed JSON at byte {}", what_, position));
  }

  Json root;
  std::string error;

 private:
  struct Level {
    Json container;
    std::string key;
    std::unordered_set<std::string> keys;
  };

  bool refuse(std::string message) {
    if (error.empty()) error = std::move(message);
    return false;
  }
  bool add(Json value) {
    if (stack_.empty()) {
      root = std::move(value);
    } else if (stack_.back().container.as_array() != nullptr) {
      stack_.back().container.push_back(std::move(value));
    } else {
      stack_.back().container.set(std::move(stack_.back().key), std::move(value));
    }
    return true;
  }
  bool open(Json container) {
    if (static_cast<int>(stack_.size()) >= limits_.max_depth) {
      return refuse(fmt::format("{}: JSON is nested deeper than {}", what_, limits_.max_depth));
    }
    stack_.push_back({std::move(container), {}, {}});
    return true;
  }
  bool close() {
    Json done = std::move(stack_.back().container);
    stack_.pop_back();
    return add(std::move(done));
  }

  std::string_view what_;
  JsonLimits limits_;
  std::vector<Level> stack_;
};

// Steps through a text and keeps the place, which the parser's events do not carry.
class CountingIterator {
 public:
  using iterator_category = std::input_iterator_tag;
  using value_type = char;
  using difference_type = std::ptrdiff_t;
  using pointer = const char*;
  using reference = const char&;

  CountingIterator(const char* at, const char** place) : at_(at), place_(place) {}
  reference operator*() const { return *at_; }
  CountingIterator& operator++() {
    ++at_;
    *place_ = at_;
    return *this;
  }
  CountingIterator operator++(int) {
    const CountingIterator before = *this;
    ++*this;
    return before;
  }
  bool operator==(const CountingIterator& other) const { return at_ == other.at_; }

 private:
  const char* at_;
  const char** place_;
};

// Hands parser events on, with the place, under the depth limit.
class EventSax : public Sax {
 public:
  using Kind = JsonEvent::Kind;
  EventSax(std::string_view what, JsonLimits limits, const JsonHandler& handler, const char* begin)
      : what_(what), limits_(limits), handler_(handler), begin_(begin), place(begin) {}

  bool null() override { return emit({}); }
  bool boolean(bool v) override { return emit({.kind = Kind::kBool, .boolean = v}); }
  bool number_integer(number_integer_t v) override {
    return emit({.kind = Kind::kInt, .integer = v, .number = static_cast<double>(v)});
  }
  bool number_unsigned(number_unsigned_t v) override {
    if (v <= static_cast<number_unsigned_t>(INT64_MAX))
      return number_integer(static_cast<number_integer_t>(v));
    return emit({.kind = Kind::kDouble, .number = static_cast<double>(v)});
  }
  bool number_float(number_float_t v, const string_t&) override {
    return emit({.kind = Kind::kDouble, .number = v});
  }
  bool string(string_t& v) override { return emit({.kind = Kind::kString, .text = v}); }
  bool binary(binary_t&) override { return false; }
  bool key(string_t& v) override { return emit({.kind = Kind::kKey, .text = v}); }
  bool start_object(std::size_t) override { return open(Kind::kBeginObject); }
  bool end_object() override { return close(Kind::kEndObject); }
  bool start_array(std::size_t) override { return open(Kind::kBeginArray); }
  bool end_array() override { return close(Kind::kEndArray); }
  bool parse_error(std::size_t position, const std::string&, const nlohmann::detail::exception&) override {
    status = fail(ErrorKind::kInvalidContent, "{}: malformed JSON at byte {}", what_, position);
    return false;
  }

 private:
  bool emit(JsonEvent event) {
    event.offset = static_cast<std::size_t>(place - begin_);
    status = handler_(event);
    return status.has_value();
  }
  bool open(Kind kind) {
    if (++depth_ > limits_.max_depth) {
      status =
          fail(ErrorKind::kInvalidContent, "{}: JSON is nested deeper than {}", what_, limits_.max_depth);
      return false;
    }
    return emit({.kind = kind});
  }
  bool close(Kind kind) {
    --depth_;
    return emit({.kind = kind});
  }

  std::string_view what_;
  JsonLimits limits_;
  const JsonHandler& handler_;
  const char* begin_;
  int depth_ = 0;

 public:
  const char* place;
  Result<void> status;
};

Result<void> check_json_text(std::string_view text, std::string_view what, JsonLimits limits) {
  if (text.size() > limits.max_bytes) {
    return fail(ErrorKind::kInvalidContent, "{}: JSON of {} bytes is over the limit of {}", what, text.size(),
                limits.max_bytes);
  }
  if (text.starts_with("\xef\xbb\xbf")) {
    return fail(ErrorKind::kInvalidContent, "{}: JSON starts with a byte order mark at byte 0", what);
  }
  // The parser takes a zero byte for the end of the text and would not look at what follows.
  if (const auto zero = text.find('\0'); zero != std::string_view::npos) {
    return fail(ErrorKind::kInvalidContent, "{}: malformed JSON at byte {}: a zero byte", what, zero);
  }
  return {};
}

nlohmann::ordered_json to_nlohmann(const Json& json) {
  return std::visit(
      [](const auto& v) -> nlohmann::ordered_json {
        using T = std::decay_t<decltype(v)>;
        if constexpr (std::is_same_v<T, JsonArray>) {
          auto out = nlohmann::ordered_json::array();
          for (const auto& element : v) out.push_back(to_nlohmann(element));
          return out;
        } else if constexpr (std::is_same_v<T, JsonObject>) {
          // emplace_back of the members' vector: ordered_json::emplace would search all of them for each key.
          nlohmann::ordered_json::object_t out;
          out.reserve(v.size());
          for (const auto& [key, member] : v) out.emplace_back(key, to_nlohmann(member));
          return out;
        } else {
          return v;
        }
      },
      json.value());
}

}  // namespace

bool Json::get_number(double& out) const {
  if (const auto* i = std::get_if<std::int64_t>(&value_)) {
    out = static_cast<double>(*i);
    return true;
  }
  if (const auto* d = std::get_if<double>(&value_)) {
    out = *d;
    return true;
  }
  return false;
}

const Json* Json::find(std::string_view key) const {
  const auto* object = as_object();
  if (object == nullptr) return nullptr;
  for (const auto& [name, member] : *object) {
    if (name == key) return &member;
  }
  return nullptr;
}

void Json::set(std::string key, Json value) {
  if (is_null()) value_ = JsonObject{};
  std::get<JsonObject>(value_).emplace_back(std::move(key), std::move(value));
}

void Json::push_back(Json value) {
  if (is_null()) value_ = JsonArray{};
  std::get<JsonArray>(value_).push_back(std::move(value));
}

bool Json::operator==(const Json& other) const { return value_ == other.value_; }

std::string Json::dump(int indent) const {
  return to_nlohmann(*this).dump(indent, ' ', false, nlohmann::ordered_json::error_handler_t::replace);
}

Result<Json> parse_json(std::string_view text, std::string_view what, JsonLimits limits) {
  SIGHTLINE_CHECK(check_json_text(text, what, limits));
  Builder builder(what, limits);
  const bool ok = nlohmann::json::sax_parse(text.begin(), text.end(), &builder);
  if (!ok || !builder.error.empty()) {
    return fail(ErrorKind::kInvalidContent, "{}",
                builder.error.empty() ? fmt::format("{}: malformed JSON", what) : builder.error);
  }
  return std::move(builder.root);
}

Result<void> parse_json_events(std::string_view text, std::string_view what, JsonLimits limits,
                               const JsonHandler& handler) {
  SIGHTLINE_CHECK(check_json_text(text, what, limits));
  EventSax sax(what, limits, handler, text.data());
  const CountingIterator begin(text.data(), &sax.place);
  const CountingIterator end(text.data() + text.size(), &sax.place);
  const bool ok = nlohmann::json::sax_parse(begin, end, &sax);
  if (!ok && sax.status) return fail(ErrorKind::kInvalidContent, "{}: malformed JSON", what);
  return std::move(sax.status);
}

}  // namespace sightline
