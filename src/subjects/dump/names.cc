#include "subjects/dump/names.h"

#include <algorithm>
#include <array>

namespace sightline::subjects {
namespace {

using Names = std::string_view;

constexpr Names kQ[] = {"query", "query_states", "queries", "Q"};
constexpr Names kK[] = {"key", "key_states", "keys", "K"};
constexpr Names kV[] = {"value", "value_states", "values", "V"};
constexpr Names kOut[] = {"output", "attn_output", "attention_output", "context", "o", "O", "Y"};
constexpr Names kLse[] = {"logsumexp", "softmax_lse", "log_sum_exp", "L"};
constexpr Names kWeights[] = {"attn_weights", "attention_weights", "probs", "attention_probs", "p"};
constexpr Names kDq[] = {"dq", "grad_q", "q_grad", "grad_query"};
constexpr Names kDk[] = {"dk", "grad_k", "k_grad", "grad_key"};
constexpr Names kDv[] = {"dv", "grad_v", "v_grad", "grad_value"};
constexpr Names kDout[] = {"do", "dout", "grad_out", "out_grad", "grad_output"};
constexpr Names kBias[] = {"attn_bias", "score_bias"};
constexpr Names kMask[] = {"attn_mask", "visible"};
constexpr Names kValid[] = {"attention_mask", "key_padding_mask", "kv_valid"};
constexpr Names kQPos[] = {"query_positions", "position_ids", "positions", "cache_position"};
constexpr Names kKvPos[] = {"key_positions", "k_pos"};
constexpr Names kSegment[] = {"segment_ids", "document_ids", "sequence_ids"};
constexpr Names kCallBegins[] = {"chunk_begins"};
constexpr Names kDraftParents[] = {"tree_parents", "parent_indices"};

constexpr std::array kTable = {
    ArrayNames{"q", kQ},
    ArrayNames{"k", kK},
    ArrayNames{"v", kV},
    ArrayNames{"out", kOut},
    ArrayNames{"lse", kLse},
    ArrayNames{"weights", kWeights},
    ArrayNames{"d_q", kDq},
    ArrayNames{"d_k", kDk},
    ArrayNames{"d_v", kDv},
    ArrayNames{"d_out", kDout},
    ArrayNames{"bias", kBias},
    ArrayNames{"mask", kMask},
    ArrayNames{"valid", kValid},
    ArrayNames{"q_pos", kQPos},
    ArrayNames{"kv_pos", kKvPos},
    ArrayNames{"q_rope_pos", {}},
    ArrayNames{"kv_rope_pos", {}},
    ArrayNames{"segment", kSegment},
    ArrayNames{"call_begins", kCallBegins},
    ArrayNames{"draft_parents", kDraftParents},
};

}  // namespace

std::span<const ArrayNames> array_names() { return kTable; }

Result<const DumpArray*> find_array(const Dump& dump, const DumpOptions& options, std::string_view ours) {
  for (const auto& [name, theirs] : options.names) {
    if (name != ours) continue;
    const DumpArray* found = dump.find(theirs);
    if (found != nullptr) return found;
    return fail(ErrorKind::kInvalidContent, "{}: no array {}, which was named as {}", dump.source, theirs,
                ours);
  }
  if (const DumpArray* found = dump.find(ours)) return found;
  const auto row = std::ranges::find(kTable, ours, &ArrayNames::ours);
  for (const std::string_view other : row->others) {
    if (const DumpArray* found = dump.find(other)) return found;
  }
  return static_cast<const DumpArray*>(nullptr);
}

}  // namespace sightline::subjects
