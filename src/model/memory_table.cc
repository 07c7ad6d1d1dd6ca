// The bytes of a run by part (design: a cache four times smaller is not a machine four times smaller).
#include <algorithm>

#include "model/activations.h"
#include "sightline/attention/attention.h"
#include "sightline/base/json.h"
#include "sightline/base/thread_pool.h"
#include "sightline/model/model_info.h"
#include "sightline/ops/linear.h"
#include "sightline/spec/coords.h"

namespace sightline {

namespace {

// Of the default cache page; only the number of page pointers depends on it.
constexpr std::int64_t kPageTokens = 64;

}  // namespace

MemoryTable memory_table(const ModelInfo& info, std::int64_t context, std::int64_t chunk) {
  MemoryTable table;
  const ModelSpec& spec = info.spec;
  table.context = context > 0 ? context : spec.context_length;
  table.chunk = std::min(chunk, table.context);
  table.weights = info.packed_weight_bytes;
  table.cache_f32 = kv_cache_bytes(spec, table.context, 4, 4);
  table.cache_bf16 = kv_cache_bytes(spec, table.context, 2, 2);
  table.activations = activation_floats(spec, table.chunk, 1) * 4 + std::int64_t{spec.vocab_size} * 4;
  std::int64_t attention_scratch = 0, linear_scratch = 0;
  std::int64_t page_pointers = 0;
  const std::int64_t num_pages = (table.context + kPageTokens - 1) / kPageTokens;
  for (const LayerSpec& layer : spec.layers) {
    const HeadSpec& heads = layer.attention.heads;
    attention_scratch = std::max(attention_scratch, scratch_bytes_per_thread(heads));
    for (const int in_dim : {spec.model_dim, heads.num_q_heads * heads.v_head_dim, layer.ffn.ffn_dim}) {
      linear_scratch = std::max(linear_scratch, linear_scratch_bytes(table.chunk, in_dim));
    }
    page_pointers += num_pages * heads.num_kv_heads * static_cast<std::int64_t>(3 * sizeof(void*));
  }
  table.workspace = available_threads() * attention_scratch + linear_scratch;
  // Coordinates and rotary position in the cache; storage index and position in the plan of a call.
  constexpr auto per_token = static_cast<std::int64_t>(sizeof(TokenCoord) + sizeof(std::int64_t) +
                                                       sizeof(std::int64_t) + sizeof(std::int32_t));
  table.metadata = info.tokenizer_bytes + table.context * per_token + page_pointers;
  return table;
}

Json to_json(const MemoryTable& table) {
  return JsonObject{{"context", table.context},       {"chunk", table.chunk},
                    {"weights", table.weights},       {"cache_f32", table.cache_f32},
                    {"cache_bf16", table.cache_bf16}, {"activations", table.activations},
                    {"workspace", table.workspace},   {"metadata", table.metadata}};
}

}  // namespace sightline
