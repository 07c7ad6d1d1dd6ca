#include "checker/rounding.h"

#include <algorithm>
#include <cmath>

namespace sightline::checker {
namespace {

constexpr double kMargin = 8.0;
// Of a weight. Gradients of weights that may be anything would be explained by anything.
constexpr double kMostOfWeight = 1.0 / 40;

std::size_t at(std::int64_t i) { return static_cast<std::size_t>(i); }

std::vector<double> norms(const std::vector<double>& x, int dim) {
  std::vector<double> out;
  for (std::size_t i = 0; i < x.size(); i += at(dim)) {
    double sum = 0;
    for (std::size_t c = i; c < i + at(dim); ++c) sum += x[c] * x[c];
    out.push_back(std::sqrt(sum));
  }
  return out;
}

// Scores are multiplied by this, rotated parts by the magnitude of cos and sin twice.
double scale_of(const AttentionSpec& spec) {
  return std::abs(softmax_scale(spec.score, spec.heads)) * spec.rope.cos_sin_magnitude *
         spec.rope.cos_sin_magnitude;
}

// Below 2^-14, f16 has steps of 2^-24.
double smallest_bound(ElementType type) {
  return type == ElementType::kF16 ? kMargin * 0x1p-25 : RoundingBounds::kSmallest;
}

}  // namespace

double unit_roundoff(ElementType type) {
  switch (type) {
    case ElementType::kF64:
      return 0x1p-53;
    case ElementType::kF32:
      return 0x1p-24;
    case ElementType::kBf16:
      return 0x1p-9;
    case ElementType::kF16:
      return 0x1p-12;
  }
  return 0x1p-24;
}

RoundingBounds::RoundingBounds(const Observation& observation)
    : RoundingBounds(observation, observation.q, observation.k, observation.v) {}

RoundingBounds::RoundingBounds(const Observation& observation, const std::vector<double>& q,
                               const std::vector<double>& k, const std::vector<double>& v)
    : heads_(observation.spec.heads),
      v_(&v),
      smallest_(smallest_bound(observation.type)),
      unit_(unit_roundoff(observation.type)),
      scale_(scale_of(observation.spec)),
      q_norms_(norms(q, heads_.qk_head_dim)),
      k_norms_(norms(k, heads_.qk_head_dim)) {}

double RoundingBounds::usable(double error) const {
  return std::isfinite(error) ? std::max(kMargin * error, smallest_) : smallest_;
}

void RoundingBounds::widen_for(const AttentionSpec& spec) {
  constexpr double kMost = 4.0;
  scale_ = std::max(scale_, std::min(kMost * scale_, scale_of(spec)));
}

double RoundingBounds::score_error(const RowResult& r, std::int64_t key) const {
  const double q = q_norms_[at(r.row * heads_.num_q_heads + r.head)];
  const double k = k_norms_[at(key * heads_.num_kv_heads + kv_head_for(heads_, r.head))];
  return 2.0 * unit_ * (scale_ * q * k + 1.0);
}

double RoundingBounds::mean_score_error(const RowResult& r) const {
  double mean = 0;
  for (std::int64_t j = 0; j < r.num_keys; ++j) {
    if (r.weights[j] != 0) mean += r.weights[j] * score_error(r, j);
  }
  return mean;
}

void RoundingBounds::add_out(const RowResult& r, std::vector<double>& to) const {
  const int kv_head = kv_head_for(heads_, r.head);
  const std::size_t first = to.size();
  for (int c = 0; c < heads_.v_head_dim; ++c) to.push_back(unit_ * std::abs(r.out[c]));
  for (std::int64_t j = 0; j < r.num_keys; ++j) {
    const double w = r.weights[j];
    if (w == 0) continue;
    const double error = score_error(r, j);
    const double* v = v_->data() + (j * heads_.num_kv_heads + kv_head) * heads_.v_head_dim;
    for (int c = 0; c < heads_.v_head_dim; ++c) {
      to[first + at(c)] += w * (unit_ * std::abs(v[c]) + error * std::abs(v[c] - r.out[c]));
    }
  }
  std::transform(to.begin() + static_cast<std::ptrdiff_t>(first), to.end(),
                 to.begin() + static_cast<std::ptrdiff_t>(first), [this](double x) { return usable(x); });
}

void RoundingBounds::add_lse(const RowResult& r, std::vector<double>& to) const {
  to.push_back(usable(unit_ * std::abs(r.lse) + mean_score_error(r)));
}

void RoundingBounds::set_weights(const RowResult& r, double* to) const {
  const double mean = mean_score_error(r);
  for (std::int64_t j = 0; j < r.num_keys; ++j) {
    to[j] = usable(r.weights[j] * (unit_ + score_error(r, j) + mean));
  }
}

void RoundingBounds::add_gradient_errors(const RowResult& r, const double* d_out, GradientErrors& to) const {
  const int kv_head = kv_head_for(heads_, r.head);
  const auto norm = [&](const double* x) {
    double sum = 0;
    for (int c = 0; c < heads_.v_head_dim; ++c) sum += x[c] * x[c];
    return std::sqrt(sum);
  };
  std::vector<double> d_p(at(r.num_keys), 0.0);
  double mean_d_p = 0;
  for (std::int64_t j = 0; j < r.num_keys; ++j) {
    if (r.weights[j] == 0) continue;
    const double* v = v_->data() + (j * heads_.num_kv_heads + kv_head) * heads_.v_head_dim;
    for (int c = 0; c < heads_.v_head_dim; ++c) d_p[at(j)] += d_out[c] * v[c];
    mean_d_p += r.weights[j] * d_p[at(j)];
  }
  const double mean_error = mean_score_error(r);
  const double d_out_norm = norm(d_out);
  const double out_norm = norm(r.out);
  // Products of a half type accumulate in f32; the outputs of which the row term is made are of the half
  // type.
  const double d_p_unit = std::min(unit_, unit_roundoff(ElementType::kF32));
  const double row_term_error =
      unit_ * d_out_norm * out_norm / std::sqrt(static_cast<double>(heads_.v_head_dim));
  const double per_component = 1 / std::sqrt(static_cast<double>(heads_.qk_head_dim));
  const std::int64_t row = r.row * heads_.num_q_heads + r.head;
  for (std::int64_t j = 0; j < r.num_keys; ++j) {
    const double w = r.weights[j];
    if (w == 0) continue;
    const std::int64_t key = j * heads_.num_kv_heads + kv_head;
    const double weight_error = std::min(kMostOfWeight, unit_ + score_error(r, j) + mean_error);
    const double v_norm = norm(v_->data() + key * heads_.v_head_dim);
    const double d_s_error = w * (weight_error * std::abs(d_p[at(j)] - mean_d_p) +
                                  d_p_unit * d_out_norm * (v_norm + out_norm) + row_term_error);
    to.d_q[at(row)] += scale_ * d_s_error * k_norms_[at(key)] * per_component;
    to.d_k[at(key)] += scale_ * d_s_error * q_norms_[at(row)] * per_component;
    to.d_v[at(key)] += w * weight_error * d_out_norm / std::sqrt(static_cast<double>(heads_.v_head_dim));
  }
}

std::vector<double> RoundingBounds::of_gradient(const std::vector<double>& gradient,
                                                const std::vector<double>& errors) const {
  double sum = 0;
  double count = 0;
  for (const double x : gradient) {
    if (!std::isfinite(x)) continue;
    sum += x * x;
    ++count;
  }
  const double rms = std::sqrt(sum / std::max(count, 1.0));
  const std::size_t dim = errors.empty() ? 1 : std::max<std::size_t>(1, gradient.size() / errors.size());
  std::vector<double> bounds;
  for (std::size_t i = 0; i < gradient.size(); ++i) {
    const double error = errors.empty() ? 0.0 : errors[i / dim];
    bounds.push_back(usable(2.0 * unit_ * (std::abs(gradient[i]) + rms) + error));
  }
  return bounds;
}

}  // namespace sightline::checker
