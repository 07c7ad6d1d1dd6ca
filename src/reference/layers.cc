#include "layers.h"

#include <cmath>
#include <numbers>

namespace sightline::reference {
namespace {

/// Mean and 1 / sqrt(spread + epsilon) of one row; the mean is 0 under kRms.
struct RowMoments {
  double mean = 0;
  double inverse_deviation = 0;
};

RowMoments row_moments(const NormSpec& spec, const double* x, std::size_t width) {
  const auto count = static_cast<double>(width);
  RowMoments m;
  if (spec.kind == NormKind::kLayer) {
    for (std::size_t c = 0; c < width; ++c) m.mean += x[c] / count;
  }
  double spread = 0;
  for (std::size_t c = 0; c < width; ++c) spread += (x[c] - m.mean) * (x[c] - m.mean) / count;
  m.inverse_deviation = 1 / std::sqrt(spread + spec.epsilon);
  return m;
}

double sigmoid(double x) { return 1 / (1 + std::exp(-x)); }

// GELU by tanh, arXiv:1606.08415 section 2.
const double kGeluFactor = std::sqrt(2 / std::numbers::pi);
constexpr double kGeluCubic = 0.044715;

}  // namespace

Rows linear_forward(const LinearWeights& linear, const Rows& x, std::int64_t in) {
  const auto width = static_cast<std::size_t>(in);
  const std::size_t out = linear.weight.size() / width;
  const std::size_t num_rows = x.size() / width;
  Rows y(num_rows * out, 0.0);
  for (std::size_t i = 0; i < num_rows; ++i) {
    for (std::size_t o = 0; o < out; ++o) {
      double sum = linear.bias.empty() ? 0.0 : linear.bias[o];
      for (std::size_t c = 0; c < width; ++c) sum += linear.weight[o * width + c] * x[i * width + c];
      y[i * out + o] = sum;
    }
  }
  return y;
}

Rows linear_backward(const LinearWeights& linear, const Rows& x, const Rows& d_y, std::int64_t in,
                     LinearWeights& d_linear) {
  const auto width = static_cast<std::size_t>(in);
  const std::size_t out = linear.weight.size() / width;
  const std::size_t num_rows = x.size() / width;
  Rows d_x(x.size(), 0.0);
  for (std::size_t i = 0; i < num_rows; ++i) {
    for (std::size_t o = 0; o < out; ++o) {
      const double d = d_y[i * out + o];
      if (!linear.bias.empty()) d_linear.bias[o] += d;
      for (std::size_t c = 0; c < width; ++c) {
        d_linear.weight[o * width + c] += d * x[i * width + c];
        d_x[i * width + c] += d * linear.weight[o * width + c];
      }
    }
  }
  return d_x;
}

Rows norm_forward(const NormSpec& spec, const NormWeights& norm, const Rows& x) {
  if (norm.weight.empty()) return x;
  const std::size_t width = norm.weight.size();
  Rows y(x.size());
  for (std::size_t begin = 0; begin < x.size(); begin += width) {
    const RowMoments m = row_moments(spec, &x[begin], width);
    for (std::size_t c = 0; c < width; ++c) {
      y[begin + c] = norm.weight[c] * (x[begin + c] - m.mean) * m.inverse_deviation;
      if (!norm.bias.empty()) y[begin + c] += norm.bias[c];
    }
  }
  return y;
}

Rows norm_backward(const NormSpec& spec, const NormWeights& norm, const Rows& x, const Rows& d_y,
                   NormWeights& d_norm) {
  if (norm.weight.empty()) return d_y;
  const std::size_t width = norm.weight.size();
  const auto count = static_cast<double>(width);
  Rows d_x(x.size());
  for (std::size_t begin = 0; begin < x.size(); begin += width) {
    const RowMoments m = row_moments(spec, &x[begin], width);
    double mean_g = 0, mean_gu = 0;  // g: gradient of the unweighted row u
    for (std::size_t c = 0; c < width; ++c) {
      const double u = (x[begin + c] - m.mean) * m.inverse_deviation;
      const double d = d_y[begin + c];
      d_norm.weight[c] += d * u;
      if (!norm.bias.empty()) d_norm.bias[c] += d;
      mean_g += d * norm.weight[c] / count;
      mean_gu += d * norm.weight[c] * u / count;
    }
    if (spec.kind == NormKind::kRms) mean_g = 0;  // no mean was taken out
    for (std::size_t c = 0; c < width; ++c) {
      const double u = (x[begin + c] - m.mean) * m.inverse_deviation;
      d_x[begin + c] = m.inverse_deviation * (d_y[begin + c] * norm.weight[c] - mean_g - u * mean_gu);
    }
  }
  return d_x;
}

double activate(Activation activation, double x) {
  switch (activation) {
    case Activation::kSilu:
      return x * sigmoid(x);
    case Activation::kGeluTanh:
      return 0.5 * x * (1 + std::tanh(kGeluFactor * (x + kGeluCubic * x * x * x)));
    case Activation::kGeluErf:
      return 0.5 * x * (1 + std::erf(x / std::numbers::sqrt2));
    case Activation::kRelu:
      return x > 0 ? x : 0;
  }
  return x;
}

double activate_slope(Activation activation, double x) {
  switch (activation) {
    case Activation::kSilu: {
      const double s = sigmoid(x);
      return s + x * s * (1 - s);
    }
    case Activation::kGeluTanh: {
      const double t = std::tanh(kGeluFactor * (x + kGeluCubic * x * x * x));
      return 0.5 * (1 + t) + 0.5 * x * (1 - t * t) * kGeluFactor * (1 + 3 * kGeluCubic * x * x);
    }
    case Activation::kGeluErf:
      return 0.5 * (1 + std::erf(x / std::numbers::sqrt2)) +
             x * std::exp(-0.5 * x * x) * std::numbers::inv_sqrtpi / std::numbers::sqrt2;
    case Activation::kRelu:
      return x > 0 ? 1 : 0;
  }
  return 1;
}

void add_scaled(Rows& y, const Rows& x, double scale) {
  for (std::size_t i = 0; i < y.size(); ++i) y[i] += scale * x[i];
}

}  // namespace sightline::reference
