// A report as one HTML page that needs nothing else: no network, no other file.
#pragma once

#include <string>
#include <vector>

#include "sightline/checker/report.h"

namespace sightline::checker {

/// What a page says beside the report.
struct HtmlContext {
  std::string declared;                  ///< one line: describe(spec)
  std::vector<std::string> assumptions;  ///< one line each
  std::string reproducer;                ///< a command or code that gives this report again
};

/// The verdict, the faults with parameters, cause and fix, the mask as a picture (declared and observed over
/// each other, to zoom and point at), the weights of one head and the angle of each rotary pair (declared,
/// and under the faults named), the error of each row, the hypotheses by misfit, the evidence, the
/// reproducer. All text is escaped; the data lies in the page as JSON. Deterministic.
[[nodiscard]] std::string to_html(const Report& report, const HtmlContext& context);

}  // namespace sightline::checker
