#include "sightline/ops/elementwise.h"

#include <algorithm>
#include <cmath>
#include <cstddef>

#include "sightline/ops/cross_entropy.h"

namespace sightline {

namespace {
// Sums of a row: eight partial sums in double, by index mod 8, then added as a fixed tree. Double, because
// hidden states of real models have components hundreds of times the others.
constexpr std::int64_t kLanes = 8;

double add_lanes(const double (&lanes)[kLanes]) {
  return ((lanes[0] + lanes[4]) + (lanes[2] + lanes[6])) + ((lanes[1] + lanes[5]) + (lanes[3] + lanes[7]));
}

template <typename Term>
double sum_row(std::int64_t n, const Term& term) {
  double lanes[kLanes] = {};
  std::int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes) {
    for (std::int64_t l = 0; l < kLanes; ++l) lanes[l] += term(i + l);
  }
  for (std::int64_t l = 0; i + l < n; ++l) lanes[l] += term(i + l);
  return add_lanes(lanes);
}

// Rows handed to a thread at once, so that a hand-out costs little beside the work of narrow rows.
constexpr std::int64_t kRowsPerItem = 8;

template <typename Row>
void for_rows(std::int64_t num_rows, ThreadPool& pool, const Row& row) {
  pool.parallel_for((num_rows + kRowsPerItem - 1) / kRowsPerItem, [&](std::int64_t item, int) {
    const std::int64_t end = std::min(num_rows, (item + 1) * kRowsPerItem);
    for (std::int64_t i = item * kRowsPerItem; i < end; ++i) row(i);
  });
}

// x Phi(x) = 0.5 x erfc(-x / sqrt 2), which does not cancel for negative x. Scalar: few models use it.
float gelu_erf(float x) { return 0.5F * x * std::erfc(-x * 0.70710678118654752440F); }

// `up` null: none.
void activate_row(ActivationKind kind, const float* x, const float* up, float* y, std::int64_t n,
                  const kernels::KernelTable& table) {
  using Kind = kernels::ActivationArgs::Kind;
  if (kind == ActivationKind::kSilu || kind == ActivationKind::kGeluTanh) {
    table.activate_row({kind == ActivationKind::kSilu ? Kind::kSilu : Kind::kGeluTanh, x, up, y, n});
    return;
  }
  for (std::int64_t i = 0; i < n; ++i) {
    // "Less than" is false for NaN, which stays.
    const float activated = kind == ActivationKind::kGeluErf ? gelu_erf(x[i]) : (x[i] < 0.0F ? 0.0F : x[i]);
    y[i] = up == nullptr ? activated : activated * up[i];
  }
}
}  // namespace

void rms_norm_forward(StridedView<const float, 2> x, std::span<const float> weight, float epsilon,
                      StridedView<float, 2> y, ThreadPool& pool) {
  const std::int64_t dim = x.shape[1];
  for_rows(x.shape[0], pool, [&](std::int64_t i) {
    const float* in = &x(i, 0);
    float* out = &y(i, 0);
    const double squares = sum_row(dim, [in](std::int64_t j) {
      const double v = in[j];
      return v * v;
    });
    const double mean_square = squares / static_cast<double>(dim);
    const auto inverse = static_cast<float>(1.0 / std::sqrt(mean_square + static_cast<double>(epsilon)));
    for (std::int64_t j = 0; j < dim; ++j) out[j] = in[j] * inverse * weight[static_cast<std::size_t>(j)];
  });
}

void layer_norm_forward(StridedView<const float, 2> x, std::span<const float> weight,
                        std::span<const float> bias, float epsilon, StridedView<float, 2> y,
                        ThreadPool& pool) {
  const std::int64_t dim = x.shape[1];
  for_rows(x.shape[0], pool, [&](std::int64_t i) {
    const float* in = &x(i, 0);
    float* out = &y(i, 0);
    const double mean =
        sum_row(dim, [in](std::int64_t j) { return static_cast<double>(in[j]); }) / static_cast<double>(dim);
    // The mean is taken out first: E[x^2] - mean^2 cancels.
    const double squares = sum_row(dim, [in, mean](std::int64_t j) {
      const double v = in[j] - mean;
      return v * v;
    });
    const double variance = squares / static_cast<double>(dim);
    const double inverse = 1.0 / std::sqrt(variance + static_cast<double>(epsilon));
    for (std::int64_t j = 0; j < dim; ++j) {
      const auto at = static_cast<std::size_t>(j);
      const auto normed = static_cast<float>((in[j] - mean) * inverse);
      out[j] = bias.empty() ? normed * weight[at] : normed * weight[at] + bias[at];
    }
  });
}

void activation_forward(ActivationKind kind, StridedView<const float, 2> x, StridedView<float, 2> y,
                        ThreadPool& pool, const kernels::KernelTable& table) {
  for_rows(x.shape[0], pool,
           [&](std::int64_t i) { activate_row(kind, &x(i, 0), nullptr, &y(i, 0), x.shape[1], table); });
}

void gated_activation_forward(ActivationKind kind, StridedView<const float, 2> gate,
                              StridedView<const float, 2> up, StridedView<float, 2> y, ThreadPool& pool,
                              const kernels::KernelTable& table) {
  for_rows(gate.shape[0], pool, [&](std::int64_t i) {
    activate_row(kind, &gate(i, 0), &up(i, 0), &y(i, 0), gate.shape[1], table);
  });
}

void add_scaled(StridedView<float, 2> x, StridedView<const float, 2> y, float scale, ThreadPool& pool) {
  for_rows(x.shape[0], pool, [&](std::int64_t i) {
    float* to = &x(i, 0);
    const float* from = &y(i, 0);
    for (std::int64_t j = 0; j < x.shape[1]; ++j) to[j] += scale * from[j];
  });
}

void log_softmax(std::span<const float> logits, std::span<double> out) {
  const double lse = log_sum_exp(logits);
  for (std::size_t i = 0; i < logits.size(); ++i) out[i] = static_cast<double>(logits[i]) - lse;
}

}  // namespace sightline
