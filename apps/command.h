// The commands of the program. One command is one file, apps/<name>_command.cc, with one function and
// one row of the table in commands.cc. This header is all that a command needs; it knows no engine.
//
// How to add a command `frob`:
//   1. apps/frob_command.cc:
//        #include "apps/command.h"
//        namespace sightline::apps {
//        Result<int> run_frob(Invocation& call) {
//          std::string mask;
//          std::int64_t num_tokens = 16;
//          bool json = false;
//          Cli cli("frob", "Frobs a mask.");
//          cli.positional("MASK", mask, "the rule, for example 'causal & window(4)'").required();
//          cli.option("-n,--predict", num_tokens, "N", "tokens to frob").range(1, 1 << 20);
//          cli.flag("--json", json, "one JSON document on standard output");
//          cli.report_options();                            // --output FILE, --force
//          if (auto ended = cli.parse(call)) return *ended;  // --help was answered, or wrong usage
//          SIGHTLINE_TRY(const MaskSpec spec, parse_mask(mask));
//          call.out.print("{}\n", to_string(spec));         // data: standard output, or the --output file
//          call.err.print("frobbed\n");                     // talk: standard error
//          return 0;                                        // or 1: the thing asked about is not so
//        }
//        }  // namespace sightline::apps
//   2. a declaration here and a row in commands.cc;
//   3. if it needs more than sightline::core: its name in full_commands of apps/CMakeLists.txt and a
//      line in core_stubs.cc.
// Errors are returned, never printed: main prints `sightline: MESSAGE` and exits by exit_code(kind).
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "apps/cli.h"
#include "apps/output.h"
#include "sightline/base/error.h"

namespace sightline::apps {

/// One run of the program: what the person typed after the command's name, and where to write.
struct Invocation {
  std::vector<std::string> args;
  Output& out;  // data
  Output& err;  // talk; also the place of progress bars
  // Lines of our own making that main prints below the message of an error: where in a text it lies.
  std::string below_error{};
};

struct Command {
  std::string_view name;
  std::string_view summary;  // one line for --help, no full stop
  Result<int> (*run)(Invocation& call);
};

/// Every command, in the order of --help.
[[nodiscard]] std::span<const Command> commands();

Result<int> run_info(Invocation& call);
Result<int> run_bench(Invocation& call);
Result<int> run_completion(Invocation& call);
Result<int> run_tokenize(Invocation& call);
Result<int> run_generate(Invocation& call);
Result<int> run_eval(Invocation& call);
Result<int> run_demo(Invocation& call);
Result<int> run_explain(Invocation& call);
Result<int> run_check(Invocation& call);

}  // namespace sightline::apps
