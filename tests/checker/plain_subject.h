// An attention of a few plain loops that shares no code with the oracle, to be checked; with hooks that make
// it wrong in ways of their own.
#pragma once

#include <cmath>
#include <functional>

#include "sightline/checker/report.h"
#include "sightline/checker/subject.h"

namespace sightline::checker {

/// What PlainSubject does.
inline AttentionSpec causal_spec() {
  AttentionSpec spec;
  spec.heads = {6, 2, 8, 5};
  spec.rope.pairing = RopePairing::kHalfSplit;
  spec.rope.rotary_dim = 8;
  return spec;
}

inline bool mentions(const Report& report, std::string_view text) {
  return to_text(report).find(text) != std::string::npos;
}

/// Causal, grouped heads, half-split rotation over the whole head, float32 results. Stateless: keys come
/// whole.
class PlainSubject : public Subject {
 public:
  /// May query row i see key j? `first_row`: the row of the keys that query 0 stands at.
  std::function<bool(std::int64_t i, std::int64_t j, std::int64_t first_row)> sees =
      [](std::int64_t i, std::int64_t j, std::int64_t first_row) { return j <= i + first_row; };
  /// The position a query or key is rotated at.
  std::function<double(std::int64_t row, std::int64_t rope_pos, bool is_query)> position =
      [](std::int64_t, std::int64_t rope_pos, bool) { return static_cast<double>(rope_pos); };
  std::function<Result<void>(Observation&)> after = [](Observation&) { return Result<void>{}; };
  SubjectTraits given{.takes_positions = true};

  [[nodiscard]] SubjectTraits traits() const override { return given; }

  Result<void> answer(Observation& call) override {
    const HeadSpec& heads = call.spec.heads;
    const int group = heads.num_q_heads / heads.num_kv_heads;
    const double scale = 1.0 / std::sqrt(heads.qk_head_dim);
    const std::int64_t first_row = call.kv_len() - call.q_len();
    for (std::int64_t i = 0; i < call.q_len(); ++i) {
      for (int h = 0; h < heads.num_q_heads; ++h) {
        const auto q =
            rotated(call.q, i * heads.num_q_heads + h, heads.qk_head_dim,
                    position(i, pos_of(call.q_coords, call.q_rope_pos, i), true), call.spec.rope.theta);
        std::vector<double> weights;
        double sum = 0;
        for (std::int64_t j = 0; j < call.kv_len(); ++j) {
          double weight = 0;
          if (sees(i, j, first_row)) {
            const auto k = rotated(call.k, j * heads.num_kv_heads + h / group, heads.qk_head_dim,
                                   position(j, pos_of(call.kv_coords, call.kv_rope_pos, j), false),
                                   call.spec.rope.theta);
            double dot = 0;
            for (std::size_t c = 0; c < k.size(); ++c) dot += q[c] * k[c];
            weight = std::exp(dot * scale);
          }
          weights.push_back(weight);
          sum += weight;
        }
        for (int c = 0; c < heads.v_head_dim; ++c) {
          double out = 0;
          for (std::int64_t j = 0; j < call.kv_len(); ++j) {
            out +=
                weights[static_cast<std::size_t>(j)] / sum *
                call.v[static_cast<std::size_t>((j * heads.num_kv_heads + h / group) * heads.v_head_dim + c)];
          }
          call.out.push_back(static_cast<float>(out));
        }
      }
    }
    return after(call);
  }

 private:
  static std::int64_t pos_of(const std::vector<TokenCoord>& coords, const std::vector<std::int64_t>& rope,
                             std::int64_t i) {
    return rope.empty() ? coords[static_cast<std::size_t>(i)].pos : rope[static_cast<std::size_t>(i)];
  }

  static std::vector<double> rotated(const std::vector<double>& x, std::int64_t row, int dim, double pos,
                                     double theta) {
    std::vector<double> y(x.begin() + row * dim, x.begin() + (row + 1) * dim);
    for (int i = 0; i < dim / 2; ++i) {
      const double angle = pos * std::pow(theta, -2.0 * i / dim);
      double& a = y[static_cast<std::size_t>(i)];
      double& b = y[static_cast<std::size_t>(i + dim / 2)];
      const double turned = a * std::cos(angle) - b * std::sin(angle);
      b = a * std::sin(angle) + b * std::cos(angle);
      a = turned;
    }
    return y;
  }
};

}  // namespace sightline::checker
