#include "apps/cli.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "apps/command.h"

namespace sightline::apps {
namespace {

// One parse of `args` by a command line with one of everything.
struct Parsed {
  std::int64_t num_tokens = 16;
  double temp = 0.5;
  bool json = false;
  std::string cache_type = "f32";
  std::string prompt = "default";
  std::vector<std::string> stops;
  std::optional<std::uint64_t> seed;
  std::string mask;
  std::vector<std::filesystem::path> files;
  std::optional<Result<int>> ended;

  explicit Parsed(std::vector<std::string> args) {
    Output out(-1, "out");
    Output err(-1, "err");
    Invocation call{std::move(args), out, err};
    Cli cli("frob", "Frobs.");
    cli.option("-n,--predict", num_tokens, "N", "").range(1, 100);
    cli.option("--temp", temp, "T", "");
    cli.flag("--json", json, "");
    cli.option("-ctk,--cache-type-k", cache_type, "TYPE", "").choices({"f32", "bf16"});
    cli.option("-p,--prompt", prompt, "TEXT", "");
    cli.option("--stop", stops, "TEXT", "");
    cli.option("--seed", seed, "N", "");
    cli.positional("MASK", mask, "").required();
    cli.positional("FILE", files, "");
    ended = cli.parse(call);
  }
  [[nodiscard]] bool ok() const { return !ended; }
  [[nodiscard]] std::string message() const { return ended && !*ended ? ended->error().message : ""; }
};

TEST(CliTest, ReadsEveryKindInEveryForm) {
  const Parsed p({"-n5", "--temp=1.25", "causal & window(4)", "--json", "-ctk", "bf16", "-p", "--json",
                  "--stop", "a", "--stop=[b,c]", "--seed", "18446744073709551615", "x", "--", "-y", "--"});
  ASSERT_TRUE(p.ok()) << p.message();
  EXPECT_EQ(p.num_tokens, 5);
  EXPECT_EQ(p.temp, 1.25);
  EXPECT_TRUE(p.json);
  EXPECT_EQ(p.cache_type, "bf16");
  EXPECT_EQ(p.prompt, "--json");  // the word after an option is its value
  EXPECT_EQ(p.stops, (std::vector<std::string>{"a", "[b,c]"}));
  EXPECT_EQ(p.seed, 18446744073709551615u);
  EXPECT_EQ(p.mask, "causal & window(4)");
  ASSERT_EQ(p.files.size(), 3u);
  EXPECT_EQ(p.files[1], "-y");
  EXPECT_EQ(p.files[2], "--");
}

TEST(CliTest, DefaultsStayWhereNothingIsGiven) {
  const Parsed p({"[a,b]"});
  ASSERT_TRUE(p.ok()) << p.message();
  EXPECT_EQ(p.mask, "[a,b]");
  EXPECT_EQ(p.num_tokens, 16);
  EXPECT_EQ(p.prompt, "default");
  EXPECT_FALSE(p.seed.has_value());
  EXPECT_TRUE(p.files.empty());
}

TEST(CliTest, EmptyValuesAndTextsOfOptionsArePassedOn) {
  for (const auto& args : std::vector<std::vector<std::string>>{{"--prompt=", "m"}, {"-p", "", "m"}}) {
    const Parsed p(args);
    ASSERT_TRUE(p.ok()) << p.message();
    EXPECT_EQ(p.prompt, "");
    EXPECT_EQ(p.mask, "m");
  }
  const Parsed alias_as_value({"-p", "-ctk", "m"});
  ASSERT_TRUE(alias_as_value.ok()) << alias_as_value.message();
  EXPECT_EQ(alias_as_value.prompt, "-ctk");
}

TEST(CliTest, RefusesValuesThatDoNotConvertAndNamesTheOption) {
  for (const char* text :
       {"12x", "", " 5", "+5", "1e3", "0x10", "5.0", "99999999999999999999", "0", "101", "-1", "nan"}) {
    const Parsed p({"m", "-n", text});
    EXPECT_FALSE(p.ok()) << text;
    EXPECT_NE(p.message().find("--predict"), std::string::npos) << p.message();
  }
  for (const char* text : {"nan", "inf", "-inf", "1e999", "1,5", "", "x"}) {
    EXPECT_NE(Parsed({"m", "--temp", text}).message().find("--temp"), std::string::npos) << text;
  }
  EXPECT_NE(Parsed({"m", "-ctk", "q4"}).message().find("f32 or bf16"), std::string::npos);
  EXPECT_NE(Parsed({"m", "--seed", "-1"}).message().find("--seed"), std::string::npos);
}

TEST(CliTest, RefusesRepeatsMissingAndUnknown) {
  EXPECT_NE(Parsed({"m", "-n", "1", "--predict", "2"}).message().find("given 2 times"), std::string::npos);
  EXPECT_NE(Parsed({"m", "-n"}).message().find("needs a value"), std::string::npos);
  EXPECT_NE(Parsed({}).message().find("MASK is missing"), std::string::npos);
  EXPECT_NE(Parsed({"m", "--predic", "1"}).message().find("did you mean '--predict'"), std::string::npos);
  EXPECT_NE(Parsed({"m", "--json=maybe"}).message().find("--json"), std::string::npos);
}

TEST(CliTest, VariableStandsInForAnOption) {
  ::setenv("SIGHTLINE_CACHE_TYPE_K", "bf16", 1);
  ::setenv("SIGHTLINE_JSON", "1", 1);
  const Parsed from_variable({"m"});
  const Parsed from_option({"m", "-ctk", "f32"});
  ::setenv("SIGHTLINE_CACHE_TYPE_K", "q9", 1);
  const Parsed wrong({"m"});
  ::unsetenv("SIGHTLINE_CACHE_TYPE_K");
  ::unsetenv("SIGHTLINE_JSON");
  EXPECT_EQ(from_variable.cache_type, "bf16");
  EXPECT_TRUE(from_variable.json);
  EXPECT_EQ(from_option.cache_type, "f32");
  EXPECT_NE(wrong.message().find("SIGHTLINE_CACHE_TYPE_K (environment)"), std::string::npos)
      << wrong.message();
}

TEST(CliTest, QuoteEscapesControlBytesAndInvalidUtf8AndCutsLongText) {
  EXPECT_EQ(quote("caf\xc3\xa9"), "'caf\xc3\xa9'");
  EXPECT_EQ(quote("a\x1b[31m\xff\xc3"), "'a\\x1b[31m\\xff\\xc3'");
  EXPECT_LT(quote(std::string(1 << 20, 'x')).size(), 100u);
}

// Row 113 of the bad-input table, and what holds for every report file.
class ReportTest : public ::testing::Test {
 protected:
  void SetUp() override {
    folder_ = std::filesystem::temp_directory_path() / ("sightline_report_" + std::to_string(::getpid()));
    std::filesystem::create_directories(folder_);
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }

  // Runs a command that writes "data\n"; the error kind, or nothing.
  std::optional<ErrorKind> report(const std::filesystem::path& path, bool force) {
    Output out(-1, "standard output");
    Output err(-1, "standard error");
    Invocation call{{"--output", path.string()}, out, err};
    if (force) call.args.emplace_back("--force");
    Cli cli("frob", "Frobs.");
    cli.report_options();
    if (const auto ended = cli.parse(call)) return ended->error().kind;
    out.print("data\n");
    const auto done = out.commit();
    return done ? std::nullopt : std::optional(done.error().kind);
  }
  static std::string read(const std::filesystem::path& path) {
    std::ostringstream text;
    text << std::ifstream(path).rdbuf();
    return text.str();
  }
  std::filesystem::path folder_;
};

TEST_F(ReportTest, ExistingFileLinkFolderAndDeviceAreRefusedUnlessForced) {
  const auto file = folder_ / "file";
  const auto link = folder_ / "link";
  std::ofstream(file) << "old";
  std::filesystem::create_symlink(file, link);
  EXPECT_EQ(report(file, false), ErrorKind::kCannotCreate);
  EXPECT_EQ(report(link, false), ErrorKind::kCannotCreate);
  EXPECT_EQ(report(folder_, false), ErrorKind::kCannotCreate);
  EXPECT_EQ(read(file), "old");

  EXPECT_EQ(report(folder_, true), ErrorKind::kCannotCreate);
  EXPECT_EQ(report("/dev/null", true), ErrorKind::kCannotCreate);
  EXPECT_EQ(report(folder_ / "missing" / "file", true), ErrorKind::kCannotCreate);
  EXPECT_EQ(report(link, true), std::nullopt);  // replaces the link, not what it points to
  EXPECT_EQ(read(file), "old");
  EXPECT_EQ(read(link), "data\n");
  EXPECT_EQ(report(file, true), std::nullopt);
  EXPECT_EQ(read(file), "data\n");
}

TEST_F(ReportTest, ReportThatIsNotCommittedLeavesNothing) {
  {
    Output out(-1, "standard output");
    ASSERT_TRUE(out.redirect(folder_ / "file", false));
    out.write(std::string(1 << 20, 'x'));
  }
  EXPECT_TRUE(std::filesystem::is_empty(folder_));
  EXPECT_EQ(report(folder_ / "caf\xff", false), std::nullopt);  // names need not be UTF-8
  EXPECT_EQ(read(folder_ / "caf\xff"), "data\n");
}

TEST(OutputTest, ColourFollowsModeAndVariables) {
  ::unsetenv("NO_COLOR");
  Output out(-1, "out");
  EXPECT_EQ(out.paint(Color::kRed, "x"), "x");
  out.set_color(ColorMode::kAlways);
  EXPECT_EQ(out.paint(Color::kRed, "x"), "\x1b[31mx\x1b[0m");
  ::setenv("FORCE_COLOR", "1", 1);
  out.set_color(ColorMode::kAuto);
  EXPECT_TRUE(out.has_color());
  ::setenv("NO_COLOR", "1", 1);
  out.set_color(ColorMode::kAuto);
  EXPECT_FALSE(out.has_color());
  out.set_color(ColorMode::kAlways);
  EXPECT_TRUE(out.has_color());
  ::unsetenv("FORCE_COLOR");
  ::unsetenv("NO_COLOR");
}

}  // namespace
}  // namespace sightline::apps
