// The published nano-sort weights as a Hugging Face folder of the GPT-2 family.
#pragma once

#include <map>
#include <string>

#include "model/model_fixtures.h"
#include "support/nano_sort.h"

namespace sightline::testing {

struct NanoSort {
  static constexpr std::int64_t kBatch = 3, kLength = 11, kHeads = 3, kWidth = 48, kHeadDim = 16;
};

inline TestTensor nano_sort_tensor(const Json& json) {
  NanoSortTensor tensor = read_nano_sort_tensor(json);
  return {std::move(tensor.shape), std::move(tensor.values)};
}

/// minGPT keeps linear weights as [out, in]; GPT-2 folders as [in, out].
inline TestTensor turned(const TestTensor& tensor) {
  TestTensor out{{tensor.shape[1], tensor.shape[0]}, {}};
  for (std::int64_t j = 0; j < tensor.shape[1]; ++j) {
    for (std::int64_t i = 0; i < tensor.shape[0]; ++i) {
      out.values.push_back(tensor.values[static_cast<std::size_t>(i * tensor.shape[1] + j)]);
    }
  }
  return out;
}

inline void write_nano_sort_hf(const std::string& folder, const NanoSortFiles& files) {
  std::map<std::string, TestTensor> tensors;
  for (const auto& [name, value] : *files.model.as_object()) {
    if (name == "config") continue;
    TestTensor tensor = nano_sort_tensor(value);
    const bool is_linear = name.find(".c_") != std::string::npos && name.ends_with(".weight");
    tensors[name] = is_linear ? turned(tensor) : tensor;
  }
  const Json config = JsonObject{{"model_type", "gpt2"},
                                 {"n_embd", NanoSort::kWidth},
                                 {"n_layer", 3},
                                 {"n_head", NanoSort::kHeads},
                                 {"n_positions", NanoSort::kLength},
                                 {"vocab_size", 3},
                                 {"activation_function", "gelu_new"},
                                 {"layer_norm_epsilon", 1e-5},
                                 {"tie_word_embeddings", false}};
  write_hf(folder, tensors, config);
}

}  // namespace sightline::testing
