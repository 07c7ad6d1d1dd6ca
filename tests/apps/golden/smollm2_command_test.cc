// The commands on SmolLM2-135M-Instruct as people download it, against a float64 evaluation by an independent
// program. The file is named by SIGHTLINE_SMOLLM2.
#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "apps/model/command_runner.h"
#include "sightline/base/file.h"
#include "sightline/model/model_info.h"

namespace sightline {
namespace {

using namespace testing;  // NOLINT: run_command and its kin

// f32 over 30 layers against float64; the file prints six digits.
constexpr double kTolerance = 2e-3;
// The message of the system that the model's own template puts first where there is none.
constexpr const char* kSystem = "You are a helpful AI assistant named SmolLM, trained by Hugging Face";

double number(const Json& json) {
  double x = std::nan("");
  EXPECT_TRUE(json.get_number(x));
  return x;
}

class SmolLm2CommandTest : public ::testing::Test {
 protected:
  void SetUp() override {
    const char* model = std::getenv("SIGHTLINE_SMOLLM2");
    const char* data = std::getenv("SIGHTLINE_TEST_DATA");
    if (model == nullptr || !std::filesystem::exists(model)) {
      GTEST_SKIP() << "SIGHTLINE_SMOLLM2 names no file";
    }
    model_ = model;
    const std::filesystem::path golden = std::filesystem::path(data ? data : "") / "smollm2/golden.json";
    if (!std::filesystem::exists(golden)) {
      GTEST_SKIP() << "SIGHTLINE_TEST_DATA: smollm2/golden.json is not there";
    }
    golden_ = *parse_json(*read_file(golden), golden.string());
    folder_ = std::filesystem::temp_directory_path() / fmt::format("sightline_smollm2_{}", ::getpid());
    std::filesystem::create_directories(folder_);
  }
  void TearDown() override {
    if (!folder_.empty()) std::filesystem::remove_all(folder_);
  }

  const Json& golden_case(const std::string& name) const {
    for (const Json& c : *golden_.find("cases")->as_array()) {
      if (text_member(c, "name") == name) return c;
    }
    ADD_FAILURE() << name;
    return golden_;
  }

  Json score(const Json& c, std::vector<std::string> more) const {
    const std::string ids = member(c, "prompt_ids");
    std::vector<std::string> args = {
        "generate", "-m",         model_, "--tokens",    ids.substr(1, ids.size() - 2),
        "--echo",   "--logprobs", "16",   "--ignore-eos"};
    args.insert(args.end(), more.begin(), more.end());
    return run_json(args);
  }

  // The largest difference from the published log-probabilities over all positions and published tokens.
  static double largest_difference(const Json& c, const Json& out) {
    const auto& positions = *c.find("positions")->as_array();
    const auto& logprobs = *out.find("logprobs")->as_array();
    double largest = positions.size() + 1 == logprobs.size() ? 0.0 : 1e9;
    for (std::size_t i = 0; i < positions.size() && i + 1 < logprobs.size(); ++i) {
      const Json& entry = logprobs[i + 1];
      const auto compare = [&](const Json& ours, const Json& theirs) {
        const double d = std::abs(number(ours) - number(theirs));
        largest = std::isnan(d) ? 1e9 : std::max(largest, d);
      };
      if (const Json* next = positions[i].find("next_logprob"); next != nullptr && i + 1 < positions.size()) {
        compare(*entry.find("logprob"), *next);
      }
      const auto& top = *entry.find("top")->as_array();
      const auto& top_ids = *positions[i].find("top_ids")->as_array();
      for (std::size_t t = 0; t < top_ids.size(); ++t) {
        const auto found = std::ranges::find_if(
            top, [&](const Json& ours) { return member(ours, "id") == top_ids[t].dump(); });
        if (found == top.end()) return 1e9;
        compare(*found->find("logprob"), (*positions[i].find("top_logprobs")->as_array())[t]);
      }
    }
    return largest;
  }

  std::string model_;
  Json golden_;
  std::filesystem::path folder_;
};

TEST_F(SmolLm2CommandTest, IdsAndLogprobsAtEveryPositionAreThePublishedOnes) {
  for (const char* name : {"plain", "code", "chat"}) {
    const Json& c = golden_case(name);
    // One token more than was published, so that the distribution after the last published one is there too.
    const Json out = score(c, {"-n", "25", "--matmul", "f32"});
    const double largest = largest_difference(c, out);
    EXPECT_LT(largest, kTolerance) << name;
    RecordProperty(name, fmt::format("{:.3g}", largest));
    EXPECT_EQ(member(out, "prompt_ids"), member(c, "prompt_ids"));
    JsonArray ids = *out.find("ids")->as_array();
    ids.pop_back();
    EXPECT_EQ(Json(ids).dump(), member(c, "greedy_ids"));
  }
}

TEST_F(SmolLm2CommandTest, ChunksAndThreadsPrintTheSameNumbersToTheBitInEachArithmetic) {
  const Json& c = golden_case("chat");  // 35 tokens: more than two chunks of 16
  std::vector<std::string> wholes;
  for (const char* matmul : {"native", "bf16", "f32"}) {
    const std::string whole = score(c, {"-n", "3", "-t", "2", "--matmul", matmul}).dump();
    for (const char* threads : {"1", "2"}) {
      for (const char* chunk : {"1", "3", "16", "512"}) {
        EXPECT_EQ(score(c, {"-n", "3", "--chunk", chunk, "-t", threads, "--matmul", matmul}).dump(), whole)
            << chunk << ' ' << threads << ' ' << matmul;
      }
    }
    EXPECT_EQ(std::ranges::find(wholes, whole), wholes.end()) << matmul << " ran another arithmetic";
    wholes.push_back(whole);
  }
}

TEST_F(SmolLm2CommandTest, AMixedBatchEqualsEachPromptAloneToTheBit) {
  const std::vector<std::string> prompts = {"The capital of France is", "Once", "def fibonacci(n): return"};
  std::ofstream(folder_ / "batch.txt") << fmt::format("{}\n", fmt::join(prompts, "\n"));
  const std::vector<std::string> args = {"generate",   "-m", model_,   "-n",  "12",     "--echo",
                                         "--logprobs", "4",  "--temp", "0.8", "--seed", "5"};
  std::vector<std::string> batch = args;
  batch.insert(batch.end(), {"--batch", (folder_ / "batch.txt").string(), "--chunk", "4"});
  const Json together = run_json(batch);
  ASSERT_EQ(together.as_array()->size(), prompts.size());
  for (std::size_t i = 0; i < prompts.size(); ++i) {
    std::vector<std::string> alone = args;
    alone.insert(alone.end(), {"-p", prompts[i]});
    EXPECT_EQ((*together.as_array())[i].dump(), run_json(alone).dump()) << prompts[i];
  }
}

TEST_F(SmolLm2CommandTest, TokenizeGivesThePublishedIdsAndDecodesThemBack) {
  for (const Json& row : *golden_.find("tokenizer")->as_array()) {
    const std::string text = text_member(row, "text");
    std::ofstream(folder_ / "text.txt", std::ios::binary) << text;
    const std::vector<std::string> args = {"tokenize", "-m", model_, "-f", (folder_ / "text.txt").string()};
    std::vector<std::string> special = args;
    special.emplace_back("--special");
    const std::string parsed = member(row, "ids_special_parsed");
    const std::string plain = member(row, "ids_plain") == "\"same\"" ? parsed : member(row, "ids_plain");
    EXPECT_EQ(member(run_json(special), "ids"), parsed) << text;
    EXPECT_EQ(member(run_json(args), "ids"), plain) << text;
    const Json back = run_json({"tokenize", "-m", model_, "--decode", plain.substr(1, plain.size() - 2)});
    EXPECT_EQ(text_member(back, "text"), text);
  }
}

TEST_F(SmolLm2CommandTest, ChatThroughTheTemplateGivesThePublishedIds) {
  const Json& c = golden_case("chat");
  for (const bool says_system : {true, false}) {
    std::vector<std::string> args = {
        "generate", "-m", model_,     "--chat", "-p", "Name three primary colours.",
        "-n",       "24", "--matmul", "f32"};
    if (says_system) args.insert(args.end(), {"--system", kSystem});
    const Json out = run_json(args);
    EXPECT_EQ(member(out, "prompt_ids"), member(c, "prompt_ids")) << says_system;
    EXPECT_EQ(member(out, "ids"), member(c, "greedy_ids"));
  }
}

TEST_F(SmolLm2CommandTest, EvalLossIsThePublishedOneAndEqualStepByStep) {
  const Json& c = golden_case("plain");
  std::ofstream(folder_ / "text.txt", std::ios::binary) << text_member(c, "prompt");
  const Json out =
      run_json({"eval", "loss", "-m", model_, "-f", (folder_ / "text.txt").string(), "--matmul", "f32"});
  EXPECT_EQ(member(out, "equal"), "true");
  EXPECT_EQ(member(out, "teacher_forced"), member(out, "step_by_step"));
  double sum = 0;
  for (std::size_t i = 0; i < 4; ++i) {
    sum -= number(*(*c.find("positions")->as_array())[i].find("next_logprob"));
  }
  EXPECT_NEAR(number(*out.find("teacher_forced")->find("loss")), sum / 4, kTolerance);
}

// The cache takes pages as tokens come, so the bound here is on what the tokens of this run take: far below
// what a whole context of 8192 would. A gradient of one layer more, or weights held twice, would not fit.
TEST_F(SmolLm2CommandTest, PeakMemoryIsPackedWeightsCacheAnd64MiBAtMost) {
  LoadOptions options;
  options.matmul = Matmul::kNative;
  const auto info = read_model_info(model_, options);
  ASSERT_TRUE(info) << info.error().message;
  std::string prompt;
  for (int i = 0; i < 600; ++i) prompt += fmt::format(" {}", i % 10);
  std::ofstream(folder_ / "prompt.txt") << prompt;
  const RunResult result = run_command({"generate", "-m", model_, "-f", (folder_ / "prompt.txt").string(),
                                        "-c", "8192", "-n", "2", "-t", "2", "--json"},
                                       {.timeout_seconds = 300});
  ASSERT_EQ(result.exit_code, 0) << result.err;
  const Json out = *parse_json(result.out, "standard output");
  const auto num_tokens = static_cast<std::int64_t>(out.find("prompt_ids")->as_array()->size() + 2);
  ASSERT_GT(num_tokens, 600);
  constexpr std::int64_t kPageTokens = 64;
  const std::int64_t cached = (num_tokens + kPageTokens - 1) / kPageTokens * kPageTokens;
  const std::int64_t bound =
      info->packed_weight_bytes + memory_table(*info, cached).cache_f32 + (std::int64_t{64} << 20);
  EXPECT_LT(static_cast<std::int64_t>(result.peak_bytes), bound);
  RecordProperty("peak_mib", static_cast<int>(result.peak_bytes >> 20));
  RecordProperty("bound_mib", static_cast<int>(bound >> 20));
}

TEST_F(SmolLm2CommandTest, InfoReadsTheHeaderOnly) {
  const RunResult result = run_command({"info", model_});
  ASSERT_EQ(result.exit_code, 0) << result.err;
  for (const char* part :
       {"layers 0..29: GQA 9 query / 3 key heads of 64, causal", "neighbours", "assumptions",
        "weights, native", "cache, f32", "activations", "workspace", "metadata"}) {
    EXPECT_TRUE(has(result.out, part)) << part;
  }
  // Neither 98 MB of weights nor their packed form was ever in memory.
  EXPECT_LT(result.peak_bytes, std::size_t{64} << 20);
}

TEST_F(SmolLm2CommandTest, DemoNamesEachPlantedFaultByTheRelationThatFails) {
  const RunResult result = run_command({"demo", "-m", model_}, {.timeout_seconds = 300});
  ASSERT_EQ(result.exit_code, 0) << result.err;
  expect_demo_shows_all(result.out);
  EXPECT_TRUE(has(demo_part(result.out, 3).text, "The capital of France is Paris."));
}

}  // namespace
}  // namespace sightline
