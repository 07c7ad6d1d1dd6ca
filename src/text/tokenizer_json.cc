// A Tokenizer from a Hugging Face tokenizer.json.
#include "text/tokenizer_impl.h"

namespace sightline {

Result<Tokenizer> Tokenizer::from_json(std::string_view, std::string_view, std::string_view source) {
  return fail(ErrorKind::kInvalidContent, "{}: tokenizer.json is not supported yet", source);
}

}  // namespace sightline
