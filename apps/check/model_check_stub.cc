// Stands in for model_check.cc in a core-only build.
#include "apps/check/model_check.h"

namespace sightline::apps {

Result<ModelAnswer> check_model(const ModelQuestion&,
                                const std::function<void(int, int, std::string_view)>&) {
  return fail(
      ErrorKind::kConfiguration,
      "check --model: this build holds the core only; './sightline info' in the source tree builds the rest");
}

}  // namespace sightline::apps
