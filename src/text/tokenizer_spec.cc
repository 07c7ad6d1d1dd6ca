// A Tokenizer from the fields of a GGUF file, with the meaning that llama.cpp gives them.
#include "text/tokenizer_impl.h"
#include "text/vocabulary_index.h"

namespace sightline {
namespace {

TokenId as_id(const std::optional<std::int64_t>& id) { return static_cast<TokenId>(id.value_or(-1)); }

}  // namespace

Result<Tokenizer> Tokenizer::from_spec(TokenizerSpec spec) {
  SIGHTLINE_TRY(auto index, text::index_vocabulary(spec));
  auto impl = std::make_shared<Impl>();
  impl->is_byte_level = index.is_byte_level;
  impl->types = std::move(index.types);
  impl->byte_ids = index.byte_ids;
  impl->merges = std::move(index.merges);
  impl->order = index.is_byte_level ? text::MergeOrder::kRank : text::MergeOrder::kScore;
  impl->bos = as_id(spec.bos_id);
  impl->eos = as_id(spec.eos_id);
  impl->unk = as_id(spec.unk_id);
  impl->pad = as_id(spec.pad_id);
  const bool pre_adds_bos = index.pre != nullptr && index.pre->add_bos;
  if (spec.add_bos.value_or((!index.is_byte_level || pre_adds_bos) && spec.bos_id))
    impl->prefix = {impl->bos};
  if (spec.add_eos.value_or(false)) impl->suffix = {impl->eos};

  if (index.is_byte_level) {
    impl->ignore_merges = index.pre->ignore_merges;
    for (const std::string_view pattern : index.pre->patterns) {
      SIGHTLINE_TRY(auto regex, text::Regex::compile(pattern));
      impl->splits.push_back({std::move(regex), text::SplitBehavior::kIsolated, false});
    }
  } else {
    const bool adds_blank = spec.add_space_prefix.value_or(true);
    if (adds_blank) impl->normalize.push_back(text::PrependStep{" "});
    impl->normalize.push_back(text::ReplaceStep{" ", std::string(text::kBlankLetter)});
    impl->strips_first_blank = adds_blank;
    impl->scores = std::move(spec.scores);
  }

  const std::size_t n = spec.tokens.size();
  impl->bytes.reserve(n);
  impl->ids_by_name.reserve(n);
  for (std::size_t i = 0; i < n; ++i) {
    const auto id = static_cast<TokenId>(i);
    const TokenType type = impl->types[i];
    const std::string& name = spec.tokens[i];
    impl->bytes.push_back(text::token_bytes(name, type, index.is_byte_level));
    if (!name.empty()) impl->ids_by_name.emplace(name, id);
    if (type == TokenType::kControl || type == TokenType::kUnknown) {
      impl->control.texts.push_back(name);
      impl->control.tokens.push_back({id});
    } else if (type == TokenType::kUserDefined) {
      impl->user_defined.texts.push_back(name);
      impl->user_defined.tokens.push_back({id});
    }
  }
  impl->names = std::move(spec.tokens);
  impl->description = index.is_byte_level
                          ? fmt::format("byte-level BPE, pre-tokenizer {}, {} tokens", index.pre->name, n)
                          : fmt::format("SentencePiece BPE, {} tokens", n);
  const TokenId more_ends[] = {as_id(spec.eot_id), as_id(spec.eom_id)};
  SIGHTLINE_CHECK(impl->finish(more_ends));
  return Tokenizer(std::move(impl));
}

}  // namespace sightline
