// The table of commands, in the order of --help. The one place to register a command.
#include "apps/command.h"

namespace sightline::apps {

std::span<const Command> commands() {
  static constexpr Command kCommands[] = {
      {"demo", "how a run whose shapes are all right goes wrong, and what names the fault", run_demo},
      {"info", "says what every layer of a model file means, and the memory it takes", run_info},
      {"explain", "draws a mask, says why a pair is visible, shows angles and head mapping", run_explain},
      {"check", "finds what an attention implementation does wrong, and names it", run_check},
      {"generate", "writes text with a model; log-probabilities, token ids, planted faults", run_generate},
      {"tokenize", "turns text into token ids and back", run_tokenize},
      {"eval", "measures a model: the loss of a text", run_eval},
      {"bench", "calibrates this machine and measures rows as fractions of its limit", run_bench},
      {"completion", "prints the completion script of a shell: bash, zsh or fish", run_completion},
  };
  return kCommands;
}

}  // namespace sightline::apps
