// A report made in Python, with the words of the catalogue: the same text, JSON and page as every other.
#include "bind.h"
#include "sightline/checker/named_fault.h"

namespace sightline::python {

namespace {

using checker::Report;
using checker::Verdict;

Verdict verdict_of(const std::string& word) {
  for (int i = 0; i <= static_cast<int>(Verdict::kBroken); ++i) {
    if (checker::to_string(static_cast<Verdict>(i)) == word) return static_cast<Verdict>(i);
  }
  throw nb::value_error(("no verdict " + word).c_str());
}

// (slug, variant, what, [(name, value, words)], misfit, certain); `what` may be empty: the catalogue's.
checker::NamedFault fault_of(const nb::tuple& fault) {
  checker::NamedFault named = checker::named_fault(nb::cast<std::string>(fault[0]));
  named.variant = nb::cast<std::string>(fault[1]);
  if (auto what = nb::cast<std::string>(fault[2]); !what.empty()) named.what = std::move(what);
  for (const nb::handle& item : nb::cast<nb::list>(fault[3])) {
    const auto parameter = nb::cast<nb::tuple>(item);
    named.parameters.push_back({nb::cast<std::string>(parameter[0]), nb::cast<double>(parameter[1]),
                                nb::cast<std::string>(parameter[2])});
  }
  named.misfit = nb::cast<double>(fault[4]);
  named.certain = nb::cast<bool>(fault[5]);
  return named;
}

}  // namespace

void bind_report(nb::module_& m) {
  m.def(
      "make_report",
      [](const std::string& verdict, const std::string& summary, const nb::list& faults,
         const nb::list& evidence, const std::string& next_probe, const nb::object& first_difference,
         const std::vector<std::string>& blind_spots, const std::string& declared,
         const std::string& reproducer) {
        Report report;
        report.verdict = verdict_of(verdict);
        report.summary = summary;
        for (const nb::handle& fault : faults) report.faults.push_back(fault_of(nb::cast<nb::tuple>(fault)));
        for (const nb::handle& item : evidence) {
          const auto line = nb::cast<nb::tuple>(item);
          report.evidence.push_back({nb::cast<std::string>(line[0]), nb::cast<double>(line[1])});
        }
        report.next_probe = next_probe;
        if (!first_difference.is_none()) {
          const auto d = nb::cast<nb::tuple>(first_difference);
          report.first_difference = {nb::cast<std::string>(d[0]), nb::cast<std::vector<std::int64_t>>(d[1]),
                                     nb::cast<double>(d[2]), nb::cast<double>(d[3])};
        }
        report.blind_spots = blind_spots;
        return report_tuple(report, declared, reproducer);
      },
      nb::kw_only(), nb::arg("verdict"), nb::arg("summary"), nb::arg("faults"), nb::arg("evidence"),
      nb::arg("next_probe"), nb::arg("first_difference").none(), nb::arg("blind_spots"), nb::arg("declared"),
      nb::arg("reproducer"),
      "A report from its parts: (JSON, text, page). The catalogue gives each fault its usual cause and fix.");
}

}  // namespace sightline::python
