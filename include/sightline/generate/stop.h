// Stop strings: text that may still become one is held back until it cannot.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "sightline/base/error.h"

namespace sightline {

/// Finds the first of several strings in text that comes in pieces.
class StopMatcher {
 public:
  explicit StopMatcher(std::vector<std::string> stops) : stops_(std::move(stops)) {}

  /// The text that is now certain to stand before any stop string. Once stopped() it is always empty.
  [[nodiscard]] std::string push(std::string_view text);
  /// What was held back, when no more text comes.
  [[nodiscard]] std::string flush();
  [[nodiscard]] bool stopped() const { return stopped_; }
  /// The stop string that was found, or empty.
  [[nodiscard]] const std::string& found() const { return found_; }

 private:
  std::vector<std::string> stops_;
  std::string held_;
  std::string found_;
  bool stopped_ = false;
};

/// Errors (kInvalidArgument): an empty stop string, more than 16, one over 4096 bytes.
[[nodiscard]] Result<void> validate_stops(const std::vector<std::string>& stops);

}  // namespace sightline
