// Subjects that run outside of the check: what they do is told, and nothing of them is left.
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <chrono>
#include <filesystem>
#include <fstream>

#include "sightline/checker/check.h"
#include "sightline/subjects/engine/engine_subject.h"
#include "sightline/subjects/library/library_subject.h"
#include "sightline/subjects/process/process_subject.h"
#include "subjects/process/protocol.h"
#include "support/subprocess.h"

namespace sightline::subjects {
namespace {

using checker::check;
using checker::Report;
using checker::Verdict;

AttentionSpec spec_of(std::string_view mask, bool rotates) {
  AttentionSpec spec;
  spec.heads = {6, 2, 8, 8};
  spec.mask = parse_mask(mask).value();
  if (rotates) {
    spec.rope.pairing = RopePairing::kHalfSplit;
    spec.rope.rotary_dim = 8;
  }
  return spec;
}

std::string example(std::string_view word = "") {
  return fmt::format("exec python3 {}/examples/subjects/plain_attention.py {}", SIGHTLINE_SOURCE_DIR, word);
}

Report checked(Result<std::unique_ptr<checker::Subject>> subject, const AttentionSpec& spec) {
  EXPECT_TRUE(subject.has_value()) << subject.error().message;
  return check(**subject, spec).value();
}

TEST(ProcessSubjectTest, TheExampleAgreesAndItsFaultsAreNamed) {
  const AttentionSpec spec = spec_of("causal", true);
  EXPECT_EQ(checked(start_process(example()), spec).verdict, Verdict::kAgrees);
  const std::pair<const char*, const char*> faults[] = {{"top_left", "mask.top_left_alignment"},
                                                        {"restart", "cache.position_offset"},
                                                        {"tiled", "head.gqa_mapping"},
                                                        {"scale", "score.scale"},
                                                        {"row0", "rope.batch_row"}};
  for (const auto& [word, slug] : faults) {
    const Report report = checked(start_process(example(word)), spec);
    ASSERT_EQ(report.verdict, Verdict::kFault) << word << "\n" << to_text(report);
    EXPECT_EQ(report.faults.front().slug, slug);
    EXPECT_TRUE(report.faults.front().certain) << to_text(report);
  }
}

TEST(ProcessSubjectTest, WhatCannotStartIsAnErrorThatSaysHow) {
  const auto message = [](const char* command) {
    const auto subject = start_process(command, {.timeout = std::chrono::milliseconds(300)});
    EXPECT_FALSE(subject.has_value()) << command;
    return subject ? "" : subject.error().message;
  };
  EXPECT_EQ(message("kill -SEGV $$"), "the subject crashed: signal 11 (Segmentation fault)");
  EXPECT_EQ(message("exit 3"), "the subject ended with exit status 3");
  EXPECT_EQ(message("exec sleep 100"), "the subject gives no answer in time: it hangs");
  EXPECT_EQ(message("read line; echo '{\"error\": \"no GPU\"}'"), "the subject says: no GPU");
  EXPECT_NE(message("read line; echo '{\"takes\": [\"everything\"]}'").find("everything"), std::string::npos);
  EXPECT_NE(message("read line; echo hi").find("malformed JSON"), std::string::npos);
}

// A subject that greets and then does `what` at the first question.
Report after_greeting(const std::string& what) {
  const std::string command =
      "read line; echo '{\"takes\": [\"chunks\"]}'; read line; " + what + "; exec sleep 100";
  return checked(start_process(command, {.timeout = std::chrono::milliseconds(300)}),
                 spec_of("causal", false));
}

TEST(ProcessSubjectTest, WhatFailsLaterIsBroken) {
  const std::pair<const char*, const char*> cases[] = {
      {"kill -KILL $$", "signal 9"},
      {"true", "it hangs"},
      {"echo '{\"out\": [1, 2]}'", "out has 2 numbers, expected 1584"},
      {"echo '{\"out\": \"many\"}'", "out: expected numbers"},
      {"echo '{\"out\": [[[[[[1]]]]]]}'", "nested too deep"},
      {"echo '{}'", "answered without out"},
      {"echo '[]'", "no object"},
      {"echo '{\"out\": [1'", "malformed JSON"},
      {"echo 'Loading weights'", "the line is 'Loading weights'; only answers belong on standard output"},
      {"echo '{\"out\": [NaN]}'", "JSON has no NaN and no Infinity, null stands for NaN"},
      {"printf '{\"error\": \"red \\\\u001b[31m\"}\\n'", "says: red \\x1b[31m"},
      {"head -c 10000000 /dev/zero | tr '\\0' 1", "bytes, more than any answer here"},
  };
  for (const auto& [what, words] : cases) {
    const Report report = after_greeting(what);
    EXPECT_EQ(report.verdict, Verdict::kBroken) << what;
    EXPECT_NE(report.summary.find(words), std::string::npos) << what << "\n" << report.summary;
  }
}

// Counts what it is asked, and takes its time.
class SlowSubject : public checker::Subject {
 public:
  [[nodiscard]] checker::SubjectTraits traits() const override { return engine_->traits(); }
  Result<void> answer(checker::Observation& call) override {
    ++num_asked;
    ::usleep(20000);
    return engine_->answer(call);
  }
  int num_asked = 0;

 private:
  std::unique_ptr<checker::Subject> engine_ = engine_subject(1);
};

TEST(BudgetTest, NothingIsAskedAfterItWithinAProbeEither) {
  SlowSubject subject;
  checker::CheckOptions options;
  options.budget = std::chrono::milliseconds(50);
  const Report report = check(subject, spec_of("causal", true), options).value();
  EXPECT_EQ(report.verdict, Verdict::kAgrees) << to_text(report);
  EXPECT_LE(subject.num_asked, 3);
  EXPECT_NE(to_text(report).find("the time was over after 1 probes"), std::string::npos) << to_text(report);
}

TEST(ProcessSubjectTest, NothingIsLeftRunning) {
  const std::string file = ::testing::TempDir() + "subject_pid";
  std::filesystem::remove(file);
  const auto subject =
      start_process("sleep 1000 & echo $! > " + file + "; wait", {.timeout = std::chrono::milliseconds(500)});
  EXPECT_FALSE(subject.has_value());
  pid_t pid = 0;
  std::ifstream(file) >> pid;
  ASSERT_GT(pid, 0);
  EXPECT_TRUE(testing::is_gone_soon(pid)) << "process " << pid;
}

// In a session of its own, without a parent, or both: no signal to a process group reaches them.
TEST(ProcessSubjectTest, NothingIsLeftRunningThatWentIntoASessionOfItsOwn) {
  const std::string file = ::testing::TempDir() + "subject_daemon_pid";
  const std::string note = "echo $$ > " + file + "; exec sleep 1000";
  const std::string starts[] = {
      fmt::format("setsid sh -c '{}' & wait", note),
      fmt::format("(setsid sh -c '{}' &); exec sleep 1000", note),
      fmt::format("(setsid sh -c '{}' >/dev/null &); while [ ! -s {} ]; do sleep 0.01; done; exit 3", note,
                  file),
  };
  for (const std::string& start : starts) {
    std::filesystem::remove(file);
    const auto subject = start_process(start, {.timeout = std::chrono::milliseconds(500)});
    EXPECT_FALSE(subject.has_value());
    pid_t pid = 0;
    std::ifstream(file) >> pid;
    ASSERT_GT(pid, 0) << start;
    EXPECT_TRUE(testing::is_gone_soon(pid)) << "process " << pid << " of " << start;
    ::kill(pid, SIGKILL);
  }
  // A subject that answered is ended the same way.
  std::filesystem::remove(file);
  const std::string answers = fmt::format("(setsid sh -c '{}' >/dev/null </dev/null &); {}", note, example());
  EXPECT_EQ(checked(start_process(answers), spec_of("causal", true)).verdict, Verdict::kAgrees);
  pid_t pid = 0;
  std::ifstream(file) >> pid;
  ASSERT_GT(pid, 0);
  EXPECT_TRUE(testing::is_gone_soon(pid)) << "process " << pid;
  ::kill(pid, SIGKILL);
}

TEST(ProcessSubjectTest, NothingIsLeftRunningWhenTheCheckItselfIsKilled) {
  const std::string file = ::testing::TempDir() + "subject_orphan_pid";
  std::filesystem::remove(file);
  const pid_t check = ::fork();
  if (check == 0) {
    (void)start_process("(setsid sh -c 'echo $$ > " + file + "; exec sleep 1000' &); exec sleep 1000");
    ::_exit(0);
  }
  pid_t pid = 0;
  for (int i = 0; i < 500 && pid == 0; ++i) {
    ::usleep(10000);
    std::ifstream(file) >> pid;
  }
  ::kill(check, SIGKILL);
  ::waitpid(check, nullptr, 0);
  ASSERT_GT(pid, 0);
  EXPECT_TRUE(testing::is_gone_soon(pid)) << "process " << pid;
  ::kill(pid, SIGKILL);
}

// What serve_lines writes for one request to our own attention.
std::string served(const std::string& request) {
  std::array<int, 2> to{}, from{};
  EXPECT_EQ(::pipe(to.data()), 0);
  EXPECT_EQ(::pipe(from.data()), 0);
  EXPECT_EQ(::write(to[1], request.data(), request.size()), static_cast<ssize_t>(request.size()));
  ::close(to[1]);
  EXPECT_TRUE(serve_lines(*engine_subject(1), to[0], from[1]));
  ::close(from[1]);
  std::string answer(4096, '\0');
  answer.resize(
      static_cast<std::size_t>(std::max<ssize_t>(0, ::read(from[0], answer.data(), answer.size()))));
  ::close(to[0]);
  ::close(from[0]);
  return answer;
}

TEST(ServeLinesTest, TraitsAreReadAsTheyAreWritten) {
  const checker::SubjectTraits given{.takes_positions = true,
                                     .takes_segments = true,
                                     .takes_padding = true,
                                     .takes_gradients = true,
                                     .takes_chunks = false,
                                     .takes_batch = true,
                                     .holds_cache = true,
                                     .cache_bytes_per_token = 128};
  const checker::SubjectTraits read = traits_from_json(to_json(given)).value();
  EXPECT_EQ(to_json(read).dump(), to_json(given).dump());
  EXPECT_TRUE(read.takes_batch && read.holds_cache && !read.takes_chunks);
  EXPECT_EQ(read.cache_bytes_per_token, 128);
  for (const char* bytes : {"-1", "\"64\"", "null"}) {
    const std::string text = fmt::format("{{\"takes\": [], \"cache_bytes_per_token\": {}}}", bytes);
    EXPECT_FALSE(traits_from_json(parse_json(text, "traits").value())) << text;
  }
}

TEST(ServeLinesTest, ACallThatDoesNotFitItsSpecIsAnsweredWithAnError) {
  std::string tokens;
  for (const char* side : {"q", "kv"}) {
    for (const char* member : {"pos", "rope_pos", "segment", "segment_start", "span", "flags"}) {
      tokens += fmt::format(R"(, "{}_{}": [0])", side, member);
    }
    tokens += fmt::format(R"(, "{}_valid": [1])", side);
  }
  const auto request = [&](const char* type, const char* values) {
    return fmt::format(R"({{"do": "answer", "type": "{}", "spec": {{"heads": {{"num_q_heads": 1, )"
                       R"("num_kv_heads": 1, "qk_head_dim": 1, "v_head_dim": 1}}}}, "q": {{"data": [1]}}, )"
                       R"("k": {{"data": [1]}}, "v": {{"data": {}}}{}}})"
                       "\n",
                       type, values, tokens);
  };
  EXPECT_NE(served(request("f32", "[3]")).find("\"out\":[3"), std::string::npos);
  EXPECT_NE(served(request("f8", "[3]")).find("expected f64, f32, bf16 or f16"), std::string::npos);
  EXPECT_NE(served(request("f32", "[3, 4]")).find("v has 2 numbers, expected 1"), std::string::npos);
}

TEST(LibrarySubjectTest, TheExampleAgreesAndTiledHeadsAreNamed) {
  const AttentionSpec spec = spec_of("causal", false);
  const Report right = checked(start_library(SIGHTLINE_PLAIN_LIBRARY), spec);
  EXPECT_EQ(right.verdict, Verdict::kAgrees) << to_text(right);
  const Report tiled = checked(start_library(SIGHTLINE_TILED_LIBRARY), spec);
  ASSERT_EQ(tiled.verdict, Verdict::kFault) << to_text(tiled);
  EXPECT_EQ(tiled.faults.front().slug, "head.gqa_mapping");
}

TEST(LibrarySubjectTest, WhatIsNoSuchLibraryIsRefused) {
  EXPECT_EQ(start_library("/nowhere.so").error().kind, ErrorKind::kNoInput);
  const std::string text = ::testing::TempDir() + "no_library.so";
  std::ofstream(text) << "hello";
  EXPECT_EQ(start_library(text).error().kind, ErrorKind::kInvalidContent);
}

TEST(EngineSubjectTest, OurOwnAttentionAgrees) {
  for (const char* mask : {"causal", "causal & window(5)", "causal & segment",
                           "causal & (window(4) | first(2))", "causal | span", "causal & chunk(6)", "all"}) {
    for (const bool rotates : {false, true}) {
      const auto engine = engine_subject(2);
      const Report report = check(*engine, spec_of(mask, rotates)).value();
      EXPECT_EQ(report.verdict, Verdict::kAgrees) << mask << "\n" << to_text(report);
      EXPECT_NE(
          to_text(report).find("  holds: a row of a batch = the row alone; the largest change is 0 times"),
          std::string::npos)
          << "not the same bits\n"
          << to_text(report);
    }
  }
}

}  // namespace
}  // namespace sightline::subjects
