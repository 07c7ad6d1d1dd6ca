#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <filesystem>
#include <fstream>
#include <stdexcept>

#include "sightline/base/file.h"
#include "sightline/base/json.h"
#include "sightline/base/thread_pool.h"

namespace sightline {
namespace {

TEST(ThreadPoolTest, EveryItemRunsOnceForAnyThreadCount) {
  for (const int num_threads : {1, 2, 3, 5}) {
    ThreadPool pool(num_threads);
    for (int round = 0; round < 200; ++round) {
      std::vector<std::atomic<int>> runs(37);
      pool.parallel_for(37, [&](std::int64_t i, int thread_idx) {
        EXPECT_LT(thread_idx, num_threads);
        runs[static_cast<std::size_t>(i)].fetch_add(1);
      });
      for (const auto& n : runs) ASSERT_EQ(n.load(), 1);
    }
  }
}

TEST(ThreadPoolTest, AnExceptionReachesTheCallerAndThePoolStaysUsable) {
  ThreadPool pool(3);
  EXPECT_THROW(pool.parallel_for(8,
                                 [](std::int64_t i, int) {
                                   if (i == 4) throw std::runtime_error("x");
                                 }),
               std::runtime_error);
  std::atomic<int> n{0};
  pool.parallel_for(8, [&](std::int64_t, int) { n.fetch_add(1); });
  EXPECT_EQ(n.load(), 8);
}

TEST(ThreadPoolTest, APoolThatIsRefusedThreadsWorksWithFewer) {
#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
  GTEST_SKIP() << "sanitizers reserve more address space than the limit allows";
#endif
  // In a child, because the limit cannot be raised again. Each thread wants 8 MiB of stack.
  const pid_t child = ::fork();
  if (child == 0) {
    const rlimit limit{std::size_t{256} << 20, std::size_t{256} << 20};
    ::setrlimit(RLIMIT_AS, &limit);
    ThreadPool pool(1000);
    std::atomic<int> n{0};
    pool.parallel_for(8, [&](std::int64_t, int) { n.fetch_add(1); });
    ::_exit(n.load() == 8 && pool.num_threads() < 1000 ? 0 : 1);
  }
  int status = 0;
  ::waitpid(child, &status, 0);
  EXPECT_TRUE(WIFEXITED(status));
  EXPECT_EQ(WEXITSTATUS(status), 0);
}

TEST(JsonTest, KeepsIntegersApartAndRoundTrips) {
  const auto json = parse_json(R"( {"a": 1, "b": 1.0, "c": [true, null, "x\u00e9"], "d": 0.1} )", "t");
  ASSERT_TRUE(json);
  EXPECT_NE(json->find("a")->as_int(), nullptr);
  EXPECT_EQ(json->find("b")->as_int(), nullptr);
  EXPECT_EQ(*parse_json(json->dump(), "t"), *json);
}

TEST(JsonTest, RefusesDepthRepeatedKeysMarksAndRubbish) {
  EXPECT_NE(parse_json(std::string(1000000, '['), "t").error().message.find("deeper than 64"),
            std::string::npos);
  EXPECT_NE(parse_json(R"({"a":1,"a":2})", "t").error().message.find("twice"), std::string::npos);
  for (const char* text : {"", "{", "{} x", "\xef\xbb\xbf{}", "\"\xff\"", "nul", "[1,]"}) {
    EXPECT_FALSE(parse_json(text, "t")) << text;
  }
  EXPECT_FALSE(parse_json(std::string_view("{}\0{", 4), "t"));  // a zero byte does not end a text
}

TEST(JsonTest, EventsFollowTheTextWithTheirPlace) {
  std::string seen;
  const auto record = [&](const JsonEvent& event) -> Result<void> {
    seen += fmt::format("{}{}@{} ", static_cast<int>(event.kind), event.text, event.offset);
    return {};
  };
  ASSERT_TRUE(parse_json_events(R"({"a": [1, -2.5, true, null], "a": "x"})", "t", {}, record));
  EXPECT_EQ(seen, "6@1 5a@4 8@7 2@9 3@15 1@20 0@26 9@27 5a@32 4x@37 7@38 ");
  const auto stop = [](const JsonEvent& event) -> Result<void> {
    if (event.kind == JsonEvent::Kind::kBool) return fail(ErrorKind::kInvalidContent, "stopped");
    return {};
  };
  EXPECT_EQ(parse_json_events("[1, true, [", "t", {}, stop).error().message, "stopped");
  EXPECT_FALSE(parse_json_events("[1, 2", "t", {}, stop));
  EXPECT_NE(parse_json_events(std::string(100000, '['), "t", {}, stop).error().message.find("deeper than 64"),
            std::string::npos);
}

TEST(JsonTest, DumpReplacesInvalidUtf8AndNan) {
  EXPECT_EQ(Json("a\xff").dump(), "\"a\xef\xbf\xbd\"");
  EXPECT_EQ(Json(0.0 / 0.0).dump(), "null");
}

TEST(FileTest, DirectoriesDevicesAndMissingFilesAreNoInput) {
  for (const char* path : {"/", "/dev/zero", "/nonexistent/file"}) {
    EXPECT_EQ(read_file(path).error().kind, ErrorKind::kNoInput) << path;
  }
}

TEST(FileTest, WriteReplacesOnlyWhenAskedAndLeavesNoTemporary) {
  const auto folder = std::filesystem::temp_directory_path() / "sightline_file_test";
  std::filesystem::remove_all(folder);
  std::filesystem::create_directory(folder);
  ASSERT_TRUE(write_file(folder / "a", "one", false));
  EXPECT_EQ(write_file(folder / "a", "two", false).error().kind, ErrorKind::kCannotCreate);
  EXPECT_EQ(*read_file(folder / "a"), "one");
  ASSERT_TRUE(write_file(folder / "a", "two", true));
  EXPECT_EQ(*read_file(folder / "a"), "two");
  EXPECT_EQ(write_file(folder, "x", true).error().kind, ErrorKind::kCannotCreate);
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(folder), {}), 1);
  std::filesystem::remove_all(folder);
}

}  // namespace
}  // namespace sightline
