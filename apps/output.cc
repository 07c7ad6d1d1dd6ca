#include "apps/output.h"

#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <span>
#include <utility>

namespace sightline::apps {

namespace {

constexpr std::size_t kBufferBytes = 1 << 16;

bool is_set(const char* variable) {
  const char* value = std::getenv(variable);
  return value != nullptr && *value != '\0';
}

const char* escape(Color color) {
  switch (color) {
    case Color::kPlain:
      return "";
    case Color::kBold:
      return "\x1b[1m";
    case Color::kDim:
      return "\x1b[2m";
    case Color::kRed:
      return "\x1b[31m";
    case Color::kGreen:
      return "\x1b[32m";
    case Color::kYellow:
      return "\x1b[33m";
    case Color::kBlue:
      return "\x1b[34m";
    case Color::kCyan:
      return "\x1b[36m";
  }
  return "";
}

}  // namespace

Output::Output(int fd, std::string name) : fd_(fd), name_(std::move(name)), is_terminal_(::isatty(fd) == 1) {
  set_color(ColorMode::kAuto);
}

Output::~Output() {
  if (!file_) (void)flush();
}

void Output::write(std::string_view text) {
  if (error_) return;
  buffer_ += text;
  if (buffer_.size() >= kBufferBytes) (void)flush();
}

Result<void> Output::flush() {
  if (!error_ && file_ && !buffer_.empty()) {
    auto done = file_->append(std::as_bytes(std::span(buffer_)));
    if (!done) error_ = std::move(done).error();
    buffer_.clear();
  }
  std::string_view rest = buffer_;
  while (!error_ && !rest.empty()) {
    const ssize_t n = ::write(fd_, rest.data(), rest.size());
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) {
      error_ = Error{ErrorKind::kIo, fmt::format("{}: write failed: {}", name_, std::strerror(errno))};
      break;
    }
    rest.remove_prefix(static_cast<std::size_t>(n));
  }
  buffer_.clear();
  if (error_) return tl::unexpected<Error>(*error_);
  return {};
}

Result<void> Output::redirect(const std::filesystem::path& path, bool overwrite) {
  SIGHTLINE_CHECK(flush());
  SIGHTLINE_TRY(OutputFile file, OutputFile::create(path, overwrite));
  file_.emplace(std::move(file));
  return {};
}

Result<void> Output::commit() {
  SIGHTLINE_CHECK(flush());
  if (!file_) return {};
  auto done = file_->commit();
  file_.reset();
  return done;
}

std::string Output::paint(Color color, std::string_view text) const {
  if (!has_color_ || color == Color::kPlain) return std::string(text);
  return fmt::format("{}{}\x1b[0m", escape(color), text);
}

void Output::set_color(ColorMode mode) {
  if (mode != ColorMode::kAuto) {
    has_color_ = mode == ColorMode::kAlways;
  } else if (is_set("NO_COLOR")) {
    has_color_ = false;
  } else if (is_set("FORCE_COLOR") || is_set("CLICOLOR_FORCE")) {
    has_color_ = true;
  } else {
    const char* term = std::getenv("TERM");
    has_color_ = is_terminal_ && term != nullptr && std::strcmp(term, "dumb") != 0;
  }
}

void Progress::update(std::uint64_t done, std::uint64_t total, std::string_view text) {
  if (!err_.is_terminal()) return;
  const auto now = std::chrono::steady_clock::now();
  if (is_drawn_ && now - last_ < std::chrono::milliseconds(100)) return;
  last_ = now;
  is_drawn_ = true;
  std::string line = "\r\x1b[K";
  if (total > 0) {
    constexpr std::uint64_t kWidth = 30;
    const std::uint64_t filled =
        static_cast<std::uint64_t>(static_cast<double>(kWidth) * static_cast<double>(std::min(done, total)) /
                                   static_cast<double>(total));
    line += fmt::format("[{:#<{}}{:.<{}}] {}/{} ", "", filled, "", kWidth - filled, done, total);
  }
  line += text;
  err_.write(line);
  (void)err_.flush();
}

void Progress::clear() {
  if (!is_drawn_) return;
  is_drawn_ = false;
  err_.write("\r\x1b[K");
  (void)err_.flush();
}

}  // namespace sightline::apps
