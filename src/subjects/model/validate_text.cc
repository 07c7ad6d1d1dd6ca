#include "subjects/model/validate_text.h"

#include "subjects/model/layer_tensors.h"

namespace sightline::subjects {

Result<void> validate_texts(const Model& model, std::span<const ModelObservation> texts, double tolerance) {
  if (texts.empty()) return fail(ErrorKind::kInvalidArgument, "check: no text was observed");
  for (const ModelObservation& o : texts) {
    const std::int64_t length = std::ssize(o.ids);
    if (length < 2) return fail(ErrorKind::kInvalidArgument, "check: {} tokens, expected at least 2", length);
    for (const TokenId id : o.ids) {
      if (id < 0 || id >= model.spec().vocab_size) {
        return fail(ErrorKind::kInvalidArgument, "check: token id {} is not below the vocabulary of {}", id,
                    model.spec().vocab_size);
      }
    }
    if (!o.logprobs.empty() && std::ssize(o.logprobs) != length - 1) {
      return fail(ErrorKind::kInvalidArgument, "check: {} log-probabilities of {} tokens, expected {}",
                  o.logprobs.size(), length, length - 1);
    }
    if (o.num_unseen < 0 || (!o.logprobs.empty() && o.num_unseen >= std::ssize(o.logprobs))) {
      return fail(ErrorKind::kInvalidArgument, "check: {} of {} log-probabilities are unknown", o.num_unseen,
                  o.logprobs.size());
    }
    if (o.logprobs.empty() && o.tensors.empty()) {
      return fail(ErrorKind::kInvalidArgument,
                  "check: nothing was observed, expected log-probabilities or tensors of layers");
    }
    SIGHTLINE_CHECK(validate_tensors(model, o));
  }
  if (!(tolerance > 0)) {
    return fail(ErrorKind::kInvalidArgument, "check: tolerance = {}, expected more than 0", tolerance);
  }
  return {};
}

}  // namespace sightline::subjects
