#include "sightline/spec/trace.h"

#include "spec/fields.h"
#include "spec/json_fields.h"

namespace sightline {

namespace {

using json_fields::read_struct;
using json_fields::write;

// The word of each step, and how to read it.
template <typename T>
Result<TraceStep> read_step(const std::string& path, const Json& json) {
  T step{};
  SIGHTLINE_CHECK(json_fields::read(path, json, step));
  return TraceStep(std::move(step));
}
struct StepKind {
  std::string_view word;
  Result<TraceStep> (*read)(const std::string& path, const Json& json);
};
// In the order of TraceStep's alternatives.
constexpr std::array<StepKind, std::variant_size_v<TraceStep>> kStepKinds{{
    {"append", read_step<TraceAppend>},
    {"query", read_step<TraceQuery>},
    {"truncate", read_step<TraceTruncate>},
    {"evict", read_step<TraceEvict>},
    {"shift", read_step<TraceShift>},
    {"fork", read_step<TraceFork>},
}};

}  // namespace

Json to_json(const Trace& trace) {
  JsonArray steps;
  for (const TraceStep& step : trace.steps) {
    Json one;
    one.set(std::string(kStepKinds[step.index()].word),
            std::visit([](const auto& x) { return write(x); }, step));
    steps.push_back(std::move(one));
  }
  Json out;
  out.set("steps", Json(std::move(steps)));
  return out;
}

Result<Trace> trace_from_json(const Json& json) {
  const JsonObject* object = json.as_object();
  if (object == nullptr) return json_fields::refuse("trace", "an object", json);
  Trace out;
  for (const auto& [name, value] : *object) {
    if (name != "steps")
      return fail(ErrorKind::kInvalidContent, "trace: there is no member \"{}\"", name.substr(0, 64));
    if (value.as_array() == nullptr) return json_fields::refuse("trace.steps", "an array", value);
    for (const Json& element : *value.as_array()) {
      const std::string path = fmt::format("trace.steps[{}]", out.steps.size());
      const JsonObject* step = element.as_object();
      if (step == nullptr || step->size() != 1)
        return json_fields::refuse(path, "an object of one member", element);
      const StepKind* kind = nullptr;
      for (const StepKind& candidate : kStepKinds) {
        if (candidate.word == step->front().first) kind = &candidate;
      }
      if (kind == nullptr) {
        return fail(ErrorKind::kInvalidContent, "{}: there is no step \"{}\"", path,
                    step->front().first.substr(0, 64));
      }
      SIGHTLINE_TRY(TraceStep read, kind->read(fmt::format("{}.{}", path, kind->word), step->front().second));
      out.steps.push_back(std::move(read));
    }
  }
  return out;
}

}  // namespace sightline
