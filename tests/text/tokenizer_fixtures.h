// Tokenizers for tests: small ones made here, and those of files from outside.
#pragma once

#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "sightline/base/json.h"
#include "sightline/formats/gguf.h"
#include "sightline/text/tokenizer.h"
#include "text/utf8.h"
#include "text/vocabulary_index.h"

namespace sightline::text {

using Ids = std::vector<TokenId>;

/// The ids of a text that must be accepted; by default without begin- and end-of-text tokens.
inline Ids encode(const Tokenizer& tokenizer, std::string_view text,
                  EncodeOptions options = {.add_special = false}) {
  const auto ids = tokenizer.encode(text, options);
  EXPECT_TRUE(ids) << ids.error().message;
  return ids.value_or(Ids{});
}

inline std::string repeat(std::string_view text, std::size_t count) {
  std::string out;
  for (std::size_t i = 0; i < count; ++i) out += text;
  return out;
}

/// The path in the shared data folder, or empty where it is absent.
inline std::filesystem::path test_data(std::string_view name) {
  const char* folder = std::getenv("SIGHTLINE_TEST_DATA");
  if (folder == nullptr) return {};
  const std::filesystem::path path = std::filesystem::path(folder) / name;
  return std::filesystem::exists(path) ? path : std::filesystem::path();
}

/// The SmolLM2 file that SIGHTLINE_SMOLLM2 names, or empty.
inline std::filesystem::path smollm2_file() {
  const char* path = std::getenv("SIGHTLINE_SMOLLM2");
  return path != nullptr && std::filesystem::exists(path) ? std::filesystem::path(path)
                                                          : std::filesystem::path();
}

inline Result<TokenizerSpec> spec_from_gguf(const std::filesystem::path& path) {
  SIGHTLINE_TRY(const GgufFile file, GgufFile::open(path));
  const GgufMetadata& keys = file.metadata();
  const std::string prefix = "tokenizer.ggml.";
  TokenizerSpec spec;
  spec.source = path.filename().string();
  SIGHTLINE_TRY(spec.model, keys.get_string(prefix + "model"));
  if (keys.has(prefix + "pre")) {
    SIGHTLINE_TRY(spec.pre, keys.get_string(prefix + "pre"));
  }
  const auto strings = [&](const char* key, std::vector<std::string>& out) -> Result<void> {
    if (!keys.has(prefix + key)) return {};
    SIGHTLINE_TRY(const GgufStrings* found, keys.get_strings(prefix + key));
    for (std::size_t i = 0; i < found->size(); ++i) out.emplace_back((*found)[i]);
    return {};
  };
  SIGHTLINE_CHECK(strings("tokens", spec.tokens));
  SIGHTLINE_CHECK(strings("merges", spec.merges));
  if (keys.has(prefix + "scores")) {
    SIGHTLINE_TRY(const auto scores, keys.get_floats(prefix + "scores"));
    spec.scores.assign(scores.begin(), scores.end());
  }
  if (keys.has(prefix + "token_type")) {
    SIGHTLINE_TRY(const auto types, keys.get_ints(prefix + "token_type"));
    for (const std::int64_t type : types) spec.types.push_back(static_cast<std::int32_t>(type));
  }
  const auto id = [&](const char* key, std::optional<std::int64_t>& out) -> Result<void> {
    if (!keys.has(prefix + key)) return {};
    SIGHTLINE_TRY(out, keys.get_int(prefix + key));
    return {};
  };
  SIGHTLINE_CHECK(id("bos_token_id", spec.bos_id));
  SIGHTLINE_CHECK(id("eos_token_id", spec.eos_id));
  SIGHTLINE_CHECK(id("unknown_token_id", spec.unk_id));
  SIGHTLINE_CHECK(id("padding_token_id", spec.pad_id));
  const auto flag = [&](const char* key, std::optional<bool>& out) -> Result<void> {
    if (!keys.has(prefix + key)) return {};
    SIGHTLINE_TRY(out, keys.get_bool(prefix + key));
    return {};
  };
  SIGHTLINE_CHECK(flag("add_bos_token", spec.add_bos));
  SIGHTLINE_CHECK(flag("add_eos_token", spec.add_eos));
  SIGHTLINE_CHECK(flag("add_space_prefix", spec.add_space_prefix));
  return spec;
}

/// Byte-level BPE of all 256 bytes, a few merges and the control tokens <|end|> (256) and <|im_start|> (257).
inline TokenizerSpec small_byte_spec() {
  TokenizerSpec spec;
  spec.source = "small.gguf";
  spec.model = "gpt2";
  spec.pre = "gpt-2";
  for (unsigned byte = 0; byte < 256; ++byte) spec.tokens.push_back(byte_letter(byte));
  spec.types.assign(256, 1);
  for (const char* name : {"<|end|>", "<|im_start|>"}) {
    spec.tokens.emplace_back(name);
    spec.types.push_back(3);
  }
  const auto merge = [&](const std::string& left, const std::string& right) {
    spec.merges.push_back(left + " " + right);
    spec.tokens.push_back(left + right);
    spec.types.push_back(1);
  };
  merge("h", "e");
  merge("l", "l");
  merge("he", "ll");
  merge("hell", "o");
  merge(byte_letter(' '), "w");
  merge("A", "A");
  merge("AA", "AA");
  spec.bos_id = 257;
  spec.eos_id = 256;
  return spec;
}

/// SentencePiece BPE: <unk> <s> </s>, the 256 byte tokens, the blank, letters and a few joined pieces.
inline TokenizerSpec small_piece_spec() {
  TokenizerSpec spec;
  spec.source = "small.gguf";
  spec.model = "llama";
  const auto add = [&](const std::string& name, float score, int type) {
    spec.tokens.push_back(name);
    spec.scores.push_back(score);
    spec.types.push_back(type);
  };
  add("<unk>", 0, 2);
  add("<s>", 0, 3);
  add("</s>", 0, 3);
  for (int byte = 0; byte < 256; ++byte) add(fmt::format("<0x{:02X}>", byte), 0, 6);
  const std::string blank = "\xE2\x96\x81";
  float score = -1;
  for (const std::string& piece :
       {blank + "h",         std::string("ll"), std::string("el"), blank + "he",
        blank + "hello",     blank + "hell",    std::string("lo"), std::string("AA"),
        std::string("AAAA"), std::string("</"), std::string("s>"), blank,
        std::string("h"),    std::string("e"),  std::string("l"),  std::string("o"),
        std::string("A"),    std::string("<"),  std::string("/"),  std::string("s"),
        std::string(">")}) {
    add(piece, score, 1);
    score -= 1;
  }
  spec.bos_id = 1;
  spec.eos_id = 2;
  spec.unk_id = 0;
  return spec;
}

/// small_byte_spec() as tokenizer.json.
inline Json small_byte_json() {
  const TokenizerSpec spec = small_byte_spec();
  JsonObject vocab;
  JsonArray added, merges;
  for (std::size_t i = 0; i < spec.tokens.size(); ++i) {
    if (spec.types[i] == 3) {
      added.push_back(
          JsonObject{{"id", Json(static_cast<int>(i))}, {"content", spec.tokens[i]}, {"special", true}});
    } else {
      vocab.emplace_back(spec.tokens[i], static_cast<int>(i));
    }
  }
  for (const std::string& merge : spec.merges) merges.push_back(Json(merge));
  Json model = JsonObject{{"type", "BPE"}, {"vocab", std::move(vocab)}, {"merges", std::move(merges)}};
  Json byte_level = JsonObject{{"type", "ByteLevel"}, {"add_prefix_space", false}};
  return JsonObject{
      {"added_tokens", std::move(added)}, {"normalizer", nullptr}, {"pre_tokenizer", byte_level},
      {"post_processor", nullptr},        {"decoder", byte_level}, {"model", std::move(model)}};
}

/// The member `key` of an object, made where it is missing.
inline Json& member(Json& json, std::string_view key) {
  auto& object = std::get<JsonObject>(const_cast<Json::Value&>(json.value()));
  for (JsonMember& item : object) {
    if (item.first == key) return item.second;
  }
  object.emplace_back(std::string(key), nullptr);
  return object.back().second;
}

}  // namespace sightline::text
