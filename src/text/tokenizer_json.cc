// A Tokenizer from a Hugging Face tokenizer.json: the vocabulary, merges and added tokens. The steps around
// them are read by tokenizer_json_steps.cc.
#include <algorithm>

#include "text/tokenizer_impl.h"
#include "text/tokenizer_json_steps.h"
#include "text/vocabulary_index.h"

namespace sightline {
namespace text {
namespace {

/// Ids that no token has, below the highest that one has.
constexpr std::size_t kMaxGaps = std::size_t{1} << 16;

struct AddedEntry {
  TokenId id = -1;
  std::string content;
  bool special = false;
  bool normalized = false;
  AddedToken token;
};

struct JsonVocabulary {
  std::vector<std::pair<std::string, TokenId>> tokens;  // the model's, then those only added
  std::vector<AddedEntry> added;
};

Result<TokenId> read_id(const Json* value, const std::string& where) {
  if (value == nullptr || value->as_int() == nullptr || *value->as_int() < 0 ||
      *value->as_int() >= static_cast<std::int64_t>(kMaxVocabSize)) {
    return fail(ErrorKind::kInvalidContent, "{}: expected an id from 0 to {}, got {}", where,
                kMaxVocabSize - 1, value == nullptr ? std::string("none") : value->dump().substr(0, 40));
  }
  return static_cast<TokenId>(*value->as_int());
}

Result<std::vector<AddedEntry>> read_added_tokens(const Json& root, std::string_view source) {
  std::vector<AddedEntry> added;
  const Json* list = root.find("added_tokens");
  if (list == nullptr || list->is_null()) return added;
  if (list->as_array() == nullptr) {
    return fail(ErrorKind::kInvalidContent, "{}: added_tokens: expected an array", source);
  }
  std::size_t num_bytes = 0;
  for (std::size_t i = 0; i < list->as_array()->size(); ++i) {
    const JsonMembers members{(*list->as_array())[i], fmt::format("{}: added_tokens[{}]", source, i)};
    AddedEntry entry;
    SIGHTLINE_TRY(entry.id, read_id(members.object.find("id"), members.where + ".id"));
    SIGHTLINE_TRY(entry.content, members.get_string("content", ""));
    SIGHTLINE_TRY(entry.special, members.get_bool("special", false));
    SIGHTLINE_TRY(entry.normalized, members.get_bool("normalized", !entry.special));
    SIGHTLINE_TRY(entry.token.strips_left, members.get_bool("lstrip", false));
    SIGHTLINE_TRY(entry.token.strips_right, members.get_bool("rstrip", false));
    SIGHTLINE_TRY(const bool single_word, members.get_bool("single_word", false));
    if (single_word) return members.refuse("unsupported: single_word");
    num_bytes += entry.content.size();
    if (entry.content.empty() || entry.content.size() > kMaxAddedTokenBytes ||
        num_bytes > kMaxAddedTokensBytes) {
      return members.refuse(fmt::format("content: expected 1 to {} bytes and {} for all, got {} and {}",
                                        kMaxAddedTokenBytes, kMaxAddedTokensBytes, entry.content.size(),
                                        num_bytes));
    }
    entry.token.id = entry.id;
    added.push_back(std::move(entry));
  }
  return added;
}

Result<JsonVocabulary> read_vocabulary(const Json& root, const Json& model, std::string_view source) {
  JsonVocabulary out;
  const JsonMembers members{model, fmt::format("{}: model", source)};
  SIGHTLINE_TRY(const std::string type, members.get_string("type", "BPE"));
  if (type != "BPE") return members.refuse("unsupported type " + quoted(type) + "; supported is 'BPE'");
  const Json* vocab = model.find("vocab");
  if (vocab == nullptr || vocab->as_object() == nullptr || vocab->as_object()->empty()) {
    return fail(ErrorKind::kInvalidContent, "{}: model.vocab: expected an object of tokens and ids", source);
  }
  for (const JsonMember& member : *vocab->as_object()) {
    SIGHTLINE_TRY(const TokenId id,
                  read_id(&member.second, fmt::format("{}: model.vocab[{}]", source, quoted(member.first))));
    out.tokens.emplace_back(member.first, id);
  }
  SIGHTLINE_TRY(out.added, read_added_tokens(root, source));
  return out;
}

/// Fills names, ids_by_name and types from what the file lists.
Result<void> assign_ids(JsonVocabulary& vocabulary, bool byte_fallback, std::string_view source,
                        Tokenizer::Impl& impl) {
  for (auto& [name, id] : vocabulary.tokens) impl.ids_by_name.emplace(name, id);
  for (std::size_t i = 0; i < vocabulary.added.size(); ++i) {
    const AddedEntry& entry = vocabulary.added[i];
    const auto [found, is_new] = impl.ids_by_name.emplace(entry.content, entry.id);
    if (is_new) {
      vocabulary.tokens.emplace_back(entry.content, entry.id);
    } else if (found->second != entry.id) {
      return fail(ErrorKind::kInvalidContent, "{}: added_tokens[{}]: {} has id {}, but also id {}", source, i,
                  quoted(entry.content), entry.id, found->second);
    }
  }
  TokenId highest = 0;
  for (const auto& [name, id] : vocabulary.tokens) highest = std::max(highest, id);
  const std::size_t size = static_cast<std::size_t>(highest) + 1;
  if (size > vocabulary.tokens.size() + kMaxGaps) {
    return fail(ErrorKind::kInvalidContent,
                "{}: model.vocab: expected at most {} unused ids, got {} tokens and id {}", source, kMaxGaps,
                vocabulary.tokens.size(), highest);
  }
  impl.names.resize(size);
  impl.types.assign(size, TokenType::kUnused);
  std::vector<bool> is_taken(size);
  for (auto& [name, id] : vocabulary.tokens) {
    const auto at = static_cast<std::size_t>(id);
    if (is_taken[at]) {
      return fail(ErrorKind::kInvalidContent, "{}: model.vocab: id {} belongs to {} and to {}", source, id,
                  quoted(impl.names[at]), quoted(name));
    }
    is_taken[at] = true;
    const bool is_byte = byte_fallback && parse_byte_token(name) >= 0;
    impl.types[at] = is_byte ? TokenType::kByte : TokenType::kNormal;
    impl.names[at] = std::move(name);
  }
  std::vector<bool> is_added(size);
  for (std::size_t i = 0; i < vocabulary.added.size(); ++i) {
    const AddedEntry& entry = vocabulary.added[i];
    const auto at = static_cast<std::size_t>(entry.id);
    if (is_added[at]) {
      return fail(ErrorKind::kInvalidContent, "{}: added_tokens[{}]: id {} is there twice", source, i,
                  entry.id);
    }
    is_added[at] = true;
    impl.types[at] = entry.special ? TokenType::kControl : TokenType::kUserDefined;
  }
  return {};
}

Result<void> read_merges(const Json& model, std::string_view source, Tokenizer::Impl& impl) {
  const Json* list = model.find("merges");
  if (list == nullptr || list->as_array() == nullptr) {
    return fail(ErrorKind::kInvalidContent, "{}: model.merges: expected an array", source);
  }
  const JsonArray& merges = *list->as_array();
  impl.merges = MergeTable(merges.size());
  for (std::size_t rank = 0; rank < merges.size(); ++rank) {
    const auto refuse = [&](std::string_view text) {
      return fail(ErrorKind::kInvalidContent, "{}: model.merges[{}]: {}", source, rank, text);
    };
    std::string_view left, right;
    if (const std::string* text = merges[rank].as_string()) {
      const std::size_t blank = text->find(' ');
      if (blank == std::string::npos || text->find(' ', blank + 1) != std::string::npos) {
        return refuse("expected two parts with a blank between, got " + quoted(*text));
      }
      left = std::string_view(*text).substr(0, blank);
      right = std::string_view(*text).substr(blank + 1);
    } else {
      const JsonArray* parts = merges[rank].as_array();
      if (parts == nullptr || parts->size() != 2 || (*parts)[0].as_string() == nullptr ||
          (*parts)[1].as_string() == nullptr) {
        return refuse("expected a text or two texts");
      }
      left = *(*parts)[0].as_string();
      right = *(*parts)[1].as_string();
    }
    if (left.empty() || right.empty()) return refuse("expected two parts that are not empty");
    TokenId ids[3];
    const std::string texts[3] = {std::string(left), std::string(right),
                                  std::string(left) + std::string(right)};
    for (int i = 0; i < 3; ++i) {
      const auto found = impl.ids_by_name.find(texts[i]);
      if (found == impl.ids_by_name.end()) return refuse(quoted(texts[i]) + " is not in the vocabulary");
      ids[i] = found->second;
    }
    if (!impl.is_mergeable(ids[2])) return refuse("makes the control token " + quoted(texts[2]));
    impl.merges.insert(ids[0], ids[1], {static_cast<std::uint32_t>(rank), ids[2]});
  }
  return {};
}

/// bos_token and its like of tokenizer_config.json: a text, or an object with `content`.
Result<TokenId> read_special(const Json& config, std::string_view key, const Tokenizer::Impl& impl) {
  const Json* value = config.find(key);
  if (value == nullptr || value->is_null()) return -1;
  const Json* content = value->as_object() != nullptr ? value->find("content") : value;
  if (content == nullptr || content->as_string() == nullptr) {
    return fail(ErrorKind::kInvalidContent,
                "tokenizer_config.json: {}: expected a text or an object with content", key);
  }
  const auto found = impl.ids_by_name.find(*content->as_string());
  if (found == impl.ids_by_name.end()) {
    return fail(ErrorKind::kInvalidContent, "tokenizer_config.json: {}: {} is not in the vocabulary", key,
                quoted(*content->as_string()));
  }
  return found->second;
}

/// What tokenizer.json says that decides how tokenizer_config.json is read.
struct ConfigContext {
  bool has_template = false;          // a template says itself what goes around a text
  bool splits_by_byte_level = false;  // the pre-tokenizer is ByteLevel and nothing else
};

Result<void> read_config(std::string_view text, const ConfigContext& context, Tokenizer::Impl& impl) {
  SIGHTLINE_TRY(const Json config, parse_json(text, "tokenizer_config.json"));
  SIGHTLINE_TRY(impl.bos, read_special(config, "bos_token", impl));
  SIGHTLINE_TRY(impl.eos, read_special(config, "eos_token", impl));
  SIGHTLINE_TRY(impl.pad, read_special(config, "pad_token", impl));
  const JsonMembers members{config, "tokenizer_config.json"};
  SIGHTLINE_TRY(const bool adds_bos, members.get_bool("add_bos_token", false));
  SIGHTLINE_TRY(const bool adds_eos, members.get_bool("add_eos_token", false));
  if (!context.has_template && adds_bos && impl.bos >= 0) impl.prefix = {impl.bos};
  if (!context.has_template && adds_eos && impl.eos >= 0) impl.suffix = {impl.eos};
  // transformers' fast tokenizers of this kind: the config's word wins over tokenizer.json's.
  if (context.splits_by_byte_level && members.find("add_prefix_space") != nullptr) {
    SIGHTLINE_TRY(const bool adds_blank, members.get_bool("add_prefix_space", false));
    impl.word_prefix = std::string(adds_blank ? 1 : 0, ' ');
    impl.prefix_scheme = adds_blank ? PrefixScheme::kAlways : PrefixScheme::kNever;
  }
  return {};
}

/// The options of the model that change what it does.
Result<void> read_model(const Json& model, std::string_view source, JsonVocabulary& vocabulary,
                        Tokenizer::Impl& impl) {
  const JsonMembers members{model, fmt::format("{}: model", source)};
  const Json* dropout = members.find("dropout");
  double rate = 0;
  if (dropout != nullptr && !(dropout->get_number(rate) && rate == 0))
    return members.refuse("unsupported: dropout");
  for (const char* key : {"continuing_subword_prefix", "end_of_word_suffix"}) {
    SIGHTLINE_TRY(const std::string affix, members.get_string(key, ""));
    if (!affix.empty()) return members.refuse(fmt::format("unsupported: {}", key));
  }
  SIGHTLINE_TRY(const bool byte_fallback, members.get_bool("byte_fallback", false));
  SIGHTLINE_TRY(impl.ignore_merges, members.get_bool("ignore_merges", false));
  SIGHTLINE_TRY(impl.fuse_unknown, members.get_bool("fuse_unk", false));
  SIGHTLINE_TRY(const std::string unknown, members.get_string("unk_token", ""));
  SIGHTLINE_CHECK(assign_ids(vocabulary, byte_fallback, source, impl));
  SIGHTLINE_CHECK(read_merges(model, source, impl));
  if (!unknown.empty()) {
    const auto found = impl.ids_by_name.find(unknown);
    if (found == impl.ids_by_name.end())
      return members.refuse("unk_token: " + quoted(unknown) + " is not in vocab");
    impl.unk = found->second;
  }
  impl.byte_ids.fill(-1);
  for (unsigned byte = 0; byte < 256; ++byte) {
    const std::string name = impl.is_byte_level ? byte_letter(byte) : fmt::format("<0x{:02X}>", byte);
    const auto found = impl.ids_by_name.find(name);
    if (found != impl.ids_by_name.end() && (impl.is_byte_level || byte_fallback))
      impl.byte_ids[byte] = found->second;
  }
  return {};
}

Result<void> add_added_tokens(std::vector<AddedEntry>& added, Tokenizer::Impl& impl) {
  for (AddedEntry& entry : added) {
    const bool after = !entry.special && entry.normalized && !impl.normalize.empty();
    AddedTokens& list = entry.special ? impl.control : after ? impl.user_defined_after : impl.user_defined;
    if (after) {
      SIGHTLINE_TRY(entry.content, apply_normalize_steps(impl.normalize, entry.content));
    }
    list.texts.push_back(std::move(entry.content));
    list.tokens.push_back(entry.token);
  }
  return {};
}

}  // namespace
}  // namespace text

Result<Tokenizer> Tokenizer::from_json(std::string_view tokenizer_json,
                                       std::string_view tokenizer_config_json, std::string_view source) {
  SIGHTLINE_TRY(const Json root, parse_json(tokenizer_json, source));
  const Json* model = root.find("model");
  if (model == nullptr || model->as_object() == nullptr) {
    return fail(ErrorKind::kInvalidContent, "{}: model: expected an object", source);
  }
  auto impl = std::make_shared<Impl>();
  SIGHTLINE_TRY(auto steps, text::read_json_steps(root, source));
  impl->is_byte_level = steps.is_byte_level;
  impl->normalize = std::move(steps.normalize);
  impl->word_prefix = std::move(steps.word_prefix);
  impl->prefix_scheme = steps.prefix_scheme;
  impl->splits = std::move(steps.splits);
  impl->strips_first_blank = steps.strips_first_blank;
  SIGHTLINE_TRY(auto vocabulary, text::read_vocabulary(root, *model, source));
  SIGHTLINE_CHECK(text::read_model(*model, source, vocabulary, *impl));
  for (const std::vector<TokenId>* ids : {&steps.prefix, &steps.suffix}) {
    for (const TokenId id : *ids) {
      if (id >= static_cast<TokenId>(impl->names.size())) {
        return fail(ErrorKind::kInvalidContent, "{}: post_processor: id {} is outside the vocabulary of {}",
                    source, id, impl->names.size());
      }
    }
  }
  impl->prefix = std::move(steps.prefix);
  impl->suffix = std::move(steps.suffix);
  SIGHTLINE_CHECK(text::add_added_tokens(vocabulary.added, *impl));
  if (!tokenizer_config_json.empty()) {
    const Json* pre_tokenizer = root.find("pre_tokenizer");
    const Json* type = pre_tokenizer == nullptr ? nullptr : pre_tokenizer->find("type");
    const bool is_byte_level =
        type != nullptr && type->as_string() != nullptr && *type->as_string() == "ByteLevel";
    SIGHTLINE_CHECK(text::read_config(tokenizer_config_json, {steps.has_template, is_byte_level}, *impl));
  }
  for (std::size_t i = 0; i < impl->names.size(); ++i) {
    // Added words are written with the blank letter where pieces are.
    const TokenType type = impl->types[i] == TokenType::kUserDefined && !impl->is_byte_level
                               ? TokenType::kNormal
                               : impl->types[i];
    impl->bytes.push_back(text::token_bytes(impl->names[i], type, impl->is_byte_level));
  }
  impl->description =
      fmt::format("{} BPE of tokenizer.json, {} tokens",
                  impl->is_byte_level ? "byte-level" : "SentencePiece-like", impl->names.size());
  SIGHTLINE_CHECK(impl->finish({}));
  return Tokenizer(std::move(impl));
}

}  // namespace sightline
