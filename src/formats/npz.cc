// .npz archives. The only file that includes libzip.
#include <zip.h>

#include <algorithm>
#include <memory>
#include <set>

#include "quote_name.h"
#include "sightline/base/file.h"
#include "sightline/formats/npy.h"

namespace sightline {

namespace {

constexpr std::string_view kSuffix = ".npy";
constexpr std::uint64_t kMaxMembers = 65535;
constexpr std::size_t kPieceBytes = std::size_t{1} << 20;
// A small archive may unpack to this much, or to this many times its size: enough for arrays of zeros.
constexpr std::uint64_t kFreeBytes = std::uint64_t{64} << 20;
constexpr std::uint64_t kMaxRatio = 200;

struct DiscardZip {
  void operator()(zip_t* archive) const { zip_discard(archive); }
};
using ZipPtr = std::unique_ptr<zip_t, DiscardZip>;
struct CloseMember {
  void operator()(zip_file_t* member) const { zip_fclose(member); }
};
using MemberPtr = std::unique_ptr<zip_file_t, CloseMember>;

bool is_plain_name(std::string_view name) {
  return !name.empty() && !name.starts_with('.') &&
         name.find_first_of(std::string_view("/\\\0", 3)) == name.npos;
}

std::string zip_text(zip_error_t& error) {
  std::string text = zip_error_strerror(&error);
  zip_error_fini(&error);
  return text;
}

// An archive over bytes that outlive it. `flags` as zip_open.
Result<ZipPtr> open_archive(zip_source_t* source, int flags, const std::string& what, ErrorKind kind) {
  zip_error_t error;
  zip_error_init(&error);
  zip_t* archive = zip_open_from_source(source, flags, &error);
  if (archive == nullptr) {
    zip_source_free(source);
    return fail(kind, "{}: byte 0: zip archive: {}", what, zip_text(error));
  }
  zip_error_fini(&error);
  return ZipPtr(archive);
}

Result<zip_source_t*> make_source(std::span<const char> bytes) {
  zip_error_t error;
  zip_error_init(&error);
  zip_source_t* source = zip_source_buffer_create(bytes.data(), bytes.size(), 0, &error);
  if (source == nullptr) return fail(ErrorKind::kOutOfMemory, "npz: {}", zip_text(error));
  zip_error_fini(&error);
  return source;
}

// The unpacked bytes of one member, in pieces: the declared size is only believed when it comes out.
Result<std::vector<std::byte>> read_member(zip_t* archive, std::uint64_t index, std::uint64_t max_bytes,
                                           const std::string& what) {
  const MemberPtr member(zip_fopen_index(archive, index, 0));
  if (member == nullptr) return fail(ErrorKind::kInvalidContent, "{}: {}", what, zip_strerror(archive));
  std::vector<std::byte> bytes;
  while (true) {
    const std::size_t done = bytes.size();
    bytes.resize(done + kPieceBytes);
    const zip_int64_t n = zip_fread(member.get(), bytes.data() + done, kPieceBytes);
    if (n < 0) {
      return fail(ErrorKind::kInvalidContent, "{}: byte {} unpacked: {}", what, done,
                  zip_error_strerror(zip_file_get_error(member.get())));
    }
    bytes.resize(done + static_cast<std::size_t>(n));
    if (n == 0) return bytes;
    if (bytes.size() > max_bytes) {
      return fail(ErrorKind::kInvalidContent, "{}: unpacks to more than the {} bytes allowed", what,
                  max_bytes);
    }
  }
}

}  // namespace

Result<NpzArrays> read_npz(const std::filesystem::path& path, std::uint64_t max_bytes) {
  SIGHTLINE_TRY(const std::string packed, read_file(path, max_bytes));
  const std::string file = path.string();
  // libzip takes an empty file for an empty archive.
  if (packed.empty()) return fail(ErrorKind::kInvalidContent, "{}: byte 0: the file is empty", file);
  SIGHTLINE_TRY(zip_source_t * source, make_source(packed));
  SIGHTLINE_TRY(const ZipPtr archive, open_archive(source, ZIP_RDONLY, file, ErrorKind::kInvalidContent));
  const auto num_members = static_cast<std::uint64_t>(zip_get_num_entries(archive.get(), 0));
  if (num_members > kMaxMembers) {
    return fail(ErrorKind::kInvalidContent, "{}: {} members, over the limit of {}", file, num_members,
                kMaxMembers);
  }
  NpzArrays arrays;
  std::set<std::string> names;
  std::uint64_t left = std::min(max_bytes, std::max(kFreeBytes, packed.size() * kMaxRatio));
  for (std::uint64_t i = 0; i < num_members; ++i) {
    const char* member_name = zip_get_name(archive.get(), i, ZIP_FL_ENC_RAW);
    const std::string_view raw = member_name == nullptr ? "" : member_name;
    const std::string what = fmt::format("{}: member {}", file, quote_name(raw));
    const auto name = raw.substr(0, raw.size() - std::min(raw.size(), kSuffix.size()));
    if (!raw.ends_with(kSuffix) || !is_plain_name(name)) {
      return fail(ErrorKind::kInvalidContent, "{}: expected a plain name that ends in .npy", what);
    }
    if (!names.emplace(name).second) return fail(ErrorKind::kInvalidContent, "{}: occurs twice", what);
    SIGHTLINE_TRY(const std::vector<std::byte> bytes, read_member(archive.get(), i, left, what));
    left -= bytes.size();
    SIGHTLINE_TRY(NpyArray array, parse_npy(bytes, what));
    arrays.emplace_back(name, std::move(array));
  }
  return arrays;
}

Result<void> write_npz(const std::filesystem::path& path, const NpzArrays& arrays, bool overwrite) {
  if (arrays.empty()) return fail(ErrorKind::kInvalidArgument, "write_npz: no arrays");
  // The archive is made in memory, so that the file appears whole or not at all.
  std::vector<std::string> members;
  members.reserve(arrays.size());
  std::set<std::string_view> names;
  SIGHTLINE_TRY(zip_source_t * target, make_source({}));
  zip_source_keep(target);  // the archive drops one reference when it closes
  const std::unique_ptr<zip_source_t, void (*)(zip_source_t*)> keep(target, zip_source_free);
  SIGHTLINE_TRY(ZipPtr archive,
                open_archive(target, ZIP_CREATE | ZIP_TRUNCATE, path.string(), ErrorKind::kOutOfMemory));
  for (const auto& [name, array] : arrays) {
    if (!is_plain_name(name) || !names.insert(name).second) {
      return fail(ErrorKind::kInvalidArgument, "write_npz: name {} is repeated or no plain name",
                  quote_name(name));
    }
    SIGHTLINE_TRY(std::string bytes, format_npy(array));
    members.push_back(std::move(bytes));
    SIGHTLINE_TRY(zip_source_t * source, make_source(members.back()));
    const std::string member_name = name + std::string(kSuffix);
    const zip_int64_t index = zip_file_add(archive.get(), member_name.c_str(), source, ZIP_FL_ENC_UTF_8);
    if (index < 0) {
      zip_source_free(source);
      return fail(ErrorKind::kInvalidArgument, "write_npz: {}: {}", quote_name(name),
                  zip_strerror(archive.get()));
    }
    zip_set_file_compression(archive.get(), static_cast<std::uint64_t>(index), ZIP_CM_STORE, 0);
    zip_file_set_mtime(archive.get(), static_cast<std::uint64_t>(index), 315532800,
                       0);  // 1980: same bytes each time
  }
  if (zip_close(archive.get()) != 0) {
    return fail(ErrorKind::kOutOfMemory, "write_npz: {}", zip_strerror(archive.get()));
  }
  static_cast<void>(archive.release());

  zip_stat_t status;
  if (zip_source_stat(target, &status) != 0 || zip_source_open(target) != 0) {
    return fail(ErrorKind::kInternal, "write_npz: the archive cannot be read back");
  }
  std::string packed(status.size, '\0');
  const zip_int64_t n = zip_source_read(target, packed.data(), packed.size());
  zip_source_close(target);
  if (n != static_cast<zip_int64_t>(packed.size())) {
    return fail(ErrorKind::kInternal, "write_npz: the archive cannot be read back");
  }
  return write_file(path, packed, overwrite);
}

}  // namespace sightline
