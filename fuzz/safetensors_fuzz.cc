// The header of a safetensors file, then the bytes and first row of every tensor.
#include "fuzz_check.h"
#include "sightline/formats/safetensors.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace sightline;
  const auto file = SafetensorsFile::open(memory_bytes("fuzz", fuzz_bytes(data, size)));
  if (!file) {
    fuzz_check_refusal(file.error());
    return 0;
  }
  std::uint64_t total = 0;
  for (const auto& info : file->tensors()) {
    fuzz_check(file->find(info.name) == &info);
    fuzz_check(info.file_offset <= size && info.num_bytes <= size - info.file_offset);
    total += info.num_bytes;
    std::vector<float> row(static_cast<std::size_t>(info.num_rows() > 0 ? info.row_length() : 0));
    static_cast<void>(file->read_f32(info, 0, row.empty() ? 0 : 1, row));
  }
  fuzz_check(total <= size);
  return 0;
}
