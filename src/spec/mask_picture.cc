// The 0/1 picture of a mask.
#include <algorithm>

#include "sightline/spec/mask.h"

namespace sightline {

namespace {

std::string label(const TokenCoord& coord) { return coord.valid ? fmt::format("{}", coord.pos) : "pad"; }

std::size_t widest_label(std::span<const TokenCoord> coords) {
  std::size_t width = 1;
  for (const TokenCoord& coord : coords) width = std::max(width, label(coord).size());
  return width;
}

}  // namespace

std::string draw(const MaskSpec& mask, const MaskTables& tables, std::span<const TokenCoord> q,
                 std::span<const TokenCoord> kv, DrawOptions options) {
  const std::size_t q_width = widest_label(q);
  const std::size_t kv_width = options.labels ? widest_label(kv) : 1;
  std::string out;
  if (options.labels) {
    out += std::string(q_width, ' ') + " |";
    for (const TokenCoord& k : kv) out += fmt::format(" {:>{}}", label(k), kv_width);
    out += '\n' + std::string(q_width + 1, '-') + '+' + std::string(kv.size() * (kv_width + 1), '-') + '\n';
  }
  for (std::size_t i = 0; i < q.size(); ++i) {
    if (options.labels) out += fmt::format("{:>{}} |", label(q[i]), q_width);
    for (std::size_t j = 0; j < kv.size(); ++j) {
      const bool sees = is_visible(mask, tables, {q[i], static_cast<std::int64_t>(i)},
                                   {kv[j], static_cast<std::int64_t>(j)});
      if (j > 0 || options.labels) out += ' ';
      out += fmt::format("{:>{}}", sees ? 1 : 0, kv_width);
    }
    out += '\n';
  }
  return out;
}

std::vector<TokenCoord> coords_range(std::int64_t begin, std::int64_t end) {
  std::vector<TokenCoord> out;
  for (std::int64_t pos = begin; pos < end; ++pos) out.push_back({.pos = pos});
  return out;
}

}  // namespace sightline
