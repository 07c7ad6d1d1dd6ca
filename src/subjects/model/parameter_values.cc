#include "subjects/model/parameter_values.h"

#include <algorithm>
#include <cmath>

#include "subjects/model/altered_settings.h"

namespace sightline::subjects {
namespace {

ParameterValues on_grid(std::vector<double> usual, double low, double high, double ratio) {
  for (double x = low; x <= high * 1.0001; x *= ratio) {
    if (std::abs(std::log(x)) > 1e-9) usual.push_back(x);
  }
  return {std::move(usual), ratio, false};
}

// 1, 2, 3, 4, 6, 8, 12, 16, ...
std::vector<double> whole_numbers(std::int64_t high) {
  std::vector<double> numbers;
  for (std::int64_t x = 1; x <= high; x *= 2) {
    numbers.push_back(static_cast<double>(x));
    if (x >= 2 && x + x / 2 <= high) numbers.push_back(static_cast<double>(x + x / 2));
  }
  return numbers;
}

// 0: no layer has one.
std::int64_t smallest_window(const ModelSpec& model) {
  std::int64_t smallest = 0;
  for (const LayerSpec& layer : model.layers) {
    for (const MaskNode& node : layer.attention.mask.nodes) {
      if (node.op == MaskOp::kWindow && (smallest == 0 || node.n < smallest)) smallest = node.n;
    }
  }
  return smallest;
}

}  // namespace

ParameterValues parameter_values(const FaultKind& kind, const ModelSpec& model, std::int64_t longest) {
  if (kind.parameters.empty()) return {{0.0}};
  const FaultParameter& parameter = kind.parameters.front();
  const std::string_view name = parameter.name;
  if (name == "theta") return on_grid({1e4, 5e5, 1e6, 1e5}, 10, 1e7, std::pow(10.0, 0.125));
  if (kind.variant == "yarn" || name == "taken") return on_grid({2, 4, 8, 16, 32}, 1.25, 64, 1.25);
  if (name == "factor" || name == "times") return on_grid({0.5, 2}, 0.125, 8, std::exp2(0.25));
  if (name == "offset") return {{0, 1, -1, 2, -2, 3, -3, 4, -4, 8, -8}};
  if (name == "width") return {usual_row_widths(kind, model)};
  if (name == "window") return {whole_numbers(longest - 1), 1, true};
  if (name == "keys") {
    // A window that hides nothing of the text is none, which is another fault.
    const std::int64_t window = smallest_window(model);
    std::vector<double> both{1, -1};
    for (const double x : whole_numbers(std::max(window, longest))) {
      if (x > 1 && static_cast<double>(window) + x < static_cast<double>(longest - 1)) both.push_back(x);
      if (x > 1 && x < static_cast<double>(window)) both.push_back(-x);
    }
    return {std::move(both), 1, true};
  }
  return {{parameter.value}};
}

Fault fault_at(const FaultKind& kind, double value, const ModelSpec& model) {
  Fault fault{&kind, {}};
  for (const FaultParameter& parameter : kind.parameters) {
    fault.values.push_back(parameter.name == "original_context" ? static_cast<double>(model.context_length)
                                                                : parameter.value);
  }
  if (!fault.values.empty()) fault.values.front() = value;
  return fault;
}

}  // namespace sightline::subjects
