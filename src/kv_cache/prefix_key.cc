#include "sightline/kv_cache/prefix_key.h"

#define XXH_INLINE_ALL
#include <xxhash.h>

#include <algorithm>

namespace sightline {

std::uint64_t PrefixIndex::default_hash(std::span<const std::byte> bytes, std::uint64_t seed) {
  return XXH3_64bits_withSeed(bytes.data(), bytes.size(), seed);
}

PrefixIndex::PrefixIndex(std::int64_t block_tokens, Hash hash)
    : block_tokens_(std::max<std::int64_t>(block_tokens, 1)), hash_(hash) {}

std::vector<std::uint64_t> PrefixIndex::block_hashes(const PrefixIdentity& identity,
                                                     std::span<const std::int32_t> tokens) const {
  std::uint64_t seed = 0;
  for (const std::string* field : {&identity.model, &identity.adapter, &identity.salt}) {
    seed = hash_(std::as_bytes(std::span(*field)), seed + field->size());
  }
  std::vector<std::uint64_t> hashes;
  const auto block = static_cast<std::size_t>(block_tokens_);
  for (std::size_t begin = 0; begin + block <= tokens.size(); begin += block) {
    seed = hash_(std::as_bytes(tokens.subspan(begin, block)), seed);
    hashes.push_back(seed);
  }
  return hashes;
}

void PrefixIndex::insert(SequenceId sequence, const PrefixIdentity& identity,
                         std::span<const std::int32_t> tokens) {
  erase(sequence);
  for (const std::uint64_t hash : block_hashes(identity, tokens)) by_hash_.emplace(hash, sequence);
  entries_.emplace(sequence, Entry{identity, {tokens.begin(), tokens.end()}});
}

void PrefixIndex::erase(SequenceId sequence) {
  const auto entry = entries_.find(sequence);
  if (entry == entries_.end()) return;
  for (const std::uint64_t hash : block_hashes(entry->second.identity, entry->second.tokens)) {
    const auto [begin, end] = by_hash_.equal_range(hash);
    const auto at = std::find_if(begin, end, [&](const auto& item) { return item.second == sequence; });
    if (at != end) by_hash_.erase(at);
  }
  entries_.erase(entry);
}

std::optional<PrefixMatch> PrefixIndex::find(const PrefixIdentity& identity,
                                             std::span<const std::int32_t> tokens) const {
  const std::vector<std::uint64_t> hashes = block_hashes(identity, tokens);
  for (std::size_t num_blocks = hashes.size(); num_blocks > 0; --num_blocks) {
    std::optional<PrefixMatch> best;
    const auto [begin, end] = by_hash_.equal_range(hashes[num_blocks - 1]);
    for (auto item = begin; item != end; ++item) {
      const Entry& entry = entries_.at(item->second);
      if (entry.identity != identity) continue;
      const auto differ =
          std::mismatch(tokens.begin(), tokens.end(), entry.tokens.begin(), entry.tokens.end());
      const std::int64_t num_tokens = differ.first - tokens.begin();
      if (num_tokens < static_cast<std::int64_t>(num_blocks) * block_tokens_) continue;
      const bool is_better = !best || num_tokens > best->num_tokens ||
                             (num_tokens == best->num_tokens && item->second < best->sequence);
      if (is_better) best = PrefixMatch{item->second, num_tokens};
    }
    if (best) return best;
  }
  return {};
}

}  // namespace sightline
