// Header, keys and tensor table of a GGUF file, then every tensor through the decoders.
#include "fuzz_check.h"
#include "sightline/formats/gguf.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace sightline;
  const auto file = GgufFile::open(memory_bytes("fuzz", fuzz_bytes(data, size)));
  if (!file) {
    fuzz_check_refusal(file.error());
    return 0;
  }
  for (const auto& entry : file->metadata().entries()) {
    fuzz_check(file->metadata().find(entry.key) == &entry);
    fuzz_check(!describe(entry.value).empty());
    static_cast<void>(file->metadata().get_int(entry.key));
    static_cast<void>(file->metadata().get_ints_per(entry.key, 3, 0, 100));
  }
  for (const auto& info : file->tensors()) {
    fuzz_check(file->find(info.name) == &info);
    fuzz_check(info.file_offset <= size && info.num_bytes <= size - info.file_offset);
    std::vector<float> row(static_cast<std::size_t>(info.num_rows() > 0 ? info.row_length() : 0));
    const std::int64_t num_rows = row.empty() ? 0 : 1;
    const auto read = file->read_f32(info, 0, num_rows, row);
    fuzz_check(read.has_value() == is_readable(info.type));
  }
  return 0;
}
