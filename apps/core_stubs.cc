// Stands in for the commands that a core-only build leaves out (full_commands of CMakeLists.txt).
#include "apps/command.h"
#include "apps/out_of_memory.h"

namespace sightline::apps {

namespace {

Result<int> left_out(std::string_view command) {
  return fail(ErrorKind::kConfiguration,
              "{}: this build holds the core only; './sightline {}' in the source tree builds the rest, or "
              "configure with -DSIGHTLINE_CORE_ONLY=OFF",
              command, command);
}

}  // namespace

void install_out_of_memory_handler(void (*)()) {}

Result<int> run_demo(Invocation&) { return left_out("demo"); }
Result<int> run_eval(Invocation&) { return left_out("eval"); }
Result<int> run_generate(Invocation&) { return left_out("generate"); }
Result<int> run_tokenize(Invocation&) { return left_out("tokenize"); }
Result<int> run_info(Invocation&) { return left_out("info"); }
Result<int> run_bench(Invocation&) { return left_out("bench"); }

}  // namespace sightline::apps
