// Bytes with a name, a size and reads at offsets: a regular file, or memory. What the readers read from.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "sightline/base/error.h"

namespace sightline {

/// An immutable run of bytes. Reads from several threads are safe.
class ByteSource {
 public:
  virtual ~ByteSource() = default;
  [[nodiscard]] virtual const std::string& name() const = 0;
  [[nodiscard]] virtual std::uint64_t size() const = 0;
  /// Fills `out` from `offset`. Errors: kInvalidContent when the bytes end first, kIo.
  [[nodiscard]] virtual Result<void> read_at(std::uint64_t offset, std::span<std::byte> out) const = 0;
};

using BytesPtr = std::shared_ptr<const ByteSource>;

/// A regular file, held open. Errors: those of InputFile::open.
[[nodiscard]] Result<BytesPtr> open_bytes(const std::filesystem::path& path);

/// Bytes in memory under the name used in messages.
[[nodiscard]] BytesPtr memory_bytes(std::string name, std::vector<std::byte> bytes);

}  // namespace sightline
