// Small random models for tests, and writers that put them on disk as other programs would: GGUF with rows
// permuted to neighbours, Hugging Face folders with halves, GPT-2 folders with turned weights. The names and
// permutations here are written out on their own, not taken from the families under test.
#pragma once

#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "model/weight_layout.h"
#include "sightline/base/json.h"
#include "sightline/formats/gguf_metadata.h"
#include "sightline/formats/tensor_file.h"
#include "sightline/spec/model.h"

namespace sightline::testing {

/// A folder of its own under the system's temporary folder, removed at the end.
class TempFolder {
 public:
  TempFolder();
  ~TempFolder();
  TempFolder(const TempFolder&) = delete;
  TempFolder& operator=(const TempFolder&) = delete;
  [[nodiscard]] const std::filesystem::path& path() const { return path_; }
  [[nodiscard]] std::string file(const std::string& name) const { return (path_ / name).string(); }

 private:
  std::filesystem::path path_;
};

struct TestTensor {
  std::vector<std::int64_t> shape;
  std::vector<float> values;
  bool operator==(const TestTensor&) const = default;
};

/// Weights by the names of plain_tensor_names(): q and k rows in halves, linear weights [out_dim, in_dim].
struct TestModel {
  ModelSpec spec;
  std::map<std::string, TestTensor> tensors;
};

/// 4 query and 2 key heads of 8, width 24, 3 layers, gated silu, untied head.
[[nodiscard]] ModelSpec small_llama_spec();
/// 3 heads of 8, width 24, 2 layers, 40 learned positions, LayerNorm, biases, tied head.
[[nodiscard]] ModelSpec small_gpt2_spec();

/// Weights of a size that keeps activations near 1, norms near 1.
[[nodiscard]] TestModel random_model(const ModelSpec& spec, std::uint64_t seed);
[[nodiscard]] TensorSource as_source(const TestModel& model);

using Entries = std::vector<GgufEntry>;
/// The keys that a converter writes for a llama.
[[nodiscard]] Entries llama_metadata(const ModelSpec& spec);
void set_entry(Entries& entries, const std::string& key, GgufValue value);
void remove_entry(Entries& entries, const std::string& key);
void write_llama_gguf(const std::string& path, const TestModel& model, const Entries& metadata,
                      const std::map<std::string, TestTensor>& more = {});

[[nodiscard]] Json llama_config(const ModelSpec& spec);
[[nodiscard]] Json gpt2_config(const ModelSpec& spec);
/// A copy of `config` with one member set, or removed.
[[nodiscard]] Json with_member(const Json& config, const std::string& key, const Json& value);
[[nodiscard]] Json without_member(const Json& config, const std::string& key);
void write_llama_hf(const std::string& folder, const TestModel& model, const Json& config,
                    const std::map<std::string, TestTensor>& more = {});
/// `prefix`: "transformer." or "".
void write_gpt2_hf(const std::string& folder, const TestModel& model, const Json& config,
                   const std::string& prefix);
/// Names and shapes as given, F32.
void write_hf(const std::string& folder, const std::map<std::string, TestTensor>& tensors,
              const Json& config);

/// The path of a file of the shared test data, or "" where SIGHTLINE_TEST_DATA is not set or lacks it.
[[nodiscard]] std::string test_data(const std::string& name);

}  // namespace sightline::testing
