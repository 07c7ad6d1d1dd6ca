// The tokenizer of a model and the source of its chat template, as far as the files hold them.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "sightline/base/error.h"
#include "sightline/formats/gguf.h"
#include "sightline/model/model_info.h"
#include "sightline/text/tokenizer.h"

namespace sightline {

struct TextParts {
  std::optional<Tokenizer> tokenizer;
  std::string chat_template;  ///< empty: none
  std::int64_t bytes = 0;     ///< of the vocabulary in the file
};

[[nodiscard]] Result<TextParts> read_text_parts(const GgufFile& file, const LoadOptions& options);
/// A path to either kind of model.
[[nodiscard]] Result<TextParts> read_text_parts(const std::string& path, const LoadOptions& options);

}  // namespace sightline
