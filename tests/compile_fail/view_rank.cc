// Indexing a view takes as many indices as it has dimensions.
#include "sightline/base/strided_view.h"

float first(sightline::StridedView<const float, 3> view) {
#ifdef MUST_NOT_COMPILE
  return view(0, 0);
#else
  return view(0, 0, 0);
#endif
}
