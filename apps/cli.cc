// The one file that includes CLI11. CLI11 splits the command line into options and their texts; the
// meaning of a text (conversion, range, variables, suggestions) is ours, so that messages and exit codes are.
#include "apps/cli.h"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cctype>
#include <cstdlib>
#include <utility>

#include "apps/command.h"
#include "apps/output.h"

namespace sightline::apps {

namespace {

std::vector<std::string> split_names(std::string_view names) {
  std::vector<std::string> parts;
  while (!names.empty()) {
    const std::size_t comma = std::min(names.find(','), names.size());
    parts.emplace_back(names.substr(0, comma));
    names.remove_prefix(std::min(comma + 1, names.size()));
  }
  return parts;
}

// "-ctk": one dash and more than one letter, which CLI11 cannot register.
bool is_long_short_name(std::string_view name) { return name.size() > 2 && name[0] == '-' && name[1] != '-'; }

std::string variable_name(std::string_view display) {
  std::string name = "SIGHTLINE_";
  for (const char c : display.substr(2)) {
    name += c == '-' ? '_' : static_cast<char>(std::toupper(static_cast<unsigned char>(c)));
  }
  return name;
}

}  // namespace

CliArgument& CliArgument::required() {
  is_required = true;
  return *this;
}

CliArgument& CliArgument::range(double lowest, double highest) {
  low = lowest;
  high = highest;
  is_ranged = true;
  return *this;
}

CliArgument& CliArgument::no_variable() {
  has_variable = false;
  return *this;
}

CliArgument& CliArgument::choices(std::vector<std::string> accepted) {
  words = std::move(accepted);
  return *this;
}

Result<void> CliArgument::take(std::string_view what, const std::string& text) const {
  if (!words.empty() && std::find(words.begin(), words.end(), text) == words.end()) {
    return fail(ErrorKind::kInvalidArgument, "{}: expected {}, got {}", what, fmt::join(words, " or "),
                quote(text));
  }
  if (is_ranged) {
    double number = 0;
    SIGHTLINE_CHECK(parse_value(what, text, number));
    if (number < low || number > high) {
      return fail(ErrorKind::kInvalidArgument, "{}: expected {} to {}, got {}", what, low, high, quote(text));
    }
  }
  return assign(what, text);
}

Cli::Cli(std::string command, std::string description)
    : command_(std::move(command)), description_(std::move(description)) {}

Cli::~Cli() = default;

CliArgument& Cli::add(CliArgument::Kind kind, std::string names, std::string value_name, std::string help) {
  CliArgument& argument = arguments_.emplace_back();
  argument.kind = kind;
  argument.display = split_names(names).back();
  for (const std::string& name : split_names(names)) {
    if (name.starts_with("--")) argument.display = name;
  }
  argument.names = std::move(names);
  argument.value_name = std::move(value_name);
  argument.help = std::move(help);
  argument.mode = mode_;
  return argument;
}

CliArgument& Cli::flag(std::string names, bool& target, std::string help) {
  CliArgument& argument = add(CliArgument::Kind::kFlag, std::move(names), "", std::move(help));
  argument.assign = [&target](std::string_view what, std::string_view text) {
    return parse_value(what, text, target);
  };
  return argument;
}

void Cli::report_options() {
  mode("");
  option("--output", output_, "FILE", "write the report to FILE, complete or not at all");
  flag("--force", force_, "let --output replace an existing file");
}

std::optional<Result<int>> Cli::parse(Invocation& call) {
  option("--color", color_, "WHEN", "colour").choices({"auto", "always", "never"});
  if (call.args.size() == 1 && call.args[0] == "--complete-options") {
    for (const std::string& name : option_names()) call.out.print("{}\n", name);
    return 0;
  }
  auto shown = read_command_line(call.args);
  if (shown && *shown) {
    call.out.write(help());
    return 0;
  }
  Result<void> done;
  if (!shown) {
    done = tl::unexpected<Error>(std::move(shown).error());
  } else {
    done = assign_all();
    if (done) done = apply_output_options(call);
  }
  if (done) return std::nullopt;
  Error error = std::move(done).error();
  if (error.kind == ErrorKind::kInvalidArgument) {
    error.message = fmt::format("{}{} (see 'sightline{}{} --help')", command_.empty() ? "" : command_ + ": ",
                                error.message, command_.empty() ? "" : " ", command_);
  }
  return Result<int>(tl::unexpected<Error>(std::move(error)));
}

// What CLI11 cannot read in a form that it can: "-ctk" becomes its long name, and "--name=" (an empty value)
// becomes two words. Values stay as typed.
std::vector<std::string> Cli::readable_by_cli11(const std::vector<std::string>& args) const {
  std::vector<std::string> out;
  bool is_value = false;
  bool has_options_ended = false;
  for (std::string arg : args) {
    has_options_ended |= arg == "--" && !is_value;
    if (is_value || has_options_ended) {
      is_value = false;
      out.push_back(std::move(arg));
      continue;
    }
    const std::size_t name_bytes = std::min(arg.find('='), arg.size());
    const CliArgument* argument = find_option(arg.substr(0, name_bytes));
    is_value =
        argument != nullptr && argument->kind == CliArgument::Kind::kOption && name_bytes == arg.size();
    if (argument == nullptr) {
      out.push_back(std::move(arg));
    } else if (name_bytes + 1 == arg.size()) {
      out.insert(out.end(), {argument->display, ""});
    } else {
      out.push_back(argument->display + arg.substr(name_bytes));
    }
  }
  return out;
}

const CliArgument* Cli::find_option(std::string_view name) const {
  for (const CliArgument& argument : arguments_) {
    if (argument.kind == CliArgument::Kind::kPositional) continue;
    for (const std::string& own : split_names(argument.names)) {
      if (own == name) return &argument;
    }
  }
  return nullptr;
}

// Fills the `values` of each argument; true when --help was among the options.
Result<bool> Cli::read_command_line(const std::vector<std::string>& args) {
  CLI::App app;
  app.set_help_flag();
  app.allow_extras();
  const CLI::Option* help_option = app.add_flag("-h,--help");
  std::vector<std::pair<CliArgument*, const CLI::Option*>> options;
  for (CliArgument& argument : arguments_) {
    if (argument.kind == CliArgument::Kind::kPositional) continue;
    std::string names;
    for (const std::string& name : split_names(argument.names)) {
      if (!is_long_short_name(name)) names += (names.empty() ? "" : ",") + name;
    }
    CLI::Option* option =
        argument.kind == CliArgument::Kind::kFlag ? app.add_flag(names) : app.add_option(names)->expected(1);
    option->multi_option_policy(CLI::MultiOptionPolicy::TakeAll)->allow_extra_args(false);
    options.emplace_back(&argument, option);
  }
  // As a minimum, not only a maximum: CLI11 fills positionals up to the minimum, and beyond it only with
  // allow_extra_args, which would split an argument "[a,b]" into two.
  constexpr int kNoLimit = 1 << 28;
  const CLI::Option* rest =
      app.add_option("ARGS")->expected(kNoLimit)->multi_option_policy(CLI::MultiOptionPolicy::TakeAll);

  std::vector<std::string> reversed = readable_by_cli11(args);
  std::reverse(reversed.begin(), reversed.end());
  try {
    app.parse(std::move(reversed));
  } catch (const CLI::ArgumentMismatch&) {  // the last word is an option without its value
    return fail(ErrorKind::kInvalidArgument, "option {} needs a value", quote(args.back()));
  } catch (const CLI::ParseError& error) {
    return fail(ErrorKind::kInvalidArgument, "{}", error.what());
  }
  if (help_option->count() > 0) return true;
  for (const std::string& extra : app.remaining()) {
    if (extra == "--") continue;
    const std::string name = extra.substr(0, extra.find('='));
    const std::string near = nearest_name(name, option_names());
    return fail(ErrorKind::kInvalidArgument, "unknown option {}{}", quote(name),
                near.empty() ? "" : fmt::format("; did you mean '{}'?", near));
  }
  for (const auto& [argument, option] : options) argument->values = option->results();
  return distribute_positionals(rest->results()).map([] { return false; });
}

Result<void> Cli::distribute_positionals(std::vector<std::string> texts) {
  std::size_t next = 0;
  for (CliArgument& argument : arguments_) {
    if (argument.kind != CliArgument::Kind::kPositional) continue;
    while (next < texts.size()) {
      argument.values.push_back(std::move(texts[next++]));
      if (!argument.is_repeatable) break;
    }
  }
  if (next == texts.size()) return {};
  return fail(ErrorKind::kInvalidArgument, "unexpected argument {}", quote(texts[next]));
}

Result<void> Cli::assign_all() {
  for (CliArgument& argument : arguments_) {
    std::string what = argument.display;
    argument.is_typed = !argument.values.empty();
    if (argument.values.empty() && argument.has_variable) {
      const std::string variable = variable_name(argument.display);
      if (const char* text = std::getenv(variable.c_str()); text != nullptr && *text != '\0') {
        argument.values.emplace_back(text);
        what = variable + " (environment)";
      }
    }
    if (argument.values.empty() && argument.is_required) {
      return fail(ErrorKind::kInvalidArgument, "{} is missing: {}", argument.display, argument.help);
    }
    if (argument.values.size() > 1 && !argument.is_repeatable) {
      return fail(ErrorKind::kInvalidArgument, "{} is given {} times, at most once is allowed", what,
                  argument.values.size());
    }
    for (const std::string& text : argument.values) SIGHTLINE_CHECK(argument.take(what, text));
  }
  return {};
}

Result<void> Cli::check_mode(std::string_view mode) const {
  for (const CliArgument& argument : arguments_) {
    if (!argument.is_typed || argument.mode.empty() || argument.mode == mode) continue;
    return fail(ErrorKind::kInvalidArgument,
                "{}: {} is for {}, it does nothing with {} (see 'sightline {} --help')", command_,
                argument.display, argument.mode, mode, command_);
  }
  return {};
}

Result<void> Cli::apply_output_options(Invocation& call) {
  const ColorMode mode = color_ == "always"  ? ColorMode::kAlways
                         : color_ == "never" ? ColorMode::kNever
                                             : ColorMode::kAuto;
  call.out.set_color(mode);
  call.err.set_color(mode);
  if (output_.empty() || output_ == "-") return {};
  if (mode == ColorMode::kAuto) call.out.set_color(ColorMode::kNever);
  return call.out.redirect(output_, force_);
}

std::vector<std::string> Cli::option_names() const {
  std::vector<std::string> names = {"-h", "--help"};
  for (const CliArgument& argument : arguments_) {
    if (argument.kind == CliArgument::Kind::kPositional) continue;
    for (std::string& name : split_names(argument.names)) names.push_back(std::move(name));
  }
  return names;
}

std::string Cli::help() const {
  std::string usage = command_.empty() ? "usage: sightline" : "usage: sightline " + command_;
  std::string rows;
  const auto add_row = [&rows](const std::string& left, const std::string& right) {
    constexpr std::size_t kColumn = 28;
    rows += left.size() + 4 > kColumn ? fmt::format("  {}\n{:{}}{}\n", left, "", kColumn, right)
                                      : fmt::format("  {:{}}{}\n", left, kColumn - 2, right);
  };
  std::string mode;
  for (const CliArgument& argument : arguments_) {
    if (argument.mode != mode) {
      mode = argument.mode;
      rows += mode.empty() ? "\nIn every case:\n" : fmt::format("\nWith {}:\n", mode);
    }
    std::string right = argument.help;
    if (!argument.words.empty()) {
      right += fmt::format("{}{}", right.empty() ? "" : ": ", fmt::join(argument.words, ", "));
    }
    if (!argument.default_text.empty()) right += fmt::format(" (default {})", argument.default_text);
    std::string left = fmt::format("{}", fmt::join(split_names(argument.names), ", "));
    if (!argument.value_name.empty()) left += " " + argument.value_name;
    if (argument.kind == CliArgument::Kind::kPositional) {
      usage += argument.is_required ? " " + left : " [" + left + "]";
      if (argument.is_repeatable) usage += "...";
    }
    add_row(left, right);
  }
  add_row("-h, --help", "this text");
  std::string text = fmt::format("{} [OPTION]...\n{}\n\n{}", usage, description_, rows);
  text += "\nEvery option is also a variable: --chunk 16 is SIGHTLINE_CHUNK=16.\n";
  if (!epilog_.empty()) text += "\n" + epilog_ + (epilog_.ends_with('\n') ? "" : "\n");
  return text;
}

}  // namespace sightline::apps
