// Which cached sequence begins like a new one: an index over token ids and the whole identity of what was
// computed. Hashes only find candidates; every hit is compared token by token and field by field.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

#include "sightline/kv_cache/kv_cache.h"

namespace sightline {

/// Everything beside the token ids that keys and values depend on. Fields are kept apart: an adapter never
/// equals a salt of the same name.
struct PrefixIdentity {
  std::string model;    ///< weights and their version
  std::string adapter;  ///< empty: none
  std::string salt;     ///< separates users that must not share
  bool operator==(const PrefixIdentity&) const = default;
};

/// Tokens [0, num_tokens) of `sequence` are those asked for.
struct PrefixMatch {
  SequenceId sequence = 0;
  std::int64_t num_tokens = 0;
  bool operator==(const PrefixMatch&) const = default;
};

/// A list of sequences by their tokens. Holds ids and tokens, no pages: the caller forks the match and
/// truncates the fork. A sequence whose keys do not follow from its tokens alone (shifted, evicted, replaced
/// embeddings) must not be inserted.
class PrefixIndex {
 public:
  /// A hash of bytes, chained by `seed`. Any function gives the same answers; a bad one only costs time.
  using Hash = std::uint64_t (*)(std::span<const std::byte> bytes, std::uint64_t seed);
  /// XXH3, 64 bits.
  static std::uint64_t default_hash(std::span<const std::byte> bytes, std::uint64_t seed);

  /// Matches begin at whole blocks of `block_tokens` (at least 1) and then grow token by token.
  explicit PrefixIndex(std::int64_t block_tokens, Hash hash = default_hash);

  /// Adds or replaces a sequence.
  void insert(SequenceId sequence, const PrefixIdentity& identity, std::span<const std::int32_t> tokens);
  void erase(SequenceId sequence);
  /// The longest common prefix of at least one block with a sequence of the same identity; of equal ones the
  /// least id. Cost: one hash a block, one comparison a candidate.
  [[nodiscard]] std::optional<PrefixMatch> find(const PrefixIdentity& identity,
                                                std::span<const std::int32_t> tokens) const;
  [[nodiscard]] std::size_t size() const { return entries_.size(); }

 private:
  struct Entry {
    PrefixIdentity identity;
    std::vector<std::int32_t> tokens;
  };
  /// Hash of each prefix of whole blocks, identity included.
  [[nodiscard]] std::vector<std::uint64_t> block_hashes(const PrefixIdentity& identity,
                                                        std::span<const std::int32_t> tokens) const;

  std::int64_t block_tokens_ = 1;
  Hash hash_ = nullptr;
  std::unordered_map<SequenceId, Entry> entries_;
  std::unordered_multimap<std::uint64_t, SequenceId> by_hash_;
};

}  // namespace sightline
