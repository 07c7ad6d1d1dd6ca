// Two files of one model, held against each other without running it: what they say, and the weights.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "sightline/base/error.h"
#include "sightline/model/model_info.h"
#include "sightline/spec/row_order.h"

namespace sightline {

/// How a block of weights of the second file relates to that of the first.
enum class WeightRelation : std::uint8_t {
  kEqual,         ///< to the last bit
  kRounding,      ///< within what the stored types explain
  kRowOrder,      ///< rotary rows of each head stand as neighbours here and as halves there
  kRowWidth,      ///< rows were put into another order for heads of another width
  kHeadOrder,     ///< whole heads are permuted
  kRowsPermuted,  ///< rows of q, k and v together are permuted: another layout of a fused projection
  kScaled,        ///< times a constant
  kTransposed,
  kOther,
};
[[nodiscard]] std::string_view to_string(WeightRelation relation);

struct WeightComparison {
  int layer = -1;     ///< -1: of no layer
  std::string block;  ///< "q", "k", "v", "output", "up", "down", "norm", "embedding", "head", ...
  WeightRelation relation = WeightRelation::kEqual;
  double relative_error = 0;  ///< root mean square of the difference over that of the weights, as they stand
  double factor = 1;          ///< of kScaled
  RowMistake row_mistake = RowMistake::kNone;  ///< of kRowWidth: on the way from the first file to the second
  int row_width = 0;                           ///< of kRowWidth: rows taken for one head
  std::vector<std::int64_t>
      head_order;  ///< of kHeadOrder: head h of the first is head_order[h] of the second
};

/// A member of the two specs that differs: "layers.0.attention.rope.theta", as JSON texts.
struct SpecDifference {
  std::string member;
  std::string first, second;
  int num_layers = 0;  ///< layers in which it differs alike; 0: of no layer
};

struct ModelComparison {
  std::vector<SpecDifference> spec;
  std::vector<WeightComparison> weights;  ///< in the order of the layers; empty when shapes differ
  std::vector<std::string> notes;         ///< what was not compared, and why
};

/// Compares two GGUF files or Hugging Face folders, in any combination. Each weight is read in the internal
/// order of rows that its own file declares, so a file whose declaration is wrong shows as kRowOrder. Errors:
/// those of opening either. Cost: reads every weight of both once, two blocks in memory at a time.
[[nodiscard]] Result<ModelComparison> compare_models(const std::string& first, const std::string& second,
                                                     const LoadOptions& options = {});

}  // namespace sightline
