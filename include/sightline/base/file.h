// Files: read only regular ones (never a directory, FIFO or device), write by temporary name and rename.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "sightline/base/error.h"

namespace sightline {

/// A regular file held open for reading at offsets. Movable, closed at the end of its life.
class InputFile {
 public:
  /// Errors: kNoInput when it is missing, unreadable, or no regular file (a directory, FIFO or device
  /// is refused without blocking).
  [[nodiscard]] static Result<InputFile> open(const std::filesystem::path& path);

  InputFile(InputFile&&) noexcept;
  InputFile& operator=(InputFile&&) noexcept;
  ~InputFile();

  [[nodiscard]] const std::string& name() const { return name_; }
  /// Size in bytes when it was opened.
  [[nodiscard]] std::uint64_t size() const { return size_; }

  /// Fills `out` from `offset`. Handles short reads and EINTR. Safe to call from several threads.
  /// Errors: kInvalidContent when the file ends first (also when it shrank since), kIo.
  [[nodiscard]] Result<void> read_at(std::uint64_t offset, std::span<std::byte> out) const;

 private:
  InputFile() = default;
  int fd_ = -1;
  std::uint64_t size_ = 0;
  std::string name_;
};

/// The whole of a regular file. Errors: those of InputFile, kInvalidContent over `max_bytes`.
[[nodiscard]] Result<std::string> read_file(const std::filesystem::path& path,
                                            std::uint64_t max_bytes = std::uint64_t{1} << 30);

/// Writes `bytes` to `path` through a temporary name in the same folder, fsync and rename, so that the
/// file is the old one or the new one. With `overwrite` false an existing `path` is refused.
/// Errors: kCannotCreate (exists, is a directory, folder missing or read-only), kIo (disk full, fsync).
[[nodiscard]] Result<void> write_file(const std::filesystem::path& path, std::string_view bytes,
                                      bool overwrite);

/// The same in pieces, for files larger than memory: append, then commit. Without commit nothing is left.
class OutputFile {
 public:
  [[nodiscard]] static Result<OutputFile> create(const std::filesystem::path& path, bool overwrite);
  OutputFile(OutputFile&&) noexcept;
  OutputFile& operator=(OutputFile&&) = delete;
  ~OutputFile();
  [[nodiscard]] Result<void> append(std::span<const std::byte> bytes);
  [[nodiscard]] Result<void> commit();

 private:
  OutputFile() = default;
  int fd_ = -1;
  bool overwrite_ = false;
  std::filesystem::path path_;
  std::filesystem::path temporary_;
};

}  // namespace sightline
