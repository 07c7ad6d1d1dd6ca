// The tokenizer.* keys of a GGUF file as a TokenizerSpec, typed and checked; what the values mean is text's.
#pragma once

#include "sightline/base/error.h"
#include "sightline/formats/gguf.h"
#include "sightline/model/model_info.h"
#include "sightline/text/vocabulary.h"

namespace sightline {

/// Errors (kInvalidContent): a key of the wrong type, a tokenizer model other than text's two, a tokenizer.*
/// key that we do not know and the caller does not state to be without meaning.
[[nodiscard]] Result<TokenizerSpec> read_tokenizer_fields(const GgufFile& file, const LoadOptions& options);

}  // namespace sightline
