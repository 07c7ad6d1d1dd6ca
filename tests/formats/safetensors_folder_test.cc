// A folder of shards with an index: which files it may name, and that both agree.
#include <gtest/gtest.h>

#include "byte_builder.h"
#include "sightline/base/file.h"
#include "sightline/formats/safetensors.h"

namespace sightline::testing_formats {
namespace {

class SafetensorsFolderTest : public testing::Test {
 protected:
  void put(const std::string& name, std::string_view text) const {
    ASSERT_TRUE(write_file(folder_.path() / name, text, true));
  }
  void put_shard(const std::string& name, const std::string& tensor, float value) const {
    auto writer = create_safetensors(folder_.path() / name, {{tensor, DataType::kF32, {1}}}, {}, true);
    ASSERT_TRUE(writer) << writer.error().message;
    ASSERT_TRUE(writer->append_f32(std::vector<float>{value}));
    ASSERT_TRUE(writer->commit());
  }
  void put_index(std::string_view weight_map) const {
    put("model.safetensors.index.json", fmt::format(R"({{"metadata":{{}},"weight_map":{}}})", weight_map));
  }
  [[nodiscard]] Result<SafetensorsFile> open() const { return SafetensorsFile::open(folder_.path()); }
  TemporaryFolder folder_;
};

TEST_F(SafetensorsFolderTest, ShardsAreReadThroughTheIndex) {
  put_shard("m1.safetensors", "a", 1);
  put_shard("m2.safetensors", "b", 2);
  put_index(R"({"a":"m1.safetensors","b":"m2.safetensors"})");
  const auto file = open();
  ASSERT_TRUE(file) << file.error().message;
  std::vector<float> out(1);
  ASSERT_TRUE(file->read_f32(*file->find("b"), 0, 1, out));
  EXPECT_EQ(out[0], 2.0F);
}

TEST_F(SafetensorsFolderTest, ASingleFileComesBeforeAnIndex) {
  put_shard("model.safetensors", "single", 1);
  put_index(R"({"a":"absent.safetensors"})");
  ASSERT_TRUE(open());
  EXPECT_NE(open()->find("single"), nullptr);
}

TEST_F(SafetensorsFolderTest, AnEmptyFolderIsNoInput) {
  const auto file = open();
  ASSERT_FALSE(file);
  EXPECT_EQ(file.error().kind, ErrorKind::kNoInput);
}

TEST_F(SafetensorsFolderTest, Row38TheSameNameInTwoShardsIsRefused) {
  put_shard("m1.safetensors", "a", 1);
  put_shard("m2.safetensors", "a", 2);
  put_index(R"({"a":"m1.safetensors","b":"m2.safetensors"})");
  expect_refused(open(), "'a' occurs twice", "formats");
}

TEST_F(SafetensorsFolderTest, Row45ShardsLieInTheFolder) {
  put_shard("m1.safetensors", "a", 1);
  const TemporaryFolder other;
  std::filesystem::copy(folder_.path() / "m1.safetensors", other.path() / "out.safetensors");
  std::filesystem::create_symlink(other.path() / "out.safetensors", folder_.path() / "link.safetensors");
  std::filesystem::create_symlink("loop.safetensors", folder_.path() / "loop.safetensors");
  std::filesystem::create_symlink("m1.safetensors", folder_.path() / "inside.safetensors");
  const std::string outside = "../" + other.path().filename().string() + "/out.safetensors";
  for (const std::string& name :
       {outside, (other.path() / "out.safetensors").string(), std::string("/etc/passwd"),
        std::string("link.safetensors"), std::string("loop.safetensors"), std::string("absent.safetensors"),
        std::string(""), std::string("."), std::string(".."), std::string("./m1.safetensors"),
        std::string("a\\\\b")}) {
    put_index(fmt::format(R"({{"a":"{}"}})", name));
    expect_refused(open(), "weight_map: shard", "index.json");
  }
  put_index(R"({"a":"m1.safetensors\u0000"})");
  expect_refused(open(), "weight_map: shard", "index.json");
  put_index(R"({"a":"inside.safetensors"})");
  EXPECT_TRUE(open());
}

TEST_F(SafetensorsFolderTest, TheIndexAndTheShardsAgree) {
  put_shard("m1.safetensors", "a", 1);
  put_shard("m2.safetensors", "b", 1);
  for (const char* map :
       {R"({"a":"m1.safetensors","c":"m1.safetensors"})", R"({"a":"m2.safetensors","b":"m1.safetensors"})"}) {
    put_index(map);
    expect_refused(open(), "is not in shard", "index.json");
  }
  for (const char* map : {"[]", "null", "{}", R"({"a":1})"}) {
    put_index(map);
    expect_refused(open(), "weight_map", "index.json");
  }
  put("model.safetensors.index.json", "{");
  expect_refused(open(), "malformed", "index.json");
  put("model.safetensors.index.json", "[]");
  expect_refused(open(), "weight_map", "index.json");
}

TEST_F(SafetensorsFolderTest, ATensorThatTheIndexLeavesOutIsAWarning) {
  auto writer = create_safetensors(folder_.path() / "m1.safetensors",
                                   {{"a", DataType::kF32, {1}}, {"more", DataType::kF32, {1}}}, {}, true);
  ASSERT_TRUE(writer->append_f32(std::vector<float>{1}));
  ASSERT_TRUE(writer->append_f32(std::vector<float>{1}));
  ASSERT_TRUE(writer->commit());
  put_index(R"({"a":"m1.safetensors"})");
  const auto file = open();
  ASSERT_TRUE(file) << file.error().message;
  EXPECT_EQ(file->warnings().size(), 1U);
}

}  // namespace
}  // namespace sightline::testing_formats
