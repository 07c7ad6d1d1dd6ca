// `sightline completion SHELL`: scripts that ask the program itself for its commands and options, so that
// they cannot go stale.
#include "apps/command.h"

namespace sightline::apps {

namespace {

constexpr std::string_view kBash = R"sh(_sightline() {
  local current="${COMP_WORDS[COMP_CWORD]}" command=""
  [ "$COMP_CWORD" -gt 1 ] && command="${COMP_WORDS[1]}"
  COMPREPLY=()
  if [ "$COMP_CWORD" -eq 1 ] || [ "${current:0:1}" = "-" ]; then
    COMPREPLY=($(compgen -W "$("${COMP_WORDS[0]}" $command --complete-options 2>/dev/null)" -- "$current"))
  fi
}
complete -o default -F _sightline sightline
)sh";

constexpr std::string_view kZsh = R"sh(#compdef sightline
_sightline() {
  if (( CURRENT == 2 )); then
    compadd -- ${(f)"$(${words[1]} --complete-options 2>/dev/null)"}
  elif [[ ${words[CURRENT]} == -* ]]; then
    compadd -- ${(f)"$(${words[1]} ${words[2]} --complete-options 2>/dev/null)"}
  else
    _files
  fi
}
compdef _sightline sightline
)sh";

constexpr std::string_view kFish = R"sh(function __sightline_options
  set -l words (commandline -opc)
  $words[1] $words[2] --complete-options 2>/dev/null
end
complete -c sightline -n '__fish_use_subcommand' -f -a '(sightline --complete-options 2>/dev/null)'
complete -c sightline -n 'not __fish_use_subcommand' -a '(__sightline_options)'
)sh";

}  // namespace

Result<int> run_completion(Invocation& call) {
  std::string shell;
  Cli cli("completion", "Prints the completion script of a shell.");
  cli.positional("SHELL", shell, "the shell").required().choices({"bash", "zsh", "fish"});
  cli.epilog("  eval \"$(sightline completion bash)\"");
  if (auto ended = cli.parse(call)) return *ended;
  call.out.write(shell == "bash" ? kBash : shell == "zsh" ? kZsh : kFish);
  return 0;
}

}  // namespace sightline::apps
