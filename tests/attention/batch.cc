// Building batches and running the engine on them.
#include "attention/batch.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

#include "sightline/base/rng.h"
#include "sightline/kernels/rope.h"

namespace sightline::test {

namespace {

std::size_t at(std::int64_t i) { return static_cast<std::size_t>(i); }

void append_normals(std::vector<float>& to, std::int64_t count, Rng& rng) {
  for (std::int64_t i = 0; i < count; ++i) to.push_back(static_cast<float>(rng.next_normal()));
}

QueryBatch queries_of(const Batch& b) { return {b.q_offsets, b.q_coords, b.q_rope_pos}; }

AttentionExtras extras_of(const Batch& b) {
  AttentionExtras extras;
  extras.tables = b.tables;
  if (!b.bias.empty()) {
    extras.bias =
        dense_view<const float, 3>(b.bias.data(), {b.spec.heads.num_q_heads, b.num_q(), b.max_kv()});
  }
  return extras;
}

StridedView<const float, 3> q_view(const Batch& b) {
  return dense_view<const float, 3>(b.q.data(),
                                    {b.num_q(), b.spec.heads.num_q_heads, b.spec.heads.qk_head_dim});
}

Output make_output(const Batch& b) {
  Output out;
  out.out.assign(at(b.num_q() * b.spec.heads.num_q_heads * b.spec.heads.v_head_dim), -99.0F);
  out.lse.assign(at(b.num_q() * b.spec.heads.num_q_heads), -99.0F);
  return out;
}

template <typename Kv>
Output run_on(const Batch& b, const Kv& kv, const RunOptions& options) {
  Output result = make_output(b);
  const AttentionExtras extras = extras_of(b);
  auto plan = plan_attention(b.spec, queries_of(b), kv, extras);
  if (!plan) {
    ADD_FAILURE() << plan.error().message;
    return result;
  }
  ThreadPool pool(options.num_threads);
  AttentionContext context(pool, options.table);
  const auto done = attention_forward(
      b.spec, *plan, q_view(b), queries_of(b), kv, extras,
      dense_view(result.out.data(),
                 std::array<std::int64_t, 3>{b.num_q(), b.spec.heads.num_q_heads, b.spec.heads.v_head_dim}),
      dense_view(result.lse.data(), std::array<std::int64_t, 2>{b.num_q(), b.spec.heads.num_q_heads}),
      context);
  if (!done) ADD_FAILURE() << done.error().message;
  result.stats = context.stats();
  return result;
}

}  // namespace

std::int64_t Batch::max_kv() const {
  std::int64_t most = 0;
  for (std::size_t s = 1; s < kv_offsets.size(); ++s)
    most = std::max(most, kv_offsets[s] - kv_offsets[s - 1]);
  return most;
}

std::vector<float> Output::row(const Batch& batch, std::int64_t q_row) const {
  const std::int64_t heads = batch.spec.heads.num_q_heads;
  const std::int64_t width = heads * batch.spec.heads.v_head_dim;
  std::vector<float> row(out.begin() + q_row * width, out.begin() + (q_row + 1) * width);
  row.insert(row.end(), lse.begin() + q_row * heads, lse.begin() + (q_row + 1) * heads);
  return row;
}

AttentionSpec make_spec(int num_q_heads, int num_kv_heads, int qk_head_dim, int v_head_dim,
                        const std::string& mask) {
  AttentionSpec spec;
  spec.heads = {num_q_heads, num_kv_heads, qk_head_dim, v_head_dim};
  spec.mask = parse_mask(mask).value();
  return spec;
}

void add_sequence(Batch& batch, const std::vector<TokenCoord>& q, const std::vector<TokenCoord>& kv,
                  std::uint64_t seed) {
  Rng rng(seed);
  const HeadSpec& heads = batch.spec.heads;
  batch.q_coords.insert(batch.q_coords.end(), q.begin(), q.end());
  batch.kv_coords.insert(batch.kv_coords.end(), kv.begin(), kv.end());
  batch.q_offsets.push_back(static_cast<std::int64_t>(batch.q_coords.size()));
  batch.kv_offsets.push_back(static_cast<std::int64_t>(batch.kv_coords.size()));
  append_normals(batch.k, static_cast<std::int64_t>(kv.size()) * heads.num_kv_heads * heads.qk_head_dim, rng);
  append_normals(batch.v, static_cast<std::int64_t>(kv.size()) * heads.num_kv_heads * heads.v_head_dim, rng);
  append_normals(batch.q, static_cast<std::int64_t>(q.size()) * heads.num_q_heads * heads.qk_head_dim, rng);
}

void add_sequence(Batch& batch, std::int64_t num_q, std::int64_t num_kv, std::uint64_t seed) {
  add_sequence(batch, coords_range(num_kv - num_q, num_kv), coords_range(0, num_kv), seed);
}

Batch slice(const Batch& batch, std::int64_t sequence, std::int64_t q_begin, std::int64_t q_end,
            std::int64_t kv_begin, std::int64_t kv_end) {
  Batch part;
  part.spec = batch.spec;
  part.tables = batch.tables;
  const HeadSpec& heads = batch.spec.heads;
  const std::int64_t q0 = batch.q_offsets[at(sequence)];
  const std::int64_t k0 = batch.kv_offsets[at(sequence)];
  const auto take = [](const auto& from, auto& to, std::int64_t begin, std::int64_t end, std::int64_t width) {
    if (!from.empty()) to.assign(from.begin() + begin * width, from.begin() + end * width);
  };
  take(batch.q_coords, part.q_coords, q0 + q_begin, q0 + q_end, 1);
  take(batch.q_rope_pos, part.q_rope_pos, q0 + q_begin, q0 + q_end, 1);
  take(batch.q, part.q, q0 + q_begin, q0 + q_end, heads.num_q_heads * heads.qk_head_dim);
  take(batch.kv_coords, part.kv_coords, k0 + kv_begin, k0 + kv_end, 1);
  take(batch.kv_rope_pos, part.kv_rope_pos, k0 + kv_begin, k0 + kv_end, 1);
  take(batch.ordinals, part.ordinals, k0 + kv_begin, k0 + kv_end, 1);
  take(batch.k, part.k, k0 + kv_begin, k0 + kv_end, heads.num_kv_heads * heads.qk_head_dim);
  take(batch.v, part.v, k0 + kv_begin, k0 + kv_end, heads.num_kv_heads * heads.v_head_dim);
  part.q_offsets.push_back(q_end - q_begin);
  part.kv_offsets.push_back(kv_end - kv_begin);
  if (!batch.bias.empty()) {
    for (int h = 0; h < heads.num_q_heads; ++h) {
      for (std::int64_t i = q0 + q_begin; i < q0 + q_end; ++i) {
        const auto* row = batch.bias.data() + (h * batch.num_q() + i) * batch.max_kv();
        part.bias.insert(part.bias.end(), row + kv_begin, row + kv_end);
      }
    }
  }
  return part;
}

Output run_contiguous(const Batch& b, const RunOptions& options) {
  ContiguousKv kv;
  kv.kv_offsets = b.kv_offsets;
  kv.coords = b.kv_coords;
  kv.rope_pos = b.kv_rope_pos;
  kv.ordinals = b.ordinals;
  const HeadSpec& heads = b.spec.heads;
  kv.k = dense_view<const float, 3>(b.k.data(), {b.num_kv(), heads.num_kv_heads, heads.qk_head_dim});
  kv.v = dense_view<const float, 3>(b.v.data(), {b.num_kv(), heads.num_kv_heads, heads.v_head_dim});
  return run_on(b, kv, options);
}

namespace {

// Pages of one sequence: the storage and what a view points to.
struct Pages {
  std::vector<std::vector<float>> memory;  // f32, or bf16 in its first half
  std::vector<KvPage> pages;
  std::vector<TokenCoord> coords;
  std::vector<std::int64_t> rope_pos;
  KvView view;
};

void put(std::vector<float>& memory, StorageType type, std::size_t offset, float x) {
  if (type == StorageType::kF32) {
    memory[offset] = x;
  } else {
    const Bf16 rounded = to_bf16(x);
    std::memcpy(reinterpret_cast<char*>(memory.data()) + offset * sizeof(Bf16), &rounded, sizeof(Bf16));
  }
}

void build_pages(const Batch& b, std::int64_t sequence, const PageOptions& options, Pages& to) {
  const HeadSpec& heads = b.spec.heads;
  const std::int64_t k0 = b.kv_offsets[at(sequence)];
  const std::int64_t k1 = b.kv_offsets[at(sequence) + 1];
  const PageLayout layout{options.page_size, heads.qk_head_dim, heads.v_head_dim};
  std::int64_t num_slots = 0;
  std::vector<std::int64_t> slot_of;
  for (std::int64_t row = k0; row < k1; ++row) {
    std::int64_t slot = -1;
    if (b.kv_coords[at(row)].valid) slot = b.ordinals.empty() ? num_slots : b.ordinals[at(row)];
    slot_of.push_back(slot);
    num_slots = std::max(num_slots, slot + 1);
  }
  const std::int64_t num_pages = (num_slots + layout.page_size - 1) / layout.page_size;
  to.coords.assign(at(num_slots), TokenCoord{.valid = false});
  to.rope_pos.assign(at(num_slots), 0);
  to.pages.resize(at(num_pages * heads.num_kv_heads));
  // Two blocks of memory a page, handed out in a shuffled order.
  const std::size_t num_blocks = to.pages.size() * 2;
  to.memory.resize(num_blocks);
  std::vector<std::size_t> order(num_blocks);
  Rng rng(options.shuffle_seed);
  for (std::size_t i = 0; i < num_blocks; ++i) {
    order[i] = i;
    std::swap(order[i], order[rng.next_below(i + 1)]);
  }
  const float poison = std::numeric_limits<float>::quiet_NaN();
  for (auto& block : to.memory) {
    block.assign(std::max(layout.key_size(options.key_type), layout.value_size()), poison);
  }
  const kernels::RotaryPairs pairs =
      b.spec.rope.pairing == RopePairing::kNone
          ? kernels::RotaryPairs{}
          : kernels::RotaryPairs{
                b.spec.rope.rotary_dim / 2, b.spec.rope.pairing == RopePairing::kInterleaved ? 2 : 1,
                b.spec.rope.pairing == RopePairing::kInterleaved ? 1 : b.spec.rope.rotary_dim / 2};
  const auto frequencies = rope_frequencies(b.spec.rope, 0);
  std::vector<float> cos(frequencies.size());
  std::vector<float> sin(frequencies.size());
  for (std::int64_t row = k0; row < k1; ++row) {
    const std::int64_t slot = slot_of[at(row - k0)];
    if (slot < 0) continue;
    to.coords[at(slot)] = b.kv_coords[at(row)];
    const std::int64_t rope_pos = b.kv_rope_pos.empty() ? b.kv_coords[at(row)].pos : b.kv_rope_pos[at(row)];
    to.rope_pos[at(slot)] = rope_pos;
    kernels::rope_cos_sin(frequencies, rope_pos, b.spec.rope.cos_sin_magnitude, cos.data(), sin.data());
    const int token = static_cast<int>(slot % layout.page_size);
    for (int h = 0; h < heads.num_kv_heads; ++h) {
      const std::size_t page = at(slot / layout.page_size * heads.num_kv_heads + h);
      auto& keys = to.memory[order[2 * page]];
      auto& values = to.memory[order[2 * page + 1]];
      to.pages[page].keys = keys.data();
      to.pages[page].values = values.data();
      const float* k = b.k.data() + (row * heads.num_kv_heads + h) * heads.qk_head_dim;
      const float* v = b.v.data() + (row * heads.num_kv_heads + h) * heads.v_head_dim;
      std::vector<float> key(k, k + heads.qk_head_dim);
      if (b.spec.rope.cache_stage == CacheStage::kAfterRotation) {
        kernels::rotate_head(pairs, cos.data(), sin.data(), k, 1, key.data(), 1);
      }
      for (int i = 0; i < heads.qk_head_dim; ++i) {
        put(keys, options.key_type, layout.key_offset(options.key_type, token, i), key[at(i)]);
      }
      for (int i = 0; i < layout.padded_v_dim(); ++i) {
        const float x = i < heads.v_head_dim ? v[i] : 0.0F;
        if (!std::isfinite(x)) to.pages[page].values_flagged = true;
        put(values, options.value_type, layout.value_offset(options.value_type, token, i), x);
      }
    }
  }
  // A slot that no key took, in a page that is used: the poison in it is what the flag is for.
  for (std::int64_t slot = 0; slot < num_slots; ++slot) {
    if (to.coords[at(slot)].valid) continue;
    for (int h = 0; h < heads.num_kv_heads; ++h) {
      KvPage& page = to.pages[at(slot / layout.page_size * heads.num_kv_heads + h)];
      page.values_flagged = page.keys_flagged = page.keys != nullptr;
    }
  }
  to.view.layout = layout;
  to.view.key_type = options.key_type;
  to.view.value_type = options.value_type;
  to.view.stage = b.spec.rope.cache_stage;
  to.view.num_kv_heads = heads.num_kv_heads;
  to.view.num_slots = num_slots;
  to.view.num_pages = num_pages;
  to.view.pages = to.pages;
  to.view.coords = to.coords;
  to.view.rope_pos = to.rope_pos;
}

}  // namespace

Output run_paged(const Batch& b, const PageOptions& pages, const RunOptions& options) {
  std::vector<Pages> storage(at(b.num_sequences()));
  std::vector<KvView> views;
  for (std::int64_t s = 0; s < b.num_sequences(); ++s) {
    build_pages(b, s, pages, storage[at(s)]);
    views.push_back(storage[at(s)].view);
  }
  return run_on(b, PagedKv{views}, options);
}

::testing::AssertionResult same_bits(const std::vector<float>& a, const std::vector<float>& b) {
  if (a.size() != b.size()) return ::testing::AssertionFailure() << a.size() << " entries, not " << b.size();
  for (std::size_t i = 0; i < a.size(); ++i) {
    if (std::memcmp(&a[i], &b[i], sizeof(float)) != 0) {
      return ::testing::AssertionFailure() << "entry " << i << " of " << a.size() << ": " << a[i] << " and "
                                           << b[i] << ", difference " << a[i] - b[i];
    }
  }
  return ::testing::AssertionSuccess();
}

}  // namespace sightline::test
