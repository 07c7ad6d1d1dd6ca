// The hyperparameters of a model file, whichever format: typed, range-checked, and remembered as read, so
// that what nobody read can be refused by name. It knows no family.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "sightline/base/error.h"
#include "sightline/base/json.h"
#include "sightline/formats/gguf_metadata.h"

namespace sightline {

/// Something that is neither number, word nor list of numbers; its description is kept for messages.
struct OtherValue {
  std::string description;
};
using KeyValue = std::variant<bool, std::int64_t, double, std::string, std::vector<std::int64_t>,
                              std::vector<double>, std::vector<std::string>, OtherValue>;

struct NumberRange {
  double min = 0.0;
  double max = 1e30;
  bool above_min = true;  ///< min itself is refused
};

/// A table of keys. Getters check presence, type and range; their errors (kInvalidContent) name the source,
/// the key, expected and got. A getter marks its key as read.
class KeyReader {
 public:
  /// The keys of a GGUF file that begin with one of `prefixes` (large vocabularies stay where they are).
  static KeyReader from_gguf(std::string source, const GgufMetadata& metadata,
                             std::span<const std::string> prefixes);
  /// The members of a JSON object; null members count as absent, but see is_null.
  static KeyReader from_json(std::string source, const Json& object);

  [[nodiscard]] const std::string& source() const { return source_; }
  /// Present. Marks the key as read: absence was asked about.
  [[nodiscard]] bool has(std::string_view key) const;

  /// Written out as null.
  [[nodiscard]] bool is_null(std::string_view key) const { return nulls_.contains(key); }

  [[nodiscard]] Result<std::int64_t> get_int(std::string_view key, std::int64_t min, std::int64_t max) const;
  [[nodiscard]] Result<double> get_number(std::string_view key, NumberRange range = {}) const;
  [[nodiscard]] Result<bool> get_bool(std::string_view key) const;
  [[nodiscard]] Result<std::string> get_string(std::string_view key) const;
  [[nodiscard]] Result<std::vector<double>> get_numbers(std::string_view key) const;
  [[nodiscard]] Result<std::vector<std::string>> get_strings(std::string_view key) const;
  /// `count` integers: a list of exactly that many, or one number that stands for all.
  [[nodiscard]] Result<std::vector<std::int64_t>> get_ints_per(std::string_view key, std::size_t count,
                                                               std::int64_t min, std::int64_t max) const;
  /// The same, or `fallback` where the key is absent.
  [[nodiscard]] Result<std::int64_t> int_or(std::string_view key, std::int64_t fallback, std::int64_t min,
                                            std::int64_t max) const;
  [[nodiscard]] Result<double> number_or(std::string_view key, double fallback, NumberRange range = {}) const;
  [[nodiscard]] Result<bool> bool_or(std::string_view key, bool fallback) const;

  /// The object behind `key` as a reader of its own ("config.json: rope_scaling"). `missing_hint` says how to
  /// state what a member would have said.
  [[nodiscard]] Result<KeyReader> get_object(std::string_view key, std::string missing_hint) const;

  /// Marks keys as read: they are known to change nothing here.
  void mark_read(std::string_view key) const { (void)find(key); }
  void ignore(std::span<const std::string_view> keys) const;
  void ignore(std::span<const std::string> keys) const;
  /// Refuses the first key that holds an object. `why` ends the message.
  [[nodiscard]] Result<void> refuse_objects(std::string_view why) const;
  /// Refuses the first key that nobody read. `hint` ends the message.
  [[nodiscard]] Result<void> refuse_unread(std::string_view hint) const;

  /// An error about `key`: "SOURCE: key 'KEY': TEXT".
  [[nodiscard]] tl::unexpected<Error> error(std::string_view key, std::string_view text,
                                            ErrorKind kind = ErrorKind::kInvalidContent) const;
  /// The error of a missing key; `hint` says how to state it, where that is not by the key itself.
  [[nodiscard]] tl::unexpected<Error> missing(std::string_view key, std::string_view hint = {}) const;

 private:
  struct Entry {
    KeyValue value;
    std::string where;  // "byte 123: " in GGUF files, "" where the caller states it
    Json object;        // the value itself where it is a JSON object
    mutable bool read = false;
  };
  [[nodiscard]] const Entry* find(std::string_view key) const;
  [[nodiscard]] Result<const Entry*> require(std::string_view key) const;

  std::string source_;
  std::string missing_hint_ = "state it with --override-kv KEY=TYPE:VALUE";
  std::map<std::string, Entry, std::less<>> entries_;
  std::set<std::string, std::less<>> nulls_;
};

}  // namespace sightline
