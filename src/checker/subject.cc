#include "sightline/checker/subject.h"

namespace sightline::checker {

std::vector<std::uint8_t> visible_pairs(const Observation& call) {
  std::vector<std::uint8_t> pairs;
  pairs.reserve(call.q_coords.size() * call.kv_coords.size());
  for (std::int64_t i = 0; i < call.q_len(); ++i) {
    for (std::int64_t j = 0; j < call.kv_len(); ++j)
      pairs.push_back(sees(call, call.spec.mask, i, j) ? 1 : 0);
  }
  return pairs;
}

Result<void> Subject::answer_batch(std::span<Observation>) {
  return fail(ErrorKind::kInvalidArgument, "the subject takes no batch");
}

}  // namespace sightline::checker
