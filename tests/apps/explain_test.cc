// `sightline explain`, as the documented examples print it.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "sightline/base/json.h"
#include "support/subprocess.h"

namespace sightline {
namespace {

using testing::RunResult;

RunResult explain(std::vector<std::string> args) {
  args.insert(args.begin(), {SIGHTLINE_PROGRAM, "explain"});
  return testing::run_program(args);
}

bool has(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

// The picture of README.md and docs/masks.md.
TEST(ExplainTest, DrawsTheDocumentedPicture) {
  const RunResult result = explain({"causal & window(4)", "--q", "3..4", "--kv", "0..4"});
  EXPECT_EQ(result.exit_code, 0);
  EXPECT_EQ(result.err, "");
  EXPECT_EQ(result.out,
            "causal & window(4)\n"
            "\n"
            "  | 0 1 2 3 4\n"
            "--+----------\n"
            "3 | 1 1 1 1 0\n"
            "4 | 0 1 1 1 1\n"
            "\n"
            "rows are queries, columns keys, by position; 1: the query sees the key\n"
            "8 of 10 pairs visible\n"
            "proved for all positions: no query sees a later position\n"
            "proved for all positions: no query sees a key 4 or more back\n");
}

TEST(ExplainTest, WhyNamesTheRuleThatDecided) {
  const RunResult result =
      explain({"causal & segment", "--kv", "0..4", "--segments", "0,0,0,1,1", "--why", "3,0"});
  EXPECT_EQ(result.exit_code, 0);
  EXPECT_EQ(result.out,
            "Query 3 does not see key 0: segment is false (the query is in segment 1, the key in 0).\n"
            "\n"
            "  causal   true\n"
            "  segment  false  decides: the other answer would flip the pair\n");
  EXPECT_TRUE(has(explain({"causal & window(4)", "--why", "3,0"}).out, "Query 3 sees key 0: causal is true"));
  EXPECT_TRUE(
      has(explain({"all", "--kv", "0,1", "--valid", "0,1", "--why", "1,#0"}).out, "visible to nobody"));
}

TEST(ExplainTest, ErrorsInAMaskPointAtTheColumn) {
  const RunResult result = explain({"causal & wimdow(4)"});
  EXPECT_EQ(result.exit_code, 2);
  EXPECT_EQ(result.out, "");
  EXPECT_EQ(result.err,
            "sightline: mask: column 10: there is no rule \"wimdow\"; did you mean \"window\"?\n"
            "  causal & wimdow(4)\n"
            "           ^\n");
}

TEST(ExplainTest, SegmentsStartWhereTheirFirstTokenStands) {
  const RunResult result = explain({"causal & chunk(2)", "--kv", "0..4", "--segments", "0,0,0,1,1"});
  EXPECT_TRUE(has(result.out,
                  "2 | 0 0 1 0 0\n"
                  "3 | 0 0 0 1 0\n"
                  "4 | 0 0 0 1 1\n"))
      << result.out;
  // Queries take what was said of the key at their position.
  EXPECT_TRUE(has(explain({"segment", "--q", "4", "--kv", "0..4", "--segments", "0,0,0,1,1"}).out,
                  "4 | 0 0 0 1 1\n"));
  EXPECT_TRUE(
      has(explain({"segment", "--q", "9", "--kv", "0,1", "--segments", "0,1", "--q-segments", "1"}).out,
          "9 | 0 1\n"));
}

TEST(ExplainTest, EveryKindOfTokenDataIsTaken) {
  EXPECT_TRUE(has(explain({"causal | span", "--kv", "0..2", "--spans", "5,5,0"}).out, "0 | 1 1 0\n"));
  EXPECT_TRUE(
      has(explain({"query_is(1)|key_is(0)", "--kv", "0..1", "--flags", "2,1"}).out, "0 | 1 1\n1 | 0 1\n"));
  EXPECT_TRUE(has(explain({"all", "--kv", "7,0", "--valid", "0,1"}).out, "pad |   0   0\n  0 |   0   1\n"));
  EXPECT_TRUE(has(explain({"dense", "--q", "0,1", "--kv", "0..2", "--dense", "101,010"}).out,
                  "0 | 1 0 1\n1 | 0 1 0\n"));
  EXPECT_TRUE(has(explain({"tree", "--q", "2,2", "--kv", "0,1,2,2", "--q-nodes", "0,1", "--kv-nodes",
                           "-1,-1,0,1", "--parents", "-1,-1"})
                      .out,
                  "2 | 1 1 1 0\n2 | 1 1 0 1\n"));
}

TEST(ExplainTest, HeadsShrinkKeysAndLeaveTheWork) {
  const RunResult result = explain({"--heads"});
  EXPECT_EQ(result.exit_code, 0);
  for (const char* line : {"hidden 4096, 32 query heads of 128, 4096 tokens, 1 layer, 2 bytes a number\n",
                           "Wq [in, out]                   [4096, 4096]     [4096, 4096]     [4096, 4096]\n",
                           "Wk                             [4096, 4096]     [4096, 1024]      [4096, 128]\n",
                           "Wk parameters                    16,777,216        4,194,304          524,288\n",
                           "all four                         67,108,864       41,943,040       34,603,008\n",
                           "K                           [4096, 32, 128]   [4096, 8, 128]   [4096, 1, 128]\n",
                           "QK FLOP, all pairs          137,438,953,472  137,438,953,472  137,438,953,472\n",
                           "cache bytes at 4096 tokens       67,108,864       16,777,216        2,097,152\n",
                           "  GQA 32/8: 0-3>0 4-7>1 8-11>2 12-15>3 16-19>4 20-23>5 24-27>6 28-31>7\n"}) {
    EXPECT_TRUE(has(result.out, line)) << line << result.out;
  }
  // SmolLM2-135M: 30 layers, 3 key heads of 64, 4 bytes, 46,080 bytes a token.
  EXPECT_TRUE(has(explain({"--heads", "--hidden", "576", "--q-heads", "9", "--kv-heads", "3", "--head-dim",
                           "64", "--length", "1", "--layers", "30", "--bytes", "4"})
                      .out,
                  "46,080\n"));
}

TEST(ExplainTest, RopePrintsAnglesAndScores) {
  const RunResult result = explain({"--rope", "--dim", "16", "--distance", "100"});
  EXPECT_EQ(result.exit_code, 0);
  for (const char* line : {"angle of each pair at distance 100\n",
                           "   2       2, 10       1.000000e-01            62.83   10.000000   1.5915\n",
                           "       0  1.0000                      |####################\n"}) {
    EXPECT_TRUE(has(result.out, line)) << line << result.out;
  }
  const RunResult yarn = explain({"--rope", "--dim", "128", "--scaling", "yarn", "--factor", "10",
                                  "--original-context", "2048", "--pairing", "interleaved", "--json"});
  const auto json = parse_json(yarn.out, "explain");
  ASSERT_TRUE(json) << yarn.out << yarn.err;
  const Json& pair = (*json->find("pairs")->as_array())[32];
  double frequency = 0;
  ASSERT_TRUE(pair.find("radians_per_token")->get_number(frequency));
  EXPECT_NEAR(frequency, 4.24e-3, 1e-9);
  EXPECT_EQ(*(*pair.find("components")->as_array())[1].as_int(), 65);
}

TEST(ExplainTest, JsonHoldsThePictureAndTheProofs) {
  const auto json = parse_json(
      explain({"causal & window(2)", "--q", "1", "--kv", "0..2", "--why", "1,2", "--json"}).out, "explain");
  ASSERT_TRUE(json);
  EXPECT_EQ(json->find("visible")->dump(), "[[1,1,0]]");
  EXPECT_EQ(json->find("reach_back")->dump(), R"({"window":2,"num_first":0})");
  EXPECT_EQ(*json->find("num_visible")->as_int(), 2);
  EXPECT_FALSE(*json->find("why")->find("visible")->as_bool());
  EXPECT_TRUE(parse_json(explain({"--heads", "--json"}).out, "explain"));
}

TEST(ExplainTest, WrongUsageIsNamedAndExitsTwo) {
  struct Row {
    std::vector<std::string> args;
    const char* message;
  };
  for (const auto& [args, message] : {
           Row{{}, "expected one of MASK, --rope and --heads"},
           Row{{"causal", "--rope"}, "expected one of MASK"},
           Row{{"causal", "--q", "4..3"}, "runs backwards"},
           Row{{"causal", "--q", "x"}, "--q"},
           Row{{"causal", "--kv", "0..100000000000"}, "more than 512"},
           Row{{"causal", "--kv", "-9223372036854775808..9223372036854775807"}, "more than 512"},
           Row{{"causal", "--kv", "9223372036854775807"}, "2^60"},
           Row{{"causal", "--kv", "0..3", "--segments", "0,1"}, "--segments: 2 entries for 4 keys"},
           Row{{"segment", "--q", "9", "--kv", "0,1", "--segments", "0,1"}, "say --q-segments too"},
           Row{{"span", "--kv", "0,1", "--spans", "0,-1"}, "--spans: -1"},
           Row{{"causal", "--why", "3"}, "expected QUERY,KEY"},
           Row{{"causal", "--why", "3,99"}, "no key stands at position 99"},
           Row{{"causal", "--kv", "0,0", "--why", "#0,0"}, "more than one key"},
           Row{{"dense"}, "dense"},
           Row{{"dense", "--kv", "0..1", "--dense", "12,01"}, "--dense"},
           Row{{"tree", "--kv", "0", "--q-nodes", "0", "--kv-nodes", "0", "--parents", "0"}, "parent[0] = 0"},
           Row{{"--heads", "--kv-heads", "3"}, "does not divide"},
           Row{{"--heads", "--kv-heads", "0"}, "--kv-heads: 0"},
           Row{{"causal", "--dim", "8"}, "--dim is for --rope, it does nothing with MASK"},
           Row{{"causal", "--theta", "5"}, "--theta is for --rope, it does nothing with MASK"},
           Row{{"causal", "--kv-heads", "3"}, "--kv-heads is for --heads, it does nothing with MASK"},
           Row{{"--rope", "--q", "0..3"}, "--q is for MASK, it does nothing with --rope"},
           Row{{"--rope", "--hidden", "4096"}, "--hidden is for --heads, it does nothing with --rope"},
           Row{{"--heads", "--distance", "1"}, "--distance is for --rope, it does nothing with --heads"},
           Row{{"--heads", "--why", "3,0"}, "--why is for MASK, it does nothing with --heads"},
           Row{{"--rope", "--dim", "7"}, "rotary_dim = 7"},
           Row{{"--rope", "--scaling", "yarn"}, "original_context = 0"},
           Row{{"--rope", "--theta", "-1"}, "theta = -1"},
       }) {
    const RunResult result = explain(args);
    EXPECT_EQ(result.exit_code, 2) << message << result.err;
    EXPECT_EQ(result.out, "") << message;
    EXPECT_TRUE(has(result.err, message)) << message << ": " << result.err;
  }
}

}  // namespace
}  // namespace sightline
