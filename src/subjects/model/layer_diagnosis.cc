#include "sightline/subjects/model/layer_diagnosis.h"

#include <algorithm>

#include "subjects/model/layer_findings.h"
#include "subjects/model/layer_tensors.h"
#include "subjects/model/validate_text.h"

namespace sightline::subjects {

Result<checker::Report> diagnose_layers(Model& model, std::span<const ModelObservation> texts,
                                        double tolerance) {
  SIGHTLINE_CHECK(validate_texts(model, texts, tolerance));
  if (std::ranges::all_of(texts, [](const ModelObservation& text) { return text.tensors.empty(); })) {
    return fail(ErrorKind::kInvalidArgument, "check: no tensor of a layer was observed");
  }
  SIGHTLINE_TRY(LayerFindings found, find_in_layers(model, texts, tolerance));
  checker::Report report;
  report.evidence = std::move(found.evidence);
  report.first_difference = found.first;
  const std::string summary = found.faults.empty() ? std::string() : found.summary();
  report.faults = std::move(found.faults);
  if (!found.first) {
    report.verdict = checker::Verdict::kAgrees;
    report.summary = "agrees: every tensor is that of the file's own run";
  } else if (!report.faults.empty()) {
    report.verdict = checker::Verdict::kFault;
    report.summary = summary;
  } else {
    report.verdict = checker::Verdict::kUnknown;
    report.summary = fmt::format(
        "unknown: {} is the first tensor that differs, and no known change explains it", found.first->tensor);
  }
  return report;
}

}  // namespace sightline::subjects
