#include "deviant_coords.h"

#include <algorithm>
#include <map>
#include <span>

namespace sightline::reference {
namespace {

void move_chunks(const Deviation& deviation, std::vector<TokenCoord>& coords) {
  for (TokenCoord& coord : coords) {
    if (deviation.chunk_ignores_documents) coord.segment_start = 0;
    coord.segment_start += deviation.chunk_origin;
  }
}

/// Keys at their slots; those that a later one has overwritten are gone.
void put_in_ring(std::int64_t num_slots, std::vector<TokenCoord>& kv) {
  std::map<std::int64_t, TokenCoord*> by_slot;
  for (TokenCoord& coord : kv) {
    if (!coord.valid) continue;
    const std::int64_t slot = (coord.pos % num_slots + num_slots) % num_slots;
    TokenCoord*& held = by_slot[slot];
    if (held != nullptr) held->valid = false;
    held = &coord;
    coord.pos = slot;
  }
}

bool is_zero(const AttentionInputs& in, std::int64_t key) {
  for (std::int64_t c = 0; c < in.k.shape[2]; ++c) {
    if (in.k(key, 0, c) != 0) return false;
  }
  return true;
}

/// Keys in slots whose length counts those that are not 0, call by call; the last call reads the slots below
/// the length.
void count_nonzero(const AttentionInputs& in, std::vector<TokenCoord>& kv) {
  const auto kv_len = static_cast<std::int64_t>(kv.size());
  std::vector<std::int64_t> ends;
  for (const std::int64_t begin : in.append_begins) {
    if (begin > 0 && begin < in.num_cached) ends.push_back(begin);
  }
  if (in.num_cached > 0) ends.push_back(in.num_cached);
  ends.push_back(kv_len);
  std::vector<std::int64_t> slots;
  const auto length = [&] {
    return std::ranges::count_if(slots, [&](std::int64_t key) { return !is_zero(in, key); });
  };
  std::int64_t key = 0;
  for (const std::int64_t end : ends) {
    for (std::int64_t slot = length(); key < end; ++slot, ++key) {
      if (slot == static_cast<std::int64_t>(slots.size())) slots.push_back(key);
      slots[static_cast<std::size_t>(slot)] = key;
    }
  }
  slots.resize(static_cast<std::size_t>(length()));
  for (std::int64_t j = 0; j < kv_len; ++j) {
    if (std::ranges::find(slots, j) == slots.end()) kv[static_cast<std::size_t>(j)].valid = false;
  }
}

/// What a ring holds that turned while slots of it were empty; the first call reads what it brought. The tape
/// that runs through it: the tokens before it turned, the empty slots, the tokens since.
void turn_early(const AttentionInputs& in, const Deviation& deviation, DeviantCoords& seen) {
  if (in.num_cached == 0) return;
  const std::int64_t first_end = in.append_begins.size() > 1 ? in.append_begins[1] : in.num_cached;
  const auto first_call = std::span(in.kv_coords).first(static_cast<std::size_t>(first_end));
  const std::int64_t num_first = std::ranges::count(first_call, true, &TokenCoord::valid);
  const std::int64_t num_keys = std::ranges::count(in.kv_coords, true, &TokenCoord::valid);
  const std::int64_t slots = deviation.early_ring_slots;
  const std::int64_t num_before = std::max(num_first, slots - deviation.early_ring_empty);
  if (num_keys <= num_before) return;
  const std::int64_t num_empty = std::max<std::int64_t>(0, slots - num_before);
  const std::int64_t begin = num_keys + num_empty - slots;  // of what the ring holds of the tape
  std::int64_t ordinal = 0;
  for (TokenCoord& coord : seen.kv) {
    if (!coord.valid) continue;
    const std::int64_t on_tape = ordinal < num_before ? ordinal : ordinal + num_empty;
    coord.valid = on_tape >= begin;
    ++ordinal;
  }
  seen.num_zero_keys = std::min(num_empty, std::max<std::int64_t>(0, num_before + num_empty - begin));
}

/// Pads become keys with the coordinates of the first token.
void join_pads(std::vector<TokenCoord>& kv) {
  const auto first = std::ranges::find(kv, true, &TokenCoord::valid);
  if (first == kv.end()) return;
  const TokenCoord coord = *first;
  for (TokenCoord& pad : kv) {
    if (!pad.valid) pad = coord;
  }
}

/// Tokens at the rows of their keys, in one document; a query that is no key of the call keeps its position.
void take_rows(const AttentionInputs& in, DeviantCoords& seen) {
  for (std::size_t i = 0; i < seen.q.size(); ++i) {
    if (!seen.q[i].valid) continue;
    const auto key = std::ranges::find(in.kv_coords, in.q_coords[i]);
    if (key == in.kv_coords.end()) continue;
    seen.q[i].pos = key - in.kv_coords.begin();
    seen.q[i].segment_start = 0;
  }
  for (std::size_t j = 0; j < seen.kv.size(); ++j) {
    seen.kv[j].pos = static_cast<std::int64_t>(j);
    seen.kv[j].segment_start = 0;
  }
}

/// How many positions before its own the mask takes a query for.
std::int64_t frontier_behind(const AttentionInputs& in, QueryFrontier frontier) {
  if (frontier == QueryFrontier::kFirstKeys) return in.num_cached;
  if (frontier == QueryFrontier::kOwn) return 0;
  const std::int64_t num_tokens = static_cast<std::int64_t>(in.kv_coords.size()) - in.num_cached;
  return in.num_cached >= num_tokens ? num_tokens : 0;
}

}  // namespace

DeviantCoords deviant_coords(const AttentionSpec& spec, const AttentionInputs& in,
                             const Deviation& deviation) {
  const bool moves_chunks =
      (deviation.chunk_origin != 0 || deviation.chunk_ignores_documents) && uses(spec.mask, MaskOp::kChunk);
  const auto kv_len = static_cast<std::int64_t>(in.kv_coords.size());
  const bool pads_join = deviation.pads_are_keys_later && in.num_cached > 0;
  const std::int64_t num_unread =
      std::max(deviation.num_unread_newest, deviation.own_keys_unread ? kv_len - in.num_cached : 0);
  DeviantCoords seen;
  const std::int64_t behind = frontier_behind(in, deviation.query_frontier);
  if (moves_chunks || behind > 0 || deviation.rows_are_positions)
    seen.q.assign(in.q_coords.begin(), in.q_coords.end());
  if (behind > 0) {
    for (TokenCoord& coord : seen.q) coord.pos -= behind;
  }
  if (moves_chunks || num_unread > 0 || deviation.ring_slots > 0 || deviation.num_slots_kept > 0 ||
      deviation.zero_keys_uncounted || deviation.early_ring_slots > 0 || deviation.rows_are_positions ||
      pads_join) {
    seen.kv.assign(in.kv_coords.begin(), in.kv_coords.end());
  }
  if (deviation.rows_are_positions) take_rows(in, seen);
  if (moves_chunks) {
    move_chunks(deviation, seen.q);
    move_chunks(deviation, seen.kv);
  }
  if (deviation.zero_keys_uncounted) count_nonzero(in, seen.kv);
  if (deviation.ring_slots > 0) put_in_ring(deviation.ring_slots, seen.kv);
  if (deviation.early_ring_slots > 0) turn_early(in, deviation, seen);
  if (pads_join) join_pads(seen.kv);
  for (std::int64_t j = 0; deviation.num_slots_kept > 0 && j < kv_len - deviation.num_slots_kept; ++j) {
    seen.kv[static_cast<std::size_t>(j)].valid = false;
  }
  for (std::int64_t j = std::max<std::int64_t>(0, kv_len - num_unread); j < kv_len && num_unread > 0; ++j) {
    seen.kv[static_cast<std::size_t>(j)].valid = false;
  }
  return seen;
}

}  // namespace sightline::reference
