#include "apps/explain/token_lists.h"

#include "apps/cli.h"

namespace sightline::apps {

Result<std::vector<std::int64_t>> parse_list(std::string_view option, std::string_view text) {
  std::vector<std::int64_t> out;
  while (true) {
    const auto comma = text.find(',');
    const std::string_view piece = text.substr(0, comma);
    const auto dots = piece.find("..");
    std::int64_t first = 0;
    SIGHTLINE_CHECK(parse_value(option, piece.substr(0, dots), first));
    std::int64_t last = first;
    if (dots != std::string_view::npos) SIGHTLINE_CHECK(parse_value(option, piece.substr(dots + 2), last));
    if (last < first) {
      return fail(ErrorKind::kInvalidArgument, "{}: {} runs backwards", option, quote(piece));
    }
    // As unsigned: the ends may be the ends of int64.
    if (static_cast<std::uint64_t>(last) - static_cast<std::uint64_t>(first) + out.size() >=
        static_cast<std::uint64_t>(kMaxListed)) {
      return fail(ErrorKind::kInvalidArgument, "{}: more than {} entries", option, kMaxListed);
    }
    for (std::int64_t i = 0; i <= last - first; ++i) out.push_back(first + i);
    if (comma == std::string_view::npos) return out;
    text.remove_prefix(comma + 1);
  }
}

}  // namespace sightline::apps
