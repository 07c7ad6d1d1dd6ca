// A whole model by llama-bench's names: pp512 is 512 tokens of a prompt in one call, tg64 are 64 tokens one
// by one, "@ d4096" after 4096 tokens in the cache. Before timing, the last of a few single steps is held to
// the bit against the same token in one prefill.
#include <cstring>

#include "bench/families.h"
#include "sightline/model/model.h"

namespace sightline::bench {

namespace {

constexpr std::int64_t kCheckTokens = 64;

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
  Result<void> append_singly(std::int64_t num_tokens) {
    for (std::int64_t i = 0; i < num_tokens; ++i) SIGHTLINE_CHECK(append(1));
    return {};
  }
  Result<void> truncate(std::int64_t num_tokens) {
    length_ = num_tokens;
    return cache_.truncate(sequence_, num_tokens);
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

struct ModelCase {
  std::string name;
  bool is_prompt = false;
  std::int64_t num_tokens = 0;  ///< that are timed
  std::int64_t depth = 0;       ///< tokens in the cache before
};

// Operations of the matrices (the head only for rows that need logits) and of the visible pairs.
double useful_work(const ModelSpec& spec, const ModelCase& c) {
  const ParameterCount parameters = count_parameters(spec);
  const auto tokens = static_cast<double>(c.num_tokens);
  double work = 2.0 * tokens * static_cast<double>(parameters.attention + parameters.ffn);
  work += 2.0 * (c.is_prompt ? 1.0 : tokens) * spec.vocab_size * spec.model_dim;
  const double pairs = tokens * (static_cast<double>(c.depth) + (tokens + 1.0) / 2.0);
  for (const LayerSpec& layer : spec.layers) {
    const HeadSpec& heads = layer.attention.heads;
    work += 2.0 * pairs * heads.num_q_heads * (heads.qk_head_dim + heads.v_head_dim);
  }
  return work;
}

Result<void> check_step(Model& model, const std::string& name) {
  SIGHTLINE_TRY(Decoder whole, make_decoder(model));
  SIGHTLINE_CHECK(whole.append(kCheckTokens + 1));
  SIGHTLINE_TRY(Decoder steps, make_decoder(model));
  SIGHTLINE_CHECK(steps.append(kCheckTokens));
  SIGHTLINE_CHECK(steps.append(1));
  if (std::memcmp(whole.logits().data(), steps.logits().data(), whole.logits().size() * sizeof(float)) != 0) {
    return fail(ErrorKind::kInternal, "bench: {}: a step differs from the same token in one prefill", name);
  }
  return {};
}

Result<void> run_model_case(const Bench& bench, const ModelCase& c) {
  Row row;
  row.name = c.name;
  row.limit = c.is_prompt ? Limit::kPeak : Limit::kBandwidth;
  row.what = fmt::format("{} after {} tokens, weights f32, one sequence",
                         c.is_prompt ? fmt::format("a prompt of {}", c.num_tokens)
                                     : fmt::format("{} tokens one by one", c.num_tokens),
                         c.depth);
  if (bench.model_path.empty()) {
    report_unmeasured(bench, row, "not measured: no model given (-m)");
    return {};
  }
  SIGHTLINE_TRY(Model model, Model::load(bench.model_path, {}, *bench.pool));
  if (model.spec().context_length < c.depth + c.num_tokens) {
    report_unmeasured(bench, row,
                      fmt::format("not measured: the model is for {} tokens", model.spec().context_length));
    return {};
  }
  SIGHTLINE_CHECK(check_step(model, c.name));
  SIGHTLINE_TRY(Decoder decoder, make_decoder(model));
  if (c.depth > 0) SIGHTLINE_CHECK(decoder.append(c.depth));
  const std::int64_t cached = decoder.cache_bytes();
  row.tokens = static_cast<double>(c.num_tokens);
  const auto bytes = static_cast<double>(model.memory().weights + cached);  // the least that a token reads
  row.work = c.is_prompt ? useful_work(model.spec(), c) : bytes * row.tokens;
  row.note = fmt::format("checked: bits of a step = bits of a prefill; {:.0f} MB a token", bytes / 1e6);
  Result<void> failure;
  measure(bench, row, [&] {
    if (!failure) return;
    failure = c.is_prompt ? decoder.append(c.num_tokens) : decoder.append_singly(c.num_tokens);
    if (failure) failure = decoder.truncate(c.depth);
  });
  return failure;
}

}  // namespace

std::vector<RowCase> model_rows() {
  std::vector<RowCase> rows;
  for (const std::int64_t depth : {0, 4096}) {
    for (const bool is_prompt : {true, false}) {
      ModelCase c;
      c.is_prompt = is_prompt;
      c.num_tokens = is_prompt ? 512 : 64;
      c.depth = depth;
      c.name = fmt::format("{}{}", is_prompt ? "pp" : "tg", c.num_tokens);
      if (depth > 0) c.name += fmt::format(" @ d{}", depth);
      rows.push_back({c.name, is_prompt ? Limit::kPeak : Limit::kBandwidth,
                      [=](const Bench& bench) { return run_model_case(bench, c); }});
    }
  }
  return rows;
}

}  // namespace sightline::bench
