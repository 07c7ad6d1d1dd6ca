// What commands see of the command line: options, flags and positional arguments with our conventions.
// Values convert strictly ("12x", "1e3" and "" are no integers), each option may be given once, and each
// is also the environment variable SIGHTLINE_<NAME> (option before variable before default). Wrong usage
// is an Error of kInvalidArgument (exit 2) that suggests the nearest name. CLI11 is behind it, in cli.cc.
#pragma once

#include <cstdint>
#include <deque>
#include <filesystem>
#include <functional>
#include <limits>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "apps/cli_value.h"
#include "sightline/base/error.h"

namespace sightline::apps {

struct Invocation;

/// One option, flag or positional argument; made by Cli, refined by chaining.
class CliArgument {
 public:
  /// Neither the option nor its variable given: wrong usage.
  CliArgument& required();
  /// Integers and numbers outside [low, high] (and NaN) are wrong usage.
  CliArgument& range(double low, double high);
  /// Only these words are accepted.
  CliArgument& choices(std::vector<std::string> words);
  /// Not also an environment variable.
  CliArgument& no_variable();

 private:
  friend class Cli;
  [[nodiscard]] Result<void> take(std::string_view what, const std::string& text) const;

  enum class Kind { kOption, kFlag, kPositional };
  Kind kind = Kind::kOption;
  std::string names;       // "-n,--predict", or "MASK"
  std::string display;     // "--predict", or "MASK": what messages call it
  std::string value_name;  // "N"
  std::string help;
  std::string mode;          // "" for all modes of the command
  std::string default_text;  // "" when there is nothing worth showing
  bool is_required = false;
  bool has_variable = true;
  bool is_repeatable = false;
  double low = -std::numeric_limits<double>::infinity();
  double high = std::numeric_limits<double>::infinity();
  bool is_ranged = false;
  std::vector<std::string> words;
  bool is_typed = false;            // on the command line, not a variable
  std::vector<std::string> values;  // as typed
  // Converts and stores one value.
  std::function<Result<void>(std::string_view what, std::string_view text)> assign;
};

class Cli {
 public:
  /// `command` is "" for the options before any command.
  Cli(std::string command, std::string description);
  ~Cli();
  Cli(const Cli&) = delete;
  Cli& operator=(const Cli&) = delete;

  /// `names` as in "-n,--predict"; a short name of several letters ("-ctk,--cache-type-k") is allowed.
  /// T: std::string, std::filesystem::path, std::int64_t, std::uint64_t, int, double, bool, std::optional
  /// of these, or std::vector of these (the option may then be repeated). The value in `target` is the
  /// default, shown in --help.
  template <typename T>
  CliArgument& option(std::string names, T& target, std::string value_name, std::string help);
  /// True when given.
  CliArgument& flag(std::string names, bool& target, std::string help);
  /// In the order of the calls; a vector takes all that are left.
  template <typename T>
  CliArgument& positional(std::string name, T& target, std::string help);
  /// Arguments added from here on belong to `mode`, one of several that exclude each other and ignore what
  /// belongs to another; "": to all. --help puts them under a heading.
  void mode(std::string mode) { mode_ = std::move(mode); }
  /// Errors (kInvalidArgument): something typed belongs to another mode than `mode`; named, with its mode.
  /// A variable of the environment is no error: it may be meant for other calls.
  [[nodiscard]] Result<void> check_mode(std::string_view mode) const;
  /// Adds --output FILE (data goes there instead of standard output, complete or not at all; an existing
  /// file is refused with 73) and --force.
  void report_options();
  /// Lines shown at the end of --help: examples, notes.
  void epilog(std::string text) { epilog_ = std::move(text); }

  /// Reads call.args. Empty: go on. Otherwise the command is over: --help was answered (0), or the usage
  /// is wrong. Every command also has -h, --help and --color=auto|always|never.
  [[nodiscard]] std::optional<Result<int>> parse(Invocation& call);

 private:
  CliArgument& add(CliArgument::Kind kind, std::string names, std::string value_name, std::string help);
  [[nodiscard]] Result<bool> read_command_line(const std::vector<std::string>& args);
  [[nodiscard]] std::vector<std::string> readable_by_cli11(const std::vector<std::string>& args) const;
  [[nodiscard]] const CliArgument* find_option(std::string_view name) const;
  [[nodiscard]] Result<void> distribute_positionals(std::vector<std::string> texts);
  [[nodiscard]] Result<void> assign_all();
  [[nodiscard]] Result<void> apply_output_options(Invocation& call);
  [[nodiscard]] std::vector<std::string> option_names() const;
  [[nodiscard]] std::string help() const;

  std::string command_;
  std::string description_;
  std::string epilog_;
  std::string mode_;                   // of the arguments added next
  std::deque<CliArgument> arguments_;  // a deque: references stay good
  std::string color_ = "auto";
  std::filesystem::path output_;
  bool force_ = false;
};

template <typename T>
CliArgument& Cli::option(std::string names, T& target, std::string value_name, std::string help) {
  CliArgument& argument =
      add(CliArgument::Kind::kOption, std::move(names), std::move(value_name), std::move(help));
  argument.is_repeatable = detail::kIsVector<T>;
  argument.default_text = detail::default_text(target);
  argument.assign = [&target](std::string_view what, std::string_view text) {
    return detail::store(what, text, target);
  };
  return argument;
}

template <typename T>
CliArgument& Cli::positional(std::string name, T& target, std::string help) {
  CliArgument& argument = option(std::move(name), target, "", std::move(help));
  argument.kind = CliArgument::Kind::kPositional;
  argument.no_variable();
  return argument;
}

}  // namespace sightline::apps
