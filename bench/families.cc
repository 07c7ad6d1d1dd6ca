#include "bench/families.h"

#include <algorithm>
#include <array>

namespace sightline::bench {

namespace {

constexpr std::array<RowFamily, 14> kFamilies{{
    {"attention", "forward, dense and causal; on AVX2 and portable kernels too", attention_rows},
    {"masks", "masks that are key ranges, beside dense", mask_rows},
    {"blocks", "block-sparse and random boolean masks, beside dense", block_rows},
    {"scores", "ALiBi, sinks and softcap, beside none", score_rows},
    {"plan", "pairs computed beside pairs visible, and the time of planning", plan_rows},
    {"chunk", "512 queries on a long cache", chunk_rows},
    {"decode", "one query on long caches, read from memory", decode_rows},
    {"varlen", "sequences of unequal lengths, beside equal ones", varlen_rows},
    {"scaling", "one thread and two", scaling_rows},
    {"call", "the smallest call", call_rows},
    {"backward", "the fused backward: dense, causal, grouped heads, range masks, memory", backward_rows},
    {"linear", "linear layers", linear_rows},
    {"model", "a whole model, by llama-bench's names", model_rows},
    {"start", "how long the program takes to start", program_rows},
}};

}  // namespace

std::span<const RowFamily> row_families() { return kFamilies; }

std::string_view family_of(std::string_view row_name) {
  for (const RowFamily& family : kFamilies) {
    for (const RowCase& row : family.rows()) {
      if (row.name == row_name) return family.name;
    }
  }
  return "";
}

bool matches_glob(std::string_view pattern, std::string_view text) {
  constexpr std::size_t kNone = std::string_view::npos;
  std::size_t p = 0;
  std::size_t star = kNone;  // the last * seen, and how much of the text it has taken so far
  std::size_t taken = 0;
  for (std::size_t t = 0; t < text.size();) {
    if (p < pattern.size() && pattern[p] == '*') {
      star = p++;
      taken = t;
    } else if (p < pattern.size() && (pattern[p] == '?' || pattern[p] == text[t])) {
      ++p;
      ++t;
    } else if (star != kNone) {
      p = star + 1;
      t = ++taken;
    } else {
      return false;
    }
  }
  return pattern.find_first_not_of('*', p) == kNone;
}

Result<std::vector<RowCase>> select_rows(std::string_view pattern) {
  std::vector<std::string_view> parts;
  for (std::string_view rest = pattern;;) {
    const std::size_t comma = rest.find(',');
    parts.push_back(rest.substr(0, comma));
    if (comma == std::string_view::npos) break;
    rest.remove_prefix(comma + 1);
  }
  std::vector<bool> used(parts.size(), false);
  std::vector<RowCase> chosen;
  for (const RowFamily& family : kFamilies) {
    for (RowCase& row : family.rows()) {
      bool wanted = false;
      for (std::size_t i = 0; i < parts.size(); ++i) {
        if (parts[i] == "all" || parts[i] == family.name || matches_glob(parts[i], row.name)) {
          wanted = used[i] = true;
        }
      }
      if (wanted) chosen.push_back(std::move(row));
    }
  }
  const auto unused = std::find(used.begin(), used.end(), false);
  if (unused != used.end()) {
    std::vector<std::string_view> names;
    for (const RowFamily& family : kFamilies) names.push_back(family.name);
    return fail(
        ErrorKind::kInvalidArgument,
        "--rows: '{}' chooses no row; expected all, a family ({}), or a row's name, with * and ? in it",
        parts[static_cast<std::size_t>(unused - used.begin())].substr(0, 64), fmt::join(names, ", "));
  }
  return chosen;
}

}  // namespace sightline::bench
