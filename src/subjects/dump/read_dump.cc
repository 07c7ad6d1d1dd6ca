// Bytes to named arrays, whatever the container.
#include <algorithm>

#include "sightline/base/half.h"
#include "sightline/formats/npy.h"
#include "sightline/formats/safetensors.h"
#include "sightline/subjects/dump/dump.h"

namespace sightline::subjects {
namespace {

namespace fs = std::filesystem;

Result<DumpArray> widen(std::string name, const NpyArray& array) {
  DumpArray out{std::move(name), to_string(array.type), array.shape, {}};
  SIGHTLINE_TRY(out.values, to_f64(array));
  return out;
}

Result<void> add_npz(const fs::path& path, Dump& dump) {
  SIGHTLINE_TRY(const NpzArrays arrays, read_npz(path, kDumpMaxBytes));
  for (const auto& [name, array] : arrays) {
    SIGHTLINE_TRY(DumpArray widened, widen(name, array));
    dump.arrays.push_back(std::move(widened));
  }
  return {};
}

Result<void> add_npy_folder(const fs::path& path, Dump& dump) {
  std::vector<fs::path> files;
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(path, error)) {
    if (entry.path().extension() == ".npy") files.push_back(entry.path());
  }
  if (error) return fail(ErrorKind::kNoInput, "{}: {}", path.string(), error.message());
  if (files.empty()) return fail(ErrorKind::kNoInput, "{}: no .npy files in this folder", path.string());
  std::ranges::sort(files);
  std::uint64_t left = kDumpMaxBytes;
  for (const fs::path& file : files) {
    SIGHTLINE_TRY(const NpyArray array, read_npy(file, left));
    left -= std::min<std::uint64_t>(left, array.bytes.size());
    SIGHTLINE_TRY(DumpArray widened, widen(file.stem().string(), array));
    dump.arrays.push_back(std::move(widened));
  }
  return {};
}

// safetensors has types that numpy lacks, bf16 among them; integers go through npy's widening.
Result<DumpArray> read_tensor(const SafetensorsFile& file, const TensorInfo& info) {
  std::vector<std::byte> bytes(static_cast<std::size_t>(info.num_bytes));
  SIGHTLINE_CHECK(file.read_into(info, bytes));
  if (info.type != DataType::kBF16) {
    return widen(info.name, NpyArray{info.type, info.shape, std::move(bytes)});
  }
  DumpArray out{info.name, to_string(info.type), info.shape, {}};
  for (std::size_t i = 0; i + 1 < bytes.size(); i += 2) {
    const auto bits = static_cast<std::uint16_t>(std::to_integer<unsigned>(bytes[i]) |
                                                 std::to_integer<unsigned>(bytes[i + 1]) << 8);
    out.values.push_back(static_cast<double>(to_f32(Bf16{bits})));
  }
  return out;
}

Result<void> add_safetensors(const fs::path& path, Dump& dump) {
  SIGHTLINE_TRY(const SafetensorsFile file, SafetensorsFile::open(path));
  std::uint64_t left = kDumpMaxBytes;
  for (const TensorInfo& info : file.tensors()) {
    if (info.num_bytes > left) {
      return fail(ErrorKind::kInvalidContent, "{}: more than {} bytes of arrays", path.string(),
                  kDumpMaxBytes);
    }
    left -= info.num_bytes;
    auto array = read_tensor(file, info);
    if (!array) {
      return fail(array.error().kind, "{}: {}: {}", path.string(), info.name, array.error().message);
    }
    dump.arrays.push_back(std::move(*array));
  }
  return {};
}

}  // namespace

const DumpArray* Dump::find(std::string_view name) const {
  const auto found = std::ranges::find(arrays, name, &DumpArray::name);
  return found == arrays.end() ? nullptr : &*found;
}

Result<Dump> read_dump(const fs::path& path) {
  Dump dump;
  dump.source = path.string();
  const std::string extension = path.extension().string();
  std::error_code error;
  if (!fs::exists(path, error)) return fail(ErrorKind::kNoInput, "{}: no such file or folder", dump.source);
  if (fs::is_directory(path, error)) {
    SIGHTLINE_CHECK(add_npy_folder(path, dump));
  } else if (extension == ".npz") {
    SIGHTLINE_CHECK(add_npz(path, dump));
  } else if (extension == ".safetensors") {
    SIGHTLINE_CHECK(add_safetensors(path, dump));
  } else if (extension == ".pt" || extension == ".pth" || extension == ".bin" || extension == ".pkl") {
    return fail(ErrorKind::kInvalidContent,
                "{}: a pickle, which would run code; save the arrays as .npz or .safetensors", dump.source);
  } else {
    return fail(ErrorKind::kInvalidContent, "{}: expected .npz, .safetensors or a folder of .npy files",
                dump.source);
  }
  for (std::size_t i = 1; i < dump.arrays.size(); ++i) {
    if (dump.find(dump.arrays[i].name) != &dump.arrays[i]) {
      return fail(ErrorKind::kInvalidContent, "{}: two arrays are called {}", dump.source,
                  dump.arrays[i].name);
    }
  }
  return dump;
}

}  // namespace sightline::subjects
