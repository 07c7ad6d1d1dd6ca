#include "checker/visible_set.h"

#include <algorithm>

#include "checker/ask.h"
#include "checker/faulted_calls.h"
#include "checker/simulate.h"

namespace sightline::checker {
namespace {

// Less weight than this is what underflow, a bias or ALiBi may leave of a visible key: it tells nothing.
constexpr double kLeastWeight = 1e-7;
// A forbidden key has exactly none; finite fills of everyday sizes underflow to it.
constexpr double kNoWeight = 1e-12;

std::size_t at(std::int64_t i) { return static_cast<std::size_t>(i); }

// Weights that the declared meaning gives with queries of zeros, [head][row][key].
std::vector<double> declared_weights(const Observation& question) {
  Observation o = question;
  o.weights.assign(1, 0.0);  // wanted
  return Simulator(o, all_rows(o)).predict({})->weights.values;
}

std::string key_ranges(const std::vector<std::uint8_t>& row) {
  std::string text;
  const auto n = static_cast<std::int64_t>(row.size());
  for (std::int64_t begin = 0; begin < n; ++begin) {
    if (row[at(begin)] == 0) continue;
    std::int64_t end = begin;
    while (end + 1 < n && row[at(end + 1)] != 0) ++end;
    if (!text.empty()) text += ", ";
    text += begin == end ? fmt::format("{}", begin) : fmt::format("{}..{}", begin, end);
    begin = end;
  }
  return text.empty() ? "none" : text;
}

}  // namespace

Result<VisibleSet> measure_visible_set(Subject& subject, const Observation& probe) {
  const HeadSpec& heads = probe.spec.heads;
  Observation question = without_outputs(probe);
  question.d_out.clear();
  std::ranges::fill(question.q, 0.0);
  std::ranges::fill(question.k, 0.0);

  VisibleSet set;
  set.q_len = probe.q_len();
  set.kv_len = probe.kv_len();
  set.declared.assign(at(set.q_len * set.kv_len), 0);
  set.observed = set.declared;
  const std::vector<double> expected = declared_weights(question);
  for (std::int64_t first = 0; first < set.kv_len; first += heads.v_head_dim) {
    const std::int64_t count = std::min<std::int64_t>(heads.v_head_dim, set.kv_len - first);
    Observation one_hot = question;
    std::ranges::fill(one_hot.v, 0.0);
    for (std::int64_t c = 0; c < count; ++c) {
      for (int h = 0; h < heads.num_kv_heads; ++h) {
        one_hot.v[at(((first + c) * heads.num_kv_heads + h) * heads.v_head_dim + c)] = 1.0;
      }
    }
    SIGHTLINE_CHECK(ask(subject, one_hot));
    for (std::int64_t row = 0; row < set.q_len; ++row) {
      for (std::int64_t c = 0; c < count; ++c) {
        const std::int64_t pair = row * set.kv_len + first + c;
        double most = 0;
        double most_expected = 0;
        for (int h = 0; h < heads.num_q_heads; ++h) {
          most = std::max(most, one_hot.out[at((row * heads.num_q_heads + h) * heads.v_head_dim + c)]);
          most_expected = std::max(most_expected, expected[at(h * set.q_len * set.kv_len + pair)]);
        }
        set.declared[at(pair)] = most_expected > 0;
        const bool tells_nothing = most_expected > 0 && most_expected < kLeastWeight;
        set.observed[at(pair)] = tells_nothing || most > kNoWeight;
      }
    }
  }
  return set;
}

std::string first_difference(const VisibleSet& set) {
  for (std::int64_t row = 0; row < set.q_len; ++row) {
    const auto part = [&](const std::vector<std::uint8_t>& all) {
      return std::vector(all.begin() + row * set.kv_len, all.begin() + (row + 1) * set.kv_len);
    };
    const std::vector<std::uint8_t> declared = part(set.declared);
    const std::vector<std::uint8_t> observed = part(set.observed);
    if (declared == observed) continue;
    return fmt::format("row {} sees keys {}, declared {}", row, key_ranges(observed), key_ranges(declared));
  }
  return {};
}

}  // namespace sightline::checker
