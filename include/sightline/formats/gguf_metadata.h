// The typed key/value part of a GGUF file, and getters that refuse what is not of the asked type.
#pragma once

#include <cstdint>
#include <limits>
#include <span>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "sightline/base/error.h"

namespace sightline {

/// Strings packed into one block of memory: a vocabulary takes no more memory than in its file.
class GgufStrings {
 public:
  [[nodiscard]] std::size_t size() const { return ends_.size(); }
  [[nodiscard]] bool empty() const { return ends_.empty(); }
  /// Bytes of string `i`; not necessarily UTF-8. Valid while this object is.
  [[nodiscard]] std::string_view operator[](std::size_t i) const {
    const std::uint64_t begin = i == 0 ? 0 : ends_[i - 1];
    return std::string_view(bytes_).substr(begin, ends_[i] - begin);
  }
  void push_back(std::string_view text) {
    bytes_.append(text);
    ends_.push_back(bytes_.size());
  }
  void reserve(std::size_t num_strings, std::size_t num_bytes) {
    ends_.reserve(num_strings);
    bytes_.reserve(num_bytes);
  }
  bool operator==(const GgufStrings&) const = default;

 private:
  std::string bytes_;
  std::vector<std::uint64_t> ends_;
};

/// An array of bool, one byte each, 0 or 1.
struct GgufBools {
  std::vector<std::uint8_t> values;
  bool operator==(const GgufBools&) const = default;
};

/// An array; the index of the alternative is the GGUF number of its element type. Arrays of arrays
/// (number 9) do not exist here: the reader refuses them.
using GgufArray =
    std::variant<std::vector<std::uint8_t>, std::vector<std::int8_t>, std::vector<std::uint16_t>,
                 std::vector<std::int16_t>, std::vector<std::uint32_t>, std::vector<std::int32_t>,
                 std::vector<float>, GgufBools, GgufStrings, std::monostate, std::vector<std::uint64_t>,
                 std::vector<std::int64_t>, std::vector<double>>;

/// A value; the index of the alternative is the GGUF number of its type.
using GgufValue =
    std::variant<std::uint8_t, std::int8_t, std::uint16_t, std::int16_t, std::uint32_t, std::int32_t, float,
                 bool, std::string, GgufArray, std::uint64_t, std::int64_t, double>;

/// Name of the GGUF type of this number: "u32", "string", "array"; "?" when there is none.
[[nodiscard]] const char* gguf_type_name(std::size_t type);
/// A value for people, short: `576`, `"llama"`, `[49152 strings]`.
[[nodiscard]] std::string describe(const GgufValue& value);
/// Elements of an array.
[[nodiscard]] std::size_t num_elements(const GgufArray& array);

struct GgufEntry {
  std::string key;
  GgufValue value;
  std::uint64_t file_offset = 0;  // where the value's bytes begin; 0: not from a file
};

/// All keys of one file. Every getter checks presence, type and count; its error (kInvalidContent) names
/// file, byte offset, key, expected and got.
class GgufMetadata {
 public:
  GgufMetadata() = default;
  /// Errors: kInvalidContent when a key occurs twice.
  [[nodiscard]] static Result<GgufMetadata> create(std::string file, std::vector<GgufEntry> entries);

  /// Replaces the value of a key, or adds the key at the end. Views into the old value become invalid.
  void set(std::string key, GgufValue value);

  /// In the order of the file.
  [[nodiscard]] const std::vector<GgufEntry>& entries() const { return entries_; }
  [[nodiscard]] const GgufEntry* find(std::string_view key) const;
  [[nodiscard]] bool has(std::string_view key) const { return find(key) != nullptr; }

  /// An integer of any width and sign within [min, max].
  [[nodiscard]] Result<std::int64_t> get_int(
      std::string_view key, std::int64_t min = std::numeric_limits<std::int64_t>::min(),
      std::int64_t max = std::numeric_limits<std::int64_t>::max()) const;
  /// f32 or f64; NaN and infinity are the caller's to refuse.
  [[nodiscard]] Result<double> get_float(std::string_view key) const;
  [[nodiscard]] Result<bool> get_bool(std::string_view key) const;
  [[nodiscard]] Result<std::string> get_string(std::string_view key) const;

  /// Array of strings, of f32; valid while this object is.
  [[nodiscard]] Result<const GgufStrings*> get_strings(std::string_view key) const;
  [[nodiscard]] Result<std::span<const float>> get_floats(std::string_view key) const;
  /// Array of integers of any width, each within [min, max].
  [[nodiscard]] Result<std::vector<std::int64_t>> get_ints(
      std::string_view key, std::int64_t min = std::numeric_limits<std::int64_t>::min(),
      std::int64_t max = std::numeric_limits<std::int64_t>::max()) const;
  /// Array of bool, one 0 or 1 each.
  [[nodiscard]] Result<std::span<const std::uint8_t>> get_bools(std::string_view key) const;
  /// `count` integers: an array of exactly that many, or one number that stands for all (head counts).
  [[nodiscard]] Result<std::vector<std::int64_t>> get_ints_per(std::string_view key, std::size_t count,
                                                               std::int64_t min, std::int64_t max) const;

  /// An error about `key` in this file, for the caller's own checks:
  /// "FILE: byte 123: key 'llama.block_count': TEXT" (without the byte where the key is missing or was set).
  [[nodiscard]] tl::unexpected<Error> error(std::string_view key, std::string_view text) const;

 private:
  [[nodiscard]] Result<const GgufEntry*> require(std::string_view key, std::string_view expected) const;
  template <typename T>
  [[nodiscard]] Result<const T*> require_array(std::string_view key, std::string_view expected) const;

  std::string file_;
  std::vector<GgufEntry> entries_;
  std::vector<std::uint32_t> by_key_;  // indices into entries_, sorted by key
};

}  // namespace sightline
