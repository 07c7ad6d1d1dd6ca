// numpy files: .npy (one array) and .npz (a zip of them). Arrays are read whole; no pickles, no objects.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "sightline/base/error.h"
#include "sightline/formats/tensor_info.h"

namespace sightline {

/// An array in row-major order. Types: F64, F32, F16, I64, I32, I16, I8, U64, U32, U16, U8, BOOL.
struct NpyArray {
  DataType type = DataType::kF32;
  std::vector<std::int64_t> shape;  // empty: a scalar
  std::vector<std::byte> bytes;     // little endian

  bool operator==(const NpyArray&) const = default;
};

/// Named arrays, in the order of the file.
using NpzArrays = std::vector<std::pair<std::string, NpyArray>>;

/// Largest total of array bytes that the readers take unless told otherwise.
inline constexpr std::uint64_t kNpyMaxBytes = std::uint64_t{4} << 30;

/// One array from the bytes of a .npy file, format 1.0, 2.0 or 3.0. Fortran order is transposed to row-major.
/// `what` names the source in messages.
/// Errors (kInvalidContent; byte offset and field): other formats and types (big endian, objects, records), a
/// header that is not the three known keys, negative or overflowing shapes, rank over 8, missing or trailing
/// bytes, bools other than 0 and 1.
[[nodiscard]] Result<NpyArray> parse_npy(std::span<const std::byte> bytes, std::string_view what);
[[nodiscard]] Result<NpyArray> read_npy(const std::filesystem::path& path,
                                        std::uint64_t max_bytes = kNpyMaxBytes);

/// The bytes of a .npy file, format 1.0, with the array data aligned to 64.
/// Errors: kInvalidArgument for a type that numpy lacks, or bytes that do not fit the shape.
[[nodiscard]] Result<std::string> format_npy(const NpyArray& array);
[[nodiscard]] Result<void> write_npy(const std::filesystem::path& path, const NpyArray& array,
                                     bool overwrite);

/// All arrays of an .npz file, stored or deflated; names without ".npy".
/// Errors: kInvalidContent for a damaged archive, encrypted members, repeated names, names with a path,
/// members that are no .npy, and more than `max_bytes` of arrays (counted while unpacking, so that a small
/// file cannot take more memory than that).
[[nodiscard]] Result<NpzArrays> read_npz(const std::filesystem::path& path,
                                         std::uint64_t max_bytes = kNpyMaxBytes);
/// Stores the arrays uncompressed, as numpy.savez does.
/// Errors: kInvalidArgument for no arrays, a repeated name or one with a path; those of format_npy and
/// write_file.
[[nodiscard]] Result<void> write_npz(const std::filesystem::path& path, const NpzArrays& arrays,
                                     bool overwrite);

/// The values as float or double: exact where the type allows, else rounded to nearest. BOOL is 0 or 1.
[[nodiscard]] Result<std::vector<float>> to_f32(const NpyArray& array);
[[nodiscard]] Result<std::vector<double>> to_f64(const NpyArray& array);

/// An array of f32 or f64 from values. Precondition: `values` has the product of `shape`; else
/// kInvalidArgument.
[[nodiscard]] Result<NpyArray> npy_array(std::span<const float> values, std::vector<std::int64_t> shape);
[[nodiscard]] Result<NpyArray> npy_array(std::span<const double> values, std::vector<std::int64_t> shape);

}  // namespace sightline
