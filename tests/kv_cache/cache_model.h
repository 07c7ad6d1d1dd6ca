// What a cache must hold, as a plain list of tokens, and a comparison of every stored number with it. Reads
// pages by their layout; shares nothing with the cache but the layout and the rotation arithmetic.
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <map>
#include <optional>
#include <vector>

#include "sightline/base/rng.h"
#include "sightline/kv_cache/kv_cache.h"

namespace sightline::test {

/// One token as it was given: [layer][head * dim].
struct ModelToken {
  TokenCoord coord;
  std::int64_t rope_pos = 0;
  std::int64_t rope_pos_written = 0;  ///< where its keys were rotated first
  int num_shifts = 0;
  bool is_evicted = false;
  std::vector<std::vector<float>> keys;
  std::vector<std::vector<float>> values;
};

/// Plays operations on a cache and on lists side by side. Every play_* returns whether the cache did it; the
/// lists change only then.
class CacheModel {
 public:
  CacheModel(std::vector<AttentionSpec> layers, KvCacheOptions options);

  KvCache& cache() { return cache_; }
  [[nodiscard]] const std::map<SequenceId, std::vector<ModelToken>>& sequences() const { return sequences_; }
  [[nodiscard]] std::int64_t length(SequenceId id) const { return std::ssize(sequences_.at(id)); }

  SequenceId add_sequence();
  bool play_remove(SequenceId id);
  /// Appends random numbers at these coordinates and writes every layer.
  bool play_append(SequenceId id, const std::vector<TokenCoord>& coords, std::int64_t rope_offset = 0);
  /// The next `num_tokens` positions of segment 0.
  bool play_append(SequenceId id, std::int64_t num_tokens);
  bool play_truncate(SequenceId id, std::int64_t num_tokens);
  bool play_evict(SequenceId id, std::int64_t begin, std::int64_t end);
  bool play_shift(SequenceId id, std::int64_t begin, std::int64_t end, std::int64_t delta);
  std::optional<SequenceId> play_fork(SequenceId id);

  /// Position after the greatest valid one.
  [[nodiscard]] std::int64_t next_pos(SequenceId id) const;
  /// The last error's text.
  [[nodiscard]] const std::string& error() const { return error_; }

  /// Everything stored equals the lists: numbers (to the bit until a token is shifted), coordinates, flags,
  /// poison in every slot that holds nothing, zeros in padding, counted pages and bytes. A page may be
  /// missing only where nothing on it can be seen by the queries of the last append, or by later ones.
  void check();

 private:
  void check_layer(SequenceId id, int layer);
  /// `token` null: nothing is stored there, so poison.
  void check_slot(const KvView& view, int layer, int head, std::int64_t ordinal, const ModelToken* token);

  std::vector<AttentionSpec> layers_;
  KvCacheOptions options_;
  KvCache cache_;
  std::map<SequenceId, std::vector<ModelToken>> sequences_;
  std::map<SequenceId, std::int64_t> least_query_;  ///< position from which on queries are served
  Rng rng_{1};
  bool has_forked_ = false;  ///< slots given up on shared pages keep their numbers for the other owner
  std::string error_;
};

/// Layers that differ in everything a cache cares about: heads, widths, pairing, partial rotation, magnitude,
/// windows with kept first tokens, no rotation, keys stored before rotation.
std::vector<AttentionSpec> mixed_layers();

}  // namespace sightline::test
