#include "sightline/base/file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <utility>

namespace sightline {

namespace fs = std::filesystem;

Result<InputFile> InputFile::open(const fs::path& path) {
  InputFile file;
  file.name_ = path.string();
  // O_NONBLOCK: opening a FIFO must not wait for a writer. It has no effect on regular files.
  file.fd_ = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (file.fd_ < 0) {
    return fail(ErrorKind::kNoInput, "{}: cannot open: {}", file.name_, std::strerror(errno));
  }
  struct stat status{};
  if (::fstat(file.fd_, &status) != 0) {
    return fail(ErrorKind::kNoInput, "{}: cannot stat: {}", file.name_, std::strerror(errno));
  }
  if (!S_ISREG(status.st_mode)) {
    return fail(ErrorKind::kNoInput, "{}: not a regular file{}", file.name_,
                S_ISDIR(status.st_mode) ? " (a directory)" : "");
  }
  file.size_ = static_cast<std::uint64_t>(status.st_size);
  return file;
}

InputFile::InputFile(InputFile&& other) noexcept
    : fd_(std::exchange(other.fd_, -1)), size_(other.size_), name_(std::move(other.name_)) {}

InputFile& InputFile::operator=(InputFile&& other) noexcept {
  std::swap(fd_, other.fd_);
  std::swap(size_, other.size_);
  std::swap(name_, other.name_);
  return *this;
}

InputFile::~InputFile() {
  if (fd_ >= 0) ::close(fd_);
}

Result<void> InputFile::read_at(std::uint64_t offset, std::span<std::byte> out) const {
  std::size_t done = 0;
  while (done < out.size()) {
    const ssize_t n = ::pread(fd_, out.data() + done, out.size() - done, static_cast<off_t>(offset + done));
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) {
      return fail(ErrorKind::kIo, "{}: read failed at byte {}: {}", name_, offset + done,
                  std::strerror(errno));
    }
    if (n == 0) {
      return fail(ErrorKind::kInvalidContent, "{}: ends at byte {}, {} more expected", name_, offset + done,
                  out.size() - done);
    }
    done += static_cast<std::size_t>(n);
  }
  return {};
}

Result<std::string> read_file(const fs::path& path, std::uint64_t max_bytes) {
  SIGHTLINE_TRY(const InputFile file, InputFile::open(path));
  if (file.size() > max_bytes) {
    return fail(ErrorKind::kInvalidContent, "{}: {} bytes, over the limit of {}", file.name(), file.size(),
                max_bytes);
  }
  std::string bytes(file.size(), '\0');
  SIGHTLINE_CHECK(file.read_at(0, std::as_writable_bytes(std::span(bytes))));
  return bytes;
}

Result<OutputFile> OutputFile::create(const fs::path& path, bool overwrite) {
  OutputFile file;
  file.path_ = path;
  file.overwrite_ = overwrite;
  struct stat status{};
  if (::lstat(path.c_str(), &status) == 0) {
    if (S_ISDIR(status.st_mode)) {
      return fail(ErrorKind::kCannotCreate, "{}: is a directory", path.string());
    }
    if (!S_ISREG(status.st_mode) && !S_ISLNK(status.st_mode)) {
      return fail(ErrorKind::kCannotCreate, "{}: is no regular file", path.string());
    }
    if (!overwrite) {
      return fail(ErrorKind::kCannotCreate, "{}: exists already", path.string());
    }
  }
  std::string name = path.string() + ".XXXXXX";
  file.fd_ = ::mkostemp(name.data(), O_CLOEXEC);
  if (file.fd_ < 0) {
    return fail(ErrorKind::kCannotCreate, "{}: cannot create: {}", path.string(), std::strerror(errno));
  }
  const mode_t mask = ::umask(0);
  ::umask(mask);
  ::fchmod(file.fd_, 0666 & ~mask);
  file.temporary_ = name;
  return file;
}

OutputFile::OutputFile(OutputFile&& other) noexcept
    : fd_(std::exchange(other.fd_, -1)),
      overwrite_(other.overwrite_),
      path_(std::move(other.path_)),
      temporary_(std::move(other.temporary_)) {}

OutputFile::~OutputFile() {
  if (fd_ < 0) return;
  ::close(fd_);
  ::unlink(temporary_.c_str());
}

Result<void> OutputFile::append(std::span<const std::byte> bytes) {
  while (!bytes.empty()) {
    const ssize_t n = ::write(fd_, bytes.data(), bytes.size());
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return fail(ErrorKind::kIo, "{}: write failed: {}", path_.string(), std::strerror(errno));
    bytes = bytes.subspan(static_cast<std::size_t>(n));
  }
  return {};
}

Result<void> OutputFile::commit() {
  if (::fsync(fd_) != 0) {
    return fail(ErrorKind::kIo, "{}: fsync failed: {}", path_.string(), std::strerror(errno));
  }
  // link() refuses an existing name atomically; rename() replaces it.
  const int status =
      overwrite_ ? ::rename(temporary_.c_str(), path_.c_str()) : ::link(temporary_.c_str(), path_.c_str());
  if (status != 0) {
    return fail(ErrorKind::kCannotCreate, "{}: cannot create: {}", path_.string(), std::strerror(errno));
  }
  if (!overwrite_) ::unlink(temporary_.c_str());
  ::close(std::exchange(fd_, -1));
  const fs::path folder = path_.has_parent_path() ? path_.parent_path() : fs::path(".");
  const int folder_fd = ::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (folder_fd >= 0) {
    ::fsync(folder_fd);
    ::close(folder_fd);
  }
  return {};
}

Result<void> write_file(const fs::path& path, std::string_view bytes, bool overwrite) {
  SIGHTLINE_TRY(OutputFile file, OutputFile::create(path, overwrite));
  SIGHTLINE_CHECK(file.append(std::as_bytes(std::span(bytes))));
  return file.commit();
}

}  // namespace sightline
