// Random masks, coordinates and tables for property tests. Everything follows from the Rng's seed.
#pragma once

#include <algorithm>
#include <array>
#include <string>
#include <vector>

#include "sightline/base/rng.h"
#include "sightline/spec/mask.h"

namespace sightline::testing {

inline std::int64_t random_in(Rng& rng, std::int64_t least, std::int64_t most) {
  return least + static_cast<std::int64_t>(rng.next_below(static_cast<std::uint64_t>(most - least + 1)));
}

inline constexpr std::array kRangeOps{MaskOp::kAll,   MaskOp::kNone,  MaskOp::kCausal,  MaskOp::kWindow,
                                      MaskOp::kAhead, MaskOp::kFirst, MaskOp::kSegment, MaskOp::kChunk,
                                      MaskOp::kSpan,  MaskOp::kTree,  MaskOp::kQueryIs, MaskOp::kKeyIs};
inline constexpr std::array kAllOps{MaskOp::kAll,   MaskOp::kNone,    MaskOp::kCausal,  MaskOp::kWindow,
                                    MaskOp::kAhead, MaskOp::kFirst,   MaskOp::kSegment, MaskOp::kChunk,
                                    MaskOp::kSpan,  MaskOp::kDilated, MaskOp::kTree,    MaskOp::kQueryIs,
                                    MaskOp::kKeyIs, MaskOp::kDense};

/// A leaf with a small valid argument.
inline MaskSpec random_leaf(Rng& rng, std::span<const MaskOp> ops) {
  const MaskOp op = ops[rng.next_below(ops.size())];
  switch (op) {
    case MaskOp::kWindow:
    case MaskOp::kFirst:
    case MaskOp::kChunk:
    case MaskOp::kDilated:
      return mask_rule(op, random_in(rng, 1, rng.next_below(8) == 0 ? 200 : 9));
    case MaskOp::kAhead:
      return mask_rule(op, random_in(rng, 0, 6));
    case MaskOp::kQueryIs:
    case MaskOp::kKeyIs:
      return mask_rule(op, random_in(rng, 0, 2));
    default:
      return mask_rule(op);
  }
}

/// A program of num_leaves leaves, joined and negated at random.
inline MaskSpec random_mask(Rng& rng, std::int64_t num_leaves, std::span<const MaskOp> ops) {
  MaskSpec out;
  if (num_leaves <= 1) {
    out = random_leaf(rng, ops);
  } else {
    const std::int64_t left = random_in(rng, 1, num_leaves - 1);
    const MaskSpec a = random_mask(rng, left, ops);
    const MaskSpec b = random_mask(rng, num_leaves - left, ops);
    out = rng.next_below(2) == 0 ? a & b : a | b;
  }
  return rng.next_below(6) == 0 ? !out : out;
}

/// Tokens of up to four segments: positions from anywhere, with gaps, restarting or running on, spans and
/// flags in runs. Consistent: tokens of one segment share segment_start, which is its first valid position.
inline std::vector<TokenCoord> random_sequence(Rng& rng, std::int64_t num_tokens) {
  std::vector<TokenCoord> out;
  const bool gaps = rng.next_below(3) == 0;
  const bool restarts = rng.next_below(2) == 0;
  const bool spans = rng.next_below(2) == 0;
  const bool flags = rng.next_below(2) == 0;
  const auto segment_length = random_in(rng, 1, rng.next_below(2) == 0 ? 12 : 400);
  std::int64_t pos = random_in(rng, 0, 3) == 0 ? random_in(rng, -20, 50) : 0;
  TokenCoord token;
  token.segment_start = pos;
  std::int64_t left = segment_length;
  for (std::int64_t i = 0; i < num_tokens; ++i, --left) {
    if (left == 0) {
      if (restarts) pos = random_in(rng, 0, 1) == 0 ? 0 : random_in(rng, 0, 9);
      token = {.segment_start = pos, .segment = token.segment + 1};
      left = segment_length;
    }
    token.pos = pos;
    if (spans && rng.next_below(4) == 0) token.span = static_cast<std::int32_t>(rng.next_below(3));
    if (flags && rng.next_below(4) == 0) token.flags = static_cast<std::uint32_t>(rng.next_below(8));
    out.push_back(token);
    pos += gaps ? random_in(rng, 1, 4) : 1;
  }
  return out;
}

/// What storage does to a sequence: nothing, holes, padding at either end, a ring, a shuffle.
inline void disturb(Rng& rng, std::vector<TokenCoord>& coords) {
  if (coords.empty()) return;
  const auto n = static_cast<std::int64_t>(coords.size());
  const auto spoil = [&](std::int64_t begin, std::int64_t end) {
    for (auto i = begin; i < end; ++i) {
      auto& token = coords[static_cast<std::size_t>(i)];
      token.valid = false;
      token.pos = random_in(rng, -1000, 1000);  // a pad's position is ignored
    }
  };
  switch (rng.next_below(8)) {
    case 0:
      spoil(0, random_in(rng, 0, n));
      break;
    case 1:
      spoil(random_in(rng, 0, n), n);
      break;
    case 2:
      for (std::int64_t i = 0; i < n; ++i) {
        if (rng.next_below(5) == 0) spoil(i, i + 1);
      }
      break;
    case 3:
      std::rotate(coords.begin(), coords.begin() + random_in(rng, 0, n - 1), coords.end());
      break;
    case 4:
      for (std::int64_t i = n - 1; i > 0; --i) {
        std::swap(coords[static_cast<std::size_t>(i)],
                  coords[static_cast<std::size_t>(random_in(rng, 0, i))]);
      }
      break;
    default:
      break;
  }
}

/// Storage behind MaskTables for the given numbers of rows.
struct RandomTables {
  std::vector<std::uint8_t> dense;
  std::vector<std::int32_t> q_node, kv_node, parent;
  std::int64_t num_q_rows, num_kv_rows;

  RandomTables(Rng& rng, std::int64_t q_rows, std::int64_t kv_rows)
      : num_q_rows(q_rows), num_kv_rows(kv_rows) {
    const auto density = rng.next_below(5);
    for (std::int64_t i = 0; i < q_rows * kv_rows; ++i) dense.push_back(rng.next_below(4) < density);
    const auto num_nodes = random_in(rng, 1, 12);
    for (std::int64_t i = 0; i < num_nodes; ++i) {
      parent.push_back(static_cast<std::int32_t>(random_in(rng, -1, i - 1)));
    }
    for (std::int64_t i = 0; i < q_rows; ++i) q_node.push_back(random_node(rng, num_nodes));
    // Mostly a committed prefix and the draft at the end, sometimes anything.
    const auto committed = rng.next_below(3) == 0 ? 0 : std::max<std::int64_t>(kv_rows - num_nodes, 0);
    for (std::int64_t i = 0; i < kv_rows; ++i)
      kv_node.push_back(i < committed ? -1 : random_node(rng, num_nodes));
  }

  [[nodiscard]] MaskTables view() const {
    return {dense_view(dense.data(), std::array<std::int64_t, 2>{num_q_rows, num_kv_rows}), q_node, kv_node,
            parent};
  }

 private:
  static std::int32_t random_node(Rng& rng, std::int64_t num_nodes) {
    return static_cast<std::int32_t>(random_in(rng, -1, num_nodes - 1));
  }
};

}  // namespace sightline::testing
