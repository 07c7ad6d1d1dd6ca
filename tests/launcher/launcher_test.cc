// ./sightline and ./verify up to the program: packages, the system, what is built when, exit codes, locks.
// They run in a copy of their own, where every tool that could change the machine is
// tests/launcher/fake_tool.sh.
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <future>
#include <iterator>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

#include "support/subprocess.h"

namespace sightline {
namespace {

using testing::RunOptions;
using testing::RunResult;
namespace fs = std::filesystem;

bool has(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

std::string content_of(const fs::path& path) {
  std::ifstream in(path);
  return {std::istreambuf_iterator<char>(in), {}};
}

std::vector<std::string> lines_of(const fs::path& path) {
  std::ifstream in(path);
  std::vector<std::string> lines;
  for (std::string line; std::getline(in, line);) lines.push_back(line);
  return lines;
}

void put(const fs::path& path, const std::string& text) {
  fs::create_directories(path.parent_path());
  std::ofstream(path) << text;
}

/// Names of a section of tools/packages.txt.
std::vector<std::string> packages_of(const fs::path& list, const std::vector<std::string>& sections) {
  std::vector<std::string> names;
  for (const std::string& line : lines_of(list)) {
    std::istringstream words(line);
    std::string section, name;
    words >> section >> name;
    if (std::find(sections.begin(), sections.end(), section) == sections.end()) continue;
    if (std::find(names.begin(), names.end(), name) == names.end()) names.push_back(name);
  }
  return names;
}

class LauncherTest : public ::testing::Test {
 protected:
  void SetUp() override {
    const char* source_dir = std::getenv("SIGHTLINE_SOURCE_DIR");
    ASSERT_NE(source_dir, nullptr) << "run through ctest, or set SIGHTLINE_SOURCE_DIR";
    const fs::path source = source_dir;
    std::string name = (fs::temp_directory_path() / "sightline_launcher_XXXXXX").string();
    ASSERT_NE(::mkdtemp(name.data()), nullptr);
    scene_ = name;
    tree_ = scene_ / "tree";
    fs::create_directories(tree_ / "tools");
    for (const char* file : {"sightline", "verify", "tools/common.sh", "tools/packages.txt"}) {
      fs::copy_file(source / file, tree_ / file);
    }
    for (const char* folder : {"cmake", "src", "include", "apps"}) fs::create_directories(tree_ / folder);
    put(tree_ / "CMakeLists.txt", "");
    put_script(tree_ / "tools/fetch_smollm2", "echo fetch_smollm2 >>\"$FAKE/calls\"\n");
    // The PATH holds this folder alone: a tool that nobody thought of is not found, rather than run.
    const fs::path bin = scene_ / "bin";
    fs::create_directories(bin);
    for (const char* tool : {"apt-get", "sudo", "dpkg-query", "id", "cargo", "cmake", "ninja"}) {
      fs::create_symlink(source / "tests/launcher/fake_tool.sh", bin / tool);
    }
    for (const char* tool :
         {"awk",    "bash",  "cat",      "chmod", "date", "dirname", "find", "flock", "grep", "head", "mkdir",
          "mktemp", "nproc", "readlink", "rm",    "sed",  "sort",    "tail", "touch", "true", "tr"}) {
      const fs::path here = fs::exists(fs::path("/usr/bin") / tool) ? "/usr/bin" : "/bin";
      fs::create_symlink(here / tool, bin / tool);
    }
    put(scene_ / "os-release", "ID=debian\nVERSION_ID=\"12\"\n");
    put(scene_ / "calls", "");
    install({"core", "full", "test"});
  }
  void TearDown() override {
    if (!scene_.empty()) fs::remove_all(scene_);
  }

  static void put_script(const fs::path& path, const std::string& text) {
    put(path, "#!/bin/bash\n" + text);
    fs::permissions(path, fs::perms::owner_all);
  }
  /// From now on the packages of these sections are there, except `missing`.
  void install(const std::vector<std::string>& sections, const std::vector<std::string>& missing = {}) {
    std::string text;
    for (const std::string& name : packages_of(tree_ / "tools/packages.txt", sections)) {
      if (std::find(missing.begin(), missing.end(), name) == missing.end()) text += name + "\n";
    }
    put(scene_ / "installed", text);
  }
  [[nodiscard]] RunOptions options() const {
    return {.environment = {{"PATH", (scene_ / "bin").string()},
                            {"FAKE", scene_.string()},
                            {"FAKE_UID", uid_},
                            {"FAKE_SUDO", sudo_},
                            {"FAKE_CARGO", cargo_},
                            {"FAKE_EXIT", program_exit_},
                            {"SIGHTLINE_OS_RELEASE", (scene_ / "os-release").string()},
                            {"SIGHTLINE_SKIP_SYSTEM_CHECK", skips_check_},
                            {"SIGHTLINE_SMOLLM2", "none"}}};
  }
  [[nodiscard]] RunResult run(std::vector<std::string> args) const {
    args[0] = (tree_ / args[0]).string();
    return testing::run_program(args, options());
  }
  [[nodiscard]] std::vector<std::string> calls() const { return lines_of(scene_ / "calls"); }
  [[nodiscard]] std::size_t num_calls(const std::string& part) const {
    std::size_t n = 0;
    for (const std::string& line : calls()) n += has(line, part) ? 1U : 0U;
    return n;
  }
  /// Ends with `code` before anything was built or installed, and says each of `parts`.
  void expect_stopped(const std::vector<std::string>& args, int code, const std::vector<std::string>& parts) {
    const RunResult result = run(args);
    SCOPED_TRACE(args[0] + ": " + result.err);
    EXPECT_EQ(result.exit_code, code);
    for (const std::string& part : parts) EXPECT_TRUE(has(result.err, part)) << part;
    for (const char* tool : {"apt-get", "cmake", "ninja", "fetch_smollm2"})
      EXPECT_EQ(num_calls(tool), 0U) << tool;
  }

  fs::path scene_, tree_;
  std::string uid_ = "1000", sudo_, cargo_, program_exit_, skips_check_;
};

TEST_F(LauncherTest, WithoutRightsTheMissingPackagesAreListedAndItEndsWith77) {
  install({"core", "full", "test"}, {"ninja-build", "libzip-dev"});
  for (const char* command : {"explain", "demo"}) {
    expect_stopped({"sightline", command}, 77,
                   {"needs root",
                    "  apt-get update && apt-get install --no-install-recommends ninja-build libzip-dev\n"});
    EXPECT_EQ(run({"sightline", command}).out, "");
  }
  expect_stopped({"verify", "--fast"}, 77, {"needs root", "ninja-build libzip-dev\n"});
}

TEST_F(LauncherTest, EachCommandAsksForItsOwnPackages) {
  install({"core"});
  EXPECT_EQ(run({"sightline", "explain", "causal"}).exit_code, 0);
  put(scene_ / "calls", "");
  expect_stopped({"sightline", "info", "m.gguf"}, 77, {"cargo-web rustc-web ca-certificates"});
  install({"core", "full"});
  expect_stopped({"verify"}, 77, {"libgtest-dev", "clang-format-19"});
}

TEST_F(LauncherTest, ACargoThatIsNewEnoughStandsForTheRustPackages) {
  install({"core", "full", "test"}, {"cargo-web", "rustc-web"});
  for (const char* version : {"", "1.84.1"}) {
    cargo_ = version;
    expect_stopped({"sightline", "demo"}, 77, {"cargo-web rustc-web"});
  }
  for (const char* version : {"1.85.0", "2.0.0"}) {
    cargo_ = version;
    fs::remove_all(tree_ / "build");
    EXPECT_EQ(run({"sightline", "demo"}).exit_code, 0) << version;
  }
}

TEST_F(LauncherTest, AnotherSystemPrintsThePackagesAndEndsWith78) {
  install({});
  uid_ = "0";
  for (const char* release : {"ID=debian\nVERSION_ID=\"11\"\n", "ID=ubuntu\nVERSION_ID=\"12\"\n", ""}) {
    put(scene_ / "os-release", release);
    for (const std::vector<std::string>& args :
         {std::vector<std::string>{"sightline", "explain"}, {"verify"}}) {
      expect_stopped(args, 78,
                     {"Debian 12", "SIGHTLINE_SKIP_SYSTEM_CHECK=1", "\n  g++\n", "\n  libzip-dev\n"});
    }
  }
  fs::remove(scene_ / "os-release");
  expect_stopped({"sightline", "explain"}, 78, {"this system is unknown"});
  put(scene_ / "os-release", "ID=debian\nVERSION_ID=\"12\"\n");
  fs::remove(scene_ / "bin/dpkg-query");
  expect_stopped({"sightline", "explain"}, 78, {"Debian 12"});
  skips_check_ = "1";
  EXPECT_EQ(run({"sightline", "explain"}).exit_code, 0) << "the person has seen to it";
}

TEST_F(LauncherTest, WithRightsTheMissingPackagesAloneAreInstalled) {
  const std::string install_line = "apt-get install -y -q --no-install-recommends ninja-build libzip-dev";
  install({"core"}, {"ninja-build", "libzip-dev"});
  sudo_ = "1";
  const RunResult through_sudo = run({"sightline", "explain"});
  EXPECT_EQ(through_sudo.exit_code, 0) << through_sudo.err;
  EXPECT_TRUE(has(through_sudo.err, "installing with apt-get")) << through_sudo.err;
  EXPECT_EQ(num_calls("sudo -n apt-get update"), 1U);
  EXPECT_EQ(num_calls("sudo -n " + install_line), 1U);
  install({"core"}, {"ninja-build", "libzip-dev"});
  fs::remove_all(tree_ / "build");
  put(scene_ / "calls", "");
  uid_ = "0";
  EXPECT_EQ(run({"sightline", "explain"}).exit_code, 0);
  EXPECT_EQ(num_calls("sudo"), 0U);
  EXPECT_EQ(num_calls(install_line), 1U);
}

TEST_F(LauncherTest, WithoutANetworkItEndsWith75AndTheReason) {
  install({"core"}, {"libzip-dev"});
  put(scene_ / "no_network", "");
  uid_ = "0";
  const RunResult result = run({"sightline", "explain"});
  EXPECT_EQ(result.exit_code, 75);
  EXPECT_TRUE(has(result.err, "W: Temporary failure resolving\n")) << result.err;
  EXPECT_TRUE(has(result.err, "E: Unable to locate package 30\n")) << result.err;
  EXPECT_FALSE(has(result.err, "E: Unable to locate package 10\n")) << "the last lines, not all";
  EXPECT_TRUE(has(result.err, "is there a network? The command was: apt-get install ")) << result.err;
  EXPECT_EQ(num_calls("ninja"), 0U);
}

TEST_F(LauncherTest, ItBuildsWhatIsMissingOrStaleAndPassesArgumentsAndExitCodeOn) {
  program_exit_ = "65";
  const RunResult first = run({"sightline", "explain", "causal & window(4)", "--json"});
  EXPECT_EQ(first.exit_code, 65);
  EXPECT_EQ(first.out, "core: explain causal & window(4) --json\n");
  EXPECT_EQ(num_calls("cmake --preset core"), 1U);
  EXPECT_EQ(run({"sightline", "explain", "causal"}).err, "") << "nothing to build, nothing to say";
  EXPECT_EQ(run({"sightline", "info", "m.gguf"}).out, "release: info m.gguf\n");
  EXPECT_EQ(run({"sightline", "explain", "causal"}).out, "release: explain causal\n") << "it does for all";
  EXPECT_EQ(num_calls("ninja"), 2U);
  put(tree_ / "src/base/error.cc", "changed");
  EXPECT_TRUE(has(run({"sightline", "info", "m.gguf"}).err, "building what changed"));
  EXPECT_EQ(run({"sightline", "info", "m.gguf"}).err, "");
  EXPECT_EQ(num_calls("ninja"), 3U);
  EXPECT_EQ(num_calls("cmake"), 2U) << "configured once";
}

TEST_F(LauncherTest, ANewBuildFolderUsesTheCompilerCacheWhereOneCanBeWritten) {
  const std::string launcher = "-DCMAKE_CXX_COMPILER_LAUNCHER=ccache";
  EXPECT_EQ(run({"sightline", "explain"}).exit_code, 0);
  EXPECT_EQ(num_calls(launcher), 0U) << "there is no ccache";
  fs::create_symlink(fs::path(std::getenv("SIGHTLINE_SOURCE_DIR")) / "tests/launcher/fake_tool.sh",
                     scene_ / "bin/ccache");
  put(scene_ / "ccache", "in the way of the folder");
  fs::remove_all(tree_ / "build");
  EXPECT_EQ(run({"sightline", "explain"}).exit_code, 0);
  EXPECT_EQ(num_calls(launcher), 0U) << "a cache that cannot be written would fail the build";
  fs::remove(scene_ / "ccache");
  fs::remove_all(tree_ / "build");
  EXPECT_EQ(run({"sightline", "explain"}).exit_code, 0);
  EXPECT_EQ(num_calls(launcher), 1U);
}

TEST_F(LauncherTest, OnlyADemoThatRunsFetchesTheModel) {
  for (const std::vector<std::string>& args : {std::vector<std::string>{"sightline", "demo", "--help"},
                                               {"sightline", "demo", "-h"},
                                               {"sightline", "explain"}}) {
    EXPECT_EQ(run(args).exit_code, 0);
    EXPECT_EQ(num_calls("fetch_smollm2"), 0U);
  }
  EXPECT_EQ(run({"sightline", "demo"}).out, "release: demo\n");
  EXPECT_EQ(num_calls("fetch_smollm2"), 1U);
}

TEST_F(LauncherTest, ABuildThatFailsEndsWith70AndItsLastLines) {
  put(scene_ / "build_fails", "");
  const RunResult result = run({"sightline", "explain"});
  EXPECT_EQ(result.exit_code, 70);
  EXPECT_EQ(result.out, "");
  EXPECT_TRUE(has(result.err, "error: no such thing\n")) << result.err;
  EXPECT_TRUE(has(result.err, "sightline: the build failed\n")) << result.err;
}

TEST_F(LauncherTest, CtrlCDuringABuildLeaves130AndNothingFollows) {
  put(scene_ / "build_interrupted", "");
  for (const char* command : {"sightline", "verify"}) {
    // In a process group of its own, as a terminal has it.
    const std::string script = fmt::format("set -m; {} & wait $!", (tree_ / command).string());
    const RunResult result = testing::run_program({"/bin/bash", "-c", script}, options());
    EXPECT_EQ(result.exit_code, 130) << result.err;
    EXPECT_FALSE(has(result.err, "the build failed")) << result.err;
    EXPECT_FALSE(has(result.out, "== size")) << result.out;
  }
  EXPECT_EQ(num_calls("ninja"), 2U);
  fs::remove(scene_ / "build_interrupted");
  EXPECT_EQ(run({"sightline", "explain"}).out, "core: explain\n") << "the next one builds, and finds no lock";
}

TEST_F(LauncherTest, TwoAtOnceTakeTurnsAndBuildOnce) {
  put(tree_ / "build/core/build.ninja", "");
  const std::string gate = (scene_ / "gate").string();
  ASSERT_EQ(::mkfifo(gate.c_str(), 0600), 0);
  std::fstream hold(gate);  // both ends: opening waits for nobody
  const auto start = [&](const std::string& log) {
    return std::async(std::launch::async, [this, log] {
      return testing::run_program(
          {"/bin/bash", "-c", "exec \"$0\" explain 2>" + log, (tree_ / "sightline").string()}, options());
    });
  };
  // Waits for what must come; the bound only ends a test that has failed.
  const auto comes = [](const auto& condition) {
    for (int i = 0; i < 3000 && !condition(); ++i) std::this_thread::sleep_for(std::chrono::milliseconds(10));
    return condition();
  };
  auto first = start((scene_ / "first.err").string());
  EXPECT_TRUE(comes([&] { return num_calls("ninja") == 1; })) << "the first builds";
  auto second = start((scene_ / "second.err").string());
  EXPECT_TRUE(comes([&] { return has(content_of(scene_ / "second.err"), "waiting for another build in "); }));
  EXPECT_EQ(num_calls("ninja"), 1U) << "the second does not build beside it";
  hold << "go\ngo\n" << std::flush;
  for (auto* run : {&first, &second}) {
    const RunResult result = run->get();
    EXPECT_EQ(result.exit_code, 0);
    EXPECT_EQ(result.out, "core: explain\n");
  }
  EXPECT_EQ(num_calls("ninja"), 1U) << "the second finds it built";
}

TEST_F(LauncherTest, VerifyWaitsForAnotherVerify) {
  put(scene_ / "os-release", "ID=other\n");
  put(tree_ / "build/verify/kept.log", "of the other");
  // Holds the lock until its standard input says so.
  const std::string script =
      "exec 9>build/verify/.lock; flock 9; ./verify 2>../second.err 9>&- & "
      "until grep -q 'waiting for another build' ../second.err; do sleep 0.01; done; "
      "cat build/verify/kept.log; exec 9>&-; wait $!";
  fs::create_symlink(fs::exists("/usr/bin/sleep") ? "/usr/bin/sleep" : "/bin/sleep", scene_ / "bin/sleep");
  RunOptions in_tree = options();
  in_tree.working_directory = tree_.string();
  const RunResult result = testing::run_program({"/bin/bash", "-c", script}, in_tree);
  EXPECT_EQ(result.signal, 0) << "it never said that it waits";
  EXPECT_EQ(result.exit_code, 78) << "its own, of the system that is not Debian";
  EXPECT_EQ(result.out, "of the other") << "logs of a run that goes on are kept";
}

TEST_F(LauncherTest, VerifyAnswersHelpAndRefusesWhatItDoesNotKnow) {
  const RunResult help = run({"verify", "--help"});
  EXPECT_EQ(help.exit_code, 0);
  EXPECT_TRUE(has(help.out, "./verify --long")) << help.out;
  EXPECT_EQ(run({"verify", "--nosuch"}).exit_code, 2);
  EXPECT_FALSE(fs::exists(tree_ / "build"));
}

}  // namespace
}  // namespace sightline
