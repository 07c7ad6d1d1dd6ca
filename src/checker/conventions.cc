#include "sightline/checker/conventions.h"

#include <fmt/ranges.h>

#include <algorithm>

namespace sightline::checker {
namespace {

bool explains(const Convention& convention, const NamedFault& fault) {
  if (convention.slug != fault.slug) return false;
  if (convention.parameter.empty()) return true;
  return std::ranges::any_of(fault.parameters, [&](const MeasuredParameter& p) {
    return p.name == convention.parameter && p.value == convention.value;
  });
}

}  // namespace

std::span<const Convention> conventions() {
  static constexpr Convention kConventions[] = {
      {"torch", "mask.top_left_alignment", "", 0,
       "scaled_dot_product_attention(is_causal=True) aligns the triangle to the upper left corner",
       "attn_mask=torch.nn.attention.bias.causal_lower_right(q_len, kv_len); or declare query positions from "
       "0",
       "docs.pytorch.org, torch.nn.attention.bias.CausalVariant"},
      {"onnx", "mask.top_left_alignment", "", 0,
       "Attention with is_causal=1 and no past_key aligns the triangle to the upper left corner",
       "give the cached keys as past_key and past_value; or declare query positions from 0",
       "onnx.ai, operator Attention, attribute is_causal"},
      {"flash_attn", "mask.window_off_by_one", "keys", 1,
       "window_size=(left, right) reaches from i - left to i + right: left + 1 keys with the query's own",
       "pass window_size=(n - 1, 0) for window(n); or declare window(left + 1)",
       "github.com/Dao-AILab/flash-attention, README, 2.3"},
      {"jax", "mask.window_off_by_one", "keys", 1,
       "local_window_size=(left, right) reaches from i - left to i + right: left + 1 keys with the query's "
       "own",
       "pass local_window_size=(n - 1, 0) for window(n); or declare window(left + 1)",
       "docs.jax.dev, jax.nn.dot_product_attention"},
  };
  return kConventions;
}

std::vector<std::string_view> convention_libraries() {
  std::vector<std::string_view> libraries;
  for (const Convention& convention : conventions()) {
    if (std::ranges::find(libraries, convention.library) == libraries.end()) {
      libraries.push_back(convention.library);
    }
  }
  return libraries;
}

Result<void> apply_conventions(std::string_view library, Report& report) {
  const std::vector<std::string_view> known = convention_libraries();
  const Convention* found = nullptr;
  for (const Convention& convention : conventions()) {
    if (convention.library != library || report.faults.size() != 1) continue;
    if (explains(convention, report.faults.front())) found = &convention;
  }
  if (std::ranges::find(known, library) == known.end()) {
    return fail(ErrorKind::kInvalidArgument, "no conventions are known of '{}', only of {}", library,
                fmt::join(known, ", "));
  }
  if (report.verdict != Verdict::kFault || found == nullptr) return {};
  report.verdict = Verdict::kConvention;
  report.summary = fmt::format("convention: {} ({})", found->what, found->where);
  report.faults.front().what = found->what;
  report.faults.front().idiom.clear();
  report.faults.front().fix = found->how;
  return {};
}

}  // namespace sightline::checker
