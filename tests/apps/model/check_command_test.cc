// sightline check on model files: what a file leaves out is stated as it is for every other command.
#include "apps/model/command_runner.h"
#include "model/model_fixtures.h"

namespace sightline {
namespace {

using namespace testing;  // NOLINT: fixtures of tests/model

TEST(CheckModelFilesTest, WhatTheMessageOfAnUnknownKeyAdvisesIsAnOption) {
  const TempFolder folder;
  const TestModel model = random_model(small_llama_spec(), 7);
  const std::string gguf = folder.file("m.gguf"), theirs = folder.file("hf");
  write_llama_gguf(gguf, model, llama_metadata(model.spec));
  write_llama_hf(theirs, model, with_member(llama_config(model.spec), "attention_twist", Json(3.0)));
  const std::vector<std::string> asked{"check", "--model", gguf, "--against", theirs};
  const RunResult refused = run_command(asked);
  EXPECT_NE(refused.exit_code, 0);
  EXPECT_NE(refused.err.find("attention_twist"), std::string::npos) << refused.err;
  EXPECT_NE(refused.err.find("--ignore-key"), std::string::npos) << refused.err;
  std::vector<std::string> stated = asked;
  stated.insert(stated.end(), {"--ignore-key", "attention_twist"});
  const RunResult result = run_command(stated);
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_EQ(result.out.find("agrees"), 0U) << result.out;
}

TEST(CheckModelFilesTest, StatementsAreForModelFiles) {
  const RunResult result = run_command({"check", "--engine", "--mask", "causal", "--ignore-key", "x"});
  EXPECT_EQ(result.exit_code, 2);
  EXPECT_NE(result.err.find("for --model"), std::string::npos) << result.err;
}

}  // namespace
}  // namespace sightline
