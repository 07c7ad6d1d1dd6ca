#include <algorithm>
#include <string_view>
#include <unordered_map>

#include "llama2c.h"
#include "sightline/base/json.h"

namespace sightline::llama2c {

namespace {

struct Merge {
  std::string_view left, right;
  std::size_t left_id = 0, right_id = 0;
  float score = 0;  // of the joined token
};

bool is_utf8_start(char c) { return (static_cast<unsigned char>(c) & 0xc0U) != 0x80U; }

std::vector<Merge> merges(const Vocabulary& vocabulary) {
  std::unordered_map<std::string_view, std::size_t> ids;
  for (std::size_t id = 0; id < vocabulary.tokens.size(); ++id) {
    if (!vocabulary.is_special(id) && !vocabulary.is_byte(id)) ids.emplace(vocabulary.tokens[id], id);
  }
  std::vector<Merge> out;
  for (std::size_t id = 0; id < vocabulary.tokens.size(); ++id) {
    if (vocabulary.is_special(id) || vocabulary.is_byte(id)) continue;
    const std::string_view token = vocabulary.tokens[id];
    for (std::size_t at = 1; at < token.size(); ++at) {
      if (!is_utf8_start(token[at])) continue;
      const auto left = ids.find(token.substr(0, at));
      const auto right = ids.find(token.substr(at));
      if (left == ids.end() || right == ids.end()) continue;
      out.push_back({left->first, right->first, left->second, right->second, vocabulary.scores[id]});
    }
  }
  std::ranges::stable_sort(out, [](const Merge& a, const Merge& b) {
    if (a.score != b.score) return a.score > b.score;
    return std::pair(a.left_id, a.right_id) < std::pair(b.left_id, b.right_id);
  });
  return out;
}

// Objects are written as text in one place: they are fixed but for the vocabulary.
Json parse(std::string_view text) { return *parse_json(text, "tokenizer.json"); }

}  // namespace

std::string tokenizer_json(const Vocabulary& vocabulary) {
  Json vocab{JsonObject{}};
  Json added{JsonArray{}};
  for (std::size_t id = 0; id < vocabulary.tokens.size(); ++id) {
    vocab.set(vocabulary.tokens[id], static_cast<std::int64_t>(id));
    if (!vocabulary.is_special(id)) continue;
    Json token;
    token.set("id", static_cast<std::int64_t>(id));
    token.set("content", vocabulary.tokens[id]);
    for (const char* flag : {"single_word", "lstrip", "rstrip", "normalized"}) token.set(flag, false);
    token.set("special", true);
    added.push_back(std::move(token));
  }
  Json merge_list{JsonArray{}};
  for (const auto& merge : merges(vocabulary))
    merge_list.push_back(fmt::format("{} {}", merge.left, merge.right));

  Json model =
      parse(R"({"type": "BPE", "dropout": null, "unk_token": "<unk>", "continuing_subword_prefix": null,
      "end_of_word_suffix": null, "fuse_unk": true, "byte_fallback": true, "ignore_merges": false})");
  model.set("vocab", std::move(vocab));
  model.set("merges", std::move(merge_list));

  Json json = parse(R"({"version": "1.0", "truncation": null, "padding": null})");
  json.set("added_tokens", std::move(added));
  json.set("normalizer", parse(R"({"type": "Sequence", "normalizers": [
      {"type": "Prepend", "prepend": "\u2581"},
      {"type": "Replace", "pattern": {"String": " "}, "content": "\u2581"}]})"));
  json.set("pre_tokenizer", nullptr);
  json.set("post_processor", parse(R"({"type": "TemplateProcessing",
      "single": [{"SpecialToken": {"id": "<s>", "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}}],
      "pair": [{"SpecialToken": {"id": "<s>", "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}},
               {"SpecialToken": {"id": "<s>", "type_id": 1}}, {"Sequence": {"id": "B", "type_id": 1}}],
      "special_tokens": {"<s>": {"id": "<s>", "ids": [1], "tokens": ["<s>"]}}})"));
  json.set("decoder", parse(R"({"type": "Sequence", "decoders": [
      {"type": "Replace", "pattern": {"String": "\u2581"}, "content": " "},
      {"type": "ByteFallback"}, {"type": "Fuse"},
      {"type": "Strip", "content": " ", "start": 1, "stop": 0}]})"));
  json.set("model", std::move(model));
  return json.dump(1);
}

}  // namespace sightline::llama2c
