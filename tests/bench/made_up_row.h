// Rows of the benchmark as a run would have filled them.
#pragma once

#include "bench/row.h"

namespace sightline::testing {

/// A run of one repeat whose calibration read `before` and then `after`.
inline bench::Run made_up_run(double before, double after, double seconds, double reference = 0.0) {
  bench::Run run;
  run.limit_before = before;
  run.limit_after = after;
  run.seconds = {seconds};
  if (reference > 0.0) run.reference_seconds = {reference};
  return run;
}

/// A row against a peak of 100 with work 100: a run of `s` seconds has the figure 1 / s.
inline bench::Row made_up_row(std::string name, std::vector<bench::Run> runs) {
  bench::Row row;
  row.name = std::move(name);
  row.work = 100.0;
  row.runs = std::move(runs);
  return row;
}

}  // namespace sightline::testing
