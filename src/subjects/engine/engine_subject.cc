#include "sightline/subjects/engine/engine_subject.h"

#include "sightline/attention/attention.h"

namespace sightline::subjects {
namespace {

// Inputs of several sequences, one after another.
struct Rows {
  std::vector<float> q, k, v;
  std::vector<TokenCoord> q_coords, kv_coords;
  std::vector<std::int64_t> q_rope_pos, kv_rope_pos;
  std::vector<std::int64_t> q_offsets{0}, kv_offsets{0};

  void append(const checker::Observation& row) {
    const auto add = [](const auto& from, auto& to) { to.insert(to.end(), from.begin(), from.end()); };
    add(row.q, q);
    add(row.k, k);
    add(row.v, v);
    add(row.q_coords, q_coords);
    add(row.kv_coords, kv_coords);
    add(row.q_rope_pos, q_rope_pos);
    add(row.kv_rope_pos, kv_rope_pos);
    q_offsets.push_back(static_cast<std::int64_t>(q_coords.size()));
    kv_offsets.push_back(static_cast<std::int64_t>(kv_coords.size()));
  }
};

class EngineSubject : public checker::Subject {
 public:
  explicit EngineSubject(int num_threads) : pool_(num_threads), context_(pool_) {}

  [[nodiscard]] checker::SubjectTraits traits() const override {
    return {.takes_positions = true,
            .takes_segments = true,
            .takes_padding = true,
            .takes_drafts = true,
            .takes_batch = true};
  }

  Result<void> answer(checker::Observation& call) override { return answer_batch({&call, 1}); }

  // One mixed call of all rows.
  Result<void> answer_batch(std::span<checker::Observation> rows) override {
    const checker::Observation& first = rows.front();
    const HeadSpec& heads = first.spec.heads;
    if (rows.size() > 1 && !first.bias.empty()) {
      return fail(ErrorKind::kInvalidArgument, "a batch with a bias is not asked");
    }
    Rows all;
    for (const checker::Observation& row : rows) all.append(row);
    const auto q_len = static_cast<std::int64_t>(all.q_coords.size());
    const auto kv_len = static_cast<std::int64_t>(all.kv_coords.size());
    const QueryBatch queries{all.q_offsets, all.q_coords, all.q_rope_pos};
    ContiguousKv kv;
    kv.kv_offsets = all.kv_offsets;
    kv.coords = all.kv_coords;
    kv.rope_pos = all.kv_rope_pos;
    kv.k = dense_view<const float, 3>(all.k.data(), {kv_len, heads.num_kv_heads, heads.qk_head_dim});
    kv.v = dense_view<const float, 3>(all.v.data(), {kv_len, heads.num_kv_heads, heads.v_head_dim});
    AttentionExtras extras;
    extras.rope_length = first.rope_length;
    // One for all rows, which are of equal lengths.
    const std::vector<std::int32_t> q_node = checker::draft_nodes(first.q_len(), first.draft_parents.size());
    const std::vector<std::int32_t> kv_node =
        checker::draft_nodes(first.kv_len(), first.draft_parents.size());
    MaskTables drafts;
    drafts.q_node = q_node;
    drafts.kv_node = kv_node;
    drafts.parent = first.draft_parents;
    if (uses(first.spec.mask, MaskOp::kTree)) extras.tables = std::span(&drafts, 1);
    const std::vector<float> bias(first.bias.begin(), first.bias.end());
    if (!bias.empty()) {
      extras.bias = dense_view<const float, 3>(bias.data(), {heads.num_q_heads, q_len, kv_len});
    }
    std::vector<float> out(static_cast<std::size_t>(q_len * heads.num_q_heads * heads.v_head_dim));
    std::vector<float> lse(static_cast<std::size_t>(q_len * heads.num_q_heads));
    SIGHTLINE_TRY(const AttentionPlan plan, plan_attention(first.spec, queries, kv, extras));
    SIGHTLINE_CHECK(attention_forward(
        first.spec, plan,
        dense_view<const float, 3>(all.q.data(), {q_len, heads.num_q_heads, heads.qk_head_dim}), queries, kv,
        extras, dense_view<float, 3>(out.data(), {q_len, heads.num_q_heads, heads.v_head_dim}),
        dense_view<float, 2>(lse.data(), {q_len, heads.num_q_heads}), context_));
    for (std::size_t r = 0; r < rows.size(); ++r) {
      const auto take = [&](const std::vector<float>& from, std::int64_t width, std::vector<double>& to) {
        to.assign(from.begin() + all.q_offsets[r] * width, from.begin() + all.q_offsets[r + 1] * width);
      };
      take(out, std::int64_t{heads.num_q_heads} * heads.v_head_dim, rows[r].out);
      take(lse, heads.num_q_heads, rows[r].lse);
    }
    return {};
  }

 private:
  ThreadPool pool_;
  AttentionContext context_;
};

}  // namespace

std::unique_ptr<checker::Subject> engine_subject(int num_threads) {
  return std::make_unique<EngineSubject>(num_threads);
}

}  // namespace sightline::subjects
