// The Rust part of text/ as C++ values: regular expressions, a matcher for many tokens, normalisation. Chat
// templates have their own in chat_template.cc. Nothing else calls rust_api.h.
#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "sightline/base/error.h"
#include "text/rust_api.h"

namespace sightline::text {

/// Bytes [begin, end) of a text.
struct ByteRange {
  std::size_t begin = 0;
  std::size_t end = 0;
  bool operator==(const ByteRange&) const = default;
};

[[nodiscard]] inline sl_text as_sl_text(std::string_view text) {
  return {reinterpret_cast<const uint8_t*>(text.data()), text.size()};
}

/// Receives bytes from Rust into a string. An allocation that fails there is reported afterwards.
class StringSink {
 public:
  [[nodiscard]] sl_sink get();
  /// Throws std::bad_alloc if storing failed.
  [[nodiscard]] std::string take();

 private:
  std::string text_;
  bool failed_ = false;
};

/// The error for a status of rust_api.h that is not 0: kInvalidContent, kInternal for a panic, or
/// kOutOfMemory where the system refused a thread.
[[nodiscard]] tl::unexpected<Error> rust_error(int32_t status, std::string_view what, StringSink& message);

/// A compiled pattern (the syntax of the Rust crate fancy-regex: look-around, Unicode classes).
class Regex {
 public:
  [[nodiscard]] static Result<Regex> compile(std::string_view pattern);
  /// All matches of UTF-8 `text`, left to right, empty ones left out.
  [[nodiscard]] Result<std::vector<ByteRange>> find_all(std::string_view text) const;

 private:
  std::shared_ptr<sl_regex> handle_;
};

/// Finds any of many tokens. Linear in the text.
class Matcher {
 public:
  struct Match {
    ByteRange range;
    std::size_t token_idx = 0;
  };
  /// Matches nothing.
  Matcher() = default;
  [[nodiscard]] static Result<Matcher> build(std::span<const std::string> tokens);
  /// Leftmost, then longest, not overlapping.
  [[nodiscard]] std::vector<Match> find_all(std::string_view text) const;
  /// The longest at every byte where one begins; these may overlap.
  [[nodiscard]] std::vector<Match> find_every_start(std::string_view text) const;

 private:
  [[nodiscard]] std::vector<Match> find(std::string_view text, bool every_start) const;
  std::shared_ptr<sl_matcher> handle_;
};

enum class NormalForm : int32_t { kNfc = 0, kNfd = 1, kNfkc = 2, kNfkd = 3 };
[[nodiscard]] Result<std::string> normalize(std::string_view text, NormalForm form);

}  // namespace sightline::text
