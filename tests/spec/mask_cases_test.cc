// The text cases: hand-drawn pictures against the definition.
#include <gtest/gtest.h>

#include <set>

#include "cases/case_file.h"

namespace sightline {
namespace {

using testing::MaskCase;
using testing::read_case;

TEST(MaskCasesTest, EveryPictureIsWhatTheDefinitionSees) {
  const auto files = testing::all_case_files();
  ASSERT_GE(files.size(), 25u) << "run through ctest, or set SIGHTLINE_SOURCE_DIR";
  std::set<MaskOp> seen;
  for (const auto& file : files) {
    const auto one = read_case(file);
    ASSERT_TRUE(one) << one.error().message;
    EXPECT_EQ(one->name, file.stem().string());
    EXPECT_FALSE(one->says.empty()) << one->name;
    EXPECT_EQ(draw(one->mask, one->tables(), one->q, one->kv), one->visible)
        << one->name << ": " << one->says;
    for (const MaskNode& node : one->mask.nodes) seen.insert(node.op);
  }
  EXPECT_EQ(seen.size(), 17u) << "a rule or operator has no case";
}

}  // namespace
}  // namespace sightline
