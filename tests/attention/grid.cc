#include "attention/grid.h"

#include <cmath>

#include "sightline/base/rng.h"

namespace sightline::test {

std::vector<NamedBatch> every_score_feature() {
  const auto base = make_spec(4, 2, 32, 16);
  std::vector<NamedBatch> batches;
  const auto add = [&](const char* name, auto change) {
    Batch batch;
    batch.spec = base;
    change(batch.spec);
    add_sequence(batch, 40, 200, 5);
    add_sequence(batch, 1, 130, 6);
    batches.emplace_back(name, std::move(batch));
  };
  add("scale", [](AttentionSpec& s) { s.score.softmax_scale = 0.37; });
  add("scale 0", [](AttentionSpec& s) { s.score.softmax_scale = 0.0; });
  add("negative scale", [](AttentionSpec& s) { s.score.softmax_scale = -0.2; });
  add("large scale", [](AttentionSpec& s) { s.score.softmax_scale = 40.0; });
  add("softcap", [](AttentionSpec& s) { s.score.logit_softcap = 3.0; });
  add("softcap 50", [](AttentionSpec& s) { s.score.logit_softcap = 50.0; });
  add("alibi", [](AttentionSpec& s) { s.score.alibi_slopes = alibi_slopes(4); });
  add("sinks", [](AttentionSpec& s) { s.score.sink_logits = {0.5, -3.0, 8.0, 0.0}; });
  add("dropout", [](AttentionSpec& s) { s.score.dropout = {0.3, 7, 2}; });
  add("all",
      [](AttentionSpec& s) { s.score = {0.2, 5.0, alibi_slopes(4), {1.0, 2.0, -1.0, 0.0}, {0.1, 3, 1}}; });
  return batches;
}

Batch bias_that_hides() {
  Batch batch;
  batch.spec = make_spec(2, 1, 16, 16);
  add_sequence(batch, 30, 140, 8);
  Rng rng(9);
  for (std::int64_t i = 0; i < 2 * 30 * 140; ++i) {
    batch.bias.push_back(rng.next_below(4) == 0 ? -HUGE_VALF : static_cast<float>(rng.next_normal()));
  }
  for (std::size_t j = 0; j < 140; ++j) batch.bias[(30 + 7) * 140 + j] = -HUGE_VALF;
  return batch;
}

EveryMaskRule::EveryMaskRule(const AttentionSpec& spec) : dense_(260 * 260), nodes_(260, -1) {
  Rng rng(77);
  std::vector<TokenCoord> coords;
  for (std::int64_t i = 0; i < 260; ++i) {
    TokenCoord c;
    c.segment = static_cast<std::int32_t>(i / 90);
    c.segment_start = i / 90 * 90;
    c.pos = i;
    c.span = i % 50 < 12 ? static_cast<std::int32_t>(i / 50 + 1) : 0;
    c.flags = rng.next_below(8) == 0 ? 1 : 0;
    c.valid = rng.next_below(20) != 0;
    coords.push_back(c);
  }
  for (auto& x : dense_) x = rng.next_below(3) == 0;
  for (std::size_t i = 240; i < 260; ++i) {
    nodes_[i] = static_cast<std::int32_t>(parent_.size());
    parent_.push_back(parent_.empty() ? -1 : static_cast<std::int32_t>(rng.next_below(parent_.size())));
  }
  MaskTables tables;
  tables.dense = dense_view<const std::uint8_t, 2>(dense_.data(), {260, 260});
  tables.q_node = tables.kv_node = nodes_;
  tables.parent = parent_;
  for (const char* mask :
       {"all", "none", "causal", "causal & window(33)", "ahead(5)", "causal & (window(20) | first(4))",
        "causal & segment", "segment", "causal & chunk(32)", "(causal | span) & window(60) & ahead(59)",
        "causal & dilated(3)", "causal & tree", "causal | query_is(0)", "causal & (window(16) | key_is(0))",
        "dense", "dense & causal", "!causal", "causal & !dense & segment"}) {
    Batch batch;
    batch.spec = spec;
    batch.spec.mask = *parse_mask(mask);
    add_sequence(batch, coords, coords, 11);
    batch.tables = {tables};
    batches_.emplace_back(mask, std::move(batch));
  }
}

}  // namespace sightline::test
