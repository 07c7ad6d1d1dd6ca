// The program as a person or a script meets it: exit codes, messages, output that cannot be written.
// Rows 110 to 113 of the bad-input table.
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>
#include <vector>

#include "support/subprocess.h"

namespace sightline {
namespace {

using testing::RunOptions;
using testing::RunResult;

RunResult run(std::vector<std::string> args, const RunOptions& options = {}) {
  args.insert(args.begin(), SIGHTLINE_PROGRAM);
  return testing::run_program(args, options);
}

std::size_t count_lines(const std::string& text) {
  return static_cast<std::size_t>(std::count(text.begin(), text.end(), '\n'));
}

TEST(ProgramTest, VersionAndHelpGoToStandardOutput) {
  const RunResult version = run({"--version"});
  EXPECT_EQ(version.exit_code, 0);
  EXPECT_EQ(version.out.substr(0, 10), "sightline ");
  EXPECT_EQ(version.err, "");
  const RunResult help = run({"--help"});
  EXPECT_EQ(help.exit_code, 0);
  EXPECT_NE(help.out.find("completion"), std::string::npos);
  EXPECT_EQ(run({"completion", "-h"}).exit_code, 0);
}

TEST(ProgramTest, WrongUsageIsOneLineOnStandardErrorAndExitTwo) {
  const std::string megabyte(120 * 1024, 'x');  // the largest single argument that Linux passes is 128 KiB
  const std::vector<std::vector<std::string>> cases = {
      {},
      {"--"},
      {"nosuchcommand"},
      {"completion"},
      {"completion", "--"},
      {"completion", "--nosuch", "bash"},
      {"completion", "bash", "--color"},
      {"completion", "bash", "--color=red"},
      {"completion", "bash", "--color=", "auto"},
      {"completion", "bash", "--color", "auto", "--color", "never"},
      {"completion", "bash", "extra"},
      {"completion", "--color", "--color", "bash"},
      {"completion", "[bash,zsh]"},
      {"completion", "\xff\xfe\x01"},
      {megabyte},
      {"completion", megabyte},
      {"completion", "--" + megabyte},
  };
  for (const auto& args : cases) {
    const RunResult result = run(args);
    const std::string shown = args.empty() ? "" : args.back().substr(0, 20);
    EXPECT_EQ(result.exit_code, 2) << shown;
    EXPECT_EQ(result.out, "") << shown;
    EXPECT_EQ(count_lines(result.err), 1u) << result.err;
    EXPECT_EQ(result.err.find('\x01'), std::string::npos);
    EXPECT_LT(result.err.size(), 400u) << shown;
  }
}

TEST(ProgramTest, UnknownNamesSuggestTheNearest) {
  EXPECT_NE(run({"completoin"}).err.find("did you mean 'completion'?"), std::string::npos);
  EXPECT_NE(run({"completion", "--colr", "bash"}).err.find("did you mean '--color'?"), std::string::npos);
  EXPECT_EQ(run({"completion", "--zzzzzz", "bash"}).err.find("did you mean"), std::string::npos);
}

TEST(ProgramTest, OptionBeatsVariableBeatsDefault) {
  const RunOptions wrong_variable{.environment = {{"SIGHTLINE_COLOR", "red"}}};
  const RunResult result = run({"completion", "bash"}, wrong_variable);
  EXPECT_EQ(result.exit_code, 2);
  EXPECT_NE(result.err.find("SIGHTLINE_COLOR"), std::string::npos);
  EXPECT_EQ(run({"completion", "bash", "--color", "never"}, wrong_variable).exit_code, 0);
}

TEST(ProgramTest, OutputThatCannotBeWrittenEndsWith74) {
  for (const RunOptions& options : {RunOptions{.closes_stdout = true}, RunOptions{.stdout_path = "/dev/full"},
                                    RunOptions{.breaks_stdout = true}}) {
    for (const std::vector<std::string>& args : {std::vector<std::string>{"--version"},
                                                 {"--help"},
                                                 {"completion", "bash"},
                                                 {"completion", "--help"}}) {
      const RunResult result = run(args, options);
      EXPECT_EQ(result.exit_code, 74) << args.back();
      EXPECT_EQ(result.signal, 0);
      EXPECT_EQ(count_lines(result.err), 1u) << result.err;
    }
  }
}

TEST(ProgramTest, HelpNamesTheWordsThatAnOptionTakesAndOnlyDefaultsThatItTakes) {
  const auto line_of = [](const std::string& help, const std::string& option) {
    const std::size_t begin = help.find("\n  " + option);
    return begin == std::string::npos ? "" : help.substr(begin, help.find("\n  -", begin + 1) - begin);
  };
  const RunResult explain = run({"explain", "--help"});
  EXPECT_NE(line_of(explain.out, "--pairing").find("half_split, interleaved"), std::string::npos)
      << explain.out;
  const RunResult generate = run({"generate", "--help"});
  if (generate.exit_code == 78) GTEST_SKIP() << "left out of a core-only build";
  EXPECT_NE(line_of(generate.out, "--rope-pairing").find("interleaved, half_split, none"), std::string::npos)
      << generate.out;
  EXPECT_NE(line_of(generate.out, "-t, --threads").find("all that this process may use"), std::string::npos);
  EXPECT_EQ(line_of(generate.out, "-t, --threads").find("default 0"), std::string::npos) << "0 is refused";
}

TEST(ProgramTest, EveryCommandAnswersHelpAndListsItsOptions) {
  const RunResult names = run({"--complete-options"});
  std::istringstream lines(names.out);
  for (std::string name; std::getline(lines, name);) {
    if (name.starts_with("-")) continue;
    const RunResult help = run({name, "--help"});
    if (help.exit_code == 78) continue;  // left out of a core-only build
    EXPECT_EQ(help.exit_code, 0) << name << help.err;
    EXPECT_TRUE(help.out.starts_with("usage: sightline " + name)) << help.out;
    EXPECT_NE(run({name, "--complete-options"}).out.find("--help\n"), std::string::npos) << name;
    const RunResult wrong = run({name, "--no-such-option"});
    EXPECT_EQ(wrong.exit_code, 2) << name << wrong.err;
    EXPECT_NE(wrong.err.find("--no-such-option"), std::string::npos) << wrong.err;
  }
}

}  // namespace
}  // namespace sightline
