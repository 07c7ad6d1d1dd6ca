// Reads tests/cases/*.case: a mask, positions and the picture that somebody drew by hand. Plain text, so that
// other programs and languages read the same files.
//
//   # name: FILE_STEM
//   # says: one sentence
//   mask:    text form
//   q_pos:   a..b (half-open) or a list; kv_pos the same
//   segment:, segment_start:, span:, flags:, valid:   a list for queries and keys alike (equal counts), or
//   with
//            q_ or kv_ before the name for one side
//   q_node:, kv_node:, parent:   the draft tree
//   dense:   then one row a query
//   visible: then one row a query, one digit a key
#pragma once

#include <algorithm>
#include <charconv>
#include <cstdlib>
#include <filesystem>
#include <map>
#include <sstream>
#include <string>
#include <vector>

#include "sightline/base/file.h"
#include "sightline/spec/mask.h"

namespace sightline::testing {

struct MaskCase {
  std::string name;
  std::string says;
  std::string mask_text;
  MaskSpec mask;
  std::vector<TokenCoord> q, kv;
  std::vector<std::uint8_t> dense_values;
  std::vector<std::int32_t> q_node, kv_node, parent;
  std::string visible;  // in the form of draw(): "1 0\n1 1\n"

  /// Views of the tables above; they live as long as this.
  [[nodiscard]] MaskTables tables() const {
    MaskTables out{{}, q_node, kv_node, parent};
    if (!dense_values.empty()) {
      out.dense = dense_view(dense_values.data(), std::array<std::int64_t, 2>{std::ssize(q), std::ssize(kv)});
    }
    return out;
  }
};

namespace case_detail {

struct Field {
  std::string text;               // after the colon
  std::vector<std::string> rows;  // indented lines below
};

inline Result<std::vector<std::int64_t>> numbers(const std::string& where, const std::string& text) {
  std::vector<std::int64_t> out;
  std::istringstream words(text);
  for (std::string word; words >> word;) {
    const auto dots = word.find("..");
    std::int64_t first = 0;
    std::int64_t last = 0;
    const auto number = [&](std::string_view part, std::int64_t& value) {
      const auto [end, status] = std::from_chars(part.data(), part.data() + part.size(), value);
      return status == std::errc{} && end == part.data() + part.size();
    };
    const std::string_view view = word;
    if (dots == std::string::npos
            ? !number(view, first)
            : !number(view.substr(0, dots), first) || !number(view.substr(dots + 2), last)) {
      return fail(ErrorKind::kInvalidContent, "{}: \"{}\" is neither a number nor a..b", where, word);
    }
    if (dots == std::string::npos) last = first + 1;
    for (; first < last; ++first) out.push_back(first);
  }
  return out;
}

// Lines into fields; the two comment fields are fields too.
inline Result<std::map<std::string, Field>> fields(const std::string& file, const std::string& text) {
  std::map<std::string, Field> out;
  Field* last = nullptr;
  std::istringstream lines(text);
  int line_number = 0;
  for (std::string line; std::getline(lines, line);) {
    ++line_number;
    if (line.starts_with("# ")) line.erase(0, 2);
    if (line.empty()) continue;
    if (line.front() == ' ') {
      if (last == nullptr)
        return fail(ErrorKind::kInvalidContent, "{}:{}: a row without a field", file, line_number);
      last->rows.push_back(line);
      continue;
    }
    const auto colon = line.find(':');
    if (colon == std::string::npos)
      return fail(ErrorKind::kInvalidContent, "{}:{}: no colon", file, line_number);
    const auto begin = line.find_first_not_of(' ', colon + 1);
    auto [at, is_new] = out.try_emplace(line.substr(0, colon));
    if (!is_new) return fail(ErrorKind::kInvalidContent, "{}:{}: a field occurs twice", file, line_number);
    at->second.text = begin == std::string::npos ? "" : line.substr(begin);
    last = &at->second;
  }
  return out;
}

}  // namespace case_detail

/// Errors: kInvalidContent with file and field.
[[nodiscard]] inline Result<MaskCase> read_case(const std::filesystem::path& path) {
  const std::string file = path.filename().string();
  SIGHTLINE_TRY(const std::string text, read_file(path));
  SIGHTLINE_TRY(auto fields, case_detail::fields(file, text));
  MaskCase out;
  const auto take = [&](const std::string& name) {
    case_detail::Field field;
    if (auto node = fields.extract(name)) field = std::move(node.mapped());
    return field;
  };
  const auto take_numbers = [&](const std::string& name) {
    return case_detail::numbers(file + ": " + name, take(name).text);
  };
  out.name = take("name").text;
  out.says = take("says").text;
  out.mask_text = take("mask").text;
  SIGHTLINE_TRY(out.mask, parse_mask(out.mask_text));
  SIGHTLINE_TRY(const auto q_pos, take_numbers("q_pos"));
  SIGHTLINE_TRY(const auto kv_pos, take_numbers("kv_pos"));
  for (const auto pos : q_pos) out.q.push_back({.pos = pos});
  for (const auto pos : kv_pos) out.kv.push_back({.pos = pos});
  // Members that are lists beside the positions.
  const std::pair<const char*, void (*)(TokenCoord&, std::int64_t)> members[] = {
      {"segment", [](TokenCoord& c, std::int64_t v) { c.segment = static_cast<std::int32_t>(v); }},
      {"segment_start", [](TokenCoord& c, std::int64_t v) { c.segment_start = v; }},
      {"span", [](TokenCoord& c, std::int64_t v) { c.span = static_cast<std::int32_t>(v); }},
      {"flags", [](TokenCoord& c, std::int64_t v) { c.flags = static_cast<std::uint32_t>(v); }},
      {"valid", [](TokenCoord& c, std::int64_t v) { c.valid = v != 0; }},
  };
  for (const auto& [member, set] : members) {
    for (const char* side : {"", "q_", "kv_"}) {
      const std::string name = std::string(side) + member;
      if (!fields.contains(name)) continue;
      SIGHTLINE_TRY(const auto values, take_numbers(name));
      for (auto* coords : {&out.q, &out.kv}) {
        if (*side != '\0' && (coords == &out.q) != (*side == 'q')) continue;
        if (values.size() != coords->size()) {
          return fail(ErrorKind::kInvalidContent, "{}: {} has {} entries for {} positions", file, name,
                      values.size(), coords->size());
        }
        for (std::size_t i = 0; i < values.size(); ++i) set((*coords)[i], values[i]);
      }
    }
  }
  for (const auto& [name, nodes] :
       {std::pair{"q_node", &out.q_node}, {"kv_node", &out.kv_node}, {"parent", &out.parent}}) {
    SIGHTLINE_TRY(const auto values, take_numbers(name));
    for (const auto v : values) nodes->push_back(static_cast<std::int32_t>(v));
  }
  for (const std::string& row : take("dense").rows) {
    SIGHTLINE_TRY(const auto values, case_detail::numbers(file + ": dense", row));
    for (const auto v : values) out.dense_values.push_back(static_cast<std::uint8_t>(v));
  }
  const auto picture = take("visible");
  for (const std::string& row : picture.rows) {
    SIGHTLINE_TRY(const auto values, case_detail::numbers(file + ": visible", row));
    if (values.size() != out.kv.size()) {
      return fail(ErrorKind::kInvalidContent, "{}: a row of {} for {} keys", file, values.size(),
                  out.kv.size());
    }
    for (std::size_t i = 0; i < values.size(); ++i)
      out.visible += fmt::format("{}{}", i == 0 ? "" : " ", values[i]);
    out.visible += '\n';
  }
  if (picture.rows.size() != out.q.size()) {
    return fail(ErrorKind::kInvalidContent, "{}: {} rows for {} queries", file, picture.rows.size(),
                out.q.size());
  }
  if (!fields.empty()) {
    return fail(ErrorKind::kInvalidContent, "{}: there is no field \"{}\"", file, fields.begin()->first);
  }
  SIGHTLINE_CHECK(validate_tables(out.mask, out.tables(), std::ssize(out.q), std::ssize(out.kv)));
  return out;
}

/// Every .case file, in the order of names. SIGHTLINE_SOURCE_DIR names the project's folder.
[[nodiscard]] inline std::vector<std::filesystem::path> all_case_files() {
  const char* source_dir = std::getenv("SIGHTLINE_SOURCE_DIR");
  const std::filesystem::path folder = source_dir != nullptr
                                           ? std::filesystem::path(source_dir) / "tests/cases"
                                           : std::filesystem::path(__FILE__).parent_path();
  std::vector<std::filesystem::path> out;
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator(folder, error)) {
    if (entry.path().extension() == ".case") out.push_back(entry.path());
  }
  std::sort(out.begin(), out.end());
  return out;
}

}  // namespace sightline::testing
