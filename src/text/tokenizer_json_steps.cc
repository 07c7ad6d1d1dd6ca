#include "text/tokenizer_json_steps.h"

#include "text/utf8.h"

namespace sightline::text {
namespace {

constexpr int kMaxNesting = 8;
constexpr std::size_t kMaxSteps = 64;
constexpr std::string_view kGpt2Words =
    R"re('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)re";

/// Calls `visit(step)` for each step of a member: none, one, or those of (nested) sequences under `list_key`.
template <typename Visit>
Result<void> for_each_step(const Json* step, const std::string& where, std::string_view list_key,
                           const Visit& visit, int depth = 0) {
  if (step == nullptr || step->is_null()) return {};
  const JsonMembers members{*step, where};
  if (step->as_object() == nullptr) return members.refuse("expected an object");
  const Result<std::string> type = members.get_string("type", "");
  if (!type) return tl::unexpected<Error>(type.error());
  if (std::string_view(*type) != "Sequence") return visit(*type, members);
  if (depth == kMaxNesting) return members.refuse("sequences are nested too deeply");
  SIGHTLINE_TRY(const JsonArray* list, members.get_array(list_key));
  if (list->size() > kMaxSteps) return members.refuse(fmt::format("expected at most {} steps", kMaxSteps));
  for (std::size_t i = 0; i < list->size(); ++i) {
    SIGHTLINE_CHECK(
        for_each_step(&(*list)[i], fmt::format("{}.{}[{}]", where, list_key, i), list_key, visit, depth + 1));
  }
  return {};
}

std::string escape_pattern(std::string_view text) {
  std::string out;
  for (const char c : text) {
    if (std::string_view("\\.+*?()|[]{}^$#&-~ ").find(c) != std::string_view::npos) out += '\\';
    out += c;
  }
  return out;
}

/// {"String": s} or {"Regex": r} as a pattern.
Result<std::string> read_pattern(const JsonMembers& members) {
  const Json* pattern = members.find("pattern");
  const Json* text = pattern == nullptr ? nullptr : pattern->find("String");
  const Json* regex = pattern == nullptr ? nullptr : pattern->find("Regex");
  if (text != nullptr && text->as_string() != nullptr && !text->as_string()->empty()) {
    return escape_pattern(*text->as_string());
  }
  if (regex != nullptr && regex->as_string() != nullptr) return *regex->as_string();
  return members.refuse("pattern: expected {\"String\": ...} or {\"Regex\": ...}");
}

Result<void> add_split(std::string_view pattern, SplitBehavior behavior, bool invert,
                       const JsonMembers& members, JsonSteps& steps) {
  auto regex = Regex::compile(pattern);
  if (!regex) return members.refuse(fmt::format("unsupported pattern: {}", regex.error().message));
  steps.splits.push_back({std::move(*regex), behavior, invert});
  return {};
}

Result<SplitBehavior> read_behavior(const JsonMembers& members, std::string_view fallback) {
  constexpr std::pair<std::string_view, SplitBehavior> kNames[] = {
      {"Isolated", SplitBehavior::kIsolated},
      {"Removed", SplitBehavior::kRemoved},
      {"MergedWithPrevious", SplitBehavior::kMergedWithPrevious},
      {"MergedWithNext", SplitBehavior::kMergedWithNext},
      {"Contiguous", SplitBehavior::kContiguous},
  };
  SIGHTLINE_TRY(const std::string name, members.get_string("behavior", fallback));
  for (const auto& [known, behavior] : kNames) {
    if (name == known) return behavior;
  }
  return members.refuse(fmt::format("unsupported behavior '{}'", name));
}

Result<void> read_normalizer(const std::string& type, const JsonMembers& members, JsonSteps& steps) {
  constexpr std::pair<std::string_view, NormalForm> kForms[] = {{"NFC", NormalForm::kNfc},
                                                                {"NFD", NormalForm::kNfd},
                                                                {"NFKC", NormalForm::kNfkc},
                                                                {"NFKD", NormalForm::kNfkd}};
  for (const auto& [name, form] : kForms) {
    if (type == name) {
      steps.normalize.push_back(UnicodeStep{form});
      return {};
    }
  }
  if (type == "Prepend") {
    SIGHTLINE_TRY(std::string text, members.get_string("prepend", ""));
    steps.normalize.push_back(PrependStep{std::move(text)});
    return {};
  }
  if (type == "Replace") {
    const Json* pattern = members.find("pattern");
    const Json* from = pattern == nullptr ? nullptr : pattern->find("String");
    if (from == nullptr || from->as_string() == nullptr || from->as_string()->empty()) {
      return members.refuse("unsupported pattern: only {\"String\": ...} is supported here");
    }
    SIGHTLINE_TRY(std::string to, members.get_string("content", ""));
    if (to.size() > 64) return members.refuse("content: expected at most 64 bytes");
    steps.normalize.push_back(ReplaceStep{*from->as_string(), std::move(to)});
    return {};
  }
  return members.refuse(fmt::format("unsupported type '{}'", type));
}

Result<void> read_metaspace(const JsonMembers& members, JsonSteps& steps) {
  SIGHTLINE_TRY(const std::string blank, members.get_string("replacement", "\xE2\x96\x81"));
  if (blank.empty() || blank.size() > 16) return members.refuse("replacement: expected one character");
  SIGHTLINE_TRY(const bool adds_prefix, members.get_bool("add_prefix_space", true));
  SIGHTLINE_TRY(const std::string scheme,
                members.get_string("prepend_scheme", adds_prefix ? "always" : "never"));
  SIGHTLINE_TRY(const bool splits, members.get_bool("split", true));
  if (scheme != "always" && scheme != "first" && scheme != "never") {
    return members.refuse(fmt::format("unsupported prepend_scheme '{}'", scheme));
  }
  if (!steps.splits.empty()) return members.refuse("unsupported after another step");
  steps.normalize.push_back(ReplaceStep{" ", blank});
  steps.word_prefix = blank;
  steps.prefix_scheme = scheme == "always"  ? PrefixScheme::kAlways
                        : scheme == "first" ? PrefixScheme::kFirst
                                            : PrefixScheme::kNever;
  if (!splits) return {};
  return add_split(escape_pattern(blank), SplitBehavior::kMergedWithNext, false, members, steps);
}

Result<void> read_pre_tokenizer(const std::string& type, const JsonMembers& members, JsonSteps& steps) {
  if (steps.is_byte_level) return members.refuse("unsupported: a step after ByteLevel");
  if (type == "ByteLevel") {
    SIGHTLINE_TRY(const bool adds_prefix, members.get_bool("add_prefix_space", true));
    SIGHTLINE_TRY(const bool uses_regex, members.get_bool("use_regex", true));
    if (adds_prefix && !steps.splits.empty())
      return members.refuse("unsupported: add_prefix_space after another step");
    steps.is_byte_level = true;
    if (adds_prefix) {
      steps.word_prefix = std::string(1, ' ');
      steps.prefix_scheme = PrefixScheme::kAlways;
    }
    if (!uses_regex) return {};
    return add_split(kGpt2Words, SplitBehavior::kIsolated, false, members, steps);
  }
  if (type == "Split") {
    SIGHTLINE_TRY(const std::string pattern, read_pattern(members));
    SIGHTLINE_TRY(const SplitBehavior behavior, read_behavior(members, ""));
    SIGHTLINE_TRY(const bool invert, members.get_bool("invert", false));
    return add_split(pattern, behavior, invert, members, steps);
  }
  if (type == "Digits") {
    SIGHTLINE_TRY(const bool single, members.get_bool("individual_digits", false));
    return add_split(single ? R"(\p{N})" : R"(\p{N}+)", SplitBehavior::kIsolated, false, members, steps);
  }
  if (type == "Punctuation") {
    SIGHTLINE_TRY(const SplitBehavior behavior, read_behavior(members, "Isolated"));
    return add_split(R"([\p{P}!-/:-@\[-`{-~])", behavior, false, members, steps);
  }
  if (type == "Metaspace") return read_metaspace(members, steps);
  return members.refuse(fmt::format("unsupported type '{}'", type));
}

Result<void> read_post_processor(const std::string& type, const JsonMembers& members, JsonSteps& steps) {
  if (type == "ByteLevel") return {};  // trims offsets, which we do not have
  if (type != "TemplateProcessing") return members.refuse(fmt::format("unsupported type '{}'", type));
  if (steps.has_template) return members.refuse("unsupported: two templates");
  steps.has_template = true;
  SIGHTLINE_TRY(const JsonArray* single, members.get_array("single"));
  const Json* specials = members.find("special_tokens");
  bool after_text = false;
  for (const Json& part : *single) {
    if (part.find("Sequence") != nullptr) {
      if (after_text) return members.refuse("single: the text is there twice");
      after_text = true;
      continue;
    }
    const Json* special = part.find("SpecialToken");
    const Json* name = special == nullptr ? nullptr : special->find("id");
    const Json* entry = name == nullptr || name->as_string() == nullptr || specials == nullptr
                            ? nullptr
                            : specials->find(*name->as_string());
    const Json* ids = entry == nullptr ? nullptr : entry->find("ids");
    if (ids == nullptr || ids->as_array() == nullptr) {
      return members.refuse("single: expected Sequence or a SpecialToken listed in special_tokens");
    }
    for (const Json& id : *ids->as_array()) {
      if (id.as_int() == nullptr || *id.as_int() < 0 || *id.as_int() > INT32_MAX) {
        return members.refuse("special_tokens: expected ids from 0 to 2147483647");
      }
      (after_text ? steps.suffix : steps.prefix).push_back(static_cast<TokenId>(*id.as_int()));
    }
  }
  if (!after_text) return members.refuse("single: the text is missing");
  return {};
}

Result<void> read_decoder(const std::string& type, const JsonMembers& members, JsonSteps& steps,
                          bool& reads_bytes) {
  if (type == "ByteLevel") {
    reads_bytes = true;
    return {};
  }
  if (type == "ByteFallback" || type == "Fuse") return {};
  if (type == "Replace") {
    SIGHTLINE_TRY(const std::string to, members.get_string("content", ""));
    SIGHTLINE_TRY(const std::string from, read_pattern(members));
    if (from == "\xE2\x96\x81" && to == " ") return {};
    return members.refuse("unsupported: a replacement other than of U+2581 by a blank");
  }
  if (type == "Strip") {
    SIGHTLINE_TRY(const std::string content, members.get_string("content", " "));
    const Json* start = members.find("start");
    const Json* stop = members.find("stop");
    const auto is = [](const Json* value, std::int64_t number) {
      return value != nullptr && value->as_int() != nullptr && *value->as_int() == number;
    };
    if (content != " " || !is(stop, 0) || !(is(start, 0) || is(start, 1))) {
      return members.refuse("unsupported: other than one blank at the start");
    }
    steps.strips_first_blank |= is(start, 1);
    return {};
  }
  if (type == "Metaspace") {
    SIGHTLINE_TRY(const bool adds_prefix, members.get_bool("add_prefix_space", true));
    SIGHTLINE_TRY(const std::string scheme,
                  members.get_string("prepend_scheme", adds_prefix ? "always" : "never"));
    SIGHTLINE_TRY(const std::string blank, members.get_string("replacement", "\xE2\x96\x81"));
    if (blank != "\xE2\x96\x81") return members.refuse("unsupported replacement");
    steps.strips_first_blank |= scheme != "never";
    return {};
  }
  return members.refuse(fmt::format("unsupported type '{}'", type));
}

}  // namespace

const Json* JsonMembers::find(std::string_view key) const {
  const Json* member = object.find(key);
  return member == nullptr || member->is_null() ? nullptr : member;
}

Result<bool> JsonMembers::get_bool(std::string_view key, bool fallback) const {
  const Json* member = find(key);
  if (member == nullptr) return fallback;
  if (member->as_bool() == nullptr) return refuse(fmt::format("{}: expected true or false", key));
  return *member->as_bool();
}

Result<std::string> JsonMembers::get_string(std::string_view key, std::string_view fallback) const {
  const Json* member = find(key);
  if (member == nullptr) return std::string(fallback);
  if (member->as_string() == nullptr) return refuse(fmt::format("{}: expected a string", key));
  return *member->as_string();
}

Result<const JsonArray*> JsonMembers::get_array(std::string_view key) const {
  const Json* member = find(key);
  if (member == nullptr || member->as_array() == nullptr)
    return refuse(fmt::format("{}: expected an array", key));
  return member->as_array();
}

tl::unexpected<Error> JsonMembers::refuse(std::string_view text) const {
  return fail(ErrorKind::kInvalidContent, "{}: {}", where, text);
}

Result<JsonSteps> read_json_steps(const Json& root, std::string_view source) {
  JsonSteps steps;
  const auto where = [&](std::string_view member) { return fmt::format("{}: {}", source, member); };
  SIGHTLINE_CHECK(for_each_step(root.find("normalizer"), where("normalizer"), "normalizers",
                                [&](const std::string& type, const JsonMembers& members) {
                                  return read_normalizer(type, members, steps);
                                }));
  SIGHTLINE_CHECK(for_each_step(root.find("pre_tokenizer"), where("pre_tokenizer"), "pretokenizers",
                                [&](const std::string& type, const JsonMembers& members) {
                                  return read_pre_tokenizer(type, members, steps);
                                }));
  SIGHTLINE_CHECK(for_each_step(root.find("post_processor"), where("post_processor"), "processors",
                                [&](const std::string& type, const JsonMembers& members) {
                                  return read_post_processor(type, members, steps);
                                }));
  bool reads_bytes = false;
  bool any_decoder = false;
  SIGHTLINE_CHECK(for_each_step(root.find("decoder"), where("decoder"), "decoders",
                                [&](const std::string& type, const JsonMembers& members) {
                                  any_decoder = true;
                                  return read_decoder(type, members, steps, reads_bytes);
                                }));
  if (!any_decoder && !steps.is_byte_level) {
    return fail(ErrorKind::kInvalidContent, "{}: decoder: expected one, got none", source);
  }
  if (any_decoder && reads_bytes != steps.is_byte_level) {
    return fail(ErrorKind::kInvalidContent,
                "{}: decoder: ByteLevel must stand here and in pre_tokenizer or in neither", source);
  }
  return steps;
}

}  // namespace sightline::text
