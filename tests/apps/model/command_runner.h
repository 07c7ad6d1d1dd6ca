// Runs a command of the built program on a model and reads its JSON.
#pragma once

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "sightline/base/json.h"
#include "support/subprocess.h"

namespace sightline::testing {

inline RunResult run_command(std::vector<std::string> args, const RunOptions& options = {}) {
  args.insert(args.begin(), SIGHTLINE_PROGRAM);
  return run_program(args, options);
}

/// What the command prints with --json; null, and a failure of the test, when it does not end well.
inline Json run_json(std::vector<std::string> args, const RunOptions& options = {}) {
  args.emplace_back("--json");
  const RunResult result = run_command(args, options);
  EXPECT_EQ(result.exit_code, 0) << result.err;
  auto json = parse_json(result.out, "standard output");
  EXPECT_TRUE(json) << json.error().message;
  return json ? std::move(*json) : Json();
}

/// A member that is there, as text of JSON: equal texts are equal to the bit, numbers print in full.
inline std::string member(const Json& json, const std::string& name) {
  const Json* found = json.find(name);
  EXPECT_NE(found, nullptr) << name;
  return found == nullptr ? std::string() : found->dump();
}

inline std::string text_member(const Json& json, const std::string& name) {
  const Json* found = json.find(name);
  const std::string* text = found == nullptr ? nullptr : found->as_string();
  EXPECT_NE(text, nullptr) << name;
  return text == nullptr ? std::string() : *text;
}

inline bool has(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

/// Lines of `text` that hold `part`.
inline std::vector<std::string> lines_with(const std::string& text, const std::string& part) {
  std::vector<std::string> lines;
  for (std::size_t begin = 0; begin < text.size();) {
    const std::size_t end = std::min(text.find('\n', begin), text.size());
    const std::string line = text.substr(begin, end - begin);
    if (has(line, part)) lines.push_back(line);
    begin = end + 1;
  }
  return lines;
}

/// What of the demo holds on any model: text after "# N." up to the next heading.
struct DemoPart {
  std::string text;       ///< the line of generated text
  std::string chunks;     ///< the line of the relation whole = chunks
  std::string positions;  ///< of the shift of all rotary positions
  std::string future;     ///< of the future edit
};
inline DemoPart demo_part(const std::string& out, int part) {
  const std::size_t begin = out.find(fmt::format("\n{}. ", part));
  EXPECT_NE(begin, std::string::npos) << "part " << part << " of:\n" << out;
  if (begin == std::string::npos) return {};
  const std::string body = out.substr(begin, out.find(fmt::format("\n{}. ", part + 1), begin) - begin);
  const auto last = [&](const char* what) {
    const auto lines = lines_with(body, what);
    EXPECT_FALSE(lines.empty()) << what << " in:\n" << body;
    return lines.empty() ? std::string() : lines.back();
  };
  return {last("  text "), last("whole = chunks of 3"), last("all rotary positions"), last("future edit")};
}

/// Every relation of the right run holds; each planted fault changes the text, keeps every shape, and the
/// relation that names it fails with its figure while the others hold.
inline void expect_demo_shows_all(const std::string& out) {
  const DemoPart right = demo_part(out, 3);
  for (const std::string& line : {right.chunks, right.future})
    EXPECT_TRUE(has(line, "holds, to the bit")) << line;
  EXPECT_TRUE(has(right.positions, "holds")) << right.positions;
  EXPECT_EQ(lines_with(out, "NOT EQUAL").size(), 0U);
  EXPECT_EQ(lines_with(out, "chunks of 1: equal").size(), 1U);
  EXPECT_EQ(lines_with(out, "chunks of 3: equal").size(), 1U);
  const DemoPart top_left = demo_part(out, 4), restart = demo_part(out, 5), twice = demo_part(out, 6);
  for (const DemoPart& wrong : {top_left, restart, twice}) {
    EXPECT_NE(wrong.text, right.text);
    EXPECT_TRUE(has(wrong.future, "holds, to the bit")) << wrong.future;
  }
  for (const std::string& line : {top_left.chunks, restart.chunks, twice.positions}) {
    EXPECT_TRUE(has(line, "FAILS  (largest difference ")) << line;
    EXPECT_TRUE(has(line, "nats, at token ")) << line;
  }
  EXPECT_TRUE(has(top_left.positions, "holds")) << top_left.positions;
  EXPECT_TRUE(has(twice.chunks, "holds, to the bit")) << twice.chunks;
  const auto shapes = lines_with(out, "  shapes ");
  ASSERT_EQ(shapes.size(), 3U);
  EXPECT_TRUE(has(shapes[0], "in every call as in the right run")) << shapes[0];
  EXPECT_EQ(shapes[0], shapes[1]);
  EXPECT_EQ(shapes[0], shapes[2]);
}

}  // namespace sightline::testing
