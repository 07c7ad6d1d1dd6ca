#include "sightline/formats/byte_source.h"

#include <cstring>
#include <utility>

#include "sightline/base/file.h"

namespace sightline {

namespace {

class FileBytes : public ByteSource {
 public:
  explicit FileBytes(InputFile file) : file_(std::move(file)) {}
  const std::string& name() const override { return file_.name(); }
  std::uint64_t size() const override { return file_.size(); }
  Result<void> read_at(std::uint64_t offset, std::span<std::byte> out) const override {
    return file_.read_at(offset, out);
  }

 private:
  InputFile file_;
};

class MemoryBytes : public ByteSource {
 public:
  MemoryBytes(std::string name, std::vector<std::byte> bytes)
      : name_(std::move(name)), bytes_(std::move(bytes)) {}
  const std::string& name() const override { return name_; }
  std::uint64_t size() const override { return bytes_.size(); }
  Result<void> read_at(std::uint64_t offset, std::span<std::byte> out) const override {
    if (offset > bytes_.size() || out.size() > bytes_.size() - offset) {
      return fail(ErrorKind::kInvalidContent, "{}: ends at byte {}, {} bytes wanted at {}", name_,
                  bytes_.size(), out.size(), offset);
    }
    if (!out.empty()) std::memcpy(out.data(), bytes_.data() + offset, out.size());
    return {};
  }

 private:
  std::string name_;
  std::vector<std::byte> bytes_;
};

}  // namespace

Result<BytesPtr> open_bytes(const std::filesystem::path& path) {
  SIGHTLINE_TRY(InputFile file, InputFile::open(path));
  return std::make_shared<FileBytes>(std::move(file));
}

BytesPtr memory_bytes(std::string name, std::vector<std::byte> bytes) {
  return std::make_shared<MemoryBytes>(std::move(name), std::move(bytes));
}

}  // namespace sightline
