#include "apps/explain/mask_report.h"

#include <algorithm>

#include "apps/cli.h"
#include "apps/explain/text_table.h"
#include "apps/explain/token_lists.h"

namespace sightline::apps {

namespace {

using List = std::vector<std::int64_t>;

// Where query i finds what was said of the keys: at the row of the same number when both lists are one, else
// at the only key of its position.
Result<std::size_t> key_of_query(const List& q_pos, const List& kv_pos, std::size_t i,
                                 std::string_view option) {
  if (q_pos == kv_pos) return i;
  const auto count = std::ranges::count(kv_pos, q_pos[i]);
  if (count != 1) {
    return fail(ErrorKind::kInvalidArgument,
                "--{0}: query {1} has position {2}, which stands {3} among the keys; say --q-{0} too", option,
                i, q_pos[i], count == 0 ? "nowhere" : "more than once");
  }
  return static_cast<std::size_t>(std::ranges::find(kv_pos, q_pos[i]) - kv_pos.begin());
}

Result<void> expect_count(std::string_view option, const List& values, std::size_t expected,
                          std::string_view of) {
  if (values.size() == expected) return {};
  return fail(ErrorKind::kInvalidArgument, "--{}: {} entries for {} {}", option, values.size(), expected, of);
}

struct Member {
  std::string_view option;
  const std::string& keys;
  const std::string& queries;
  std::int64_t least, most;
  void (*set)(TokenCoord& coord, std::int64_t value);
};

Result<void> set_member(const Member& member, const List& q_pos, const List& kv_pos, MaskReport& report) {
  const auto list_of = [&](std::string_view prefix, const std::string& text) -> Result<List> {
    const std::string option = fmt::format("--{}{}", prefix, member.option);
    SIGHTLINE_TRY(List values, parse_list(option, text));
    for (const std::int64_t value : values) {
      if (value < member.least || value > member.most) {
        return fail(ErrorKind::kInvalidArgument, "{}: {} is not within {} to {}", option, value, member.least,
                    member.most);
      }
    }
    return values;
  };
  if (!member.keys.empty()) {
    SIGHTLINE_TRY(const List values, list_of("", member.keys));
    SIGHTLINE_CHECK(expect_count(member.option, values, kv_pos.size(), "keys"));
    for (std::size_t i = 0; i < values.size(); ++i) member.set(report.kv[i], values[i]);
    for (std::size_t i = 0; i < q_pos.size() && member.queries.empty(); ++i) {
      SIGHTLINE_TRY(const std::size_t key, key_of_query(q_pos, kv_pos, i, member.option));
      member.set(report.q[i], values[key]);
    }
  }
  if (!member.queries.empty()) {
    SIGHTLINE_TRY(const List values, list_of("q-", member.queries));
    SIGHTLINE_CHECK(expect_count(fmt::format("q-{}", member.option), values, q_pos.size(), "queries"));
    for (std::size_t i = 0; i < values.size(); ++i) member.set(report.q[i], values[i]);
  }
  return {};
}

// The first position of each segment among the tokens named; a lone sequence starts at 0.
void derive_segment_starts(MaskReport& report) {
  const auto first_of = [&](std::int32_t segment) {
    std::optional<std::int64_t> first;
    for (const auto* coords : {&report.kv, &report.q}) {
      for (const TokenCoord& coord : *coords) {
        if (coord.valid && coord.segment == segment) first = std::min(first.value_or(coord.pos), coord.pos);
      }
    }
    return first.value_or(0);
  };
  for (auto* coords : {&report.kv, &report.q}) {
    for (TokenCoord& coord : *coords) coord.segment_start = first_of(coord.segment);
  }
}

Result<void> read_tables(const MaskQuestion& question, MaskReport& report) {
  for (const auto& [option, text, nodes] : {std::tuple{"--q-nodes", &question.q_nodes, &report.q_node},
                                            {"--kv-nodes", &question.kv_nodes, &report.kv_node},
                                            {"--parents", &question.parents, &report.parent}}) {
    if (text->empty()) continue;
    SIGHTLINE_TRY(const List values, parse_list(option, *text));
    for (const std::int64_t value : values) {
      if (value < -1 || value >= kMaxListed) {
        return fail(ErrorKind::kInvalidArgument, "{}: {} is not within -1 to {}", option, value,
                    kMaxListed - 1);
      }
      nodes->push_back(static_cast<std::int32_t>(value));
    }
  }
  std::size_t num_rows = question.dense.empty() ? 0 : 1;
  for (const char c : question.dense) {
    if (c == ',') {
      ++num_rows;
    } else if (c == '0' || c == '1') {
      report.dense.push_back(static_cast<std::uint8_t>(c - '0'));
    } else {
      return fail(ErrorKind::kInvalidArgument,
                  "--dense: expected rows of 0 and 1 with commas between, got {}", quote(question.dense));
    }
  }
  if (num_rows > 0 && (num_rows != report.q.size() || report.dense.size() != num_rows * report.kv.size())) {
    return fail(ErrorKind::kInvalidArgument, "--dense: expected {} rows of {} digits", report.q.size(),
                report.kv.size());
  }
  return validate_tables(report.mask, report.tables(), std::ssize(report.q), std::ssize(report.kv));
}

// `3` is a position, `#3` a row.
Result<TokenRef> find_token(std::string_view side, std::string_view text,
                            const std::vector<TokenCoord>& coords) {
  const bool is_row = text.starts_with('#');
  std::int64_t number = 0;
  SIGHTLINE_CHECK(parse_value("--why", text.substr(is_row ? 1 : 0), number));
  if (is_row) {
    if (number < 0 || number >= std::ssize(coords)) {
      return fail(ErrorKind::kInvalidArgument, "--why: there is no {} in row {}", side, number);
    }
    return TokenRef{coords[static_cast<std::size_t>(number)], number};
  }
  std::optional<TokenRef> found;
  for (std::size_t i = 0; i < coords.size(); ++i) {
    if (!coords[i].valid || coords[i].pos != number) continue;
    if (found) {
      return fail(ErrorKind::kInvalidArgument,
                  "--why: more than one {} stands at position {}; name the row, as in #{}", side, number, i);
    }
    found = TokenRef{coords[i], static_cast<std::int64_t>(i)};
  }
  if (!found) return fail(ErrorKind::kInvalidArgument, "--why: no {} stands at position {}", side, number);
  return *found;
}

Result<void> answer_why(const MaskQuestion& question, MaskReport& report) {
  const auto comma = question.why.find(',');
  if (comma == std::string::npos) {
    return fail(ErrorKind::kInvalidArgument, "--why: expected QUERY,KEY, got {}", quote(question.why));
  }
  const std::string_view text = question.why;
  SIGHTLINE_TRY(const TokenRef q, find_token("query", text.substr(0, comma), report.q));
  SIGHTLINE_TRY(const TokenRef k, find_token("key", text.substr(comma + 1), report.kv));
  report.reason = why(report.mask, report.tables(), q, k);
  return {};
}

}  // namespace

MaskTables MaskReport::tables() const {
  MaskTables out{{}, q_node, kv_node, parent};
  if (!dense.empty()) {
    out.dense = dense_view(dense.data(), std::array<std::int64_t, 2>{std::ssize(q), std::ssize(kv)});
  }
  return out;
}

Result<MaskReport> make_mask_report(const MaskQuestion& question) {
  MaskReport report;
  SIGHTLINE_TRY(report.mask, parse_mask(question.mask));
  // Neither list: eight tokens. Keys only: the queries are the keys. Queries only: all keys up to the last.
  List q_pos;
  List kv_pos;
  if (!question.q.empty()) {
    SIGHTLINE_TRY(q_pos, parse_list("--q", question.q));
  }
  if (!question.kv.empty()) {
    SIGHTLINE_TRY(kv_pos, parse_list("--kv", question.kv));
  }
  if (question.kv.empty()) {
    std::int64_t last = 7;
    if (!q_pos.empty()) last = std::ranges::max(q_pos);
    if (last < 0) return fail(ErrorKind::kInvalidArgument, "--q: positions below 0 need --kv too");
    SIGHTLINE_TRY(kv_pos, parse_list("--q", fmt::format("0..{}", last)));
  }
  if (question.q.empty()) q_pos = kv_pos;
  for (const auto* positions : {&q_pos, &kv_pos}) {
    for (const std::int64_t pos : *positions) {
      if (pos < -kMaxMaskTokens || pos > kMaxMaskTokens) {
        return fail(ErrorKind::kInvalidArgument, "position {} is beyond 2^60", pos);
      }
    }
  }
  for (const std::int64_t pos : q_pos) report.q.push_back({.pos = pos});
  for (const std::int64_t pos : kv_pos) report.kv.push_back({.pos = pos});

  constexpr std::int64_t kInt32Max = INT32_MAX;
  SIGHTLINE_CHECK(
      set_member({"segments", question.segments, question.q_segments, INT32_MIN, kInt32Max,
                  [](TokenCoord& c, std::int64_t v) { c.segment = static_cast<std::int32_t>(v); }},
                 q_pos, kv_pos, report));
  SIGHTLINE_CHECK(set_member({"spans", question.spans, question.q_spans, 0, kInt32Max,
                              [](TokenCoord& c, std::int64_t v) { c.span = static_cast<std::int32_t>(v); }},
                             q_pos, kv_pos, report));
  SIGHTLINE_CHECK(set_member({"flags", question.flags, question.q_flags, 0, UINT32_MAX,
                              [](TokenCoord& c, std::int64_t v) { c.flags = static_cast<std::uint32_t>(v); }},
                             q_pos, kv_pos, report));
  SIGHTLINE_CHECK(set_member({"valid", question.valid, question.q_valid, 0, 1,
                              [](TokenCoord& c, std::int64_t v) { c.valid = v != 0; }},
                             q_pos, kv_pos, report));
  if (!question.segments.empty() || !question.q_segments.empty()) derive_segment_starts(report);
  SIGHTLINE_CHECK(
      set_member({"segment-starts", question.segment_starts, question.q_segment_starts, -kMaxMaskTokens,
                  kMaxMaskTokens, [](TokenCoord& c, std::int64_t v) { c.segment_start = v; }},
                 q_pos, kv_pos, report));
  SIGHTLINE_CHECK(read_tables(question, report));
  if (!question.why.empty()) SIGHTLINE_CHECK(answer_why(question, report));
  return report;
}

namespace {

std::int64_t count_visible(const MaskReport& report) {
  const std::string picture = draw(report.mask, report.tables(), report.q, report.kv);
  return std::ranges::count(picture, '1');
}

std::string proofs(const MaskSpec& mask) {
  std::vector<std::string> lines;
  if (is_causal(mask)) lines.emplace_back("no query sees a later position");
  if (implies_segment(mask)) lines.emplace_back("no query sees another segment");
  if (const ReachBack reach = reach_back(mask); reach.bounded) {
    lines.push_back(fmt::format("no query sees a key {} or more back{}", reach.window,
                                reach.num_first > 0
                                    ? fmt::format(", but for the first {} of a segment", reach.num_first)
                                    : std::string()));
  }
  std::string out;
  for (const std::string& line : lines) out += fmt::format("proved for all positions: {}\n", line);
  return out;
}

}  // namespace

std::string to_text(const MaskReport& report) {
  if (report.reason) {
    TextTable table({TextTable::Align::kLeft, TextTable::Align::kLeft, TextTable::Align::kLeft});
    for (const WhyLeaf& leaf : report.reason->leaves) {
      table.add({"  " + to_string(leaf.leaf), leaf.sees ? "true" : "false",
                 leaf.decided ? "decides: the other answer would flip the pair" : ""});
    }
    return fmt::format("{}\n\n{}", report.reason->text, table.text());
  }
  return fmt::format(
      "{}\n\n{}\nrows are queries, columns keys, by position; 1: the query sees the key\n"
      "{} of {} pairs visible\n{}",
      to_string(report.mask), draw(report.mask, report.tables(), report.q, report.kv, {.labels = true}),
      count_visible(report), report.q.size() * report.kv.size(), proofs(report.mask));
}

namespace {

Json coords_json(const std::vector<TokenCoord>& coords) {
  JsonArray out;
  for (const TokenCoord& coord : coords) {
    out.push_back(Json(JsonObject{{"pos", coord.pos},
                                  {"segment_start", coord.segment_start},
                                  {"segment", coord.segment},
                                  {"span", coord.span},
                                  {"flags", coord.flags},
                                  {"valid", coord.valid}}));
  }
  return Json(std::move(out));
}

Json reason_json(const Why& reason) {
  JsonArray leaves;
  for (const WhyLeaf& leaf : reason.leaves) {
    leaves.push_back(
        Json(JsonObject{{"leaf", to_string(leaf.leaf)}, {"sees", leaf.sees}, {"decided", leaf.decided}}));
  }
  return Json(JsonObject{{"visible", reason.visible},
                         {"padding", reason.padding},
                         {"leaves", std::move(leaves)},
                         {"text", reason.text}});
}

}  // namespace

Json to_json(const MaskReport& report) {
  JsonArray rows;
  for (std::int64_t i = 0; i < std::ssize(report.q); ++i) {
    JsonArray row;
    for (std::int64_t j = 0; j < std::ssize(report.kv); ++j) {
      row.push_back(Json(static_cast<int>(is_visible(report.mask, report.tables(),
                                                     {report.q[static_cast<std::size_t>(i)], i},
                                                     {report.kv[static_cast<std::size_t>(j)], j}))));
    }
    rows.push_back(Json(std::move(row)));
  }
  const ReachBack reach = reach_back(report.mask);
  Json out(JsonObject{{"mask", to_string(report.mask)},
                      {"q", coords_json(report.q)},
                      {"kv", coords_json(report.kv)},
                      {"visible", std::move(rows)},
                      {"num_visible", count_visible(report)},
                      {"is_causal", is_causal(report.mask)},
                      {"implies_segment", implies_segment(report.mask)},
                      {"reach_back", reach.bounded ? Json(JsonObject{{"window", reach.window},
                                                                     {"num_first", reach.num_first}})
                                                   : Json(nullptr)}});
  if (report.reason) out.set("why", reason_json(*report.reason));
  return out;
}

}  // namespace sightline::apps
