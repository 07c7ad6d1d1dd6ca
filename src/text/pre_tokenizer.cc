#include "text/pre_tokenizer.h"

namespace sightline::text {
namespace {

/// The pieces of `text` that one behaviour makes of its matches.
std::vector<ByteRange> apply_behavior(std::size_t size, std::span<const ByteRange> found,
                                      const SplitStep& step) {
  struct Piece {
    ByteRange range;
    bool is_match;
  };
  std::vector<Piece> pieces;
  std::size_t at = 0;
  for (const ByteRange& range : found) {
    if (range.begin > at) pieces.push_back({{at, range.begin}, step.invert});
    pieces.push_back({range, !step.invert});
    at = range.end;
  }
  if (at < size) pieces.push_back({{at, size}, step.invert});

  std::vector<ByteRange> out;
  bool last_is_match = false;
  bool joins_next = false;
  for (const Piece& piece : pieces) {
    bool joins = false;
    switch (step.behavior) {
      case SplitBehavior::kIsolated:
        break;
      case SplitBehavior::kRemoved:
        if (piece.is_match) continue;
        break;
      case SplitBehavior::kMergedWithPrevious:
        joins = piece.is_match && !out.empty() && !last_is_match;
        break;
      case SplitBehavior::kMergedWithNext:
        joins = joins_next && !piece.is_match;
        joins_next = piece.is_match;
        break;
      case SplitBehavior::kContiguous:
        joins = !out.empty() && last_is_match == piece.is_match;
        break;
    }
    if (joins) {
      out.back().end = piece.range.end;
    } else {
      out.push_back(piece.range);
    }
    last_is_match = piece.is_match;
  }
  return out;
}

}  // namespace

Result<std::vector<ByteRange>> split_text(std::string_view text, std::span<const SplitStep> steps) {
  std::vector<ByteRange> pieces;
  if (!text.empty()) pieces.push_back({0, text.size()});
  for (const SplitStep& step : steps) {
    std::vector<ByteRange> finer;
    for (const ByteRange& piece : pieces) {
      const std::size_t size = piece.end - piece.begin;
      SIGHTLINE_TRY(const auto found, step.regex.find_all(text.substr(piece.begin, size)));
      for (const ByteRange& part : apply_behavior(size, found, step)) {
        finer.push_back({piece.begin + part.begin, piece.begin + part.end});
      }
    }
    pieces = std::move(finer);
  }
  return pieces;
}

}  // namespace sightline::text
