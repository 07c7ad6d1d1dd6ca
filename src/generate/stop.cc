#include "sightline/generate/stop.h"

#include <algorithm>
#include <utility>

namespace sightline {

std::string StopMatcher::push(std::string_view text) {
  if (stopped_) return {};
  held_ += text;
  std::size_t at = std::string::npos;
  for (const auto& stop : stops_) {
    const std::size_t begin = held_.find(stop);
    if (begin < at) {
      at = begin;
      found_ = stop;
    }
  }
  if (at != std::string::npos) {
    stopped_ = true;
    std::string before = held_.substr(0, at);
    held_.clear();
    return before;
  }
  // The longest end of the text that is the beginning of a stop string stays.
  std::size_t keep = 0;
  for (const auto& stop : stops_) {
    for (std::size_t n = std::min(stop.size() - 1, held_.size()); n > keep; --n) {
      if (std::string_view(held_).substr(held_.size() - n) == std::string_view(stop).substr(0, n)) keep = n;
    }
  }
  std::string out = held_.substr(0, held_.size() - keep);
  held_.erase(0, held_.size() - keep);
  return out;
}

std::string StopMatcher::flush() { return std::exchange(held_, {}); }

Result<void> validate_stops(const std::vector<std::string>& stops) {
  if (stops.size() > 16) {
    return fail(ErrorKind::kInvalidArgument, "stop: {} strings, at most 16 are allowed", stops.size());
  }
  for (const auto& stop : stops) {
    if (stop.empty())
      return fail(ErrorKind::kInvalidArgument, "stop: an empty string would stop before any text");
    if (stop.size() > 4096) {
      return fail(ErrorKind::kInvalidArgument, "stop: a string of {} bytes, at most 4096 are allowed",
                  stop.size());
    }
  }
  return {};
}

}  // namespace sightline
