// A .npy file; what is read and written again reads back equal.
#include "fuzz_check.h"
#include "sightline/formats/npy.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace sightline;
  const auto bytes = fuzz_bytes(data, size);
  const auto array = parse_npy(bytes, "fuzz");
  if (!array) {
    fuzz_check_refusal(array.error());
    return 0;
  }
  fuzz_check(array->bytes.size() <= size);
  const auto text = format_npy(*array);
  fuzz_check(text.has_value());
  const auto back = parse_npy(std::as_bytes(std::span(*text)), "fuzz");
  fuzz_check(back && *back == *array);
  fuzz_check(to_f32(*array).has_value() && to_f64(*array).has_value());
  return 0;
}
