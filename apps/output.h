// Where commands write: a checked stream over a file descriptor (closed standard output, /dev/full and
// broken pipes become exit 74, once, without a loop), colour, and a progress line on terminals.
#pragma once

#include <fmt/format.h>

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>

#include "sightline/base/error.h"
#include "sightline/base/file.h"

namespace sightline::apps {

enum class ColorMode { kAuto, kAlways, kNever };

/// The colours that reports use. Plain: no colour.
enum class Color { kPlain, kBold, kDim, kRed, kGreen, kYellow, kBlue, kCyan };

/// Text to one file descriptor, buffered. The first failure is kept; later writes do nothing.
class Output {
 public:
  /// `name` is what messages call it ("standard output").
  Output(int fd, std::string name);
  ~Output();
  Output(const Output&) = delete;
  Output& operator=(const Output&) = delete;

  void write(std::string_view text);
  template <typename... Args>
  void print(fmt::format_string<Args...> text, Args&&... args) {
    write(fmt::format(text, std::forward<Args>(args)...));
  }
  /// Sends what is buffered; call it after each token of a stream. Errors: kIo, of this or an earlier write.
  Result<void> flush();
  /// False after a failed write: a long job then stops.
  [[nodiscard]] bool ok() const { return !error_; }

  /// From here on everything goes to `path`, through a temporary name; `commit` makes it appear.
  /// Errors: kCannotCreate.
  [[nodiscard]] Result<void> redirect(const std::filesystem::path& path, bool overwrite);
  /// Flushes, and puts a redirected file in its place. Without it a redirected file leaves nothing.
  [[nodiscard]] Result<void> commit();
  /// Drops a redirected file, so that `commit` puts nothing in its place.
  void discard() { file_.reset(); }

  /// `text` in colour where colour is on, else as it is.
  [[nodiscard]] std::string paint(Color color, std::string_view text) const;
  [[nodiscard]] bool has_color() const { return has_color_; }
  [[nodiscard]] bool is_terminal() const { return is_terminal_ && !file_; }
  /// kAuto: on a terminal, unless NO_COLOR is set or TERM is dumb; FORCE_COLOR or CLICOLOR_FORCE put it on.
  void set_color(ColorMode mode);

 private:
  int fd_;
  std::string name_;
  std::string buffer_;
  std::optional<Error> error_;
  std::optional<OutputFile> file_;
  bool is_terminal_ = false;
  bool has_color_ = false;
};

/// One line on a terminal's standard error that redraws itself at most ten times a second and is gone at
/// the end; does nothing elsewhere.
class Progress {
 public:
  explicit Progress(Output& err) : err_(err) {}
  ~Progress() { clear(); }
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;

  /// A bar of `done` of `total` (total 0: none) and `text` ("12.3 tokens/s").
  void update(std::uint64_t done, std::uint64_t total, std::string_view text);
  void clear();

 private:
  Output& err_;
  bool is_drawn_ = false;
  std::chrono::steady_clock::time_point last_{};
};

}  // namespace sightline::apps
