#include "kv_cache/cache_model.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <iterator>
#include <set>

#include "sightline/base/half.h"
#include "sightline/kernels/rope.h"

namespace sightline::test {

namespace {
KvCache make_cache(const std::vector<AttentionSpec>& layers, const KvCacheOptions& options) {
  auto cache = KvCache::create(layers, options);
  EXPECT_TRUE(cache) << cache.error().message;
  return std::move(*cache);
}

std::vector<float> normals(Rng& rng, int n) {
  std::vector<float> out;
  for (int i = 0; i < n; ++i) out.push_back(static_cast<float>(rng.next_normal()));
  return out;
}

std::uint32_t bits_at(const void* data, StorageType type, std::size_t offset) {
  if (type == StorageType::kF32) return static_cast<const std::uint32_t*>(data)[offset];
  return static_cast<std::uint32_t>(static_cast<const std::uint16_t*>(data)[offset]) << 16;
}

std::uint32_t rounded_bits(float x, StorageType type) {
  if (type == StorageType::kF32) return std::bit_cast<std::uint32_t>(x);
  return static_cast<std::uint32_t>(to_bf16(x).bits) << 16;
}

bool is_signalling_nan(std::uint32_t bits) {
  return (bits & 0x7f800000U) == 0x7f800000U && (bits & 0x007fffffU) != 0 && (bits & 0x00400000U) == 0;
}

bool is_finite_as_stored(const std::vector<float>& x, int begin, int size, StorageType type) {
  return std::all_of(x.begin() + begin, x.begin() + begin + size, [type](float v) {
    return std::isfinite(type == StorageType::kF32 ? v : to_f32(to_bf16(v)));
  });
}

// The key as attention would rotate it, and as float64 has it.
std::vector<float> rotated(const RopeSpec& rope, std::int64_t rope_length, std::int64_t pos,
                           std::vector<float> key) {
  if (rope.pairing == RopePairing::kNone || rope.cache_stage == CacheStage::kBeforeRotation) return key;
  const auto frequencies = rope_frequencies(rope, rope_length);
  const int n = rope.rotary_dim / 2;
  std::vector<float> cos(frequencies.size());
  std::vector<float> sin(frequencies.size());
  kernels::rope_cos_sin(frequencies, pos, rope.cos_sin_magnitude, cos.data(), sin.data());
  const bool interleaved = rope.pairing == RopePairing::kInterleaved;
  const kernels::RotaryPairs pairs{n, interleaved ? 2 : 1, interleaved ? 1 : n};
  kernels::rotate_head(pairs, cos.data(), sin.data(), key.data(), 1, key.data(), 1);
  return key;
}

std::vector<double> rotated_exactly(const RopeSpec& rope, std::int64_t rope_length, std::int64_t pos,
                                    const std::vector<float>& key) {
  std::vector<double> out(key.begin(), key.end());
  if (rope.pairing == RopePairing::kNone || rope.cache_stage == CacheStage::kBeforeRotation) return out;
  const auto frequencies = rope_frequencies(rope, rope_length);
  for (int i = 0; i < rope.rotary_dim / 2; ++i) {
    const RopePair pair = rope_pair(rope, i);
    const auto first = static_cast<std::size_t>(pair.first);
    const auto second = static_cast<std::size_t>(pair.second);
    const double angle = static_cast<double>(pos) * frequencies[static_cast<std::size_t>(i)];
    const double c = rope.cos_sin_magnitude * std::cos(angle);
    const double s = rope.cos_sin_magnitude * std::sin(angle);
    const double a = key[first];
    const double b = key[second];
    out[first] = a * c - b * s;
    out[second] = a * s + b * c;
  }
  return out;
}
}  // namespace

std::vector<AttentionSpec> mixed_layers() {
  std::vector<AttentionSpec> layers(4);
  layers[0].heads = {4, 2, 6, 5};
  layers[0].rope.pairing = RopePairing::kHalfSplit;
  layers[0].rope.rotary_dim = 6;
  layers[1].heads = {2, 1, 9, 17};
  layers[1].mask =
      mask_rule(MaskOp::kCausal) & (mask_rule(MaskOp::kWindow, 40) | mask_rule(MaskOp::kFirst, 3));
  layers[1].rope.pairing = RopePairing::kInterleaved;
  layers[1].rope.rotary_dim = 4;
  layers[1].rope.theta = 100.0;
  layers[1].rope.cos_sin_magnitude = 1.25;
  layers[2].heads = {3, 3, 4, 4};
  layers[2].mask = mask_rule(MaskOp::kCausal) & mask_rule(MaskOp::kWindow, 7);
  layers[3].heads = {4, 2, 6, 5};
  layers[3].rope = layers[0].rope;
  layers[3].rope.cache_stage = CacheStage::kBeforeRotation;
  return layers;
}

CacheModel::CacheModel(std::vector<AttentionSpec> layers, KvCacheOptions options)
    : layers_(std::move(layers)), options_(options), cache_(make_cache(layers_, options)) {}

SequenceId CacheModel::add_sequence() {
  const SequenceId id = cache_.add_sequence();
  EXPECT_TRUE(sequences_.emplace(id, std::vector<ModelToken>{}).second) << "id " << id << " came twice";
  least_query_[id] = 0;
  return id;
}

bool CacheModel::play_remove(SequenceId id) {
  const auto removed = cache_.remove_sequence(id);
  if (removed) sequences_.erase(id);
  return removed.has_value();
}

std::int64_t CacheModel::next_pos(SequenceId id) const {
  std::int64_t next = 0;
  for (const ModelToken& token : sequences_.at(id)) {
    if (token.coord.valid) next = std::max(next, token.coord.pos + 1);
  }
  return next;
}

bool CacheModel::play_append(SequenceId id, std::int64_t num_tokens) {
  return play_append(id, coords_range(next_pos(id), next_pos(id) + num_tokens));
}

bool CacheModel::play_append(SequenceId id, const std::vector<TokenCoord>& coords, std::int64_t rope_offset) {
  std::vector<std::int64_t> rope_pos;
  if (rope_offset != 0) {
    for (const TokenCoord& coord : coords) rope_pos.push_back(coord.pos + rope_offset);
  }
  if (const auto appended = cache_.append(id, coords, rope_pos); !appended) {
    error_ = appended.error().message;
    return false;
  }
  std::vector<ModelToken> tokens(coords.size());
  for (std::size_t i = 0; i < coords.size(); ++i) {
    tokens[i].coord = coords[i];
    tokens[i].rope_pos = tokens[i].rope_pos_written = coords[i].pos + rope_offset;
  }
  for (std::size_t layer = 0; layer < layers_.size() && !coords.empty(); ++layer) {
    const HeadSpec& heads = layers_[layer].heads;
    const int key_size = heads.num_kv_heads * heads.qk_head_dim;
    const int value_size = heads.num_kv_heads * heads.v_head_dim;
    std::vector<float> keys;
    std::vector<float> values;
    for (ModelToken& token : tokens) {
      token.keys.push_back(normals(rng_, key_size));
      token.values.push_back(normals(rng_, value_size));
      keys.insert(keys.end(), token.keys.back().begin(), token.keys.back().end());
      values.insert(values.end(), token.values.back().begin(), token.values.back().end());
    }
    const auto n = std::ssize(tokens);
    const auto written = cache_.write(id, static_cast<int>(layer),
                                      dense_view(keys.data(), {n, heads.num_kv_heads, heads.qk_head_dim}),
                                      dense_view(values.data(), {n, heads.num_kv_heads, heads.v_head_dim}));
    EXPECT_TRUE(written) << written.error().message;
  }
  std::optional<std::int64_t> least;
  for (const TokenCoord& coord : coords) {
    if (coord.valid) least = std::min(least.value_or(coord.pos), coord.pos);
  }
  if (least) least_query_[id] = *least;
  // Padding takes no ordinal.
  auto& list = sequences_.at(id);
  std::copy_if(tokens.begin(), tokens.end(), std::back_inserter(list),
               [](const ModelToken& token) { return token.coord.valid; });
  return true;
}

bool CacheModel::play_truncate(SequenceId id, std::int64_t num_tokens) {
  if (const auto done = cache_.truncate(id, num_tokens); !done) {
    error_ = done.error().message;
    return false;
  }
  if (num_tokens < length(id)) {
    sequences_.at(id).resize(static_cast<std::size_t>(num_tokens));
    least_query_[id] = next_pos(id);
  }
  return true;
}

bool CacheModel::play_evict(SequenceId id, std::int64_t begin, std::int64_t end) {
  if (const auto done = cache_.evict(id, begin, end); !done) {
    error_ = done.error().message;
    return false;
  }
  for (std::int64_t i = begin; i < end; ++i) {
    ModelToken& token = sequences_.at(id)[static_cast<std::size_t>(i)];
    token.is_evicted = true;
    token.coord.valid = false;
  }
  return true;
}

bool CacheModel::play_shift(SequenceId id, std::int64_t begin, std::int64_t end, std::int64_t delta) {
  if (const auto done = cache_.shift(id, begin, end, delta); !done) {
    error_ = done.error().message;
    return false;
  }
  for (std::int64_t i = begin; i < end; ++i) {
    ModelToken& token = sequences_.at(id)[static_cast<std::size_t>(i)];
    if (!token.coord.valid || delta == 0) continue;
    token.coord.pos += delta;
    token.coord.segment_start += delta;
    token.rope_pos += delta;
    ++token.num_shifts;
  }
  if (begin < end && delta != 0) least_query_[id] = next_pos(id);
  return true;
}

std::optional<SequenceId> CacheModel::play_fork(SequenceId id) {
  const auto forked = cache_.fork(id);
  if (!forked) {
    error_ = forked.error().message;
    return {};
  }
  has_forked_ = true;
  least_query_[*forked] = least_query_.at(id);
  EXPECT_TRUE(sequences_.emplace(*forked, sequences_.at(id)).second) << "id " << *forked << " came twice";
  return *forked;
}

void CacheModel::check_slot(const KvView& view, int layer, int head, std::int64_t ordinal,
                            const ModelToken* token) {
  const auto at = static_cast<std::size_t>(layer);
  const HeadSpec& heads = layers_[at].heads;
  const RopeSpec& rope = layers_[at].rope;
  const PageLayout& layout = view.layout;
  const KvPage& page = view.page(ordinal / layout.page_size, head);
  const int slot = static_cast<int>(ordinal % layout.page_size);
  std::vector<float> key;
  std::vector<float> value;
  if (token != nullptr) {
    const auto key_at = token->keys[at].begin() + head * heads.qk_head_dim;
    const auto value_at = token->values[at].begin() + head * heads.v_head_dim;
    key.assign(key_at, key_at + heads.qk_head_dim);
    value.assign(value_at, value_at + heads.v_head_dim);
  }
  const bool is_shifted = token != nullptr && token->num_shifts > 0;
  std::vector<float> expected;
  std::vector<double> exact;
  if (token != nullptr) {
    expected = rotated(rope, options_.rope_length, token->rope_pos_written, key);
    exact = rotated_exactly(rope, options_.rope_length, token->rope_pos, key);
  }
  for (int dim = 0; dim < heads.qk_head_dim; ++dim) {
    const auto d = static_cast<std::size_t>(dim);
    const std::uint32_t bits = bits_at(page.keys, view.key_type, layout.key_offset(view.key_type, slot, dim));
    if (token == nullptr) {
      ASSERT_TRUE(is_signalling_nan(bits)) << "key dim " << dim << " is not poisoned";
      continue;
    }
    const bool rotates = rope.pairing != RopePairing::kNone && dim < rope.rotary_dim &&
                         rope.cache_stage == CacheStage::kAfterRotation;
    if (!is_shifted || !rotates) {
      ASSERT_EQ(bits, rounded_bits(expected[d], view.key_type)) << "key dim " << dim;
      continue;
    }
    // Each shift rounds once to the storage type; a pair's length bounds its components.
    const double unit = view.key_type == StorageType::kF32 ? 0x1p-24 : 0x1p-8;
    double length = 0.0;
    for (const double x : exact) length += x * x;
    ASSERT_NEAR(std::bit_cast<float>(bits), exact[d], (token->num_shifts + 3) * unit * std::sqrt(length))
        << "key dim " << dim << " after " << token->num_shifts << " shifts";
  }
  for (int dim = 0; dim < layout.padded_v_dim(); ++dim) {
    const std::uint32_t bits =
        bits_at(page.values, view.value_type, layout.value_offset(view.value_type, slot, dim));
    if (dim >= heads.v_head_dim) {
      ASSERT_EQ(bits, 0U) << "padding of values";
    } else if (token != nullptr) {
      ASSERT_EQ(bits, rounded_bits(value[static_cast<std::size_t>(dim)], view.value_type))
          << "value dim " << dim;
    } else {
      ASSERT_TRUE(is_signalling_nan(bits)) << "value dim " << dim << " is not poisoned";
    }
  }
}

void CacheModel::check_layer(SequenceId id, int layer) {
  const auto& tokens = sequences_.at(id);
  const auto at = static_cast<std::size_t>(layer);
  const auto made = cache_.view(id, layer);
  ASSERT_TRUE(made) << made.error().message;
  const KvView& view = *made;
  const int page_size = view.layout.page_size;
  ASSERT_EQ(page_size, options_.page_size);
  ASSERT_EQ(view.num_kv_heads, layers_[at].heads.num_kv_heads);
  ASSERT_EQ(view.num_slots, std::ssize(tokens));
  ASSERT_EQ(view.num_pages, (view.num_slots + page_size - 1) / page_size);
  ASSERT_EQ(std::ssize(view.pages), view.num_pages * view.num_kv_heads);
  ASSERT_EQ(std::ssize(view.coords), view.num_slots);
  ASSERT_EQ(std::ssize(view.rope_pos), view.num_slots);
  for (std::size_t i = 0; i < tokens.size(); ++i) {
    ASSERT_EQ(view.coords[i].valid, tokens[i].coord.valid) << "ordinal " << i;
    if (!tokens[i].coord.valid) continue;
    ASSERT_EQ(view.coords[i], tokens[i].coord) << "ordinal " << i;
    ASSERT_EQ(view.rope_pos[i], tokens[i].rope_pos) << "ordinal " << i;
  }
  const ReachBack reach = reach_back(layers_[at].mask);
  for (std::int64_t page_idx = 0; page_idx < view.num_pages; ++page_idx) {
    const bool is_missing = view.page(page_idx, 0).keys == nullptr;
    for (int head = 0; head < view.num_kv_heads; ++head) {
      SCOPED_TRACE(::testing::Message() << "page " << page_idx << " head " << head);
      const KvPage& page = view.page(page_idx, head);
      ASSERT_EQ(page.keys == nullptr, is_missing);
      ASSERT_EQ(page.values == nullptr, is_missing);
      bool has_empty_slot = false;
      bool has_bad_key = false;
      bool has_bad_value = false;
      for (std::int64_t i = page_idx * page_size; i < (page_idx + 1) * page_size; ++i) {
        const ModelToken* token = i < std::ssize(tokens) ? &tokens[static_cast<std::size_t>(i)] : nullptr;
        const bool is_valid = token != nullptr && token->coord.valid;
        const bool is_empty = token == nullptr || token->is_evicted;
        has_empty_slot |= is_empty;
        if (is_missing) {
          if (!is_valid) continue;
          ASSERT_TRUE(reach.bounded);
          ASSERT_GE(least_query_.at(id) - token->coord.pos, reach.window)
              << "ordinal " << i << " can be seen";
          ASSERT_GE(token->coord.pos - token->coord.segment_start, reach.num_first) << "ordinal " << i;
          continue;
        }
        SCOPED_TRACE(::testing::Message() << "ordinal " << i);
        if (is_valid || (is_empty && options_.poison && !has_forked_)) {
          check_slot(view, layer, head, i, is_valid ? token : nullptr);
          if (::testing::Test::HasFatalFailure()) return;
        }
        if (token == nullptr || token->is_evicted) continue;
        const HeadSpec& heads = layers_[at].heads;
        has_bad_key |=
            !is_finite_as_stored(token->keys[at], head * heads.qk_head_dim, heads.qk_head_dim, view.key_type);
        has_bad_value |= !is_finite_as_stored(token->values[at], head * heads.v_head_dim, heads.v_head_dim,
                                              view.value_type);
      }
      if (is_missing) {
        ASSERT_FALSE(page.keys_flagged || page.values_flagged);
      } else if (!has_forked_) {
        ASSERT_EQ(page.keys_flagged, has_bad_key || (has_empty_slot && options_.poison));
        ASSERT_EQ(page.values_flagged, has_bad_value || (has_empty_slot && options_.poison));
      } else {
        ASSERT_TRUE(page.keys_flagged || !has_bad_key);
        ASSERT_TRUE(page.values_flagged || !has_bad_value);
      }
    }
  }
}

void CacheModel::check() {
  std::set<const void*> pages;
  std::int64_t bytes_used = 0;
  std::set<std::pair<const void*, std::int64_t>> slots;
  for (const auto& [id, tokens] : sequences_) {
    for (int layer = 0; layer < std::ssize(layers_); ++layer) {
      SCOPED_TRACE(::testing::Message() << "sequence " << id << " layer " << layer);
      check_layer(id, layer);
      if (::testing::Test::HasFatalFailure()) return;
      const KvView view = *cache_.view(id, layer);
      for (std::int64_t i = 0; i < view.num_pages; ++i) {
        if (view.page(i, 0).keys != nullptr) pages.insert(view.page(i, 0).keys);
      }
      const HeadSpec& heads = layers_[static_cast<std::size_t>(layer)].heads;
      for (std::int64_t i = 0; i < view.num_slots; ++i) {
        const void* page = view.page(i / view.layout.page_size, 0).keys;
        if (page == nullptr || !tokens[static_cast<std::size_t>(i)].coord.valid) continue;
        if (!slots.emplace(page, i % view.layout.page_size).second) continue;
        bytes_used += heads.num_kv_heads *
                      (heads.qk_head_dim * static_cast<std::int64_t>(storage_bytes(options_.key_type)) +
                       heads.v_head_dim * static_cast<std::int64_t>(storage_bytes(options_.value_type)));
      }
    }
  }
  const KvCacheStats stats = cache_.stats();
  ASSERT_EQ(stats.num_pages_allocated, std::ssize(pages));
  ASSERT_EQ(stats.bytes_used, bytes_used);
  ASSERT_GE(stats.bytes_allocated, bytes_used);
  if (options_.max_pages > 0) {
    ASSERT_LE(stats.num_pages_allocated, options_.max_pages);
  }
}

}  // namespace sightline::test
