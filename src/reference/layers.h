// Linear layers, norms and activations on rows of doubles, each with its gradient beside it.
#pragma once

#include <cstdint>
#include <vector>

#include "sightline/reference/model_weights.h"

namespace sightline::reference {

using Rows = std::vector<double>;

/// [n, in] -> [n, out].
Rows linear_forward(const LinearWeights& linear, const Rows& x, std::int64_t in);
/// Adds to `d_linear`; returns d_x.
Rows linear_backward(const LinearWeights& linear, const Rows& x, const Rows& d_y, std::int64_t in,
                     LinearWeights& d_linear);

/// Rows of width norm.weight.size(); a norm without weights does not stand and passes x through.
Rows norm_forward(const NormSpec& spec, const NormWeights& norm, const Rows& x);
Rows norm_backward(const NormSpec& spec, const NormWeights& norm, const Rows& x, const Rows& d_y,
                   NormWeights& d_norm);

double activate(Activation activation, double x);
double activate_slope(Activation activation, double x);

/// y += scale * x
void add_scaled(Rows& y, const Rows& x, double scale);

}  // namespace sightline::reference
