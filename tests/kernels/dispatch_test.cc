// The choice of a kernel table by name.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "sightline/kernels/kernel_table.h"

namespace sightline::kernels {
namespace {

TEST(DispatchTest, PortableIsAlwaysThereAndTablesAscend) {
  const auto tables = available_tables();
  ASSERT_FALSE(tables.empty());
  EXPECT_EQ(tables.front()->name, "portable");
  for (std::size_t i = 1; i < tables.size(); ++i) {
    EXPECT_GE(tables[i]->vector_floats, tables[i - 1]->vector_floats);
    EXPECT_TRUE(tables[i]->fused_multiply_add) << tables[i]->name;
  }
}

TEST(DispatchTest, EveryAvailableNameSelectsItsTable) {
  for (const KernelTable* table : available_tables()) {
    const auto selected = select_isa(table->name);
    ASSERT_TRUE(selected.has_value());
    EXPECT_EQ(*selected, table);
  }
  EXPECT_EQ(select_isa("").value(), available_tables().back());
}

TEST(DispatchTest, UnknownNameIsRefusedWithTheNamesThereAre) {
  for (const char* name : {"sse9", "AVX2", "avx512 ", "native"}) {
    const auto selected = select_isa(name);
    ASSERT_FALSE(selected.has_value()) << name;
    EXPECT_EQ(selected.error().kind, ErrorKind::kInvalidArgument);
    EXPECT_NE(selected.error().message.find("portable"), std::string::npos);
    EXPECT_NE(selected.error().message.find(name), std::string::npos);
  }
}

TEST(DispatchTest, UnitsOfOtherTypesSayWhatTheyAddOrAreRefused) {
  for (const char* name : {"avx512", "avx512_vnni", "avx512_bf16"}) {
    const auto selected = select_isa(name);
    if (selected) {
      EXPECT_EQ((*selected)->name, name);
      EXPECT_EQ((*selected)->int8_dot, (*selected)->name != "avx512");
      EXPECT_EQ((*selected)->bf16_dot, (*selected)->name == "avx512_bf16");
    } else {
      EXPECT_EQ(selected.error().kind, ErrorKind::kConfiguration);
    }
  }
}

TEST(DispatchTest, CalibrationCountsWork) {
  for (const KernelTable* table : available_tables()) {
    EXPECT_GT(table->calibrate_peak(10), 0.0);
    const std::vector<float> data(1003, 1.0F);
    EXPECT_EQ(table->read_all(data.data(), data.size()), 1003.0F) << table->name;
  }
}

}  // namespace
}  // namespace sightline::kernels
