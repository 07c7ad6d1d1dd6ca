// sightline generate and eval: what a person or a script gets from a model.
#include <fcntl.h>
#include <signal.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "apps/model/command_runner.h"
#include "llama2c.h"
#include "model/text_fixtures.h"
#include "sightline/base/file.h"
#include "sightline/formats/gguf_writer.h"

namespace sightline {
namespace {

using namespace testing;  // NOLINT: fixtures of tests/model

void write_text(const std::string& path, const std::string& text) {
  std::ofstream(path, std::ios::binary) << text;
}

class GenerateCommandTest : public ::testing::Test {
 protected:
  GenerateCommandTest() : model_(folder_.file("m.gguf")) {
    write_text_model(model_, 94,
                     {{"tokenizer.chat_template",
                       std::string("{% for m in messages %}{{ m.role }}: {{ m.content }}</s>{% endfor %}"
                                   "{% if add_generation_prompt %}assistant: {% endif %}"),
                       0}});
  }
  std::vector<std::string> command(std::vector<std::string> args) const {
    args.insert(args.begin(), {"generate", "-m", model_});
    return args;
  }

  TempFolder folder_;
  std::string model_;
};

TEST_F(GenerateCommandTest, StoriesFromGgufAndFromFolderAreThePublishedText) {
  const std::string bin = test_data("stories260K/stories260K.bin");
  const std::string tok = test_data("stories260K/tok512.bin");
  const std::string published = test_data("stories260K/expected-greedy-200.txt");
  if (bin.empty() || tok.empty() || published.empty()) {
    GTEST_SKIP() << "SIGHTLINE_TEST_DATA: stories260K is not there";
  }
  const auto checkpoint = llama2c::read_checkpoint(bin);
  ASSERT_TRUE(checkpoint) << checkpoint.error().message;
  const auto vocabulary = llama2c::read_vocabulary(tok, checkpoint->vocab_size);
  ASSERT_TRUE(vocabulary) << vocabulary.error().message;
  ASSERT_TRUE(llama2c::write_gguf(folder_.file("s.gguf"), *checkpoint, *vocabulary, true));
  ASSERT_TRUE(llama2c::write_hf_folder(folder_.file("hf"), *checkpoint, *vocabulary, true));
  const std::string expected = *read_file(published);
  ASSERT_EQ(expected.size(), 464U);
  for (const char* name : {"s.gguf", "hf"}) {
    const RunResult result = run_command({"generate", "-m", folder_.file(name), "-p", "", "-n", "200"});
    EXPECT_EQ(result.exit_code, 0) << result.err;
    EXPECT_EQ(result.out, expected + "\n") << name;
  }
  const RunResult wrong = run_command(
      {"generate", "-m", folder_.file("s.gguf"), "-p", "", "-n", "200", "--rope-pairing", "half_split"});
  EXPECT_NE(wrong.out, expected + "\n");
}

TEST_F(GenerateCommandTest, ChunksAndThreadsPrintTheSameJson) {
  const std::vector<std::string> args = {
      "-p", "a prompt of some tokens", "-n", "12", "--echo", "--logprobs", "4", "--temp", "0.9", "--seed",
      "3"};
  const std::string whole = run_json(command(args)).dump();
  for (const char* threads : {"1", "2"}) {
    for (const char* chunk : {"1", "3", "16"}) {
      std::vector<std::string> cut = args;
      cut.insert(cut.end(), {"--chunk", chunk, "-t", threads});
      EXPECT_EQ(run_json(command(cut)).dump(), whole) << chunk << ' ' << threads;
    }
  }
  std::vector<std::string> other = args;
  other.back() = "4";
  EXPECT_NE(run_json(command(other)).dump(), whole) << "another seed";
}

TEST_F(GenerateCommandTest, EachLineOfABatchPrintsWhatItsPromptAlonePrints) {
  const std::vector<std::string> prompts = {"b", "a longer prompt, of more than one page of the cache, or so",
                                            "ab ab"};
  write_text(folder_.file("batch.txt"), fmt::format("{}\n", fmt::join(prompts, "\n")));
  for (const char* temperature : {"0", "1.2"}) {
    const std::vector<std::string> args = {"-n", "10", "--echo", "--logprobs", "2", "--temp", temperature};
    std::vector<std::string> batch = args;
    batch.insert(batch.end(), {"--batch", folder_.file("batch.txt")});
    const Json together = run_json(command(batch));
    ASSERT_NE(together.as_array(), nullptr);
    ASSERT_EQ(together.as_array()->size(), prompts.size());
    for (std::size_t i = 0; i < prompts.size(); ++i) {
      std::vector<std::string> alone = args;
      alone.insert(alone.end(), {"-p", prompts[i]});
      EXPECT_EQ((*together.as_array())[i].dump(), run_json(command(alone)).dump()) << i;
    }
  }
}

TEST_F(GenerateCommandTest, JsonHoldsIdsTextAndALogprobForEveryPosition) {
  const Json out = run_json(command({"-p", "ab", "-n", "5", "--echo", "--logprobs", "2"}));
  const auto& logprobs = *out.find("logprobs")->as_array();
  const auto& prompt_ids = *out.find("prompt_ids")->as_array();
  const auto& ids = *out.find("ids")->as_array();
  EXPECT_EQ(ids.size(), 5U);
  ASSERT_EQ(logprobs.size(), prompt_ids.size() + 5);
  EXPECT_EQ(member(logprobs[0], "logprob"), "null") << "nothing comes before the first token";
  for (std::size_t i = 0; i < logprobs.size(); ++i) {
    const Json& id = i < prompt_ids.size() ? prompt_ids[i] : ids[i - prompt_ids.size()];
    EXPECT_EQ(member(logprobs[i], "id"), id.dump());
    EXPECT_EQ(logprobs[i].find("top")->as_array()->size(), i == 0 ? 0U : 2U);
  }
  EXPECT_EQ(text_member(out, "finish_reason"), "length");
  EXPECT_EQ(text_member(out, "text").substr(0, 2), "ab");
  EXPECT_EQ(run_json(command({"-p", "ab", "-n", "5"})).find("logprobs"), nullptr);
}

TEST_F(GenerateCommandTest, PlainTextIsStreamedAsTheJsonSaysAndIdsGoInAndOut) {
  const Json json = run_json(command({"-p", "ab", "-n", "20"}));
  EXPECT_EQ(run_command(command({"-p", "ab", "-n", "20"})).out, text_member(json, "text") + "\n");
  std::string tokens = member(json, "prompt_ids");
  tokens = tokens.substr(1, tokens.size() - 2);
  EXPECT_EQ(run_json(command({"--tokens", tokens, "-n", "20"})).dump(), json.dump());
  std::string ids = member(json, "ids");
  EXPECT_EQ(fmt::format("[{}", run_command(command({"-p", "ab", "-n", "20", "--ids"})).out),
            fmt::format("{}\n", ids.substr(0, ids.size() - 1)));
}

TEST_F(GenerateCommandTest, StopStringsCutTheText) {
  const std::string text = text_member(run_json(command({"-p", "ab", "-n", "30"})), "text");
  const std::string stop = text.substr(text.size() / 2, 3);
  const Json stopped = run_json(command({"-p", "ab", "-n", "30", "--stop", "never comes", "--stop", stop}));
  EXPECT_EQ(text_member(stopped, "text"), text.substr(0, text.find(stop)));
  EXPECT_EQ(text_member(stopped, "finish_reason"), "stop");
}

TEST_F(GenerateCommandTest, ChatGoesThroughTheTemplateOfTheFile) {
  const Json chat = run_json(command({"--chat", "--system", "s", "-p", "ab</s>", "-n", "3"}));
  // The </s> of the template is the control token, that of the user is text.
  const Json plain = run_json(command({"--special", "--no-bos", "-p", "system: s</s>user: ab", "-n", "0"}));
  const std::string begin = member(plain, "prompt_ids");
  EXPECT_EQ(member(chat, "prompt_ids").substr(0, begin.size() - 1), begin.substr(0, begin.size() - 1));
  std::size_t num_ends = 0;
  for (const Json& id : *chat.find("prompt_ids")->as_array()) num_ends += *id.as_int() == 2 ? 1 : 0;
  EXPECT_EQ(num_ends, 2U);
}

TEST_F(GenerateCommandTest, TokenizeWorksOnAFileThatHoldsAVocabularyAlone) {
  const std::string path = folder_.file("v.gguf");
  Entries metadata = byte_vocabulary();
  set_entry(metadata, "general.architecture", std::string("llama"));
  auto writer = create_gguf(path, metadata, {}, true);
  ASSERT_TRUE(writer && writer->commit());
  // A blank stands first; the letters a and b are pieces, others bytes (id 3 + byte).
  const RunResult ids = run_command({"tokenize", "-m", path, "ab!"});
  EXPECT_EQ(ids.out, "1,259,260,261,36\n") << ids.err;
  EXPECT_EQ(run_command({"tokenize", "-m", path, "--no-bos"}, {.stdin_text = "ab!"}).out, "259,260,261,36\n");
  EXPECT_EQ(run_command({"tokenize", "-m", path, "--decode", "259,260,261,36"}).out, "ab!\n");
  EXPECT_EQ(run_command({"tokenize", "-m", path, "--decode", "262"}).exit_code, 2);
}

TEST_F(GenerateCommandTest, OptionsThatWouldDoNothingAreWrongUsage) {
  const std::string file = folder_.file("text.txt");
  write_text(file, "ab");
  const std::vector<std::vector<std::string>> commands = {
      command({"-p", "a", "--system", "be brief"}),
      command({"--chat", "--tokens", "1,260"}),
      {"tokenize", "-m", model_, "-f", file, "ab"},
      command({"-p", "a", "--fault", "cache.position_offset:offset=0.5"}),
      command({"-p", "a", "--override-kv", "llama.block_count"}),
      command({"-p", "a", "--override-kv", "llama.block_count=int:three"}),
      command({"-p", "a", "--override-kv", "llama.block_count=u32:3"}),
      command({"-p", "a", "--override-kv", "=int:3"}),
      command({"-p", "a", "--override-kv", "gemma.block_count=int:3"}),
  };
  for (const auto& args : commands) {
    const RunResult result = run_command(args);
    EXPECT_EQ(result.exit_code, 2) << fmt::format("{}: {}", fmt::join(args, " "), result.err);
    EXPECT_EQ(lines_with(result.err, "sightline: ").size(), 1U) << result.err;
  }
}

TEST_F(GenerateCommandTest, AKeyThatTheFileLeavesOutIsNamedWithTheOptionThatStatesIt) {
  const std::string path = folder_.file("keyless.gguf");
  ModelSpec spec = small_llama_spec();
  spec.vocab_size = kByteVocabularySize;
  Entries metadata = llama_metadata(spec);
  for (GgufEntry& entry : byte_vocabulary()) metadata.push_back(std::move(entry));
  remove_entry(metadata, "llama.attention.head_count");
  write_llama_gguf(path, random_model(spec, 94), metadata);
  const RunResult missing = run_command({"generate", "-m", path, "-p", "a", "-n", "1"});
  EXPECT_EQ(missing.exit_code, 65);
  EXPECT_TRUE(has(missing.err, "'llama.attention.head_count' is missing; state it with --override-kv"))
      << missing.err;
  const std::vector<std::string> stated = {"--override-kv", "llama.attention.head_count=int:4",
                                           "--override-kv", "llama.rope.freq_base=float:1e4",
                                           "--override-kv", "tokenizer.ggml.add_bos_token=bool:false"};
  std::vector<std::string> args = {"generate", "-m", path, "-p", "a", "-n", "2"};
  args.insert(args.end(), stated.begin(), stated.end());
  EXPECT_EQ(member(run_json(args), "prompt_ids"), "[259,260]");
  args = {"info", path};
  args.insert(args.end(), stated.begin(), stated.end());
  const RunResult info = run_command(args);
  EXPECT_TRUE(has(info.out, "llama.attention.head_count = 4: stated by the caller")) << info.out << info.err;
}

TEST_F(GenerateCommandTest, InfoSaysWhatWasStatedForAVocabularyAloneToo) {
  const std::string path = folder_.file("v.gguf");
  Entries metadata = byte_vocabulary();
  set_entry(metadata, "general.architecture", std::string("phi3"));
  auto writer = create_gguf(path, metadata, {}, true);
  ASSERT_TRUE(writer && writer->commit());
  const RunResult info =
      run_command({"info", path, "--override-kv", "tokenizer.ggml.add_bos_token=bool:false"});
  EXPECT_EQ(info.exit_code, 0) << info.err;
  EXPECT_TRUE(has(info.out, "tokenizer.ggml.add_bos_token = false: stated by the caller")) << info.out;
}

TEST_F(GenerateCommandTest, AFullContextIsAReasonNotAnError) {
  const RunResult result = run_command(command({"-p", "ab", "-c", "12", "--ignore-eos"}));
  EXPECT_EQ(result.exit_code, 0);
  EXPECT_TRUE(has(result.err, "context of 12 tokens is full")) << result.err;
  EXPECT_EQ(text_member(run_json(command({"-p", "ab", "-c", "12", "--ignore-eos"})), "finish_reason"),
            "context");
}

TEST_F(GenerateCommandTest, FaultsAreListedWithoutAModelAndChangeTheTextNotTheShapes) {
  const RunResult list = run_command({"generate", "--fault", "list"});
  EXPECT_EQ(list.exit_code, 0) << list.err;
  const RunResult near = run_command(command({"-p", "a", "--fault", "rope.bse:theta=5"}));
  EXPECT_EQ(near.exit_code, 2) << near.err;
  EXPECT_TRUE(has(near.err, "did you mean 'rope.base'?")) << near.err;
  const std::vector<std::string> args = {
      "-p", "a prompt of some tokens", "-n", "16", "--chunk", "3", "--logprobs", "1", "--echo"};
  const Json right = run_json(command(args));
  for (const char* slug : {"mask.top_left_alignment", "cache.position_offset", "cache.shift_rerotation"}) {
    EXPECT_FALSE(lines_with(list.out, slug).empty());
    std::vector<std::string> planted = args;
    planted.insert(planted.end(), {"--fault", slug});
    const Json wrong = run_json(command(planted));
    EXPECT_NE(text_member(wrong, "text"), text_member(right, "text")) << slug;
    for (const char* name : {"prompt_ids", "ids", "logprobs"}) {
      EXPECT_EQ(wrong.find(name)->as_array()->size(), right.find(name)->as_array()->size()) << name;
    }
  }
  const RunResult unknown = run_command(command({"-p", "a", "--fault", "mask.nosuch"}));
  EXPECT_EQ(unknown.exit_code, 2);
  EXPECT_TRUE(has(unknown.err, "mask.nosuch")) << unknown.err;
  const RunResult no_model = run_command({"generate", "-p", "a"});
  EXPECT_EQ(no_model.exit_code, 2);
  EXPECT_TRUE(has(no_model.err, "-m PATH is missing")) << no_model.err;
}

TEST_F(GenerateCommandTest, ATerminalSeesProgressAndTokensPerSecond) {
  const int terminal = ::posix_openpt(O_RDWR | O_NOCTTY);
  if (terminal < 0) GTEST_SKIP() << "no pseudo terminals here: /dev/pts is not mounted";
  ::close(terminal);
  const RunResult shown = run_command(command({"-p", "a prompt", "-n", "20"}), {.stderr_is_terminal = true});
  EXPECT_EQ(shown.exit_code, 0) << shown.err;
  EXPECT_TRUE(has(shown.err, "loading weights")) << shown.err;
  EXPECT_TRUE(has(shown.err, "20 new in ")) << shown.err;
  EXPECT_TRUE(has(shown.err, " tokens/s)")) << shown.err;
  EXPECT_EQ(run_command(command({"-p", "a prompt", "-n", "20"})).err, "") << "nothing into a pipe";
}

TEST_F(GenerateCommandTest, NoPromptIsStandardInputOrWrongUsageAndAnEmptyOneIsAPrompt) {
  const RunResult none = run_command(command({"-n", "2"}));
  EXPECT_EQ(none.exit_code, 2) << none.out;
  EXPECT_TRUE(has(none.err, "no prompt; give one with -p")) << none.err;
  const Json given = run_json(command({"-n", "2", "-p", "ab"}));
  EXPECT_EQ(run_json(command({"-n", "2"}), {.stdin_text = "ab"}).dump(), given.dump());
  EXPECT_EQ(member(run_json(command({"-n", "2", "-p", ""})), "prompt_ids"), "[1]");
  EXPECT_EQ(member(run_json(command({"-n", "2", "-p", ""}), {.stdin_text = "ab"}), "prompt_ids"), "[1]");
}

TEST_F(GenerateCommandTest, EvalLossPrintsItsFirstLineBeforeTheSlowSecondRun) {
  std::string text;
  for (int i = 0; i < 3000; ++i) text += "a text of many tokens ";
  write_text(folder_.file("long.txt"), text);
  const RunResult result =
      run_command({"eval", "loss", "-m", model_, "-f", folder_.file("long.txt"), "-c", "16"},
                  {.signal_after_output = SIGINT});
  EXPECT_EQ(result.exit_code, 130) << result.err;
  EXPECT_EQ(lines_with(result.out, "teacher-forced  loss").size(), 1U) << result.out;
  EXPECT_FALSE(has(result.out, "step by step")) << result.out;
}

TEST_F(GenerateCommandTest, ATerminalSeesProgressOfEvalFromTheStart) {
  const int terminal = ::posix_openpt(O_RDWR | O_NOCTTY);
  if (terminal < 0) GTEST_SKIP() << "no pseudo terminals here: /dev/pts is not mounted";
  ::close(terminal);
  write_text(folder_.file("text.txt"), "A text of some length, to be scored in windows of sixteen tokens.\n");
  const std::vector<std::string> args = {"eval", "loss", "-m", model_, "-f", folder_.file("text.txt"),
                                         "-c",   "16"};
  const RunResult shown = run_command(args, {.stderr_is_terminal = true});
  EXPECT_EQ(shown.exit_code, 0) << shown.err;
  for (const char* part : {"loading weights", "tokens teacher-forced", "tokens step by step"}) {
    EXPECT_TRUE(has(shown.err, part)) << part << shown.err;
  }
  EXPECT_TRUE(has(shown.err, "] 0/")) << "before the first forward ends: " << shown.err;
  EXPECT_EQ(run_command(args).err, "") << "nothing into a pipe";
}

TEST_F(GenerateCommandTest, EvalLossOfNoTextNamesTheFile) {
  write_text(folder_.file("none.txt"), "");
  const RunResult none =
      run_command({"eval", "loss", "-m", model_, "-f", folder_.file("none.txt"), "--no-bos"});
  EXPECT_EQ(none.exit_code, 65) << none.err;
  EXPECT_TRUE(has(none.err, "none.txt: 0 tokens, at least 2 are needed")) << none.err;
}

TEST_F(GenerateCommandTest, EvalLossIsEqualTeacherForcedAndStepByStep) {
  write_text(folder_.file("text.txt"), "A text of some length, to be scored in windows of sixteen tokens.\n");
  const std::vector<std::string> args = {"eval", "loss", "-m", model_, "-f", folder_.file("text.txt"),
                                         "-c",   "16"};
  const Json json = run_json(args);
  EXPECT_EQ(member(json, "equal"), "true");
  EXPECT_EQ(member(json, "teacher_forced"), member(json, "step_by_step"));
  const RunResult text = run_command(args);
  EXPECT_EQ(text.exit_code, 0) << text.err;
  EXPECT_TRUE(has(text.out, "equal to the bit")) << text.out;
  EXPECT_EQ(lines_with(text.out, "perplexity").size(), 2U);
}

}  // namespace
}  // namespace sightline
