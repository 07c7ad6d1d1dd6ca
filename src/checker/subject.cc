#include "sightline/checker/subject.h"

namespace sightline::checker {

std::vector<std::uint8_t> visible_pairs(const Observation& call) {
  std::vector<std::uint8_t> pairs;
  pairs.reserve(call.q_coords.size() * call.kv_coords.size());
  for (std::size_t i = 0; i < call.q_coords.size(); ++i) {
    for (std::size_t j = 0; j < call.kv_coords.size(); ++j) {
      pairs.push_back(is_visible(call.spec.mask, {}, {call.q_coords[i], static_cast<std::int64_t>(i)},
                                 {call.kv_coords[j], static_cast<std::int64_t>(j)})
                          ? 1
                          : 0);
    }
  }
  return pairs;
}

Result<void> Subject::answer_batch(std::span<Observation>) {
  return fail(ErrorKind::kInvalidArgument, "the subject takes no batch");
}

}  // namespace sightline::checker
