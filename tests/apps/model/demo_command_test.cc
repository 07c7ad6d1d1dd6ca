// sightline demo: the right run keeps every relation, each planted fault breaks the one that names it.
#include "apps/model/command_runner.h"
#include "model/text_fixtures.h"

namespace sightline {
namespace {

using namespace testing;  // NOLINT: fixtures of tests/model

TEST(DemoCommandTest, WithoutAModelItEndsWith66AfterThePartThatNeedsNone) {
  const TempFolder folder;
  const RunResult result = run_command({"demo"}, {.environment = {{"SIGHTLINE_CACHE_DIR", folder.path()}}});
  EXPECT_EQ(result.exit_code, 66);
  EXPECT_TRUE(has(result.err, "98 MB")) << result.err;
  EXPECT_TRUE(has(result.out,
                  "  1 1 1 1 0               1 0 0 0 0\n"
                  "  1 1 1 1 1               1 1 0 0 0\n"))
      << result.out;
  EXPECT_FALSE(has(result.out, "\n2. "));
}

TEST(DemoCommandTest, EveryRelationHoldsAndEachFaultBreaksTheOneThatNamesIt) {
  const TempFolder folder;
  write_text_model(folder.file("m.gguf"), 95);
  const RunResult result = run_command({"demo", "-m", folder.file("m.gguf")});
  ASSERT_EQ(result.exit_code, 0) << result.err;
  expect_demo_shows_all(result.out);
}

}  // namespace
}  // namespace sightline
