// Rows 98 to 102 and 110 to 113 through `generate`: options, limits, output that cannot be written, signals.
#include <gtest/gtest.h>
#include <signal.h>

#include <algorithm>

#include "apps/bad_input/program.h"
#include "sightline/formats/gguf_writer.h"
#include "text/tokenizer_fixtures.h"

namespace sightline::testing {
namespace {

class RunRowsTest : public ::testing::Test {
 protected:
  RunRowsTest() { tiny_.write(model_); }
  RunResult generate(std::vector<std::string> more, const RunOptions& options = {}) {
    const bool has_prompt = std::ranges::any_of(
        more, [](const std::string& arg) { return arg == "-p" || arg == "--tokens" || arg == "--batch"; });
    if (!has_prompt) more.insert(more.begin(), {"-p", ""});
    more.insert(more.begin(), {"generate", "-m", model_, "--ignore-eos"});
    return sightline(more, options);
  }
  std::vector<std::string> names_in_folder() {
    std::vector<std::string> names;
    for (const auto& entry : std::filesystem::directory_iterator(folder_.path())) {
      names.push_back(entry.path().filename().string());
    }
    std::sort(names.begin(), names.end());
    return names;
  }

  TempFolder folder_;
  TinyModel tiny_;
  std::string model_ = folder_.file("m.gguf");
};

TEST_F(RunRowsTest, Row101ThreadCountsAreRefusedOrCappedWithTheSameBits) {
  for (const char* count : {"0", "-1", "10001", "1.5", "", "two", "99999999999999999999"}) {
    expect_failure(generate({"-n", "1", "-t", count}), 2, {"--threads"});
  }
  const RunResult one = generate({"-n", "20", "-p", "hello", "-t", "1", "--json", "--logprobs", "3"});
  const RunResult many = generate({"-n", "20", "-p", "hello", "-t", "10000", "--json", "--logprobs", "3"});
  EXPECT_EQ(one.exit_code, 0) << one.err;
  EXPECT_EQ(many.exit_code, 0) << many.err;
  EXPECT_EQ(one.out, many.out);
  EXPECT_NE(many.err.find("note: -t 10000 is more than"), std::string::npos) << many.err;
}

TEST_F(RunRowsTest, Row102HeadsOfAnyWidthWorkOrAreRefusedByName) {
  for (const int width : {3, 257}) {
    ModelSpec spec = small_llama_spec();
    spec.layers.resize(1);
    spec.layers[0].attention.heads = {2, 1, width, width};
    spec.layers[0].attention.rope.rotary_dim = width;
    const TinyModel model(spec);
    model.write(model_);
    // Rotation takes pairs: an odd width is refused by the key that says it.
    expect_failure(generate({"-n", "1"}), 65, {model_, "llama.rope.dimension_count"});
    // Without rotation of the last component it runs.
    model.write_with(model_, "llama.rope.dimension_count", static_cast<std::uint32_t>(width - 1));
    const RunResult run = generate({"-n", "2"});
    EXPECT_EQ(run.exit_code, 0) << width << run.err;
  }
  for (const std::uint32_t width : {0U, 1U, 5000U}) {
    tiny_.write_with(model_, "llama.attention.key_length", width);
    expect_failure(generate({"-n", "1"}), 65, {model_, "byte"});
  }
}

TEST_F(RunRowsTest, Row110WrongUsageOfEveryOptionIsExitTwo) {
  const std::string large(120 * 1024, 'x');
  const std::vector<std::vector<std::string>> cases = {
      {"--nosuch"},
      {"-n"},
      {"-n", "1", "-n", "2"},
      {"-n", "-1"},
      {"-n", "1e3"},
      {"-n", "99999999999999999999"},
      {"-c", "-1"},
      {"-c", "2147483648"},
      {"--chunk", "0"},
      {"--chunk", "99999999999"},
      {"--logprobs", "-1"},
      {"--logprobs", "281"},
      {"--temp", "nan"},
      {"--temp", "-0.1"},
      {"--temp", "1e999"},
      {"--top-k", "-5"},
      {"--top-p", "0"},
      {"--top-p", "1.1"},
      {"--min-p", "2"},
      {"--repeat-penalty", "0"},
      {"--repeat-last-n", "-2"},
      {"--seed", "-1"},
      {"--seed", "18446744073709551616"},
      {"--stop", ""},
      {"--stop", std::string(5000, 'x')},
      {"-ctk", "f64"},
      {"--matmul", "int8"},
      {"--fault", "nosuch"},
      {"--fault", ""},
      {"-p", "a", "-p", "b"},
      {"-p", "a", "--tokens", "1"},
      {"-f", ""},
      {"stray"},
      {"--rope-scaling", "spiral"},
      {"--rope-factor", "2"},
      {"--no-bos", "--no-bos"},
      {large},
      {"--" + large},
      {"--temp", large},
  };
  for (const auto& more : cases) {
    SCOPED_TRACE(fmt::format("{}", fmt::join(more, " ")).substr(0, 60));
    expect_failure(generate(more), 2, {});
  }
  std::vector<std::string> stops;
  for (int i = 0; i < 17; ++i) stops.insert(stops.end(), {"--stop", std::to_string(i)});
  expect_failure(generate(stops), 2, {"at most 16"});
  expect_failure(sightline({"generate", "-n", "1"}), 2, {"-m", "is missing"});
  expect_failure(sightline({"generate", "-m", model_, "-m", model_}), 2, {"--model is given 2 times"});
  expect_failure(sightline({"generate", "-m", large}), 66, {"File name too long"});
}

TEST_F(RunRowsTest, Row110NamesOfAnyBytesWorkAndAreShownAsOneLine) {
  for (const std::string& name :
       {std::string("\xff\xfe.gguf"), std::string("a\nb \x1b[31m.gguf"), std::string("-m.gguf"),
        std::string("caf\xc3\xa9.gguf"), std::string("%s{}.gguf")}) {
    const std::string path = folder_.file(name);
    for (const auto& command : commands_on(path)) {
      const RunResult absent = sightline(command);
      expect_failure(absent, 66, {"cannot open"});
      EXPECT_EQ(absent.err.find('\x1b'), std::string::npos);
      EXPECT_EQ(absent.err.find('\xff'), std::string::npos);
    }
    tiny_.write(path);
    for (const auto& command : commands_on(path)) EXPECT_EQ(sightline(command).exit_code, 0) << name;
  }
}

TEST_F(RunRowsTest, Row111OutputThatCannotBeWrittenStopsTheRunWith74) {
  // Far more tokens than the time limit has room for: it must stop at the first that cannot be written.
  tiny_.write_with(model_, "llama.context_length", std::uint32_t{1} << 20);
  for (const RunOptions& options : {RunOptions{.closes_stdout = true}, RunOptions{.stdout_path = "/dev/full"},
                                    RunOptions{.breaks_stdout = true}}) {
    expect_failure(generate({"-n", "1000000"}, options), 74, {"standard output"});
    for (const auto& command : commands_on(model_)) {
      expect_failure(sightline(command, options), 74, {"standard output"});
    }
  }
}

TEST_F(RunRowsTest, Row112LittleAddressSpaceEndsWith71NeverBySignal) {
  if (kHasAddressSanitizer) GTEST_SKIP() << "AddressSanitizer takes address space without measure";
  for (std::size_t mebibytes = 16; mebibytes <= 160; mebibytes += 8) {
    for (const auto& command : commands_on(model_)) {
      const RunResult result = sightline(command, {.address_space_bytes = mebibytes << 20});
      EXPECT_EQ(result.signal, 0) << command[0] << " in " << mebibytes << " MiB";
      // 127: the dynamic loader had no room for the libraries.
      EXPECT_TRUE(result.exit_code == 0 || result.exit_code == 71 || result.exit_code == 127)
          << command[0] << " in " << mebibytes << " MiB: " << result.exit_code << result.err;
    }
  }
  // A text that the model has room for and this process has not.
  const std::string text = folder_.file("text");
  put_text(text, std::string(std::size_t{16} << 20, 'A'));
  for (const std::vector<std::string>& command :
       {std::vector<std::string>{"tokenize", "-m", model_, "-f", text},
        {"generate", "-m", model_, "-f", text},
        {"eval", "loss", "-m", model_, "-f", text}}) {
    expect_failure(sightline(command, {.address_space_bytes = std::size_t{160} << 20}), 71,
                   {"out of memory"});
  }
}

// Pre-tokenizers, and chat templates on a thread of their own, are not C++: nothing there throws.
TEST_F(RunRowsTest, Row112MemoryRefusedToTheRustPartEndsWith71) {
  if (kHasAddressSanitizer) GTEST_SKIP() << "AddressSanitizer takes address space without measure";
  const std::string words = folder_.file("words");
  std::string content;
  for (int i = 0; i < 2'000'000; ++i) content += "a b ";
  put_text(words, content);
  const std::string vocabulary = folder_.file("v.gguf");
  auto writer = create_gguf(vocabulary, tokenizer_entries(text::small_byte_spec()), {}, true);
  ASSERT_TRUE(writer && writer->commit());
  for (const std::size_t mebibytes : {48, 64, 96, 128}) {
    SCOPED_TRACE(mebibytes);
    expect_failure(
        sightline({"tokenize", "-m", vocabulary, "-f", words}, {.address_space_bytes = mebibytes << 20}), 71,
        {"out of memory"});
  }
  tiny_.write_with(model_, "tokenizer.chat_template", std::string("{{ messages[0].content }}"));
  expect_failure(generate({"--chat", "-p", "h"}, {.address_space_bytes = std::size_t{160} << 20}), 71,
                 {"chat template", "thread"});
}

TEST_F(RunRowsTest, Row113ReportsReplaceNothingUnlessForcedAndLeaveNothingBehind) {
  const std::string report = folder_.file("report");
  put_text(report, "kept");
  std::filesystem::create_symlink("report", folder_.file("link"));
  std::filesystem::create_directory(folder_.file("folder"));
  const std::vector<std::string> before = names_in_folder();
  for (const std::string& path :
       {report, folder_.file("link"), folder_.file("folder"), std::string("/dev/null"),
        folder_.file("absent/report"), std::string("/proc/report")}) {
    expect_failure(generate({"-n", "1", "--output", path}), 73, {path});
    if (path != report && path != folder_.file("link")) {
      expect_failure(generate({"-n", "1", "--output", path, "--force"}), 73, {path});
    }
  }
  EXPECT_EQ(bytes_of(report), "kept");
  // A run that fails leaves the old report and no other file.
  expect_failure(generate({"-n", "1", "--tokens", "9999", "--output", report, "--force"}), 2, {"9999"});
  EXPECT_EQ(bytes_of(report), "kept");
  EXPECT_EQ(names_in_folder(), before);
  EXPECT_EQ(generate({"-n", "1", "--output", folder_.file("link"), "--force"}).exit_code, 0);
  EXPECT_EQ(bytes_of(report), "kept") << "the link is replaced, not what it points to";
  EXPECT_FALSE(std::filesystem::is_symlink(folder_.file("link")));
  EXPECT_EQ(names_in_folder(), before);
}

TEST_F(RunRowsTest, CtrlCPrintsWhatThereIsAndLeaves130) {
  for (const int signal : {SIGINT, SIGTERM}) {
    const RunResult result = generate({"-n", "1000000", "-c", "2000000"}, {.signal_after_output = signal});
    EXPECT_EQ(result.signal, 0);
    EXPECT_EQ(result.exit_code, 130) << result.err;
    EXPECT_FALSE(result.out.empty());
    EXPECT_TRUE(result.out.ends_with("\n"));
    EXPECT_EQ(result.err, "note: -c 2000000 is more than the 256 tokens the model was trained for\n");
  }
}

TEST_F(RunRowsTest, AFullContextEndsTheRunWithAReasonAndNoError) {
  const RunResult text = generate({"-n", "100", "-c", "20", "--tokens", "1,5,6"});
  EXPECT_EQ(text.exit_code, 0) << text.err;
  EXPECT_EQ(text.err, "note: ended because the context of 20 tokens is full\n");
  const RunResult json = generate({"-n", "100", "-c", "20", "--tokens", "1,5,6", "--json"});
  EXPECT_NE(json.out.find("\"finish_reason\":\"context\""), std::string::npos) << json.out;
  expect_failure(generate({"-n", "1", "-c", "2", "--tokens", "1,5,6"}), 2, {"3 tokens", "context of 2"});
  EXPECT_EQ(generate({"-n", "1", "-c", "3", "--tokens", "1,5,6"}).exit_code, 0);
}

TEST_F(RunRowsTest, BatchesOfEmptyLinesAndOfManyPromptsRun) {
  const std::string batch = folder_.file("batch");
  put_text(batch, "\n\nhello\n\n");
  const RunResult few = generate({"-n", "2", "--batch", batch, "--json"});
  ASSERT_EQ(few.exit_code, 0) << few.err;
  const auto results = parse_json(few.out, "batch");
  ASSERT_TRUE(results && results->as_array() != nullptr) << few.out;
  EXPECT_EQ(results->as_array()->size(), 4U);
  put_text(batch, "");
  expect_failure(generate({"--batch", batch}), 65, {batch, "holds no prompt"});
  // A bounded number of them runs at a time, and only those hold a cache.
  std::string lines;
  for (int i = 0; i < 5'000; ++i) lines += "h\n";
  put_text(batch, lines);
  const RunResult many = generate({"-n", "1", "--batch", batch, "--ids"});
  EXPECT_EQ(many.exit_code, 0) << many.err;
  EXPECT_EQ(std::count(many.out.begin(), many.out.end(), '\n'), 5'000);
  expect_peak(many, kPeakBytes);
}

}  // namespace
}  // namespace sightline::testing
