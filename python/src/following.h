// A report with the documented conventions of a library applied, for the bindings that take `follows`.
#pragma once

#include "bind.h"
#include "sightline/checker/conventions.h"

namespace sightline::python {

/// What `run` gives, without the interpreter held, under the conventions of `follows` (empty: none). The word
/// is looked up first: one that is refused only afterwards would waste the run. ValueError for an unknown
/// word, and for errors.
template <typename Run>
checker::Report following(const std::string& follows, Run run) {
  if (checker::Report none; !follows.empty()) unwrap(checker::apply_conventions(follows, none));
  Result<checker::Report> got;
  {
    const nb::gil_scoped_release released;
    got = run();
  }
  if (PyErr_Occurred() != nullptr) throw nb::python_error();  // what ended the run comes before its error
  checker::Report report = unwrap(std::move(got));
  if (!follows.empty()) unwrap(checker::apply_conventions(follows, report));
  return report;
}

}  // namespace sightline::python
