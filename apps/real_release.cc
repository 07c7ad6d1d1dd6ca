#include "apps/real_release.h"

#include <filesystem>

#include "sightline/checker/diagnose.h"
#include "sightline/subjects/dump/dump.h"

namespace sightline::apps {

Result<void> show_real_release(Output& out) {
  constexpr std::string_view kDump = "examples/real_faults/onnx_1.19.0_attention_past.npz";
  const std::filesystem::path path = std::filesystem::path(SIGHTLINE_ROOT) / kDump;
  out.print(
      "onnx 1.19.0, its reference evaluator: 3 new tokens on 4 cached ones. All shapes are right, all "
      "numbers "
      "finite.\n\n  ./sightline check {}\n",
      kDump);
  std::error_code ignored;
  if (!std::filesystem::exists(path, ignored)) {
    out.print("  (the file is not where this program was built)\n");
    return out.flush();
  }
  SIGHTLINE_TRY(const subjects::Dump dump, subjects::read_dump(path));
  SIGHTLINE_TRY(const subjects::DumpContent content, subjects::read_observations(dump, {}));
  SIGHTLINE_TRY(const checker::Report report, checker::diagnose(content.observations));
  out.print("  {}\n",
            out.paint(checker::exit_code(report.verdict) == 0 ? Color::kGreen : Color::kRed, report.summary));
  return out.flush();
}

}  // namespace sightline::apps
