// An error cannot be dropped by not looking at it.
#include "sightline/base/file.h"

void save() {
#ifdef MUST_NOT_COMPILE
  sightline::write_file("report.json", "{}", false);
#else
  (void)sightline::write_file("report.json", "{}", false);
#endif
}
