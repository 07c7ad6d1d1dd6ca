// Decode of a whole model, one sequence, token by token: bound by reading the weights. The step that is
// timed is first held to the bit against the same token in one prefill.
#include <cstring>

#include "bench/row.h"
#include "sightline/model/model.h"

namespace sightline::bench {

namespace {

constexpr std::int64_t kPromptTokens = 64;
constexpr std::int64_t kStepsARepeat = 4;

/// One sequence of a model over its own cache.
class Decoder {
 public:
  Decoder(Model& model, KvCache cache)
      : model_(model), cache_(std::move(cache)), sequence_(cache_.add_sequence()) {
    logits_.resize(static_cast<std::size_t>(model.spec().vocab_size));
  }

  /// Appends tokens drawn by position; the logits of the last one.
  Result<void> append(std::int64_t num_tokens) {
    tokens_.clear();
    for (std::int64_t i = 0; i < num_tokens; ++i) {
      tokens_.push_back(static_cast<std::int32_t>((length_ + i) * 31 % model_.spec().vocab_size));
    }
    const std::vector<TokenCoord> coords = coords_range(length_, length_ + num_tokens);
    const std::int64_t offsets[] = {0, num_tokens};
    const std::int64_t last[] = {num_tokens - 1};
    ForwardBatch batch;
    batch.sequences = {&sequence_, 1};
    batch.offsets = offsets;
    batch.token_ids = tokens_;
    batch.q_coords = coords;
    batch.logit_rows = last;
    length_ += num_tokens;
    return model_.forward(
        batch, cache_, dense_view<float, 2>(logits_.data(), {1, static_cast<std::int64_t>(logits_.size())}));
  }
  [[nodiscard]] const std::vector<float>& logits() const { return logits_; }
  [[nodiscard]] std::int64_t cache_bytes() const { return cache_.stats().bytes_used; }

 private:
  Model& model_;
  KvCache cache_;
  SequenceId sequence_;
  std::int64_t length_ = 0;
  std::vector<std::int32_t> tokens_;
  std::vector<float> logits_;
};

Result<Decoder> make_decoder(Model& model) {
  SIGHTLINE_TRY(KvCache cache, KvCache::create(model.attention_specs(), {}));
  return Decoder(model, std::move(cache));
}

}  // namespace

Result<void> run_model_rows(const Bench& bench) {
  Row row;
  row.name = "decode-f32";
  row.what = "one token after 64, weights f32, one sequence";
  row.limit = Limit::kBandwidth;
  if (bench.model_path.empty()) {
    row.measured = false;
    row.note = "not measured: no model given (-m)";
    bench.report(row);
    return {};
  }
  SIGHTLINE_TRY(Model model, Model::load(bench.model_path, {}, *bench.pool));
  SIGHTLINE_TRY(Decoder whole, make_decoder(model));
  SIGHTLINE_CHECK(whole.append(kPromptTokens + 1));
  SIGHTLINE_TRY(Decoder steps, make_decoder(model));
  SIGHTLINE_CHECK(steps.append(kPromptTokens));
  SIGHTLINE_CHECK(steps.append(1));
  if (std::memcmp(whole.logits().data(), steps.logits().data(), whole.logits().size() * sizeof(float)) != 0) {
    return fail(ErrorKind::kInternal, "bench: decode-f32: a step differs from the same token in one prefill");
  }
  const auto bytes = static_cast<double>(model.memory().weights + steps.cache_bytes());
  row.work = bytes * kStepsARepeat;
  row.note = fmt::format("checked: bits of a step = bits of a prefill; {} steps a repeat, {:.0f} MB a token",
                         kStepsARepeat, bytes / 1e6);
  Result<void> failure;
  measure(bench, row, [&] {
    for (std::int64_t i = 0; i < kStepsARepeat && failure; ++i) failure = steps.append(1);
  });
  return failure;
}

}  // namespace sightline::bench
