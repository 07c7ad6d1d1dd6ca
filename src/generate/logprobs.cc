#include "logprobs.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "sightline/ops/elementwise.h"

namespace sightline {

tl::unexpected<Error> broken_logits(std::int64_t token, float logit) {
  return fail(ErrorKind::kInvalidContent,
              "the logit of token {} is {}; the model's weights or activations are not finite", token, logit);
}

Result<TokenLogprob> token_logprob(std::span<const float> logits, TokenId id, int num_top,
                                   std::vector<double>& scratch) {
  scratch.resize(logits.size());
  log_softmax(logits, scratch);
  // Then the sum is no number, and with it every entry.
  if (std::isnan(scratch[static_cast<std::size_t>(id)])) {
    const auto bad = std::ranges::find_if_not(logits, [](float x) { return std::isfinite(x); });
    return broken_logits(bad - logits.begin(), *bad);
  }
  TokenLogprob entry{id, scratch[static_cast<std::size_t>(id)], {}};
  if (num_top == 0) return entry;
  std::vector<TokenId> order(logits.size());
  std::iota(order.begin(), order.end(), 0);
  const auto n = std::min<std::ptrdiff_t>(num_top, std::ssize(order));
  std::partial_sort(order.begin(), order.begin() + n, order.end(), [&](TokenId a, TokenId b) {
    const double x = scratch[static_cast<std::size_t>(a)];
    const double y = scratch[static_cast<std::size_t>(b)];
    return x != y ? x > y : a < b;
  });
  for (std::ptrdiff_t i = 0; i < n; ++i) {
    const TokenId top = order[static_cast<std::size_t>(i)];
    entry.top.push_back({top, scratch[static_cast<std::size_t>(top)]});
  }
  return entry;
}

}  // namespace sightline
