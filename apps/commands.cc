// The table of commands, in the order of --help. The one place to register a command.
#include "apps/command.h"

namespace sightline::apps {

std::span<const Command> commands() {
  static constexpr Command kCommands[] = {
      {"info", "says what every layer of a model file means, and the memory it takes", run_info},
      {"explain", "draws a mask, says why a pair is visible, shows angles and head mapping", run_explain},
      {"bench", "calibrates this machine and measures rows as fractions of its limit", run_bench},
      {"completion", "prints the completion script of a shell: bash, zsh or fish", run_completion},
  };
  return kCommands;
}

}  // namespace sightline::apps
