// Weights come out in one internal order, whatever the file: neighbours, halves, turned or fused.
#include <gtest/gtest.h>

#include "model/families/family.h"
#include "model/model_fixtures.h"

namespace sightline {
namespace {

using testing::TempFolder;
using testing::TestModel;

// Every weight of the layout, read in pieces of `step` rows and joined.
std::vector<float> read_all(const WeightLayout& layout, const TensorSource& source, std::int64_t step) {
  std::vector<float> all;
  for_each_weight(layout, [&](std::string_view, const WeightRef& ref) {
    WeightReader reader(source, ref);
    const std::int64_t width = std::max<std::int64_t>(ref.cols, 1);
    for (std::int64_t begin = 0; begin < ref.rows; begin += step) {
      const std::int64_t end = std::min(begin + step, ref.rows);
      std::vector<float> rows(static_cast<std::size_t>((end - begin) * width), -7.0F);
      const auto ok = reader.read(begin, end, rows);
      ASSERT_TRUE(ok) << ok.error().message;
      all.insert(all.end(), rows.begin(), rows.end());
    }
  });
  return all;
}

// The same, straight from the model's own tensors, in the order of the layout.
std::vector<float> expected_values(const TestModel& model) {
  std::vector<float> all;
  for_each_weight(make_layout(model.spec, plain_tensor_names()), [&](std::string_view, const WeightRef& ref) {
    for (const WeightPart& part : ref.parts) {
      const auto& values = model.tensors.at(part.tensor).values;
      all.insert(all.end(), values.begin(), values.end());
    }
  });
  return all;
}

TEST(WeightLayoutTest, GgufAndFolderOfOneLlamaGiveTheSameRowsAndTheWrongOrderDoesNot) {
  TempFolder folder;
  const TestModel model = testing::random_model(testing::small_llama_spec(), 4);
  testing::write_llama_gguf(folder.file("m.gguf"), model, testing::llama_metadata(model.spec));
  testing::write_llama_hf(folder.file("hf"), model, testing::llama_config(model.spec));
  for (const char* name : {"m.gguf", "hf"}) {
    const auto files = open_model_files(folder.file(name));
    ASSERT_TRUE(files) << files.error().message;
    const auto family = read_family(*files, {});
    ASSERT_TRUE(family) << family.error().message;
    for (const std::int64_t step : {1, 5, 32, 1000}) {
      EXPECT_EQ(read_all(family->layout, files->tensors(), step), expected_values(model)) << name << step;
    }
    LoadOptions wrong;
    wrong.rope_pairing = files->gguf ? RopePairing::kHalfSplit : RopePairing::kInterleaved;
    const auto other = read_family(*files, wrong);
    ASSERT_TRUE(other) << other.error().message;
    EXPECT_NE(read_all(other->layout, files->tensors(), 32), expected_values(model)) << name;
  }
}

TEST(WeightLayoutTest, PartialRotationPermutesTheRotatedRowsOnly) {
  TestModel model = testing::random_model(testing::small_llama_spec(), 5);
  WeightRef ref{
      8, 1, {{.tensor = "t", .num_rows = 8, .order = RowOrder::kNeighbours, .head_dim = 8, .rotary_dim = 4}}};
  model.tensors = {{"t", {{8, 1}, {0, 1, 2, 3, 4, 5, 6, 7}}}};
  const TensorSource source = testing::as_source(model);
  std::vector<float> rows(8);
  ASSERT_TRUE(WeightReader(source, ref).read(0, 8, rows));
  EXPECT_EQ(rows, (std::vector<float>{0, 2, 1, 3, 4, 5, 6, 7}));
}

TEST(WeightLayoutTest, FusedAndTurnedProjectionsOfGpt2ComeOutAsRows) {
  TempFolder folder;
  const TestModel model = testing::random_model(testing::small_gpt2_spec(), 6);
  testing::write_gpt2_hf(folder.file("hf"), model, testing::gpt2_config(model.spec), "transformer.");
  const auto files = open_model_files(folder.file("hf"));
  ASSERT_TRUE(files) << files.error().message;
  const auto family = read_family(*files, {});
  ASSERT_TRUE(family) << family.error().message;
  EXPECT_EQ(read_all(family->layout, files->tensors(), 32), expected_values(model));
}

TEST(WeightLayoutTest, PackedBytesCountPaddedPanels) {
  const ModelSpec spec = testing::small_llama_spec();
  const TestModel model = testing::random_model(spec, 7);
  TempFolder folder;
  testing::write_llama_gguf(folder.file("m.gguf"), model, testing::llama_metadata(spec));
  const auto files = open_model_files(folder.file("m.gguf"));
  ASSERT_TRUE(files) << files.error().message;
  const auto family = read_family(*files, {});
  ASSERT_TRUE(family) << family.error().message;
  // Rows padded to 32: embedding and head 50 to 64, q k v 64, output 24 to 32, up 80 to 96, down 24 to 32.
  const std::int64_t layer = 64 * 24 + 32 * 32 + 96 * 24 + 32 * 40 + 2 * 24;
  EXPECT_EQ(packed_bytes(family->layout, files->tensors(), Matmul::kF32), 4 * (2 * 64 * 24 + 3 * layer + 24));
}

}  // namespace
}  // namespace sightline
