// A view of constant memory does not turn into one that can be written through.
#include "sightline/base/strided_view.h"

sightline::StridedView<const float, 2> keys;
#ifdef MUST_NOT_COMPILE
sightline::StridedView<float, 2> view = keys;
#else
sightline::StridedView<const float, 2> view = keys;
#endif
