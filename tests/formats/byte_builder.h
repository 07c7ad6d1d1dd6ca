// Hand-made files for tests: plain appending of little-endian fields, independent of the writers.
#pragma once

#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

#include "sightline/formats/gguf.h"

namespace sightline::testing_formats {

class ByteBuilder {
 public:
  template <typename T>
  ByteBuilder& put(T value) {
    static_assert(std::is_arithmetic_v<T>);
    return add(&value, sizeof(T));
  }
  ByteBuilder& u8(std::uint8_t v) { return put(v); }
  ByteBuilder& u32(std::uint32_t v) { return put(v); }
  ByteBuilder& u64(std::uint64_t v) { return put(v); }
  ByteBuilder& f32(float v) { return put(v); }
  ByteBuilder& raw(std::string_view text) { return add(text.data(), text.size()); }
  /// u64 length, then the bytes.
  ByteBuilder& str(std::string_view text) { return u64(text.size()).raw(text); }
  ByteBuilder& zeros(std::size_t n) {
    bytes_.resize(bytes_.size() + n);
    return *this;
  }
  ByteBuilder& pad(std::size_t alignment) {
    while (bytes_.size() % alignment != 0) u8(0);
    return *this;
  }
  ByteBuilder& append(const ByteBuilder& other) { return add(other.bytes_.data(), other.bytes_.size()); }

  [[nodiscard]] std::size_t size() const { return bytes_.size(); }
  [[nodiscard]] const std::vector<std::byte>& bytes() const { return bytes_; }
  [[nodiscard]] std::vector<std::byte>& bytes() { return bytes_; }

 private:
  ByteBuilder& add(const void* data, std::size_t size) {
    const std::size_t begin = bytes_.size();
    bytes_.resize(begin + size);
    if (size != 0) std::memcpy(bytes_.data() + begin, data, size);
    return *this;
  }
  std::vector<std::byte> bytes_;
};

/// Magic, version, counts.
inline ByteBuilder gguf_start(std::uint64_t num_tensors, std::uint64_t num_keys, std::uint32_t version = 3) {
  return ByteBuilder().raw("GGUF").u32(version).u64(num_tensors).u64(num_keys);
}

/// One key of the given type number, whose value bytes are `value`.
inline ByteBuilder one_key(std::string_view key, std::uint32_t type, const ByteBuilder& value) {
  return gguf_start(0, 1).str(key).u32(type).append(value);
}

/// The entry of a tensor in the table, as stored: the fastest dimension first.
inline ByteBuilder table_row(std::string_view name, const std::vector<std::uint64_t>& dims,
                             std::uint32_t type, std::uint64_t offset) {
  ByteBuilder b;
  b.str(name).u32(static_cast<std::uint32_t>(dims.size()));
  for (const auto d : dims) b.u64(d);
  return b.u32(type).u64(offset);
}

/// A file of one tensor with `data_bytes` of data behind it.
inline ByteBuilder one_tensor(const ByteBuilder& row, std::size_t data_bytes) {
  return gguf_start(1, 0).append(row).pad(32).zeros(data_bytes);
}

inline Result<GgufFile> open_gguf(const std::vector<std::byte>& bytes) {
  return GgufFile::open(memory_bytes("test.gguf", bytes));
}

/// Expects a refusal of content (exit 65) that names the file and the text `part`.
template <typename T>
void expect_refused(const Result<T>& result, std::string_view part, std::string_view file = "test") {
  ASSERT_FALSE(result) << "accepted, expected: " << part;
  EXPECT_EQ(result.error().kind, ErrorKind::kInvalidContent) << result.error().message;
  EXPECT_NE(result.error().message.find(part), std::string::npos) << result.error().message;
  EXPECT_NE(result.error().message.find(file), std::string::npos) << result.error().message;
  EXPECT_EQ(result.error().message.find('\n'), std::string::npos) << "one line: " << result.error().message;
}

/// A folder of its own, removed at the end.
class TemporaryFolder {
 public:
  TemporaryFolder() {
    std::string name = (std::filesystem::temp_directory_path() / "sightline_formats_XXXXXX").string();
    path_ = ::mkdtemp(name.data());
  }
  TemporaryFolder(const TemporaryFolder&) = delete;
  TemporaryFolder& operator=(const TemporaryFolder&) = delete;
  ~TemporaryFolder() { std::filesystem::remove_all(path_); }
  [[nodiscard]] const std::filesystem::path& path() const { return path_; }

 private:
  std::filesystem::path path_;
};

}  // namespace sightline::testing_formats
