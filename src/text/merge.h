// Byte-pair merging: the one loop behind both kinds of BPE. Neighbouring symbols are joined, lowest key first
// and leftmost among equals, until no neighbours have a key. Short words scan, long ones use a heap.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <limits>
#include <vector>

#include "sightline/text/vocabulary.h"

namespace sightline::text {

/// A run of bytes of the word that is one token so far; `id` -1: not in the vocabulary.
struct Symbol {
  TokenId id = -1;
  std::uint32_t begin = 0;
  std::uint32_t length = 0;
};

/// What joining two neighbours gives. `key` orders merges (lower first); kNoMerge: they do not join.
struct Merge {
  static constexpr std::uint32_t kNoMerge = std::numeric_limits<std::uint32_t>::max();
  std::uint32_t key = kNoMerge;
  TokenId id = -1;
};

/// Merges `symbols` (fewer than 2^32) in place. `lookup(left, right)` gives the Merge of two symbols.
///
/// Cost: O(n log n) time and O(n) memory on the heap, constant stack; O(n * merges) for n up to 24.
/// Deterministic. Equal to always merging the leftmost pair of the lowest key.
template <typename Lookup>
void merge_symbols(std::vector<Symbol>& symbols, const Lookup& lookup) {
  constexpr std::size_t kScanLimit = 24;
  if (symbols.size() <= kScanLimit) {
    std::vector<Merge> merges;  // merges[i]: of symbols i and i + 1
    for (std::size_t i = 0; i + 1 < symbols.size(); ++i) merges.push_back(lookup(symbols[i], symbols[i + 1]));
    while (!merges.empty()) {
      std::size_t best = 0;
      for (std::size_t i = 1; i < merges.size(); ++i) {
        if (merges[i].key < merges[best].key) best = i;
      }
      if (merges[best].key == Merge::kNoMerge) break;
      symbols[best].id = merges[best].id;
      symbols[best].length += symbols[best + 1].length;
      symbols.erase(symbols.begin() + static_cast<std::ptrdiff_t>(best) + 1);
      merges.erase(merges.begin() + static_cast<std::ptrdiff_t>(best));
      if (best > 0) merges[best - 1] = lookup(symbols[best - 1], symbols[best]);
      if (best < merges.size()) merges[best] = lookup(symbols[best], symbols[best + 1]);
    }
    return;
  }

  const std::size_t n = symbols.size();
  constexpr std::uint32_t kEnd = std::numeric_limits<std::uint32_t>::max();
  std::vector<std::uint32_t> prev(n), next(n);
  std::vector<Merge> merges(n);     // of each living symbol and its right neighbour
  std::vector<std::uint64_t> heap;  // key, then position of the left symbol
  const auto entry = [](std::uint32_t key, std::uint32_t left) { return std::uint64_t{key} << 32 | left; };
  for (std::uint32_t i = 0; i < n; ++i) {
    prev[i] = i == 0 ? kEnd : i - 1;
    next[i] = i + 1 == n ? kEnd : i + 1;
    if (i + 1 < n) merges[i] = lookup(symbols[i], symbols[i + 1]);
    if (merges[i].key != Merge::kNoMerge) heap.push_back(entry(merges[i].key, i));
  }
  std::make_heap(heap.begin(), heap.end(), std::greater<>());
  const auto refresh = [&](std::uint32_t left) {
    merges[left] = next[left] == kEnd ? Merge{} : lookup(symbols[left], symbols[next[left]]);
    if (merges[left].key == Merge::kNoMerge) return;
    heap.push_back(entry(merges[left].key, left));
    std::push_heap(heap.begin(), heap.end(), std::greater<>());
  };
  while (!heap.empty()) {
    const std::uint64_t top = heap.front();
    std::pop_heap(heap.begin(), heap.end(), std::greater<>());
    heap.pop_back();
    const auto left = static_cast<std::uint32_t>(top);
    // An entry is stale when its symbol died or its pair changed; a dead symbol's key is kNoMerge.
    if (merges[left].key != static_cast<std::uint32_t>(top >> 32)) continue;
    const std::uint32_t right = next[left];
    symbols[left].id = merges[left].id;
    symbols[left].length += symbols[right].length;
    symbols[right].length = 0;
    merges[right] = Merge{};
    next[left] = next[right];
    if (next[left] != kEnd) prev[next[left]] = left;
    refresh(left);
    if (prev[left] != kEnd) refresh(prev[left]);
  }
  std::erase_if(symbols, [](const Symbol& symbol) { return symbol.length == 0; });
}

/// Ranked merges by the ids of the two parts: a hash table with open addressing.
class MergeTable {
 public:
  /// Room for `num_merges`.
  explicit MergeTable(std::size_t num_merges = 0) {
    std::size_t size = 16;
    while (size < 2 * num_merges) size *= 2;
    keys_.assign(size, kEmpty);
    values_.resize(size);
  }
  /// Keeps what is there if the pair is known already; true if it was new.
  bool insert(TokenId left, TokenId right, Merge merge) {
    const std::size_t slot = find_slot(left, right);
    if (keys_[slot] != kEmpty) return false;
    keys_[slot] = pack(left, right);
    values_[slot] = merge;
    return true;
  }
  [[nodiscard]] Merge find(TokenId left, TokenId right) const {
    if (left < 0 || right < 0) return {};
    const std::size_t slot = find_slot(left, right);
    return keys_[slot] == kEmpty ? Merge{} : values_[slot];
  }

 private:
  static constexpr std::uint64_t kEmpty = std::numeric_limits<std::uint64_t>::max();
  static std::uint64_t pack(TokenId left, TokenId right) {
    return std::uint64_t{static_cast<std::uint32_t>(left)} << 32 | static_cast<std::uint32_t>(right);
  }
  [[nodiscard]] std::size_t find_slot(TokenId left, TokenId right) const {
    const std::uint64_t key = pack(left, right);
    const std::size_t mask = keys_.size() - 1;
    std::size_t slot = (key * 0x9E3779B97F4A7C15u) >> 32 & mask;
    while (keys_[slot] != kEmpty && keys_[slot] != key) slot = (slot + 1) & mask;
    return slot;
  }
  std::vector<std::uint64_t> keys_;
  std::vector<Merge> values_;
};

}  // namespace sightline::text
