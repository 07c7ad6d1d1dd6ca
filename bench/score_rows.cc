// What ALiBi, sinks and a softcap add to a causal call: time over the time without.
#include "bench/attention_case.h"
#include "bench/families.h"

namespace sightline::bench {

namespace {

constexpr std::int64_t kTokens = 2048;

ScoreSpec score_of(std::string_view kind) {
  ScoreSpec score;
  if (kind == "alibi") score.alibi_slopes = alibi_slopes(kHeads);
  if (kind == "sinks") score.sink_logits.assign(kHeads, 0.5);
  if (kind == "softcap") score.logit_softcap = 30.0;
  return score;
}

}  // namespace

std::vector<RowCase> score_rows() {
  std::vector<RowCase> rows;
  for (const std::string kind : {"alibi", "sinks", "softcap"}) {
    for (const int dim : {64, 128}) {
      const std::string name = fmt::format("{}-f32-causal-d{}-T2048", kind, dim);
      rows.push_back({name, Limit::kReference, [=](const Bench& bench) {
                        AttentionPair pair;
                        pair.c = self_attention(name, "causal", kHeads, dim, kTokens);
                        pair.c.spec.score = score_of(kind);
                        pair.reference = self_attention("without", "causal", kHeads, dim, kTokens);
                        pair.share = 1.0;
                        pair.what = fmt::format("{}: time over the time without", kind);
                        return run_attention_pair(bench, pair);
                      }});
    }
  }
  return rows;
}

}  // namespace sightline::bench
