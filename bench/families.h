// The families of rows, and the choice of rows by name. A new family is a file bench/<name>_rows.cc with one
// function that lists its rows, a declaration here and a line of the table in families.cc. A row is made,
// checked and timed only when it is chosen.
#pragma once

#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "bench/bench.h"

namespace sightline::bench {

struct RowCase {
  std::string name;
  Limit limit = Limit::kPeak;
  std::function<Result<void>(const Bench&)> run;  ///< checks the result, measures, reports one row
};

struct RowFamily {
  std::string_view name;
  std::string_view summary;  ///< one line for people
  std::vector<RowCase> (*rows)();
};

[[nodiscard]] std::span<const RowFamily> row_families();
[[nodiscard]] std::string_view family_of(std::string_view row_name);

/// The rows that `pattern` chooses, in the order of the families: parts with commas between them, each a
/// family, a row's name, or a glob over names of rows (`*` and `?`: "f32-*-d64-*", "tg*"); "all" is all.
/// Errors (kInvalidArgument): a part that chooses nothing.
[[nodiscard]] Result<std::vector<RowCase>> select_rows(std::string_view pattern);
/// `text` as a whole is what `pattern` says: `*` any characters, `?` one.
[[nodiscard]] bool matches_glob(std::string_view pattern, std::string_view text);

[[nodiscard]] std::vector<RowCase> attention_rows();
[[nodiscard]] std::vector<RowCase> mask_rows();
[[nodiscard]] std::vector<RowCase> block_rows();
[[nodiscard]] std::vector<RowCase> score_rows();
[[nodiscard]] std::vector<RowCase> plan_rows();
[[nodiscard]] std::vector<RowCase> chunk_rows();
[[nodiscard]] std::vector<RowCase> decode_rows();
[[nodiscard]] std::vector<RowCase> varlen_rows();
[[nodiscard]] std::vector<RowCase> scaling_rows();
[[nodiscard]] std::vector<RowCase> call_rows();
[[nodiscard]] std::vector<RowCase> backward_rows();
[[nodiscard]] std::vector<RowCase> linear_rows();
[[nodiscard]] std::vector<RowCase> model_rows();
[[nodiscard]] std::vector<RowCase> program_rows();

}  // namespace sightline::bench
