// `sightline check` on dumps, as a person meets it: the verdict first, the exit code, what was assumed.
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <limits>

#include "reference/random_call.h"
#include "sightline/faults/fault_table.h"
#include "sightline/formats/npy.h"
#include "support/subprocess.h"

namespace sightline {
namespace {

using testing::run_program;
using testing::RunResult;

RunResult check(std::vector<std::string> args) {
  args.insert(args.begin(), {SIGHTLINE_PROGRAM, "check"});
  return run_program(args);
}

bool has(const std::string& text, std::string_view part) { return text.find(part) != std::string::npos; }

// A dump of an implementation with a fault, or of a right one; 9 queries at the end of 14 keys.
std::string write_dump(const std::string& name, std::string_view fault_text) {
  AttentionSpec spec = reference::small_spec("causal & window(5)", {4, 2, 6, 5});
  reference::Deviation deviation;
  if (!fault_text.empty()) {
    const Fault fault = parse_fault(fault_text).value();
    EXPECT_TRUE(plant(fault, spec, deviation));
    EXPECT_TRUE(plant(fault, spec));
  }
  reference::RandomCall call(spec, 5, 14, 21);
  const auto array = [](const std::vector<double>& values, std::vector<std::int64_t> shape) {
    const std::vector<float> narrow(values.begin(), values.end());
    return npy_array(std::span<const float>(narrow), std::move(shape)).value();
  };
  for (auto* x : {&call.q, &call.k, &call.v}) {
    for (double& y : *x) y = static_cast<float>(y);
  }
  const std::string path = ::testing::TempDir() + "check_" + name + ".npz";
  EXPECT_TRUE(write_npz(path,
                        {{"q", array(call.q, {9, 4, 6})},
                         {"k", array(call.k, {14, 2, 6})},
                         {"v", array(call.v, {14, 2, 5})},
                         {"out", array(call.forward({}, deviation).out, {9, 4, 5})}},
                        true));
  return path;
}

TEST(CheckCommandTest, ARightDumpAgreesAndEndsWithZero) {
  const RunResult result = check({write_dump("right", ""), "--mask", "causal & window(5)"});
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_EQ(result.out.rfind("agrees: ", 0), 0U) << result.out;
  EXPECT_TRUE(has(result.out, "assumed   the 9 queries are the last tokens of the 14 keys")) << result.out;
}

TEST(CheckCommandTest, AFaultIsNamedInTheFirstLineAndEndsWithOne) {
  const std::string path = write_dump("window", "mask.window_off_by_one:keys=1");
  const RunResult text = check({path, "--mask", "causal & window(5)"});
  EXPECT_EQ(text.exit_code, 1);
  EXPECT_EQ(text.out.rfind("fault: mask.window_off_by_one", 0), 0U) << text.out;
  const RunResult json = check({path, "--mask", "causal & window(5)", "--json"});
  EXPECT_EQ(json.exit_code, 1);
  const Json document = parse_json(json.out, "report").value();
  EXPECT_EQ(*document.find("faults")->as_array()->at(0).find("slug")->as_string(), "mask.window_off_by_one");
  EXPECT_EQ(document.find("assumptions")->as_array()->size(), 2U);
}

TEST(CheckCommandTest, ARealWrongReleaseIsNamedFromItsArraysAlone) {
  const RunResult json =
      check({SIGHTLINE_SOURCE_DIR "/examples/real_faults/onnx_1.19.0_attention_past.npz", "--json"});
  EXPECT_EQ(json.exit_code, 1) << json.err;
  const Json document = parse_json(json.out, "report").value();
  EXPECT_EQ(*document.find("verdict")->as_string(), "fault");
  const Json& fault = document.find("faults")->as_array()->at(0);
  EXPECT_EQ(*fault.find("slug")->as_string(), "mask.top_left_alignment");
  EXPECT_EQ(fault.find("certain")->dump(), "true");
}

// The mask array of a dump is the matrix of a declared mask that says `dense`.
TEST(CheckCommandTest, AGivenMatrixThatWasDroppedIsNamed) {
  AttentionSpec spec = reference::small_spec("causal", {2, 2, 6, 6});
  reference::RandomCall call(spec, 0, 9, 25);
  const auto array = [](const std::vector<double>& values, std::vector<std::int64_t> shape) {
    const std::vector<float> narrow(values.begin(), values.end());
    return npy_array(std::span<const float>(narrow), std::move(shape)).value();
  };
  for (auto* x : {&call.q, &call.k, &call.v}) {
    for (double& y : *x) y = static_cast<float>(y);
  }
  // Key 2 is hidden from the later half of the queries; the implementation was causal alone.
  NpyArray mask{DataType::kBool, {9, 9}, std::vector<std::byte>(81, std::byte{1})};
  for (std::size_t i = 5; i < 9; ++i) mask.bytes[i * 9 + 2] = std::byte{0};
  const std::string path = ::testing::TempDir() + "check_dense.npz";
  ASSERT_TRUE(write_npz(path,
                        {{"q", array(call.q, {9, 2, 6})},
                         {"k", array(call.k, {9, 2, 6})},
                         {"v", array(call.v, {9, 2, 6})},
                         {"mask", mask},
                         {"out", array(call.forward({}, {}).out, {9, 2, 6})}},
                        true));
  const RunResult dropped = check({path, "--mask", "causal & dense"});
  EXPECT_EQ(dropped.exit_code, 1) << dropped.err;
  EXPECT_EQ(dropped.out.rfind("fault: mask.composition/rule_ignored", 0), 0U) << dropped.out;
  const RunResult missing = check({write_dump("no_matrix", ""), "--mask", "causal & dense"});
  EXPECT_EQ(missing.exit_code, 65) << missing.out;
  EXPECT_TRUE(has(missing.err, "dense has 0 entries")) << missing.err;
}

TEST(CheckCommandTest, TheDeclarationMayBeAFile) {
  const std::string path = write_dump("spec", "");
  const std::string spec = ::testing::TempDir() + "check_spec.json";
  std::ofstream(spec) << "{\"mask\": \"causal & window(5)\"}";
  EXPECT_EQ(check({path, "--spec", spec}).exit_code, 0) << check({path, "--spec", spec}).err;
  std::ofstream(spec) << "{\"musk\": \"causal\"}";
  const RunResult refused = check({path, "--spec", spec});
  EXPECT_EQ(refused.exit_code, 65) << refused.err;
  EXPECT_TRUE(has(refused.err, "musk")) << refused.err;
  std::ofstream(spec) << "{\"mask\": \"causal & window(5)\", \"heads\": {\"num_q_heads\": 3, "
                         "\"num_kv_heads\": 3, \"qk_head_dim\": 7, \"v_head_dim\": 7}}";
  const RunResult other = check({path, "--spec", spec});
  EXPECT_EQ(other.exit_code, 65) << other.err;
  EXPECT_TRUE(has(other.err, "declares 3 query and 3 key heads of 7 (values 7), the arrays have"))
      << other.err;
}

// Positions that restart in calls of 4: as one call it would be a table that wraps.
TEST(CheckCommandTest, CallsThatTheDumpDoesNotTellAreAskedForAndStated) {
  AttentionSpec spec = reference::small_spec("causal", {4, 2, 6, 5});
  spec.rope.pairing = RopePairing::kHalfSplit;
  spec.rope.rotary_dim = 6;
  const std::int64_t length = 12;
  reference::RandomCall call(spec, 0, length, 21);
  for (auto* x : {&call.q, &call.k, &call.v}) {
    for (double& y : *x) y = static_cast<float>(y);
  }
  for (std::int64_t i = 0; i < length; ++i) call.q_rope_pos.push_back(i % 4);
  call.kv_rope_pos = call.q_rope_pos;
  const auto array = [](const std::vector<double>& values, std::vector<std::int64_t> shape) {
    const std::vector<float> narrow(values.begin(), values.end());
    return npy_array(std::span<const float>(narrow), std::move(shape)).value();
  };
  const std::string path = ::testing::TempDir() + "check_calls.npz";
  ASSERT_TRUE(write_npz(path,
                        {{"q", array(call.q, {length, 4, 6})},
                         {"k", array(call.k, {length, 2, 6})},
                         {"v", array(call.v, {length, 2, 5})},
                         {"out", array(call.forward().out, {length, 4, 5})}},
                        true));
  const std::vector<std::string> args = {path, "--mask", "causal", "--rope", "half_split", "--axes", "thd"};
  const RunResult silent = check(args);
  EXPECT_EQ(silent.out.rfind("fault: rope.table_bounds", 0), 0U) << silent.out << silent.err;
  EXPECT_TRUE(has(silent.out, "in calls of 4 on a cache (--chunk 4")) << silent.out;
  EXPECT_TRUE(has(silent.out, "cache.position_offset")) << silent.out;
  std::vector<std::string> stated = args;
  stated.insert(stated.end(), {"--chunk", "4"});
  const RunResult told = check(stated);
  EXPECT_EQ(told.out.rfind("fault: cache.position_offset", 0), 0U) << told.out << told.err;
}

TEST(CheckCommandTest, ADumpOfNaNIsBrokenInOneLine) {
  const std::vector<float> nan(9 * 4 * 5, std::numeric_limits<float>::quiet_NaN());
  const std::string path = write_dump("nan", "");
  NpzArrays arrays = read_npz(path, 1 << 20).value();
  for (auto& [name, array] : arrays) {
    if (name == "out") array = npy_array(std::span<const float>(nan), {9, 4, 5}).value();
  }
  ASSERT_TRUE(write_npz(path, arrays, true));
  const RunResult result = check({path, "--mask", "causal & window(5)"});
  EXPECT_EQ(result.exit_code, 1) << result.err;
  EXPECT_EQ(result.out.rfind("broken: out is NaN in all 180 numbers, from out[0, 0, 0] on", 0), 0U)
      << result.out;
}

TEST(CheckCommandTest, OptionsThatWouldChangeNothingAreWrongUsage) {
  const std::string path = write_dump("ignored", "");
  const std::string spec = ::testing::TempDir() + "check_whole_spec.json";
  std::ofstream(spec) << "{\"mask\": \"causal & window(5)\"}";
  const RunResult both = check({path, "--spec", spec, "--softcap", "30"});
  EXPECT_EQ(both.exit_code, 2) << both.err;
  EXPECT_TRUE(has(both.err, "--spec holds the whole declaration")) << both.err;
  const RunResult unrotated = check({path, "--mask", "causal & window(5)", "--theta", "500000"});
  EXPECT_EQ(unrotated.exit_code, 2) << unrotated.err;
  EXPECT_TRUE(has(unrotated.err, "need --rope")) << unrotated.err;
}

TEST(CheckCommandTest, WhatCannotBeReadEndsWithItsOwnCodeAndOneLine) {
  const auto code = [](std::vector<std::string> args) {
    const RunResult result = check(std::move(args));
    EXPECT_EQ(std::count(result.err.begin(), result.err.end(), '\n'), 1) << result.err;
    EXPECT_TRUE(result.out.empty());
    return result.exit_code;
  };
  EXPECT_EQ(code({::testing::TempDir() + "none.npz"}), 66);
  const std::string pickle = ::testing::TempDir() + "check.pt";
  std::ofstream(pickle) << "x";
  EXPECT_EQ(code({pickle}), 65);
  const std::string cut = ::testing::TempDir() + "check_cut.npz";
  std::filesystem::copy_file(write_dump("whole", ""), cut, std::filesystem::copy_options::overwrite_existing);
  std::filesystem::resize_file(cut, 300);
  EXPECT_EQ(code({cut}), 65);
  EXPECT_EQ(code({write_dump("mask", ""), "--mask", "causal &"}), 2);
  EXPECT_EQ(code({write_dump("axes", ""), "--axes", "xyz"}), 2);
}

TEST(CheckCommandTest, ASubjectThatRunsIsAsked) {
  const std::string example =
      std::string("exec python3 ") + SIGHTLINE_SOURCE_DIR + "/examples/subjects/plain_attention.py";
  const std::vector<std::string> declared{"--rope", "half_split", "--heads", "4/2", "--head-dim", "8"};
  const auto process = [&](const std::string& command) {
    std::vector<std::string> args{"--process", command};
    args.insert(args.end(), declared.begin(), declared.end());
    return check(args);
  };
  const RunResult right = process(example);
  EXPECT_EQ(right.exit_code, 0) << right.out << right.err;
  EXPECT_TRUE(has(right.out, "declared  GQA 4 query / 2 key heads of 8, causal")) << right.out;
  const RunResult wrong = process(example + " top_left");
  EXPECT_EQ(wrong.exit_code, 1);
  EXPECT_EQ(wrong.out.rfind("fault: mask.top_left_alignment", 0), 0U) << wrong.out;
  const RunResult crashed = process("kill -SEGV $$");
  EXPECT_EQ(crashed.exit_code, 1);
  EXPECT_EQ(crashed.out.rfind("broken: when it was started: the subject crashed: signal 11", 0), 0U)
      << crashed.out;
  EXPECT_EQ(check({"--engine"}).exit_code, 0);
}

// A subject does not share the process group that Ctrl-C reaches.
TEST(CheckCommandTest, CtrlCEndsTheSubjectTooAndLeavesNoReport) {
  const std::string pid_file = ::testing::TempDir() + "check_interrupted_pid";
  const std::string report = ::testing::TempDir() + "check_interrupted_report";
  for (const std::string signal : {"INT", "TERM", "HUP"}) {
    for (const std::string when : {"", "read line; echo '{\"takes\": [\"chunks\"]}'; read line; "}) {
      std::filesystem::remove(pid_file);
      std::filesystem::remove(report);
      const std::string command = when + "trap '' TERM; sleep 1000 & echo $! > " + pid_file + "; kill -" +
                                  signal +
                                  " $(cut -d' ' -f4 /proc/$PPID/stat); wait";  // the parent of its keeper
      const RunResult result = check({"--process", command, "--output", report});
      EXPECT_EQ(result.signal, 0) << signal;
      EXPECT_EQ(result.exit_code, 130) << signal << result.out << result.err;
      EXPECT_FALSE(std::filesystem::exists(report));
      pid_t pid = 0;
      std::ifstream(pid_file) >> pid;
      ASSERT_GT(pid, 0);
      EXPECT_TRUE(testing::is_gone_soon(pid)) << signal << ", process " << pid;
    }
  }
}

TEST(CheckCommandTest, TheReportIsAlsoAPage) {
  const std::string path = ::testing::TempDir() + "check_report.html";
  std::filesystem::remove(path);
  const std::string dump = write_dump("page", "mask.window_off_by_one:keys=1");
  EXPECT_EQ(check({dump, "--mask", "causal & window(5)", "--html", path}).exit_code, 1);
  std::ifstream file(path);
  const std::string page((std::istreambuf_iterator<char>(file)), {});
  EXPECT_TRUE(has(page, "mask.window_off_by_one"));
  EXPECT_TRUE(has(page, "--mask 'causal & window(5)' --html"));
  EXPECT_EQ(check({dump, "--html", "/nowhere/at/all.html"}).exit_code, 73);
}

TEST(CheckCommandTest, OptionsThatWouldDoNothingAreRefused) {
  const std::string dump = write_dump("options", "");
  EXPECT_EQ(check({}).exit_code, 2);
  EXPECT_EQ(check({dump, "--heads", "4/2"}).exit_code, 2);
  EXPECT_EQ(check({dump, "--name", "kue=q"}).exit_code, 2);
  EXPECT_EQ(check({dump, "--softcap", "-1"}).exit_code, 2);
  EXPECT_EQ(check({dump, "--rope", "half_split", "--factor", "2"}).exit_code, 2);
  EXPECT_EQ(check({dump, "--html", dump}).exit_code, 2);
  EXPECT_EQ(check({dump, "--engine"}).exit_code, 2);
  EXPECT_EQ(check({"--engine", "--axes", "td"}).exit_code, 2);
  EXPECT_EQ(check({"--engine", "--chunk", "4"}).exit_code, 2);
  EXPECT_EQ(check({"--engine", "--library", "x.so"}).exit_code, 2);
  EXPECT_EQ(check({"--engine", "--type", "f64"}).exit_code, 2);
  EXPECT_EQ(check({"--engine", "--heads", "8x2"}).exit_code, 2);
  EXPECT_EQ(check({"--engine", "--heads", "8/3"}).exit_code, 2);
  EXPECT_EQ(check({"--engine", "--budget", "1h"}).exit_code, 2);
  EXPECT_EQ(check({"--library", "/nowhere.so"}).exit_code, 66);
  for (const char* option : {"--axes", "--type"}) {
    const char* value = option == std::string_view("--type") ? "f32" : "x=y";
    const RunResult model = check({dump, "--model", "/nowhere.gguf", option, value});
    EXPECT_EQ(model.exit_code, 2) << option;
    EXPECT_TRUE(has(model.err, "not for --model")) << model.err;
  }
  const RunResult files = check({"--model", "/nowhere.gguf", "--against", "/nowhere.gguf", "--chunk", "4"});
  EXPECT_EQ(files.exit_code, 2);
  EXPECT_TRUE(has(files.err, "with --against nothing is run")) << files.err;
  // Before anything is started or asked.
  const std::string trace = ::testing::TempDir() + "check_started";
  std::filesystem::remove(trace);
  const RunResult library = check({"--process", "touch " + trace, "--follows", "tensorflow"});
  EXPECT_EQ(library.exit_code, 2);
  EXPECT_TRUE(has(library.err, "torch or onnx or flash_attn or jax")) << library.err;
  EXPECT_FALSE(std::filesystem::exists(trace));
}

}  // namespace
}  // namespace sightline
