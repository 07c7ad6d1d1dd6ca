#include "sightline/subjects/engine/engine_subject.h"

#include <array>

#include "sightline/attention/attention.h"

namespace sightline::subjects {
namespace {

class EngineSubject : public checker::Subject {
 public:
  explicit EngineSubject(int num_threads) : pool_(num_threads), context_(pool_) {}

  [[nodiscard]] checker::SubjectTraits traits() const override {
    return {.takes_positions = true, .takes_segments = true, .takes_padding = true};
  }

  Result<void> answer(checker::Observation& call) override {
    const HeadSpec& heads = call.spec.heads;
    const std::vector<float> q(call.q.begin(), call.q.end());
    const std::vector<float> k(call.k.begin(), call.k.end());
    const std::vector<float> v(call.v.begin(), call.v.end());
    const std::vector<float> bias(call.bias.begin(), call.bias.end());
    const std::int64_t q_len = call.q_len();
    const std::int64_t kv_len = call.kv_len();
    const std::array<std::int64_t, 2> q_offsets{0, q_len};
    const std::array<std::int64_t, 2> kv_offsets{0, kv_len};
    const QueryBatch queries{q_offsets, call.q_coords, call.q_rope_pos};
    ContiguousKv kv;
    kv.kv_offsets = kv_offsets;
    kv.coords = call.kv_coords;
    kv.rope_pos = call.kv_rope_pos;
    kv.k = dense_view<const float, 3>(k.data(), {kv_len, heads.num_kv_heads, heads.qk_head_dim});
    kv.v = dense_view<const float, 3>(v.data(), {kv_len, heads.num_kv_heads, heads.v_head_dim});
    AttentionExtras extras;
    extras.rope_length = call.rope_length;
    if (!bias.empty()) {
      extras.bias = dense_view<const float, 3>(bias.data(), {heads.num_q_heads, q_len, kv_len});
    }
    std::vector<float> out(static_cast<std::size_t>(q_len * heads.num_q_heads * heads.v_head_dim));
    std::vector<float> lse(static_cast<std::size_t>(q_len * heads.num_q_heads));
    SIGHTLINE_TRY(const AttentionPlan plan, plan_attention(call.spec, queries, kv, extras));
    SIGHTLINE_CHECK(attention_forward(
        call.spec, plan, dense_view<const float, 3>(q.data(), {q_len, heads.num_q_heads, heads.qk_head_dim}),
        queries, kv, extras, dense_view<float, 3>(out.data(), {q_len, heads.num_q_heads, heads.v_head_dim}),
        dense_view<float, 2>(lse.data(), {q_len, heads.num_q_heads}), context_));
    call.out.assign(out.begin(), out.end());
    call.lse.assign(lse.begin(), lse.end());
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
