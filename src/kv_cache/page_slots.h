// Reading and writing single slots of a page: rounding to the storage type, poison, and which slots hold
// non-finite numbers. The one place of the cache that knows where a component lies (kernels/page_layout.h).
#pragma once

#include <cstdint>
#include <span>

#include "kv_cache/page_pool.h"

namespace sightline::kv_cache {

/// Writes one token of one head, rounded to the storage type.
///   key [qk_head_dim], value [v_head_dim]
void write_slot(Page& page, const PageShape& shape, int head, int slot, std::span<const float> key,
                std::span<const float> value);
void write_key(Page& page, const PageShape& shape, int head, int slot, std::span<const float> key);
/// Reads one key, widened to f32.
void read_key(Page& page, const PageShape& shape, int head, int slot, std::span<float> key);

/// Fills the slots [begin, end) of every head with signalling NaN (poison) or 0. Padding stays 0.
void clear_slots(Page& page, const PageShape& shape, int begin, int end, bool poison);
/// Fills the whole page, padding too: 0 there.
void clear_page(Page& page, const PageShape& shape, bool poison);
/// Copies everything, also which slots are bad.
void copy_page(const Page& from, Page& to);

}  // namespace sightline::kv_cache
