// The inside of the cache, for the files that implement its operations. No meaning of its own: pages come
// from page_pool.h, tables from sequence.h, rotations from layer.h.
#pragma once

#include <algorithm>
#include <memory>
#include <optional>
#include <unordered_map>
#include <utility>
#include <vector>

#include "kv_cache/layer.h"
#include "kv_cache/page_pool.h"
#include "kv_cache/page_slots.h"
#include "kv_cache/sequence.h"
#include "sightline/kv_cache/kv_cache.h"
#include "sightline/kv_cache/rotary_pairs.h"

namespace sightline {

using kv_cache::Layer;
using kv_cache::LayerPages;
using kv_cache::Page;
using kv_cache::PageDemand;
using kv_cache::PagePool;
using kv_cache::PageShape;
using kv_cache::Rotation;
using kv_cache::Sequence;

struct KvCache::Impl {
  static bool is_pos(std::int64_t pos) { return 0 <= pos && pos <= kMaxPos; }

  std::vector<Layer> layers;
  std::vector<Rotation> rotations;
  KvCacheOptions options;
  PagePool pool;
  std::unordered_map<SequenceId, Sequence> sequences;
  SequenceId next_id = 0;

  explicit Impl(const KvCacheOptions& o) : options(o), pool(o.max_pages, o.poison) {}

  [[nodiscard]] const PageShape& shape(std::size_t layer) const {
    return pool.shape(layers[layer].shape_idx);
  }
  [[nodiscard]] std::int64_t page_size() const { return options.page_size; }

  template <typename Self>
  static auto find(Self& self, const char* function, SequenceId id)
      -> Result<decltype(&self.sequences.begin()->second)> {
    const auto it = self.sequences.find(id);
    if (it == self.sequences.end()) {
      return fail(ErrorKind::kInvalidArgument, "KvCache::{}: sequence {} is unknown", function, id);
    }
    return &it->second;
  }

  static Result<void> check_written(const char* function, const Sequence& sequence);
  static Result<void> check_range(const char* function, const Sequence& sequence, std::int64_t begin,
                                  std::int64_t end);
  /// Queries at `query_pos` or later must not see a token whose page a window freed.
  Result<void> check_freed(const char* function, std::size_t layer, std::optional<std::int64_t> max_freed_pos,
                           std::optional<std::int64_t> query_pos) const;

  void free_page(Sequence& sequence, std::size_t layer, std::int64_t page_idx);
  /// Gives the sequence its own page: a copy of the shared one, or a new one where there is none. Slots that
  /// do not exist or hold no token are cleared. The page has been reserved.
  void own_page(Sequence& sequence, std::size_t layer, std::int64_t page_idx);
  /// Poisons slots that a sequence gave up in a page that stays; a shared one is left to its other owners.
  void clear_given_up(Sequence& sequence, std::size_t layer, std::int64_t begin, std::int64_t end);
  /// Stored pages of [begin, end) that are shared, so must be copied before they are changed.
  std::vector<std::int64_t> find_copies(const Sequence& sequence, std::size_t layer, std::int64_t begin,
                                        std::int64_t end) const;
  /// Turns the stored keys of [begin, end), on pages that the sequence owns.
  void rotate_again(Sequence& sequence, std::size_t layer, std::int64_t begin, std::int64_t end,
                    const kv_cache::ReRotation& rotation);

  /// What an append needs and gives back, worked out before anything changes.
  struct AppendPlan {
    std::int64_t end = 0;                           ///< length afterwards
    std::int64_t first_page = 0, end_page = 0;      ///< pages that the new tokens lie on
    std::vector<kv_cache::WindowRelease> releases;  ///< [num_layers]
    std::vector<PageDemand> demands;                ///< [num_layers]
    std::vector<TokenCoord> coords;                 ///< [num_tokens], without padding
    std::vector<std::int64_t> rope_pos;             ///< [num_tokens]
    std::vector<std::int64_t> rows;                 ///< [num_tokens], in what append was given
    std::int64_t num_rows = 0;                      ///< padding included
    std::vector<std::vector<float>> rotation;       ///< [num_rotations], see rotation_rows
  };
  Result<AppendPlan> plan_append(const Sequence& sequence, std::span<const TokenCoord> coords,
                                 std::span<const std::int64_t> rope_pos) const;
  void grow_tables(Sequence& sequence, const AppendPlan& plan) const;
  void apply_append(Sequence& sequence, AppendPlan&& plan);
};

}  // namespace sightline
