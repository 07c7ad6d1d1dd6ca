// The keys or values of one tile as rows, and the two orders in which products read them. Caller's arrays,
// pages and the backward all pass through here.
#pragma once

#include "attention/call.h"

namespace sightline {

/// One key, rotated as the spec says, or one value: where it lies when there is nothing to do, else in
/// `buffer` [qk_head_dim] or [v_head_dim].
[[nodiscard]] const float* read_key(const AttentionCall& call, const KeyStream& stream, std::int64_t row,
                                    int head, float* buffer);
[[nodiscard]] const float* read_value(const AttentionCall& call, const KeyStream& stream, std::int64_t row,
                                      int head, float* buffer);

/// The 128 rows of a tile by `read`, zeros where there is no key. `buffer` [128][dims].
void gather_tile(const AttentionCall& call, const KeyStream& stream, std::int64_t tile, int head, int dims,
                 decltype(read_key)* read, float* buffer, const float** rows);
/// As the keys of q k^T: [8 chunks][dims][16 keys].
void rows_to_keys(const kernels::KernelTable& table, const float* const* rows, int dims, float* to);
/// As the values of P v: [8 chunks][padded dims / 16][16 keys][16 dims].
void rows_to_values(const float* const* rows, int dims, float* to);

/// False where an entry is NaN or infinite.
[[nodiscard]] bool all_finite(const float* data, std::int64_t count);

}  // namespace sightline
