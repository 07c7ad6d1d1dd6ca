#include "apps/explain/heads_report.h"

#include "apps/explain/text_table.h"

namespace sightline::apps {

namespace {

using Column = HeadsReport::Column;

// 1234567 as 1,234,567.
std::string grouped(std::int64_t value) {
  if (value < 1000) return fmt::format("{}", value);
  return fmt::format("{},{:03}", grouped(value / 1000), value % 1000);
}

std::string kind_of(const HeadSpec& heads) {
  if (heads.num_kv_heads == heads.num_q_heads) return "MHA";
  return heads.num_kv_heads == 1 ? "MQA" : "GQA";
}

// "0-3>0 4-7>1 ...": which query heads read which key head.
std::string head_map(const HeadSpec& heads) {
  std::string out;
  for (int first = 0; first < heads.num_q_heads; first += heads.group_size()) {
    const int last = first + heads.group_size() - 1;
    if (!out.empty()) out += ' ';
    out += first == last ? fmt::format("{}", first) : fmt::format("{}-{}", first, last);
    out += fmt::format(">{}", kv_head_for(heads, first));
  }
  return out;
}

}  // namespace

Result<HeadsReport> make_heads_report(const HeadsQuestion& question) {
  HeadsReport report{question, {}};
  for (const std::int64_t num_kv_heads : question.num_kv_heads) {
    if (num_kv_heads < 1 || num_kv_heads > question.num_q_heads) {
      return fail(ErrorKind::kInvalidArgument, "--kv-heads: {} is not within 1 to {}", num_kv_heads,
                  question.num_q_heads);
    }
    Column column;
    column.heads = {static_cast<int>(question.num_q_heads), static_cast<int>(num_kv_heads),
                    static_cast<int>(question.qk_head_dim), static_cast<int>(question.v_head_dim)};
    SIGHTLINE_CHECK(validate(column.heads));
    column.wq = question.hidden * question.num_q_heads * question.qk_head_dim;
    column.wk = question.hidden * num_kv_heads * question.qk_head_dim;
    column.wv = question.hidden * num_kv_heads * question.v_head_dim;
    column.wo = question.num_q_heads * question.v_head_dim * question.hidden;
    const std::int64_t pairs = question.num_tokens * question.num_tokens;
    column.qk_flop = 2 * pairs * question.num_q_heads * question.qk_head_dim;
    column.av_flop = 2 * pairs * question.num_q_heads * question.v_head_dim;
    column.cache_bytes = question.num_layers * question.num_tokens * num_kv_heads *
                         (question.qk_head_dim + question.v_head_dim) * question.bytes_per_number;
    report.columns.push_back(column);
  }
  return report;
}

std::string to_text(const HeadsReport& report) {
  const HeadsQuestion& question = report.question;
  const std::int64_t tokens = question.num_tokens;
  std::vector<TextTable::Align> align(report.columns.size() + 1, TextTable::Align::kRight);
  align[0] = TextTable::Align::kLeft;
  TextTable table(align);
  const auto add = [&](const std::string& name, auto cell) {
    std::vector<std::string> row{name};
    for (const Column& column : report.columns) row.push_back(cell(column));
    table.add(std::move(row));
  };
  const auto matrix = [](std::int64_t rows, std::int64_t columns) {
    return fmt::format("[{}, {}]", rows, columns);
  };
  const auto heads_of = [&](std::int64_t heads, std::int64_t dim) {
    return fmt::format("[{}, {}, {}]", tokens, heads, dim);
  };

  add("", [](const Column& c) {
    return fmt::format("{} {}/{}", kind_of(c.heads), c.heads.num_q_heads, c.heads.num_kv_heads);
  });
  add("query heads per key head", [](const Column& c) { return fmt::format("{}", c.heads.group_size()); });
  add("Wq [in, out]", [&](const Column& c) {
    return matrix(question.hidden, std::int64_t{c.heads.num_q_heads} * c.heads.qk_head_dim);
  });
  add("Wk", [&](const Column& c) {
    return matrix(question.hidden, std::int64_t{c.heads.num_kv_heads} * c.heads.qk_head_dim);
  });
  add("Wv", [&](const Column& c) {
    return matrix(question.hidden, std::int64_t{c.heads.num_kv_heads} * c.heads.v_head_dim);
  });
  add("Wo", [&](const Column& c) {
    return matrix(std::int64_t{c.heads.num_q_heads} * c.heads.v_head_dim, question.hidden);
  });
  add("Wq parameters", [](const Column& c) { return grouped(c.wq); });
  add("Wk parameters", [](const Column& c) { return grouped(c.wk); });
  add("Wv parameters", [](const Column& c) { return grouped(c.wv); });
  add("Wo parameters", [](const Column& c) { return grouped(c.wo); });
  add("all four", [](const Column& c) { return grouped(c.wq + c.wk + c.wv + c.wo); });
  add("Q [tokens, heads, dim]",
      [&](const Column& c) { return heads_of(c.heads.num_q_heads, c.heads.qk_head_dim); });
  add("K", [&](const Column& c) { return heads_of(c.heads.num_kv_heads, c.heads.qk_head_dim); });
  add("V", [&](const Column& c) { return heads_of(c.heads.num_kv_heads, c.heads.v_head_dim); });
  add("QK FLOP, all pairs", [](const Column& c) { return grouped(c.qk_flop); });
  add("AV FLOP, all pairs", [](const Column& c) { return grouped(c.av_flop); });
  add(fmt::format("cache bytes at {} tokens", tokens),
      [](const Column& c) { return grouped(c.cache_bytes); });

  std::string out = fmt::format(
      "hidden {}, {} query heads of {}{}, {} tokens, {} layer{}, {} bytes a number\n\n{}", question.hidden,
      question.num_q_heads, question.qk_head_dim,
      question.v_head_dim == question.qk_head_dim ? std::string()
                                                  : fmt::format(" (values {})", question.v_head_dim),
      tokens, question.num_layers, question.num_layers == 1 ? "" : "s", question.bytes_per_number,
      table.text());
  out +=
      "\nQ, the scores and the work on them are the same in every column: only Wk, Wv, K, V and the cache "
      "shrink.\n"
      "\nhead map, query heads > key head\n";
  for (const Column& column : report.columns) {
    out += fmt::format("  {} {}/{}: {}\n", kind_of(column.heads), column.heads.num_q_heads,
                       column.heads.num_kv_heads, head_map(column.heads));
  }
  return out;
}

Json to_json(const HeadsReport& report) {
  const HeadsQuestion& question = report.question;
  JsonArray columns;
  for (const Column& c : report.columns) {
    JsonArray map;
    for (int h = 0; h < c.heads.num_q_heads; ++h) map.push_back(Json(kv_head_for(c.heads, h)));
    columns.push_back(Json(JsonObject{{"kind", kind_of(c.heads)},
                                      {"num_q_heads", c.heads.num_q_heads},
                                      {"num_kv_heads", c.heads.num_kv_heads},
                                      {"group_size", c.heads.group_size()},
                                      {"qk_head_dim", c.heads.qk_head_dim},
                                      {"v_head_dim", c.heads.v_head_dim},
                                      {"wq_parameters", c.wq},
                                      {"wk_parameters", c.wk},
                                      {"wv_parameters", c.wv},
                                      {"wo_parameters", c.wo},
                                      {"qk_flop", c.qk_flop},
                                      {"av_flop", c.av_flop},
                                      {"cache_bytes", c.cache_bytes},
                                      {"head_map", std::move(map)}}));
  }
  return Json(JsonObject{{"hidden", question.hidden},
                         {"num_tokens", question.num_tokens},
                         {"num_layers", question.num_layers},
                         {"bytes_per_number", question.bytes_per_number},
                         {"columns", std::move(columns)}});
}

}  // namespace sightline::apps
