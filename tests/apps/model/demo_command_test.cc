// sightline demo: the right run keeps every relation, each planted fault breaks the one that names it.
#include "apps/model/command_runner.h"
#include "model/text_fixtures.h"

namespace sightline {
namespace {

using namespace testing;  // NOLINT: fixtures of tests/model

TEST(DemoCommandTest, WithoutAModelItEndsWith66AfterThePartsThatNeedNone) {
  const TempFolder folder;
  const RunResult result = run_command({"demo"}, {.environment = {{"SIGHTLINE_CACHE_DIR", folder.path()}}});
  EXPECT_EQ(result.exit_code, 66);
  EXPECT_TRUE(has(result.err, "98 MB")) << result.err;
  EXPECT_TRUE(has(result.out, "\n1. A real wrong release\n\nonnx 1.19.0")) << result.out;
  EXPECT_TRUE(has(result.out, "attention_past.npz\n  fault: mask.top_left_alignment: ")) << result.out;
  EXPECT_TRUE(has(result.out,
                  "  1 1 1 1 0               1 0 0 0 0\n"
                  "  1 1 1 1 1               1 1 0 0 0\n"))
      << result.out;
  EXPECT_FALSE(has(result.out, "\n3. "));
}

TEST(DemoCommandTest, EveryRelationHoldsAndEachFaultBreaksTheOneThatNamesIt) {
  const TempFolder folder;
  write_text_model(folder.file("m.gguf"), 95);
  const RunResult result = run_command({"demo", "-m", folder.file("m.gguf")});
  ASSERT_EQ(result.exit_code, 0) << result.err;
  expect_demo_shows_all(result.out);
}

TEST(DemoCommandTest, TheCommandItSuggestsCanBePastedAndGivesTheTextOfThatFault) {
  const TempFolder folder;
  const std::string model = folder.file("it's a $model.gguf");
  write_text_model(model, 95);
  const RunResult demo = run_command({"demo", "-m", model});
  ASSERT_EQ(demo.exit_code, 0) << demo.err;
  const auto commands = lines_with(demo.out, "  ./sightline generate ");
  ASSERT_EQ(commands.size(), 1U) << demo.out;
  ASSERT_TRUE(has(demo.out, "Try one yourself:\n" + commands[0])) << demo.out;
  const std::string rest = commands[0].substr(std::string("  ./sightline").size());
  const RunResult generate = run_program({"/bin/bash", "-c", SIGHTLINE_PROGRAM + rest});
  ASSERT_EQ(generate.exit_code, 0) << generate.err;
  std::string text = generate.out;
  ASSERT_TRUE(text.ends_with('\n'));
  text.pop_back();
  for (std::size_t at = 0; (at = text.find('\n', at)) != std::string::npos;) text.replace(at, 1, " / ");
  EXPECT_EQ(demo_part(demo.out, 4).text, "  text      The capital of France is" + text);
}

}  // namespace
}  // namespace sightline
