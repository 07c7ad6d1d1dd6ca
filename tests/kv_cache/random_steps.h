// Operations on a cache as plain numbers, so that whoever draws them can shrink and keep them.
#pragma once

#include <algorithm>
#include <iterator>

#include "kv_cache/cache_model.h"

namespace sightline::test {

/// What to do, to which sequence, and two numbers that the kind reads.
struct CacheStep {
  int kind = 0;
  int which = 0;
  int x = 0;
  int y = 0;
};

inline constexpr int kNumCacheStepKinds = 12;

/// Plays one step; numbers out of range count from 0 again.
inline void play(CacheModel& model, const CacheStep& step) {
  const auto [kind, which, x, y] = step;
  if (model.sequences().empty()) {
    model.add_sequence();
    return;
  }
  auto at = model.sequences().begin();
  std::advance(at, which % std::ssize(model.sequences()));
  const SequenceId id = at->first;
  const std::int64_t length = model.length(id);
  const std::int64_t begin = length == 0 ? 0 : x % (length + 1);
  const std::int64_t end = begin + (length == begin ? 0 : y % (length - begin + 1));
  switch (kind) {
    case 0:
      if (model.sequences().size() < 5) model.add_sequence();
      break;
    case 1:
      model.play_remove(id);
      break;
    case 2:
      if (model.sequences().size() < 5) model.play_fork(id);
      break;
    case 3:
      model.play_truncate(id, y % 4 == 0 ? begin : std::max<std::int64_t>(0, length - x % 6));
      break;
    case 4:
      model.play_evict(id, begin, end);
      break;
    case 5:
      model.play_shift(id, begin, end, y % 21 - 10);
      break;
    case 6: {  // what a full context does: drop a stretch, move the rest down by its length
      if (model.play_evict(id, begin, end)) model.play_shift(id, end, length, begin - end);
      break;
    }
    case 7: {  // left padding
      std::vector<TokenCoord> coords = coords_range(model.next_pos(id), model.next_pos(id) + x % 20);
      for (std::size_t i = 0; i < coords.size() && i < static_cast<std::size_t>(y % 5); ++i)
        coords[i].valid = false;
      model.play_append(id, coords, 3);
      break;
    }
    case 8:
      model.play_append(id, x);
      break;
    default:
      model.play_append(id, 1 + x % 3);
      break;
  }
}

}  // namespace sightline::test
