#include "sightline/generate/stop.h"

#include <gtest/gtest.h>

#include "sightline/base/rng.h"

namespace sightline {
namespace {

TEST(StopMatcherTest, TheStopStringAndWhatFollowsAreCut) {
  StopMatcher stops({"END"});
  EXPECT_EQ(stops.push("one E"), "one ");
  EXPECT_EQ(stops.push("N"), "");
  EXPECT_EQ(stops.push("D two"), "");
  EXPECT_TRUE(stops.stopped());
  EXPECT_EQ(stops.found(), "END");
  EXPECT_EQ(stops.push("more"), "");
}

TEST(StopMatcherTest, HeldTextComesBackWhenItTurnsOutToBeNone) {
  StopMatcher stops({"abc", "bx"});
  EXPECT_EQ(stops.push("ab"), "");
  EXPECT_EQ(stops.push("d"), "abd");
  EXPECT_EQ(stops.push("ab"), "");
  EXPECT_EQ(stops.flush(), "ab");
  EXPECT_FALSE(stops.stopped());
}

TEST(StopMatcherTest, AnyCutOfTheTextGivesTheSameResult) {
  Rng rng(3);
  for (int round = 0; round < 2000; ++round) {
    std::string text;
    for (int i = 0; i < 20; ++i) text += static_cast<char>('a' + rng.next_below(3));
    const std::vector<std::string> stops{"abca", "cc", "bab"};
    std::size_t first = std::string::npos;
    for (const auto& stop : stops) first = std::min(first, text.find(stop));
    StopMatcher matcher(stops);
    std::string out;
    for (std::size_t at = 0; at < text.size();) {
      const std::size_t n = 1 + rng.next_below(4);
      out += matcher.push(std::string_view(text).substr(at, n));
      at += n;
    }
    out += matcher.flush();
    EXPECT_EQ(out, text.substr(0, first)) << text;
  }
}

TEST(StopMatcherTest, EmptyAndOversizedStopsAreRefused) {
  EXPECT_FALSE(validate_stops({""}));
  EXPECT_FALSE(validate_stops({std::string(5000, 'x')}));
  EXPECT_FALSE(validate_stops(std::vector<std::string>(17, "x")));
  EXPECT_TRUE(validate_stops({"x"}));
}

}  // namespace
}  // namespace sightline
