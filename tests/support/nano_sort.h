// The published tensors of the nano-sort model: JSON with a shape and base64 of f32 for each.
#pragma once

#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "sightline/base/file.h"
#include "sightline/base/json.h"

namespace sightline::testing {

/// f32 from another program; this is their own precision.
inline constexpr double kNanoSortPrecision = 2e-5;

struct NanoSortTensor {
  std::vector<std::int64_t> shape;
  std::vector<float> values;
};

/// Both files, where SIGHTLINE_TEST_DATA has them.
struct NanoSortFiles {
  Json model;     ///< weights, [out, in], by minGPT's names, and "config"
  Json partials;  ///< "idx", "q", "att", "block0", ...
};

inline std::optional<NanoSortFiles> open_nano_sort() {
  const char* data = std::getenv("SIGHTLINE_TEST_DATA");
  if (data == nullptr) return std::nullopt;
  NanoSortFiles files;
  for (const auto& [name, json] :
       {std::pair{"model.json", &files.model}, std::pair{"partials.json", &files.partials}}) {
    const std::filesystem::path path = std::filesystem::path(data) / "nano-sort" / name;
    const auto text = read_file(path);
    if (!text) return std::nullopt;
    *json = parse_json(*text, path.string()).value();
  }
  return files;
}

inline std::vector<float> decode_base64_f32(const std::string& text) {
  static const std::string kAlphabet = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  std::string bytes;
  std::uint32_t bits = 0;
  int num_bits = 0;
  for (const char letter : text) {
    if (letter == '=') break;
    bits = (bits << 6) | static_cast<std::uint32_t>(kAlphabet.find(letter));
    num_bits += 6;
    if (num_bits < 8) continue;
    num_bits -= 8;
    bytes.push_back(static_cast<char>((bits >> num_bits) & 0xffU));
  }
  std::vector<float> floats(bytes.size() / sizeof(float));
  std::memcpy(floats.data(), bytes.data(), floats.size() * sizeof(float));
  return floats;
}

inline NanoSortTensor read_nano_sort_tensor(const Json& json) {
  NanoSortTensor tensor;
  for (const Json& extent : *json.find("shape")->as_array()) tensor.shape.push_back(*extent.as_int());
  tensor.values = decode_base64_f32(*json.find("data")->as_string());
  return tensor;
}

}  // namespace sightline::testing
