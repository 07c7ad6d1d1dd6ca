#include "model/model_runner.h"

#include <cstring>
#include <numeric>
#include <stdexcept>

#include "model/model_impl.h"
#include "sightline/base/rng.h"

namespace sightline::testing {

namespace {

template <typename T>
T must(Result<T> result) {
  if (!result) throw std::runtime_error(result.error().message);
  return std::move(*result);
}

}  // namespace

LoadedModel make_loaded(const TestModel& model, int num_threads) {
  LoadedModel loaded;
  loaded.pool = std::make_unique<ThreadPool>(num_threads);
  loaded.model = std::make_unique<Model>(must(
      make_model(model.spec, make_layout(model.spec, plain_tensor_names()), as_source(model), *loaded.pool)));
  return loaded;
}

LoadedModel load_file(const std::string& path, int num_threads, const LoadOptions& options) {
  LoadedModel loaded;
  loaded.pool = std::make_unique<ThreadPool>(num_threads);
  loaded.model = std::make_unique<Model>(must(Model::load(path, options, *loaded.pool)));
  return loaded;
}

KvCache make_cache(const Model& model, int page_size, std::int64_t rope_length) {
  KvCacheOptions options;
  options.page_size = page_size;
  options.rope_length = rope_length;
  options.poison = true;
  return must(KvCache::create(model.attention_specs(), options));
}

Tokens tokens_of(std::vector<std::int32_t> ids) {
  Tokens tokens;
  tokens.coords = coords_range(0, static_cast<std::int64_t>(ids.size()));
  tokens.ids = std::move(ids);
  return tokens;
}

Tokens random_tokens(int vocab_size, std::int64_t count, std::uint64_t seed) {
  Rng rng(seed);
  std::vector<std::int32_t> ids;
  for (std::int64_t i = 0; i < count; ++i) {
    ids.push_back(static_cast<std::int32_t>(rng.next_below(static_cast<std::uint64_t>(vocab_size))));
  }
  return tokens_of(std::move(ids));
}

std::vector<float> run_on(Model& model, KvCache& cache, SequenceId sequence, const Tokens& tokens,
                          const RunOptions& options) {
  const auto count = static_cast<std::int64_t>(tokens.ids.size());
  const std::int64_t vocab = model.spec().vocab_size;
  const std::int64_t chunk = options.chunk > 0 ? options.chunk : count;
  std::vector<float> logits(static_cast<std::size_t>(count * vocab), -1.0F);
  for (std::int64_t begin = 0; begin < count; begin += chunk) {
    const std::int64_t size = std::min(chunk, count - begin);
    const auto at = static_cast<std::size_t>(begin);
    const auto n = static_cast<std::size_t>(size);
    const SequenceId sequences[] = {sequence};
    const std::int64_t offsets[] = {0, size};
    std::vector<std::int64_t> rows(n);
    std::iota(rows.begin(), rows.end(), 0);
    ForwardBatch batch;
    batch.sequences = sequences;
    batch.offsets = offsets;
    batch.token_ids = std::span(tokens.ids).subspan(at, n);
    batch.q_coords = std::span(tokens.coords).subspan(at, n);
    if (!tokens.rope_pos.empty()) batch.q_rope_pos = std::span(tokens.rope_pos).subspan(at, n);
    batch.logit_rows = rows;
    const auto done = model.forward(batch, cache, dense_view(logits.data() + begin * vocab, {size, vocab}),
                                    options.specs, options.tap);
    if (!done) throw std::runtime_error(done.error().message);
  }
  return logits;
}

std::vector<float> run_tokens(Model& model, const Tokens& tokens, const RunOptions& options) {
  KvCache cache = make_cache(model, options.page_size, options.rope_length);
  return run_on(model, cache, cache.add_sequence(), tokens, options);
}

std::vector<std::vector<float>> run_batch(Model& model, const std::vector<Tokens>& sequences) {
  KvCache cache = make_cache(model);
  const std::int64_t vocab = model.spec().vocab_size;
  std::vector<SequenceId> ids;
  std::vector<std::int64_t> offsets = {0};
  Tokens all;
  for (const Tokens& s : sequences) {
    ids.push_back(cache.add_sequence());
    all.ids.insert(all.ids.end(), s.ids.begin(), s.ids.end());
    all.coords.insert(all.coords.end(), s.coords.begin(), s.coords.end());
    offsets.push_back(static_cast<std::int64_t>(all.ids.size()));
  }
  std::vector<std::int64_t> rows(all.ids.size());
  std::iota(rows.begin(), rows.end(), 0);
  std::vector<float> logits(all.ids.size() * static_cast<std::size_t>(vocab));
  ForwardBatch batch;
  batch.sequences = ids;
  batch.offsets = offsets;
  batch.token_ids = all.ids;
  batch.q_coords = all.coords;
  batch.logit_rows = rows;
  const auto done = model.forward(batch, cache, dense_view(logits.data(), {offsets.back(), vocab}));
  if (!done) throw std::runtime_error(done.error().message);
  std::vector<std::vector<float>> out;
  for (std::size_t s = 0; s < sequences.size(); ++s) {
    out.push_back(logit_rows(logits, vocab, offsets[s], offsets[s + 1]));
  }
  return out;
}

std::vector<float> logit_rows(const std::vector<float>& logits, std::int64_t vocab_size, std::int64_t begin,
                              std::int64_t end) {
  return {logits.begin() + begin * vocab_size, logits.begin() + end * vocab_size};
}

bool same_bits(std::span<const float> a, std::span<const float> b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size_bytes()) == 0;
}

}  // namespace sightline::testing
