// Runs a model over token ids in any cut: whole, in chunks, as a row of a batch, padded. For tests.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "model/model_fixtures.h"
#include "sightline/model/model.h"

namespace sightline::testing {

/// A model over a pool of its own.
struct LoadedModel {
  std::unique_ptr<ThreadPool> pool;
  std::unique_ptr<Model> model;
};
[[nodiscard]] LoadedModel make_loaded(const TestModel& model, int num_threads = 1);
[[nodiscard]] LoadedModel load_file(const std::string& path, int num_threads = 1,
                                    const LoadOptions& options = {});

/// A cache for the model, free slots poisoned.
[[nodiscard]] KvCache make_cache(const Model& model, int page_size = 64, std::int64_t rope_length = 0);

/// One sequence: its tokens and where they stand.
struct Tokens {
  std::vector<std::int32_t> ids;
  std::vector<TokenCoord> coords;
  std::vector<std::int64_t> rope_pos;  ///< empty: pos
};
/// Positions from 0 in one segment.
[[nodiscard]] Tokens tokens_of(std::vector<std::int32_t> ids);
[[nodiscard]] Tokens random_tokens(int vocab_size, std::int64_t count, std::uint64_t seed);

/// Logits of every token, [num_tokens, vocab_size], in chunks of `chunk` tokens (0: whole), on a fresh cache.
struct RunOptions {
  std::int64_t chunk = 0;
  int page_size = 64;
  std::int64_t rope_length = 0;
  std::vector<AttentionSpec> specs;
  TensorTap tap;
};
std::vector<float> run_tokens(Model& model, const Tokens& tokens, const RunOptions& options = {});

/// Appends `tokens` to `sequence` of a cache of the caller's and gives their logits.
std::vector<float> run_on(Model& model, KvCache& cache, SequenceId sequence, const Tokens& tokens,
                          const RunOptions& options = {});

/// All sequences in one mixed batch; the logits of each.
[[nodiscard]] std::vector<std::vector<float>> run_batch(Model& model, const std::vector<Tokens>& sequences);

/// Rows [begin, end) of logits.
[[nodiscard]] std::vector<float> logit_rows(const std::vector<float>& logits, std::int64_t vocab_size,
                                            std::int64_t begin, std::int64_t end);

/// Equal bit for bit, NaN included.
[[nodiscard]] bool same_bits(std::span<const float> a, std::span<const float> b);

}  // namespace sightline::testing
