// A vocabulary for small random models, and such a model with it in one GGUF file: text in, text out.
#pragma once

#include <fmt/format.h>

#include "model/model_fixtures.h"

namespace sightline::testing {

/// <unk> <s> </s>, the 256 bytes, blank, "a", "b".
inline constexpr int kByteVocabularySize = 262;

/// The tokenizer.* keys of a SentencePiece vocabulary of every byte and three pieces. <s> begins a text.
inline Entries byte_vocabulary() {
  GgufStrings tokens;
  std::vector<std::int32_t> types;
  const auto add = [&](const std::string& text, std::int32_t type) {
    tokens.push_back(text);
    types.push_back(type);
  };
  add("<unk>", 2);
  add("<s>", 3);
  add("</s>", 3);
  for (int byte = 0; byte < 256; ++byte) add(fmt::format("<0x{:02X}>", byte), 6);
  for (const char* piece : {"\u2581", "a", "b"}) add(piece, 1);
  Entries entries;
  const auto set = [&](const char* key, GgufValue value) { entries.push_back({key, std::move(value), 0}); };
  set("tokenizer.ggml.model", std::string("llama"));
  set("tokenizer.ggml.tokens", GgufArray(std::move(tokens)));
  set("tokenizer.ggml.scores", GgufArray(std::vector<float>(kByteVocabularySize, 0.0F)));
  set("tokenizer.ggml.token_type", GgufArray(std::move(types)));
  set("tokenizer.ggml.bos_token_id", std::uint32_t{1});
  set("tokenizer.ggml.eos_token_id", std::uint32_t{2});
  set("tokenizer.ggml.unknown_token_id", std::uint32_t{0});
  return entries;
}

/// A llama of small_llama_spec() with random weights, trained for 256 tokens, and its vocabulary, as a GGUF
/// file.
inline void write_text_model(const std::string& path, std::uint64_t seed, const Entries& more = {}) {
  ModelSpec spec = small_llama_spec();
  spec.vocab_size = kByteVocabularySize;
  spec.context_length = 256;
  Entries metadata = llama_metadata(spec);
  for (const Entries& entries : {byte_vocabulary(), more}) {
    metadata.insert(metadata.end(), entries.begin(), entries.end());
  }
  write_llama_gguf(path, random_model(spec, seed), metadata);
}

}  // namespace sightline::testing
