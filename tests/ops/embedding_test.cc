#include "sightline/ops/embedding.h"

#include <gtest/gtest.h>

#include <vector>

#include "ops/linear_case.h"
#include "ops/quant_layer.h"

namespace sightline {
namespace {

using test::Layer;
using test::QuantLayer;
using test::same_bits;

TEST(EmbeddingTest, LooksUpRowsOfThePackedTableAndScalesThem) {
  const Layer layer{67, 33};
  const std::vector<std::int32_t> ids = {66, 0, 31, 32, 0};
  ThreadPool pool(2);
  for (const float scale : {1.0F, 3.5F}) {
    std::vector<float> y(5 * 33);
    embedding_forward(layer.pack(), ids, scale, dense_view(y.data(), {5, 33}), pool);
    for (std::size_t i = 0; i < 5; ++i) {
      for (std::size_t k = 0; k < 33; ++k) {
        EXPECT_EQ(y[i * 33 + k], scale * layer.w[static_cast<std::size_t>(ids[i]) * 33 + k]);
      }
    }
  }
}

TEST(EmbeddingTest, LooksUpRowsOfAQuantisedTable) {
  const QuantLayer layer(QuantKind::kQ6_K, 67, 256);
  const std::vector<std::int32_t> ids = {66, 0, 31};
  ThreadPool pool(2);
  std::vector<float> y(3 * 256);
  embedding_forward(layer.pack(), ids, 1.0F, dense_view(y.data(), {3, 256}), pool);
  for (std::size_t i = 0; i < 3; ++i) {
    EXPECT_TRUE(same_bits(y.data() + i * 256, layer.values(ids[i]).data(), 256));
  }
}

}  // namespace
}  // namespace sightline
