// The steps of a tokenizer.json around its model: normalizer, pre_tokenizer, post_processor, decoder.
// Whatever is not implemented exactly is refused by name.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "sightline/base/json.h"
#include "text/tokenizer_impl.h"

namespace sightline::text {

struct JsonSteps {
  std::vector<NormalizeStep> normalize;
  bool is_byte_level = false;
  std::string word_prefix;
  PrefixScheme prefix_scheme = PrefixScheme::kNever;
  std::vector<SplitStep> splits;
  bool strips_first_blank = false;
  std::vector<TokenId> prefix, suffix;  // not checked against the vocabulary
  bool has_template = false;            // the post_processor says what goes around a text
};

/// Reads the four members of `root`. Errors: kInvalidContent, "SOURCE: pre_tokenizer: unsupported type 'X'".
[[nodiscard]] Result<JsonSteps> read_json_steps(const Json& root, std::string_view source);

/// Members of a JSON object with their types checked; `where` begins every message.
struct JsonMembers {
  const Json& object;
  std::string where;

  /// Absent or null gives `fallback`.
  [[nodiscard]] Result<bool> get_bool(std::string_view key, bool fallback) const;
  [[nodiscard]] Result<std::string> get_string(std::string_view key, std::string_view fallback) const;
  /// An array that must be there.
  [[nodiscard]] Result<const JsonArray*> get_array(std::string_view key) const;
  /// The member, or null where it is absent or null.
  [[nodiscard]] const Json* find(std::string_view key) const;
  [[nodiscard]] tl::unexpected<Error> refuse(std::string_view text) const;
};

}  // namespace sightline::text
