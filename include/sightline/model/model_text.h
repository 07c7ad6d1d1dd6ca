// The text side of a model: its tokenizer and chat template, from whichever files hold them.
#pragma once

#include <optional>
#include <string>

#include "sightline/base/error.h"
#include "sightline/model/model_info.h"
#include "sightline/text/chat_template.h"
#include "sightline/text/tokenizer.h"

namespace sightline {

/// Tokenizer and chat template of a model (also of a vocabulary-only GGUF).
struct ModelText {
  Tokenizer tokenizer;
  std::optional<ChatTemplate> chat_template;
};

/// GGUF: the tokenizer.* keys. Folder: tokenizer.json, tokenizer_config.json and chat_template.jinja.
/// Of several named templates the one called "default" is taken.
/// Errors: kNoInput; kInvalidContent: those of Tokenizer and ChatTemplate; a file without a tokenizer.
[[nodiscard]] Result<ModelText> load_model_text(const std::string& path, const LoadOptions& options = {});

}  // namespace sightline
