// Cutting text into words before byte-pair merging: the table of GGUF's names for pre-tokenizers, and the
// steps that both file kinds are brought to.
#pragma once

#include <span>
#include <string_view>
#include <vector>

#include "sightline/base/error.h"
#include "text/rust_bridge.h"

namespace sightline::text {

/// One name of `tokenizer.ggml.pre`.
struct PreTokenizerRow {
  std::string_view name;
  std::vector<std::string_view> patterns;  // applied in turn, each match and each gap is a piece
  bool ignore_merges = false;              // a whole word in the vocabulary needs no merges
  bool add_bos = false;                    // where tokenizer.ggml.add_bos_token is absent
};

/// The row of `name`, or null.
[[nodiscard]] const PreTokenizerRow* find_pre_tokenizer(std::string_view name);
/// All rows, in the order of the table.
[[nodiscard]] std::span<const PreTokenizerRow> pre_tokenizer_table();

/// What becomes of the matches of a split (names and meanings of Hugging Face's tokenizer.json).
enum class SplitBehavior { kIsolated, kRemoved, kMergedWithPrevious, kMergedWithNext, kContiguous };

struct SplitStep {
  Regex regex;
  SplitBehavior behavior = SplitBehavior::kIsolated;
  bool invert = false;  // gaps count as matches and matches as gaps
};

/// Cuts `text` by the steps in turn, each inside the pieces of the one before. The pieces are in order and,
/// unless a step removes something, cover the text. Cost: near linear.
[[nodiscard]] Result<std::vector<ByteRange>> split_text(std::string_view text,
                                                        std::span<const SplitStep> steps);

}  // namespace sightline::text
