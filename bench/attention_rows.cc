// Attention forward, dense and causal, and few rows on a long cache. Sampled rows of every result are held
// against the float64 oracle by the error rule before anything is timed.
#include <algorithm>
#include <array>
#include <cmath>

#include "bench/row.h"
#include "sightline/attention/attention.h"
#include "sightline/base/rng.h"
#include "sightline/reference/attention.h"

namespace sightline::bench {

namespace {

struct Case {
  std::string name;
  AttentionSpec spec;
  std::int64_t num_q = 0;
  std::int64_t num_kv = 0;
};

/// Arrays of one case: dense [tokens, heads, dim].
class Arrays {
 public:
  explicit Arrays(const Case& c) : case_(c) {
    const HeadSpec& heads = c.spec.heads;
    Rng rng(1);
    fill(q_, c.num_q * heads.num_q_heads * heads.qk_head_dim, rng);
    fill(k_, c.num_kv * heads.num_kv_heads * heads.qk_head_dim, rng);
    fill(v_, c.num_kv * heads.num_kv_heads * heads.v_head_dim, rng);
    out_.resize(static_cast<std::size_t>(c.num_q * heads.num_q_heads * heads.v_head_dim));
    q_coords_ = coords_range(c.num_kv - c.num_q, c.num_kv);
    kv_coords_ = coords_range(0, c.num_kv);
    q_offsets_ = {0, c.num_q};
    kv_offsets_ = {0, c.num_kv};
  }

  [[nodiscard]] QueryBatch queries() const { return {q_offsets_, q_coords_, {}}; }
  [[nodiscard]] ContiguousKv kv() const {
    const HeadSpec& heads = case_.spec.heads;
    ContiguousKv kv;
    kv.kv_offsets = kv_offsets_;
    kv.coords = kv_coords_;
    kv.k = dense_view<const float, 3>(k_.data(), {case_.num_kv, heads.num_kv_heads, heads.qk_head_dim});
    kv.v = dense_view<const float, 3>(v_.data(), {case_.num_kv, heads.num_kv_heads, heads.v_head_dim});
    return kv;
  }
  [[nodiscard]] StridedView<const float, 3> q() const {
    return dense_view<const float, 3>(
        q_.data(), {case_.num_q, case_.spec.heads.num_q_heads, case_.spec.heads.qk_head_dim});
  }
  [[nodiscard]] StridedView<float, 3> out() {
    return dense_view<float, 3>(out_.data(),
                                {case_.num_q, case_.spec.heads.num_q_heads, case_.spec.heads.v_head_dim});
  }

 private:
  static void fill(std::vector<float>& to, std::int64_t count, Rng& rng) {
    to.resize(static_cast<std::size_t>(count));
    for (float& x : to) x = static_cast<float>(rng.next_normal());
  }

  const Case& case_;
  std::vector<float> q_, k_, v_, out_;
  std::vector<TokenCoord> q_coords_, kv_coords_;
  std::vector<std::int64_t> q_offsets_, kv_offsets_;
};

// One row and head in plain f32: what the error rule compares with.
std::vector<float> plain_row(const Case& c, const Arrays& arrays, std::int64_t row, int head) {
  const HeadSpec& heads = c.spec.heads;
  const ContiguousKv kv = arrays.kv();
  const auto q = arrays.q();
  const int group = kv_head_for(heads, head);
  std::vector<float> logits;
  std::vector<std::int64_t> seen;
  float max = -HUGE_VALF;
  for (std::int64_t j = 0; j < c.num_kv; ++j) {
    const TokenRef query{arrays.queries().coords[static_cast<std::size_t>(row)], row};
    if (!is_visible(c.spec.mask, {}, query, {kv.coords[static_cast<std::size_t>(j)], j})) continue;
    float x = 0.0F;
    for (int i = 0; i < heads.qk_head_dim; ++i) x += q(row, head, i) * kv.k(j, group, i);
    logits.push_back(x * static_cast<float>(softmax_scale(c.spec.score, heads)));
    seen.push_back(j);
    max = std::max(max, logits.back());
  }
  std::vector<float> out(static_cast<std::size_t>(heads.v_head_dim), 0.0F);
  float sum = 0.0F;
  for (std::size_t n = 0; n < seen.size(); ++n) {
    const float p = std::exp(logits[n] - max);
    sum += p;
    for (int i = 0; i < heads.v_head_dim; ++i)
      out[static_cast<std::size_t>(i)] += p * kv.v(seen[n], group, i);
  }
  for (float& x : out) x /= sum;
  return out;
}

// Sampled rows by the error rule of design 5.3; says what it found.
Result<std::string> check(const Case& c, Arrays& arrays) {
  constexpr std::int64_t kSamples = 8;
  const HeadSpec& heads = c.spec.heads;
  const ContiguousKv kv = arrays.kv();
  std::vector<double> k(kv.k.data, kv.k.data + kv.k.size());
  std::vector<double> v(kv.v.data, kv.v.data + kv.v.size());
  double ours = 0.0;
  double theirs = 0.0;
  double rounding = 0.0;
  for (std::int64_t n = 0; n < std::min(kSamples, c.num_q); ++n) {
    const std::int64_t row = n * (c.num_q - 1) / std::max<std::int64_t>(kSamples - 1, 1);
    const float* q_row = arrays.q().data + row * heads.num_q_heads * heads.qk_head_dim;
    std::vector<double> q(q_row, q_row + heads.num_q_heads * heads.qk_head_dim);
    reference::AttentionInputs in;
    in.q = dense_view<const double, 3>(q.data(), {1, heads.num_q_heads, heads.qk_head_dim});
    in.k = dense_view<const double, 3>(k.data(), kv.k.shape);
    in.v = dense_view<const double, 3>(v.data(), kv.v.shape);
    in.q_coords = arrays.queries().coords.subspan(static_cast<std::size_t>(row), 1);
    in.kv_coords = kv.coords;
    SIGHTLINE_TRY(const reference::AttentionOutputs ref,
                  reference::attention_forward(c.spec, in, {.weights = true}));
    for (int head = 0; head < heads.num_q_heads; ++head) {
      const std::vector<float> plain = plain_row(c, arrays, row, head);
      for (int i = 0; i < heads.v_head_dim; ++i) {
        double scale = 0.0;
        for (std::int64_t j = 0; j < c.num_kv; ++j) {
          scale += ref.weights[static_cast<std::size_t>(head * c.num_kv + j)] *
                   std::abs(in.v(j, kv_head_for(heads, head), i));
        }
        const double expected = ref.out[static_cast<std::size_t>(head * heads.v_head_dim + i)];
        const auto near = static_cast<float>(expected / scale);
        ours = std::max(ours, std::abs(static_cast<double>(arrays.out()(row, head, i)) - expected) / scale);
        theirs = std::max(
            theirs, std::abs(static_cast<double>(plain[static_cast<std::size_t>(i)]) - expected) / scale);
        rounding =
            std::max(rounding, 2.0 * std::abs(static_cast<double>((near + 0.3F) - 0.3F) - expected / scale));
      }
    }
  }
  if (!(ours <= 2.0 * theirs + rounding)) {
    return fail(ErrorKind::kInternal, "bench: {}: scaled error {} against the oracle, plain method {}",
                c.name, ours, theirs);
  }
  return fmt::format("checked: error {:.1e}, plain {:.1e}", ours, theirs);
}

Result<void> run_case(const Bench& bench, const Case& c) {
  Arrays arrays(c);
  AttentionContext context(*bench.pool, bench.table);
  const ContiguousKv kv = arrays.kv();
  SIGHTLINE_TRY(const AttentionPlan plan, plan_attention(c.spec, arrays.queries(), kv, {}));
  const auto forward = [&] {
    return attention_forward(c.spec, plan, arrays.q(), arrays.queries(), kv, {}, arrays.out(), {}, context);
  };
  SIGHTLINE_CHECK(forward());
  SIGHTLINE_TRY(const std::string note, check(c, arrays));
  const HeadSpec& heads = c.spec.heads;
  Row row;
  row.name = c.name;
  row.what = fmt::format("{} queries, {} keys, {} heads, {}", c.num_q, c.num_kv, heads.num_q_heads,
                         to_string(c.spec.mask));
  row.work =
      2.0 * static_cast<double>(context.stats().pairs_visible) * (heads.qk_head_dim + heads.v_head_dim);
  row.note = note;
  measure(bench, row, [&] { static_cast<void>(forward()); });
  return {};
}

}  // namespace

Result<void> run_attention_rows(const Bench& bench) {
  for (const int dim : {64, 128}) {
    for (const bool causal : {false, true}) {
      Case c;
      c.name = fmt::format("attention-{}-d{}", causal ? "causal" : "dense", dim);
      c.spec.heads = {4, 4, dim, dim};
      c.spec.mask = mask_rule(causal ? MaskOp::kCausal : MaskOp::kAll);
      c.num_q = c.num_kv = 2048;
      SIGHTLINE_CHECK(run_case(bench, c));
    }
  }
  return {};
}

}  // namespace sightline::bench
