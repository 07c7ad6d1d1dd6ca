// Plays one trace three ways: the cache with attention on its pages, the float64 oracle's plain list, and
// plain f32 code on a list. The error rule needs all three.
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <vector>

#include "sightline/attention/attention.h"
#include "sightline/base/rng.h"
#include "sightline/kv_cache/kv_cache.h"
#include "sightline/reference/trace_player.h"

namespace sightline::test {

/// Outputs of one query step, [num_tokens, num_q_heads * v_head_dim].
struct QueryResult {
  std::vector<float> engine;
  std::vector<float> plain;
  std::vector<double> oracle;
  std::vector<double> scale;  ///< sum of P |v| of each entry

  /// The error rule over the call: the largest error over its scale, at most twice that of the plain code.
  [[nodiscard]] ::testing::AssertionResult within_rule() const;
};

/// A cache of one layer and its two shadows. `rerotates` false: the shadows' shift moves the counter and
/// leaves the keys, which is a fault and must show.
class TraceRun {
 public:
  TraceRun(const AttentionSpec& spec, const KvCacheOptions& options, bool rerotates = true);

  int add_sequence();
  /// Appends random tokens at these coordinates. False where the cache refuses, as below.
  bool append(int sequence, const std::vector<TokenCoord>& coords);
  /// The next `num_tokens` positions, which must not be refused.
  void append(int sequence, std::int64_t num_tokens);
  /// Random queries at these coordinates.
  QueryResult query(int sequence, const std::vector<TokenCoord>& coords);
  /// Queries at the positions of the last `num_tokens` tokens.
  QueryResult query(int sequence, std::int64_t num_tokens);
  /// These give false where the cache refuses (a window has freed what is needed); nothing changes then.
  bool truncate(int sequence, std::int64_t num_tokens);
  bool evict(int sequence, std::int64_t begin, std::int64_t end);
  bool shift(int sequence, std::int64_t begin, std::int64_t end, std::int64_t delta);
  int fork(int sequence);

  [[nodiscard]] std::int64_t length(int sequence) const;
  [[nodiscard]] std::int64_t next_pos(int sequence) const;
  KvCache& cache() { return cache_; }

 private:
  struct PlainToken {
    TokenCoord coord;
    std::int64_t rope_pos = 0;
    std::vector<float> key;  ///< [num_kv_heads * qk_head_dim], as stored
    std::vector<float> value;
  };
  std::vector<float> rotate_row(const std::vector<float>& row, std::int64_t pos, double magnitude) const;
  std::vector<float> round_row(std::vector<float> row, StorageType type) const;
  void plain_attention(int sequence, const std::vector<TokenCoord>& coords, const std::vector<float>& q,
                       QueryResult& result) const;
  std::vector<float> engine_attention(int sequence, const std::vector<TokenCoord>& coords,
                                      const std::vector<float>& q);
  std::vector<float> normals(std::int64_t n);
  void play(const TraceStep& step);

  AttentionSpec spec_;
  KvCacheOptions options_;
  bool rerotates_;
  KvCache cache_;
  std::unique_ptr<reference::TracePlayer> oracle_;
  ThreadPool pool_{2};
  AttentionContext context_{pool_};
  std::map<int, SequenceId> ids_;
  std::map<int, std::vector<PlainToken>> plain_;
  Rng rng_{11};
};

}  // namespace sightline::test
