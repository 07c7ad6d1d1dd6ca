// Models whose tensors are of several stored types, run as they are stored and converted: one result for any
// chunking and threads in each arithmetic, rows in the internal order, and the memory that was announced.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>

#include "model/model_fixtures.h"
#include "model/model_impl.h"
#include "model/model_runner.h"
#include "sightline/formats/quantize.h"

namespace sightline {
namespace {

using namespace testing;  // NOLINT: fixtures of tests/model

constexpr Matmul kMatmuls[] = {Matmul::kNative, Matmul::kBf16, Matmul::kF32};

ModelSpec spec_of_blocks() {
  ModelSpec spec = small_llama_spec();
  spec.model_dim = 64;
  for (LayerSpec& layer : spec.layers) layer.ffn.ffn_dim = 96;
  return spec;
}

// Written from the block's definition: d = (max - min) / 15, m = min.
void store_q4_1(std::span<const float> row, std::vector<std::byte>& out) {
  for (std::size_t begin = 0; begin < row.size(); begin += 32) {
    const auto block = row.subspan(begin, 32);
    const auto [low, high] = std::ranges::minmax(block);
    const float d = (high - low) / 15;
    const F16 scales[2] = {to_f16(d), to_f16(low)};
    const auto* const bytes = reinterpret_cast<const std::byte*>(scales);
    out.insert(out.end(), bytes, bytes + 4);
    const auto q = [&](std::size_t i) {
      return static_cast<int>(std::clamp(std::round((block[i] - low) / d), 0.0F, 15.0F));
    };
    for (std::size_t j = 0; j < 16; ++j) out.push_back(static_cast<std::byte>(q(j) | q(j + 16) << 4));
  }
}

// What a mixed file holds: norms f32, values Q4_1, feed-forward down bf16, all else Q8_0.
DataType stored_type(const std::string& name, const TestTensor& tensor) {
  if (tensor.shape.size() == 1) return DataType::kF32;
  if (name.find(".v.") != std::string::npos) return DataType::kQ4_1;
  return name.find(".down.") != std::string::npos ? DataType::kBF16 : DataType::kQ8_0;
}

TensorSource as_mixed_source(const TestModel& model) {
  std::vector<std::byte> bytes;
  std::vector<TensorInfo> infos;
  for (const auto& [name, tensor] : model.tensors) {
    const DataType type = stored_type(name, tensor);
    const std::size_t begin = bytes.size();
    if (type == DataType::kQ4_1) {
      store_q4_1(tensor.values, bytes);
    } else {
      bytes.resize(begin + *row_bytes(type, tensor.values.size()));
      EXPECT_TRUE(quantize_row(type, tensor.values, std::span(bytes).subspan(begin)));
    }
    infos.push_back({name, type, tensor.shape, 0, begin, bytes.size() - begin});
  }
  return std::move(
      *TensorSource::create("mixed", {memory_bytes("mixed", std::move(bytes))}, std::move(infos)));
}

LoadedModel load(const TestModel& model, const TensorSource& source, Matmul matmul, int num_threads) {
  LoadedModel loaded;
  loaded.pool = std::make_unique<ThreadPool>(num_threads);
  auto made =
      make_model(model.spec, make_layout(model.spec, plain_tensor_names()), source, *loaded.pool, matmul);
  EXPECT_TRUE(made) << made.error().message;
  loaded.model = std::make_unique<Model>(std::move(*made));
  return loaded;
}

TEST(QuantisedModelTest, ChunksAndThreadsGiveTheSameBitsInEachArithmetic) {
  const TestModel model = random_model(spec_of_blocks(), 11);
  const TensorSource source = as_mixed_source(model);
  const Tokens tokens = random_tokens(model.spec.vocab_size, 41, 3);
  std::vector<std::vector<float>> wholes;
  for (const Matmul matmul : kMatmuls) {
    LoadedModel one = load(model, source, matmul, 1);
    const std::vector<float> whole = run_tokens(*one.model, tokens);
    for (const int num_threads : {1, 2, 3, 5}) {
      LoadedModel loaded = load(model, source, matmul, num_threads);
      for (const std::int64_t chunk : {1, 3, 4, 7, 16}) {
        EXPECT_TRUE(same_bits(run_tokens(*loaded.model, tokens, {.chunk = chunk}), whole))
            << to_string(matmul) << " chunk " << chunk << " threads " << num_threads;
      }
    }
    for (const auto& other : wholes) EXPECT_FALSE(same_bits(other, whole)) << "two names of one arithmetic";
    wholes.push_back(whole);
  }
}

TEST(QuantisedModelTest, NativeAndBf16StayAsNearToF32AsTheirRounding) {
  const TestModel model = random_model(spec_of_blocks(), 12);
  const TensorSource source = as_mixed_source(model);
  const Tokens tokens = random_tokens(model.spec.vocab_size, 30, 3);
  LoadedModel exact = load(model, source, Matmul::kF32, 1);
  const std::vector<float> expected = run_tokens(*exact.model, tokens);
  for (const Matmul matmul : {Matmul::kNative, Matmul::kBf16}) {
    LoadedModel loaded = load(model, source, matmul, 1);
    const std::vector<float> got = run_tokens(*loaded.model, tokens);
    double error = 0, size = 0;
    for (std::size_t i = 0; i < got.size(); ++i) {
      error += std::pow(got[i] - expected[i], 2);
      size += std::pow(expected[i], 2);
    }
    // A step of int8 in a block of 32 is near 1/50 of its root mean square, of bf16 2^-8; each layer adds.
    EXPECT_LT(std::sqrt(error / size), 0.05) << to_string(matmul);
    EXPECT_GT(error, 0.0) << to_string(matmul);
  }
}

TEST(QuantisedModelTest, MemoryIsWhatWasAnnouncedAndNearTheFilesInNative) {
  const TestModel model = random_model(spec_of_blocks(), 13);
  const TensorSource source = as_mixed_source(model);
  std::vector<std::int64_t> bytes;
  for (const Matmul matmul : kMatmuls) {
    LoadedModel loaded = load(model, source, matmul, 1);
    EXPECT_EQ(loaded.model->memory().weights, loaded.model->info().packed_weight_bytes);
    EXPECT_EQ(loaded.model->info().matmul, matmul);
    bytes.push_back(loaded.model->memory().weights);
  }
  std::int64_t stored = 0;
  for (const TensorInfo& tensor : source.tensors()) stored += static_cast<std::int64_t>(tensor.num_bytes);
  EXPECT_LT(bytes[0], stored * 5 / 4);  // panels of 32 pad the 50 rows of the vocabulary
  EXPECT_LT(bytes[0], bytes[1]);
  EXPECT_LT(bytes[1], bytes[2]);
}

// Rows of q in neighbours and rows of v in another type, in one stacked matrix: packed from blocks, each row
// is what the f32 path reads.
TEST(QuantisedModelTest, PackedRowsInInternalOrderAreTheRowsThatF32Reads) {
  const TestModel model = random_model(spec_of_blocks(), 14);
  const TensorSource source = as_mixed_source(model);
  TensorNames names = plain_tensor_names();
  names.qk_order = RowOrder::kNeighbours;
  const WeightLayout layout = make_layout(model.spec, names);
  const WeightRef& qkv = layout.layers[1].qkv;
  ASSERT_EQ(packed_groups(qkv, source, Matmul::kNative).size(), 2U);
  ASSERT_EQ(packed_groups(qkv, source, Matmul::kF32).size(), 1U);
  const auto packed = load_weights(layout, source, Matmul::kNative);
  ASSERT_TRUE(packed) << packed.error().message;
  WeightReader reader(source, qkv);
  for (std::int64_t row = 0; row < qkv.rows; ++row) {
    std::vector<float> expected(64), got(64);
    ASSERT_TRUE(reader.read(row, row + 1, expected));
    packed->layers[1].qkv.unpack_row(row, got);
    EXPECT_EQ(got, expected) << row;
  }
}

TEST(QuantisedModelTest, TransposedBlocksAreDequantised) {
  const WeightRef ref{64, 32, {{.tensor = "t", .num_rows = 64, .transposed = true}}};
  std::vector<std::byte> bytes(*row_bytes(DataType::kQ8_0, 32 * 64));
  const auto source = TensorSource::create("t", {memory_bytes("t", bytes)},
                                           {{"t", DataType::kQ8_0, {32, 64}, 0, 0, bytes.size()}});
  ASSERT_TRUE(source);
  const auto groups = packed_groups(ref, *source, Matmul::kNative);
  ASSERT_EQ(groups.size(), 1U);
  EXPECT_EQ(groups[0].as.storage, WeightStorage::kF32);
}

}  // namespace
}  // namespace sightline
