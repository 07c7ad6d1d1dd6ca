// Loss of a text: the mean over its targets, and the same to the bit in chunks and step by step.
#include "sightline/generate/evaluate.h"

#include <gtest/gtest.h>

#include <cmath>

#include "model/model_runner.h"
#include "sightline/ops/elementwise.h"

namespace sightline {
namespace {

using namespace testing;  // NOLINT: fixtures of tests/model

EvalResult evaluate(Model& model, const Tokens& tokens, const EvalOptions& options) {
  auto result = evaluate_loss(model, tokens.ids, options);
  EXPECT_TRUE(result) << result.error().message;
  return result ? std::move(*result) : EvalResult{};
}

TEST(EvaluateLossTest, TeacherForcedEqualsStepByStepToTheBit) {
  for (const ModelSpec& spec : {small_llama_spec(), small_gpt2_spec()}) {
    const TestModel model = random_model(spec, 91);
    LoadedModel two = make_loaded(model, 2);
    LoadedModel one = make_loaded(model, 1);
    const Tokens tokens = random_tokens(spec.vocab_size, 101, 91);
    for (const std::int64_t context : {37, 16, 2}) {  // windows of unequal length
      const EvalResult steps = evaluate(*two.model, tokens, {.context = context, .step_by_step = true});
      for (const std::int64_t chunk : {512, 5, 1}) {
        const EvalResult teacher = evaluate(*one.model, tokens, {.context = context, .chunk = chunk});
        EXPECT_EQ(teacher.nll, steps.nll) << context << ' ' << chunk;
        EXPECT_EQ(teacher.loss, steps.loss);
        EXPECT_EQ(teacher.perplexity, std::exp(teacher.loss));
      }
    }
  }
}

TEST(EvaluateLossTest, LossIsTheMeanOverTargetsAndWindowsSeeNothingOfEachOther) {
  const TestModel model = random_model(small_llama_spec(), 92);
  LoadedModel loaded = make_loaded(model);
  const Tokens tokens = random_tokens(50, 45, 92);
  const EvalResult result = evaluate(*loaded.model, tokens, {.context = 20});
  ASSERT_EQ(result.num_tokens, 45);
  ASSERT_EQ(result.num_targets, 42);  // windows of 20, 20 and 5; the first token of each is no target
  double sum = 0;
  std::vector<double> expected;
  for (const auto& [begin, end] : {std::pair{0, 20}, {20, 40}, {40, 45}}) {
    const Tokens window = tokens_of({tokens.ids.begin() + begin, tokens.ids.begin() + end});
    const std::vector<float> logits = run_tokens(*loaded.model, window);
    std::vector<double> logprobs(50);
    for (std::size_t i = 0; i + 1 < window.ids.size(); ++i) {
      log_softmax(std::span(logits).subspan(i * 50, 50), logprobs);
      expected.push_back(-logprobs[static_cast<std::size_t>(window.ids[i + 1])]);
      sum += expected.back();
    }
  }
  EXPECT_EQ(result.nll, expected);
  EXPECT_EQ(result.loss, sum / 42);
}

TEST(EvaluateLossTest, RefusesWhatHasNoLossAndStopsWhenAsked) {
  LoadedModel loaded = make_loaded(random_model(small_llama_spec(), 93));
  const std::vector<TokenId> one = {1}, big = {1, 50}, good = {1, 2, 3, 4};
  EXPECT_EQ(evaluate_loss(*loaded.model, one, {}).error().kind, ErrorKind::kInvalidArgument);
  EXPECT_NE(evaluate_loss(*loaded.model, big, {}).error().message.find("50"), std::string::npos);
  EXPECT_FALSE(evaluate_loss(*loaded.model, good, {.context = 1}));
  EXPECT_FALSE(evaluate_loss(*loaded.model, good, {.chunk = 0}));
  const auto stopped =
      evaluate_loss(*loaded.model, good, {.chunk = 1}, [](std::int64_t, std::int64_t) { return false; });
  ASSERT_FALSE(stopped);
  EXPECT_EQ(stopped.error().kind, ErrorKind::kTryLater);
}

TEST(EvaluateLossTest, DivergenceFromItselfIsZeroAndFromAnotherModelIsItsDefinition) {
  const TestModel first = random_model(small_llama_spec(), 94);
  const TestModel second = random_model(small_llama_spec(), 95);
  LoadedModel a = make_loaded(first);
  LoadedModel b = make_loaded(second);
  LoadedModel again = make_loaded(first);
  const Tokens tokens = random_tokens(50, 12, 94);
  EXPECT_FALSE(evaluate(*a.model, tokens, {}).divergence);
  const EvalResult self = evaluate(*a.model, tokens, {.reference = again.model.get()});
  ASSERT_TRUE(self.divergence);
  EXPECT_EQ(self.divergence->mean_kl, 0.0);
  EXPECT_EQ(self.divergence->max_kl, 0.0);
  EXPECT_EQ(self.divergence->same_top, 1.0);
  EXPECT_NEAR(self.divergence->reference_loss, self.loss, 1e-12);

  const EvalResult result = evaluate(*a.model, tokens, {.chunk = 5, .reference = b.model.get()});
  const std::vector<float> q_logits = run_tokens(*a.model, tokens);
  const std::vector<float> p_logits = run_tokens(*b.model, tokens);
  std::vector<double> p(50), q(50);
  double sum = 0, largest = 0, same = 0;
  for (std::size_t i = 0; i < 11; ++i) {
    log_softmax(std::span(q_logits).subspan(i * 50, 50), q);
    log_softmax(std::span(p_logits).subspan(i * 50, 50), p);
    double kl = 0;
    for (std::size_t t = 0; t < 50; ++t) kl += std::exp(p[t]) * (p[t] - q[t]);
    sum += kl;
    largest = std::max(largest, kl);
    same += std::ranges::max_element(p) - p.begin() == std::ranges::max_element(q) - q.begin() ? 1 : 0;
  }
  ASSERT_TRUE(result.divergence);
  EXPECT_NEAR(result.divergence->mean_kl, sum / 11, 1e-9);
  EXPECT_NEAR(result.divergence->max_kl, largest, 1e-9);
  EXPECT_NEAR(result.divergence->same_top, same / 11, 1e-12);
  EXPECT_NEAR(result.divergence->reference_loss, evaluate(*b.model, tokens, {}).loss, 1e-12);
}

TEST(EvaluateLossTest, AReferenceOfAnotherVocabularyIsRefused) {
  ModelSpec wider = small_llama_spec();
  wider.vocab_size += 1;
  LoadedModel model = make_loaded(random_model(small_llama_spec(), 94));
  LoadedModel reference = make_loaded(random_model(wider, 94));
  const Tokens tokens = random_tokens(50, 12, 94);
  const auto refused = evaluate_loss(*model.model, tokens.ids, {.reference = reference.model.get()});
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().kind, ErrorKind::kInvalidArgument);
}

TEST(EvaluateLossTest, AReferenceWhoseLogitsAreNoNumbersIsAnError) {
  const TestModel first = random_model(small_llama_spec(), 94);
  TestModel broken = first;
  for (auto& [name, tensor] : broken.tensors) std::ranges::fill(tensor.values, NAN);
  LoadedModel model = make_loaded(first);
  LoadedModel reference = make_loaded(broken);
  const Tokens tokens = random_tokens(50, 12, 94);
  const auto refused = evaluate_loss(*model.model, tokens.ids, {.reference = reference.model.get()});
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().kind, evaluate_loss(*reference.model, tokens.ids, {}).error().kind);
}

}  // namespace
}  // namespace sightline
