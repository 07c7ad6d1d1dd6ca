// JSON of specs and traces: what is written reads back equal, what is unknown or wrong is refused by path.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "sightline/base/rng.h"
#include "sightline/spec/attention_spec.h"
#include "sightline/spec/loss.h"
#include "sightline/spec/model.h"
#include "sightline/spec/trace.h"
#include "spec/random_spec.h"

namespace sightline {
namespace {

using testing::random_in;

double random_number(Rng& rng) {
  const double special[] = {0.0, 1.0, -0.1, 1e-300, 1e300, 1.0 / 3.0, INFINITY, -INFINITY};
  return rng.next_below(3) == 0 ? special[rng.next_below(8)] : rng.next_normal();
}
std::vector<double> random_numbers(Rng& rng) {
  std::vector<double> out(rng.next_below(4));
  for (double& x : out) x = random_number(rng);
  return out;
}
bool coin(Rng& rng) { return rng.next_below(2) == 0; }
int small(Rng& rng) { return static_cast<int>(rng.next_below(1000)); }

AttentionSpec random_attention(Rng& rng) {
  AttentionSpec out;
  out.heads = {small(rng), small(rng), small(rng), small(rng)};
  do {
    out.mask = testing::random_mask(rng, random_in(rng, 1, 6), testing::kAllOps);
  } while (!validate(out.mask));
  out.rope = {
      static_cast<RopePairing>(rng.next_below(3)),
      small(rng),
      random_number(rng),
      {static_cast<RopeScalingKind>(rng.next_below(8)), random_number(rng), random_in(rng, 0, 1LL << 40),
       random_number(rng), random_number(rng), random_number(rng), random_number(rng),
       static_cast<YarnRamp>(rng.next_below(2)), coin(rng), random_numbers(rng), random_numbers(rng)},
      random_number(rng),
      static_cast<CacheStage>(rng.next_below(2)),
      static_cast<PositionPolicy>(rng.next_below(2)),
      static_cast<RopeLengthPolicy>(rng.next_below(2))};
  if (coin(rng)) out.score.softmax_scale = random_number(rng);
  out.score.logit_softcap = random_number(rng);
  out.score.alibi_slopes = random_numbers(rng);
  out.score.sink_logits = random_numbers(rng);
  out.score.dropout = {random_number(rng), rng.next_u64(), random_in(rng, 0, 99)};
  return out;
}

ModelSpec random_model(Rng& rng) {
  ModelSpec out;
  out.family = coin(rng) ? "llama" : "x \"y\" \n\xc3\xa9";
  out.vocab_size = small(rng);
  out.model_dim = small(rng);
  out.context_length = random_in(rng, 0, 1LL << 40);
  out.embedding_scale = random_number(rng);
  out.num_learned_positions = small(rng);
  out.norm = {static_cast<NormKind>(rng.next_below(2)), random_number(rng), coin(rng)};
  out.norm_placement = static_cast<NormPlacement>(rng.next_below(3));
  out.residual = static_cast<ResidualKind>(rng.next_below(2));
  out.residual_scale = random_number(rng);
  for (auto n = rng.next_below(4); n > 0; --n) {
    out.layers.push_back({random_attention(rng),
                          coin(rng),
                          coin(rng),
                          static_cast<QkNorm>(rng.next_below(3)),
                          {small(rng), static_cast<Activation>(rng.next_below(4)), coin(rng), coin(rng)}});
  }
  out.tied_head = coin(rng);
  out.head_bias = coin(rng);
  out.final_logit_softcap = random_number(rng);
  out.logit_scale = random_number(rng);
  return out;
}

Trace random_trace(Rng& rng) {
  Trace out;
  for (auto n = rng.next_below(8); n > 0; --n) {
    const auto tokens = testing::random_sequence(rng, random_in(rng, 0, 3));
    const std::vector<std::int64_t> rope_pos(rng.next_below(3), -7);
    const int a = small(rng);
    switch (rng.next_below(6)) {
      case 0:
        out.steps.emplace_back(TraceAppend{a, tokens, rope_pos});
        break;
      case 1:
        out.steps.emplace_back(TraceQuery{a, tokens, rope_pos});
        break;
      case 2:
        out.steps.emplace_back(TraceTruncate{a, small(rng)});
        break;
      case 3:
        out.steps.emplace_back(TraceEvict{a, small(rng), small(rng)});
        break;
      case 4:
        out.steps.emplace_back(TraceShift{a, small(rng), small(rng), -small(rng), coin(rng)});
        break;
      default:
        out.steps.emplace_back(TraceFork{a, small(rng)});
        break;
    }
  }
  return out;
}

// Through text, as a file would.
Json through_text(const Json& json) { return *parse_json(json.dump(2), "test"); }

TEST(SpecJsonTest, RandomSpecsReadBackEqual) {
  for (std::uint64_t seed = 0; seed < 500; ++seed) {
    Rng rng(seed);
    const ModelSpec model = random_model(rng);
    const auto model_again = model_spec_from_json(through_text(to_json(model)));
    ASSERT_TRUE(model_again) << model_again.error().message;
    ASSERT_EQ(*model_again, model) << to_json(model).dump(2);
    const AttentionSpec attention = random_attention(rng);
    ASSERT_EQ(*attention_spec_from_json(through_text(to_json(attention))), attention);
    const Trace trace = random_trace(rng);
    const auto trace_again = trace_from_json(through_text(to_json(trace)));
    ASSERT_TRUE(trace_again) << trace_again.error().message;
    ASSERT_EQ(*trace_again, trace);
    const LossSpec loss{static_cast<int>(rng.next_below(17)), static_cast<PromptScope>(rng.next_below(2)),
                        static_cast<NextDocumentScope>(rng.next_below(2)), LossNormalisation::kAllTargets};
    ASSERT_EQ(*loss_spec_from_json(through_text(to_json(loss))), loss);
  }
}

TEST(SpecJsonTest, MasksStandAsTextAndEnumsAsWords) {
  AttentionSpec spec;
  spec.mask = *parse_mask("causal & window(4)");
  spec.rope.pairing = RopePairing::kHalfSplit;
  const Json json = to_json(spec);
  EXPECT_EQ(*json.find("mask")->as_string(), "causal & window(4)");
  EXPECT_EQ(*json.find("rope")->find("pairing")->as_string(), "half_split");
  EXPECT_TRUE(json.find("score")->find("softmax_scale")->is_null());
}

TEST(SpecJsonTest, MissingMembersKeepTheirDefaults) {
  EXPECT_EQ(*attention_spec_from_json(Json(JsonObject{})), AttentionSpec{});
  const auto spec = attention_spec_from_json(*parse_json(R"({"heads": {"num_q_heads": 8}})", "t"));
  ASSERT_TRUE(spec);
  EXPECT_EQ(spec->heads.num_q_heads, 8);
  EXPECT_EQ(spec->heads.qk_head_dim, HeadSpec{}.qk_head_dim);
}

TEST(SpecJsonTest, UnknownMembersAndWrongTypesAreRefusedByPath) {
  struct Row {
    const char* text;
    const char* message;
  };
  for (const auto& [text, message] : {
           Row{"[]", "model: expected an object, got []"},
           Row{R"({"layer": []})", "model: there is no member \"layer\""},
           Row{R"({"layers": {}})", "model.layers: expected an array, got {}"},
           Row{R"({"layers": [{}, {"attention": {"heads": {"num_heads": 3}}}]})",
               "model.layers[1].attention.heads: there is no member \"num_heads\""},
           Row{R"x({"layers": [{"attention": {"mask": "causal & wimdow(3)"}}]})x",
               "model.layers[0].attention.mask: mask: column 10: there is no rule \"wimdow\"; did you mean "
               "\"window\"?"},
           Row{R"({"layers": [{"attention": {"rope": {"pairing": "neox"}}}]})",
               "model.layers[0].attention.rope.pairing: expected one of none, interleaved, half_split, got "
               "\"neox\""},
           Row{R"({"vocab_size": 3.0})", "model.vocab_size: expected an integer, got 3.0"},
           Row{R"({"vocab_size": 4294967296})", "expected an integer from -2147483648 to 2147483647"},
           Row{R"({"vocab_size": true})", "model.vocab_size: expected an integer, got true"},
           Row{R"({"tied_head": 1})", "model.tied_head: expected true or false, got 1"},
           Row{R"({"logit_scale": "1"})", "model.logit_scale: expected a number"},
           Row{R"({"family": null})", "model.family: expected text, got null"},
           Row{R"({"layers": [{"attention": {"score": {"dropout": {"seed": -1}}}}]})",
               "score.dropout.seed: expected an integer from 0"},
       }) {
    const auto spec = model_spec_from_json(*parse_json(text, "t"));
    ASSERT_FALSE(spec) << text;
    EXPECT_EQ(spec.error().kind, ErrorKind::kInvalidContent);
    EXPECT_NE(spec.error().message.find(message), std::string::npos) << spec.error().message;
  }
}

TEST(SpecJsonTest, UnknownTraceStepsAreRefusedWithTheirIndex) {
  struct Row {
    const char* text;
    const char* message;
  };
  for (const auto& [text, message] : {
           Row{R"({"step": []})", "trace: there is no member \"step\""},
           Row{R"({"steps": [{"fork": {}}, {"forget": {}}]})", "trace.steps[1]: there is no step \"forget\""},
           Row{R"({"steps": [{"fork": {}, "evict": {}}]})",
               "trace.steps[0]: expected an object of one member"},
           Row{R"({"steps": [{"append": {"coords": [{"position": 3}]}}]})",
               "trace.steps[0].append.coords[0]: there is no member \"position\""},
           Row{R"({"steps": [{"append": {"coords": [{"flags": -1}]}}]})",
               "trace.steps[0].append.coords[0].flags: expected an integer from 0 to 4294967295"},
       }) {
    const auto trace = trace_from_json(*parse_json(text, "t"));
    ASSERT_FALSE(trace) << text;
    EXPECT_NE(trace.error().message.find(message), std::string::npos) << trace.error().message;
  }
}

}  // namespace
}  // namespace sightline
