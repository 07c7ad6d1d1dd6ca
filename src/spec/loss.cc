#include "sightline/spec/loss.h"

#include "spec/fields.h"
#include "spec/json_fields.h"

namespace sightline {

std::vector<std::int64_t> loss_targets(const LossSpec& loss, std::span<const TokenCoord> coords,
                                       std::span<const std::uint8_t> is_prompt) {
  std::vector<std::int64_t> out(coords.size(), -1);
  const auto shift = static_cast<std::size_t>(loss.shift);
  for (std::size_t i = 0; i + shift < coords.size(); ++i) {
    const std::size_t target = i + shift;
    if (!coords[i].valid || !coords[target].valid) continue;
    if (loss.prompt == PromptScope::kOut && !is_prompt.empty() && is_prompt[target] != 0) continue;
    if (loss.next_document == NextDocumentScope::kOut && coords[target].segment != coords[i].segment)
      continue;
    out[i] = static_cast<std::int64_t>(target);
  }
  return out;
}

Result<void> validate(const LossSpec& loss) {
  if (loss.shift < 0 || loss.shift > 16) {
    return fail(ErrorKind::kInvalidArgument, "loss: shift = {}, expected 0 to 16", loss.shift);
  }
  return {};
}

Json to_json(const LossSpec& loss) { return json_fields::write(loss); }
Result<LossSpec> loss_spec_from_json(const Json& json) {
  return json_fields::read_struct<LossSpec>("loss", json);
}

}  // namespace sightline
