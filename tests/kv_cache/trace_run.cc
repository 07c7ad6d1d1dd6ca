#include "kv_cache/trace_run.h"

#include <algorithm>
#include <cmath>

#include "ops/error_rule.h"
#include "sightline/base/half.h"
#include "sightline/kernels/rope.h"

namespace sightline::test {

namespace {
KvCache make_cache(const AttentionSpec& spec, const KvCacheOptions& options) {
  auto cache = KvCache::create({spec}, options);
  EXPECT_TRUE(cache) << cache.error().message;
  return std::move(*cache);
}
std::vector<double> widen(const std::vector<float>& x) { return {x.begin(), x.end()}; }
}  // namespace

::testing::AssertionResult QueryResult::within_rule() const {
  if (engine.size() != oracle.size() || scale.size() != oracle.size()) {
    return ::testing::AssertionFailure() << "sizes differ";
  }
  std::vector<float> got;
  std::vector<float> middle;
  std::vector<double> ref;
  for (std::size_t i = 0; i < oracle.size(); ++i) {
    const double unit = scale[i] == 0.0 ? 1.0 : scale[i];
    got.push_back(static_cast<float>(engine[i] / unit));
    middle.push_back(static_cast<float>(plain[i] / unit));
    ref.push_back(oracle[i] / unit);
  }
  return within_error_rule(got, middle, ref);
}

TraceRun::TraceRun(const AttentionSpec& spec, const KvCacheOptions& options, bool rerotates)
    : spec_(spec), options_(options), rerotates_(rerotates), cache_(make_cache(spec, options)) {
  auto player = reference::TracePlayer::create(spec, options.rope_length);
  EXPECT_TRUE(player) << player.error().message;
  oracle_ = std::make_unique<reference::TracePlayer>(std::move(*player));
}

std::vector<float> TraceRun::normals(std::int64_t n) {
  std::vector<float> out;
  for (std::int64_t i = 0; i < n; ++i) out.push_back(static_cast<float>(rng_.next_normal()));
  return out;
}

void TraceRun::play(const TraceStep& step) {
  const auto done = oracle_->play(step, {});
  EXPECT_TRUE(done) << done.error().message;
}

int TraceRun::add_sequence() {
  const int sequence = static_cast<int>(ids_.size());
  ids_[sequence] = cache_.add_sequence();
  plain_[sequence] = {};
  return sequence;
}

std::int64_t TraceRun::length(int sequence) const { return std::ssize(plain_.at(sequence)); }

std::int64_t TraceRun::next_pos(int sequence) const {
  std::int64_t next = 0;
  for (const PlainToken& token : plain_.at(sequence)) {
    if (token.coord.valid) next = std::max(next, token.coord.pos + 1);
  }
  return next;
}

// Every head of a row turned by pos.
std::vector<float> TraceRun::rotate_row(const std::vector<float>& row, std::int64_t pos,
                                        double magnitude) const {
  if (spec_.rope.pairing == RopePairing::kNone) return row;
  const auto frequencies = rope_frequencies(spec_.rope, options_.rope_length);
  std::vector<float> out = row;
  for (std::size_t head = 0; head < row.size(); head += static_cast<std::size_t>(spec_.heads.qk_head_dim)) {
    for (std::size_t i = 0; i < frequencies.size(); ++i) {
      const RopePair pair = rope_pair(spec_.rope, static_cast<int>(i));
      const double angle = static_cast<double>(pos) * frequencies[i];
      const auto c = static_cast<float>(magnitude * std::cos(angle));
      const auto s = static_cast<float>(magnitude * std::sin(angle));
      float& a = out[head + static_cast<std::size_t>(pair.first)];
      float& b = out[head + static_cast<std::size_t>(pair.second)];
      const float turned = a * c - b * s;
      b = a * s + b * c;
      a = turned;
    }
  }
  return out;
}

std::vector<float> TraceRun::round_row(std::vector<float> row, StorageType type) const {
  if (type == StorageType::kBf16) {
    for (float& x : row) x = to_f32(to_bf16(x));
  }
  return row;
}

void TraceRun::append(int sequence, std::int64_t num_tokens) {
  EXPECT_TRUE(append(sequence, coords_range(next_pos(sequence), next_pos(sequence) + num_tokens)));
}

bool TraceRun::append(int sequence, const std::vector<TokenCoord>& coords) {
  const HeadSpec& heads = spec_.heads;
  const std::int64_t n = std::ssize(coords);
  if (n == 0) return true;
  const std::array<std::int64_t, 3> k_shape{n, heads.num_kv_heads, heads.qk_head_dim};
  const std::array<std::int64_t, 3> v_shape{n, heads.num_kv_heads, heads.v_head_dim};
  const auto keys = normals(k_shape[0] * k_shape[1] * k_shape[2]);
  const auto values = normals(v_shape[0] * v_shape[1] * v_shape[2]);
  if (!cache_.append(ids_.at(sequence), coords, {})) return false;
  const auto written = cache_.write(ids_.at(sequence), 0, dense_view(keys.data(), k_shape),
                                    dense_view(values.data(), v_shape));
  EXPECT_TRUE(written) << written.error().message;

  const auto k = widen(keys);
  const auto v = widen(values);
  reference::TraceStepData data;
  data.k = dense_view(k.data(), k_shape);
  data.v = dense_view(v.data(), v_shape);
  const auto done = oracle_->play(TraceAppend{sequence, coords, {}}, data);
  EXPECT_TRUE(done) << done.error().message;

  const auto key_size = k_shape[1] * k_shape[2];
  const auto value_size = v_shape[1] * v_shape[2];
  for (std::int64_t i = 0; i < n; ++i) {
    const TokenCoord& coord = coords[static_cast<std::size_t>(i)];
    PlainToken token{coord, coord.pos, {keys.begin() + i * key_size, keys.begin() + (i + 1) * key_size}, {}};
    token.value.assign(values.begin() + i * value_size, values.begin() + (i + 1) * value_size);
    if (spec_.rope.cache_stage == CacheStage::kAfterRotation) {
      token.key = rotate_row(token.key, coord.pos, spec_.rope.cos_sin_magnitude);
    }
    token.key = round_row(token.key, options_.key_type);
    token.value = round_row(token.value, options_.value_type);
    plain_[sequence].push_back(std::move(token));
  }
  return true;
}

bool TraceRun::truncate(int sequence, std::int64_t num_tokens) {
  if (!cache_.truncate(ids_.at(sequence), num_tokens)) return false;
  play(TraceTruncate{sequence, num_tokens});
  plain_[sequence].resize(static_cast<std::size_t>(num_tokens));
  return true;
}

bool TraceRun::evict(int sequence, std::int64_t begin, std::int64_t end) {
  if (!cache_.evict(ids_.at(sequence), begin, end)) return false;
  play(TraceEvict{sequence, begin, end});
  for (std::int64_t i = begin; i < end; ++i)
    plain_[sequence][static_cast<std::size_t>(i)].coord.valid = false;
  return true;
}

bool TraceRun::shift(int sequence, std::int64_t begin, std::int64_t end, std::int64_t delta) {
  if (!cache_.shift(ids_.at(sequence), begin, end, delta)) return false;
  play(TraceShift{sequence, begin, end, delta, rerotates_});
  for (std::int64_t i = begin; i < end; ++i) {
    PlainToken& token = plain_[sequence][static_cast<std::size_t>(i)];
    token.coord.pos += delta;
    token.coord.segment_start += delta;
    token.rope_pos += delta;
    if (rerotates_ && spec_.rope.cache_stage == CacheStage::kAfterRotation) {
      token.key = round_row(rotate_row(token.key, delta, 1.0), options_.key_type);
    }
  }
  return true;
}

int TraceRun::fork(int sequence) {
  const auto forked = cache_.fork(ids_.at(sequence));
  EXPECT_TRUE(forked) << forked.error().message;
  const int to = static_cast<int>(ids_.size());
  ids_[to] = *forked;
  plain_[to] = plain_.at(sequence);
  play(TraceFork{sequence, to});
  return to;
}

QueryResult TraceRun::query(int sequence, std::int64_t num_tokens) {
  return query(sequence, coords_range(next_pos(sequence) - num_tokens, next_pos(sequence)));
}

QueryResult TraceRun::query(int sequence, const std::vector<TokenCoord>& coords) {
  const auto q = normals(std::ssize(coords) * spec_.heads.num_q_heads * spec_.heads.qk_head_dim);
  QueryResult result;
  const auto wide = widen(q);
  reference::TraceStepData data;
  data.q = dense_view<const double, 3>(
      wide.data(), {std::ssize(coords), spec_.heads.num_q_heads, spec_.heads.qk_head_dim});
  const auto played = oracle_->play(TraceQuery{sequence, coords, {}}, data);
  EXPECT_TRUE(played) << played.error().message;
  if (played) result.oracle = played->out;
  result.engine = engine_attention(sequence, coords, q);
  plain_attention(sequence, coords, q, result);
  return result;
}

std::vector<float> TraceRun::engine_attention(int sequence, const std::vector<TokenCoord>& coords,
                                              const std::vector<float>& q) {
  const std::int64_t n = std::ssize(coords);
  const HeadSpec& heads = spec_.heads;
  std::vector<float> out(static_cast<std::size_t>(n * heads.num_q_heads * heads.v_head_dim));
  const auto view = cache_.view(ids_.at(sequence), 0);
  EXPECT_TRUE(view) << view.error().message;
  const std::vector<KvView> views{*view};
  const std::vector<std::int64_t> offsets{0, n};
  const QueryBatch batch{offsets, coords, {}};
  AttentionExtras extras;
  extras.rope_length = options_.rope_length;
  const auto plan = plan_attention(spec_, batch, PagedKv{views}, extras);
  EXPECT_TRUE(plan) << plan.error().message;
  if (!plan) return out;
  const auto done = attention_forward(
      spec_, *plan, dense_view<const float, 3>(q.data(), {n, heads.num_q_heads, heads.qk_head_dim}), batch,
      PagedKv{views}, extras, dense_view<float, 3>(out.data(), {n, heads.num_q_heads, heads.v_head_dim}), {},
      context_);
  EXPECT_TRUE(done) << done.error().message;
  return out;
}

void TraceRun::plain_attention(int sequence, const std::vector<TokenCoord>& coords,
                               const std::vector<float>& q, QueryResult& result) const {
  const HeadSpec& heads = spec_.heads;
  const auto qk = static_cast<std::size_t>(heads.qk_head_dim);
  const auto vd = static_cast<std::size_t>(heads.v_head_dim);
  const auto row_size = static_cast<std::size_t>(heads.num_q_heads) * qk;
  const ReachBack reach = reach_back(spec_.mask);
  const bool in_cache = spec_.rope.position_policy == PositionPolicy::kInCache;
  const auto scale = static_cast<float>(softmax_scale(spec_.score, spec_.heads));
  for (std::size_t i = 0; i < coords.size(); ++i) {
    const std::vector<float> raw(q.begin() + static_cast<std::ptrdiff_t>(i * row_size),
                                 q.begin() + static_cast<std::ptrdiff_t>((i + 1) * row_size));
    const double magnitude = spec_.rope.cos_sin_magnitude;
    const TokenCoord& at = coords[i];
    const auto turned = rotate_row(raw, at.pos, magnitude);
    const auto as_first = rotate_row(
        raw, in_cache_rope_pos(at.pos, at.pos - at.segment_start, reach.num_first + reach.window), magnitude);
    for (int h = 0; h < heads.num_q_heads; ++h) {
      const auto head = static_cast<std::size_t>(kv_head_for(heads, h));
      std::vector<float> scores;
      std::vector<const PlainToken*> seen;
      for (const PlainToken& token : plain_.at(sequence)) {
        if (!is_visible(spec_.mask, {}, {at, 0}, {token.coord, 0})) continue;
        const bool is_first = in_cache && token.coord.pos - token.coord.segment_start < reach.num_first;
        const auto& query = is_first ? as_first : turned;
        const auto key = spec_.rope.cache_stage == CacheStage::kAfterRotation
                             ? token.key
                             : rotate_row(token.key, token.rope_pos, magnitude);
        float dot = 0.0F;
        for (std::size_t d = 0; d < qk; ++d)
          dot += query[static_cast<std::size_t>(h) * qk + d] * key[head * qk + d];
        scores.push_back(dot * scale);
        seen.push_back(&token);
      }
      std::vector<float> row(vd, 0.0F);
      std::vector<double> row_scale(vd, 0.0);
      const float max = scores.empty() ? 0.0F : *std::max_element(scores.begin(), scores.end());
      float sum = 0.0F;
      for (std::size_t j = 0; j < seen.size(); ++j) {
        const float p = std::exp(scores[j] - max);
        sum += p;
        for (std::size_t d = 0; d < vd; ++d) {
          row[d] += p * seen[j]->value[head * vd + d];
          row_scale[d] += static_cast<double>(p) * std::abs(seen[j]->value[head * vd + d]);
        }
      }
      for (std::size_t d = 0; d < vd; ++d) {
        result.plain.push_back(seen.empty() ? 0.0F : row[d] / sum);
        result.scale.push_back(seen.empty() ? 0.0 : row_scale[d] / sum);
      }
    }
  }
}

}  // namespace sightline::test
