// Bytes as operations on a cache. Either every stored number is held against plain lists, or attention on the
// cache's pages against the oracle that plays the same trace, by the error rule.
#include <algorithm>
#include <array>
#include <optional>

#include "fuzz_gtest.h"
#include "fuzz_input.h"
#include "kv_cache/random_steps.h"
#include "kv_cache/trace_run.h"

namespace sightline {
namespace {

constexpr int kMaxSteps = 40;
constexpr std::int64_t kMaxTokens = 400;  // of all sequences; more would only be slower

KvCacheOptions read_options(FuzzInput& in) {
  constexpr std::array kPageSizes{16, 32, 48, 64, 256};
  constexpr std::array kTypes{StorageType::kF32, StorageType::kBf16};
  KvCacheOptions options;
  options.page_size = in.pick(kPageSizes);
  options.key_type = in.pick(kTypes);
  options.value_type = in.pick(kTypes);
  options.max_pages = in.one_in(2) ? in.between(1, 40) : 0;
  options.poison = !in.one_in(4);
  return options;
}

// ---- stored numbers against lists

std::vector<AttentionSpec> read_layers(FuzzInput& in) {
  if (in.flag()) return test::mixed_layers();
  std::vector<AttentionSpec> layers(3);  // of one shape, so that they share free pages
  for (AttentionSpec& layer : layers) layer.heads = {2, 1, 4, 3};
  layers[1].mask = parse_mask("causal & window(5)").value();
  layers[2].mask = parse_mask("causal & (window(30) | first(2))").value();
  return layers;
}

void play_on_lists(FuzzInput& in) {
  const KvCacheOptions options = read_options(in);
  test::CacheModel model(read_layers(in), options);
  for (int i = 0; i < kMaxSteps && !in.empty(); ++i) {
    const int kind = in.byte();
    test::play(model, {kind % 16 % test::kNumCacheStepKinds, in.byte() % 5, in.byte() % 90, in.byte() % 90});
    if (kind >= 128) model.check();
    std::int64_t total = 0;
    for (const auto& [id, tokens] : model.sequences()) total += std::ssize(tokens);
    if (total > kMaxTokens) break;
  }
  model.check();
}

// ---- attention against the oracle

AttentionSpec read_spec(FuzzInput& in) {
  constexpr std::array kMasks{"causal", "causal & window(20)", "causal & (window(20) | first(3))",
                              "causal & window(1)", "causal & (window(7) | first(17))"};
  constexpr std::array kHeads{HeadSpec{4, 2, 16, 12}, HeadSpec{3, 3, 9, 17}, HeadSpec{6, 1, 33, 5}};
  AttentionSpec spec;
  spec.mask = parse_mask(in.pick(kMasks)).value();
  spec.heads = in.pick(kHeads);
  spec.rope.pairing = static_cast<RopePairing>(in.below(3));
  spec.rope.rotary_dim = 2 * static_cast<int>(in.between(1, spec.heads.qk_head_dim / 2));
  spec.rope.theta = 1000.0;
  if (in.one_in(4)) spec.rope.cos_sin_magnitude = 1.2;
  if (in.one_in(3)) spec.rope.cache_stage = CacheStage::kBeforeRotation;
  if (reach_back(spec.mask).num_first > 0 && in.flag()) spec.rope.position_policy = PositionPolicy::kInCache;
  return spec;
}

/// One trace on one cache of one layer, and what its queries gave.
class Trace {
 public:
  Trace(const AttentionSpec& spec, const KvCacheOptions& options) : run_(spec, options) {}

  void play(FuzzInput in) {
    sequences_.clear();
    const int first = run_.add_sequence();
    run_.append(first, 1);  // the oracle knows a sequence from its first token on
    add(first, 0);
    for (int i = 0; i < kMaxSteps && !in.empty() && num_tokens_ < kMaxTokens; ++i) step(in);
    for (Sequence& s : sequences_) query(s, 3);
  }
  [[nodiscard]] const test::QueryResult& results() const { return results_; }

 private:
  struct Sequence {
    int id = 0;
    /// Queries are served from this position on: a window frees by the last append.
    std::int64_t least_query = 0;
  };

  void add(int id, std::int64_t least_query) {
    sequences_.push_back({id, least_query});
    num_tokens_ += run_.length(id);
  }

  void query(const Sequence& s, std::int64_t num_tokens) {
    // The position behind the last token may ask before a token is there.
    const std::int64_t next = std::max(run_.next_pos(s.id), s.least_query);
    const std::int64_t begin = std::max(next - num_tokens, s.least_query);
    const test::QueryResult got = run_.query(s.id, coords_range(begin, std::max(next, begin + 1)));
    const auto join = [](auto& to, const auto& from) { to.insert(to.end(), from.begin(), from.end()); };
    join(results_.engine, got.engine);
    join(results_.plain, got.plain);
    join(results_.oracle, got.oracle);
    join(results_.scale, got.scale);
  }

  void shift(Sequence& s, std::int64_t begin, std::int64_t end, std::int64_t delta) {
    if (run_.shift(s.id, begin, end, delta) && begin < end && delta != 0) s.least_query = run_.next_pos(s.id);
  }

  void step(FuzzInput& in) {
    const std::int64_t kind = in.below(8);
    Sequence& s = sequences_[static_cast<std::size_t>(in.below(std::ssize(sequences_)))];
    const std::int64_t length = run_.length(s.id);
    const std::int64_t begin = in.below(length + 1);
    const std::int64_t end = begin + in.below(length - begin + 1);
    switch (kind) {
      case 0:
        if (sequences_.size() < 4 && length > 0) add(run_.fork(s.id), s.least_query);
        break;
      case 1:
        if (run_.truncate(s.id, begin)) s.least_query = run_.next_pos(s.id);
        break;
      case 2:
        run_.evict(s.id, begin, end);
        break;
      case 3:
        shift(s, begin, end, in.between(-10, 10));
        break;
      case 4:
        if (run_.evict(s.id, begin, end)) shift(s, end, length, begin - end);
        break;
      case 5:
        query(s, 1 + begin % 8);
        break;
      default: {
        const std::int64_t count = 1 + in.below(kind == 6 ? 4 : 60);
        const std::int64_t next = run_.next_pos(s.id);
        if (!run_.append(s.id, coords_range(next, next + count))) break;
        s.least_query = next;
        num_tokens_ += count;
        break;
      }
    }
  }

  test::TraceRun run_;
  std::vector<Sequence> sequences_;
  std::int64_t num_tokens_ = 0;
  test::QueryResult results_;
};

void play_on_oracle(FuzzInput& in) {
  KvCacheOptions options = read_options(in);
  options.max_pages = 0;  // a trace that stops half way is no trace
  const AttentionSpec spec = read_spec(in);
  Trace once(spec, options);
  once.play(in);
  if (once.results().within_rule()) return;
  // The rule compares the largest of many errors. Where a call is so small that the plain method's are nil by
  // luck, the same operations on other numbers decide.
  Trace often(spec, options);
  while (std::ssize(often.results().engine) < 20'000) often.play(in);
  EXPECT_TRUE(often.results().within_rule());
}

}  // namespace
}  // namespace sightline

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace sightline;
  FuzzInput in(data, size);
  fuzz_with_expectations([&] { in.flag() ? play_on_lists(in) : play_on_oracle(in); });
  return 0;
}
