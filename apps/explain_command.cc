// `sightline explain`: who sees whom and why, rotation angles, head mapping. Reads the command line and
// prints the reports of apps/explain.
#include <algorithm>

#include "apps/command.h"
#include "apps/explain/heads_report.h"
#include "apps/explain/mask_report.h"
#include "apps/explain/rope_report.h"
#include "apps/explain/token_lists.h"
#include "apps/rope_options.h"

namespace sightline::apps {

namespace {

// The ones of a picture in colour, where colour is on; labels stay plain.
std::string paint_picture(const Output& out, const std::string& text) {
  if (!out.has_color()) return text;
  std::string painted;
  bool is_cell = false;
  for (const char c : text) {
    if (c == '|') is_cell = true;
    if (c == '\n') is_cell = false;
    painted += is_cell && c == '1' ? out.paint(Color::kGreen, "1") : std::string(1, c);
  }
  return painted;
}

struct RopeQuestion {
  std::string pairing = "half_split";
  int dim = 64;
  RopeOptions options;
  std::int64_t distance = 1;
  std::int64_t length = 0;  // 0: the extended context, else the original one
};

void add_rope_question(Cli& cli, RopeQuestion& rope) {
  cli.option("--pairing", rope.pairing, "WORD", "which components turn together")
      .choices({"half_split", "interleaved"});
  cli.option("--dim", rope.dim, "N", "components that rotate").range(2, 4096);
  add_rope_options(cli, rope.options);
  cli.option("--distance", rope.distance, "N", "tokens between query and key").range(0, 1LL << 40);
  cli.option("--rope-length", rope.length, "N",
             "tokens the sequence is set up for; 0: original context x factor")
      .range(0, 1LL << 40);
}

Result<RopeReport> answer(const RopeQuestion& question) {
  SIGHTLINE_TRY(const RopeSpec rope,
                to_rope_spec(question.options, *parse_rope_pairing(question.pairing), question.dim));
  std::int64_t length = question.length;
  if (length == 0) {
    const std::int64_t original = question.options.original_context;
    const double extended = static_cast<double>(original) * question.options.factor;
    length = extended < 1e15 ? static_cast<std::int64_t>(extended) : original;
    length = std::max(length, question.distance + 1);
  }
  return make_rope_report(rope, length, question.distance);
}

void add_heads_options(Cli& cli, HeadsQuestion& heads, std::string& kv_heads,
                       std::optional<std::int64_t>& v_head_dim) {
  cli.option("--hidden", heads.hidden, "N", "width of the model").range(1, 1 << 20);
  cli.option("--q-heads", heads.num_q_heads, "N", "query heads").range(1, 512);
  cli.option("--kv-heads", kv_heads, "LIST", "key heads, one column each");
  cli.option("--head-dim", heads.qk_head_dim, "N", "width of a query and key head").range(1, 4096);
  cli.option("--v-head-dim", v_head_dim, "N", "width of a value head; as --head-dim if not given")
      .range(1, 4096);
  cli.option("--length", heads.num_tokens, "N", "tokens").range(1, 1 << 20);
  cli.option("--layers", heads.num_layers, "N", "layers of the cache").range(1, 4096);
  cli.option("--bytes", heads.bytes_per_number, "N", "bytes of a cached number").range(1, 8);
}

void add_mask_options(Cli& cli, MaskQuestion& mask) {
  cli.option("--q", mask.q, "LIST", "positions of the queries: 3..4 (both ends included) or 3,4");
  cli.option("--kv", mask.kv, "LIST", "positions of the keys");
  cli.option("--why", mask.why, "Q,K", "the reason for one pair, by positions (3,0) or rows (#3,#0)");
  cli.option("--segments", mask.segments, "LIST", "packed document of each key");
  cli.option("--segment-starts", mask.segment_starts, "LIST", "first position of each key's document");
  cli.option("--spans", mask.spans, "LIST", "bidirectional span of each key, 0: none");
  cli.option("--flags", mask.flags, "LIST", "flags of each key, as a number");
  cli.option("--valid", mask.valid, "LIST", "1, or 0 for padding");
  cli.option("--q-segments", mask.q_segments, "LIST",
             "the same of each query; without it: as the key at its position");
  cli.option("--q-segment-starts", mask.q_segment_starts, "LIST", "likewise");
  cli.option("--q-spans", mask.q_spans, "LIST", "likewise");
  cli.option("--q-flags", mask.q_flags, "LIST", "likewise");
  cli.option("--q-valid", mask.q_valid, "LIST", "likewise");
  cli.option("--q-nodes", mask.q_nodes, "LIST", "tree: node of each query, -1 where it is committed");
  cli.option("--kv-nodes", mask.kv_nodes, "LIST", "tree: node of each key");
  cli.option("--parents", mask.parents, "LIST", "tree: parent of each node, -1 for a root");
  cli.option("--dense", mask.dense, "ROWS", "dense: one row of 0 and 1 a query, with commas between");
}

// The mask, and below it a caret where parsing went wrong; "" where it parses or would not fit a line.
std::string caret_of(const std::string& mask) {
  std::size_t column = 0;
  const bool printable = std::ranges::all_of(mask, [](char c) { return c >= ' ' && c <= '~'; });
  if (parse_mask(mask, &column) || !printable || mask.size() > 100) return "";
  return fmt::format("  {}\n  {}^\n", mask, std::string(column - 1, ' '));
}

template <typename Report>
int print(Invocation& call, const Report& report, bool json) {
  if (json) {
    call.out.print("{}\n", to_json(report).dump(2));
  } else {
    call.out.write(paint_picture(call.out, to_text(report)));
  }
  return 0;
}

}  // namespace

Result<int> run_explain(Invocation& call) {
  MaskQuestion mask;
  RopeQuestion rope;
  HeadsQuestion heads;
  std::string kv_heads = "32,8,1";
  std::optional<std::int64_t> v_head_dim;
  bool shows_rope = false;
  bool shows_heads = false;
  bool json = false;
  Cli cli("explain",
          "Draws a mask, says why a pair is visible or not, shows rotation angles and head mapping.");
  cli.positional("MASK", mask.mask, "the rule, for example 'causal & window(4)'");
  cli.flag("--rope", shows_rope, "instead of a mask: rotation angles and the score against distance");
  cli.flag("--heads", shows_heads,
           "instead of a mask: shapes, parameters, work and cache of several head counts");
  cli.mode("MASK");
  add_mask_options(cli, mask);
  cli.mode("--rope");
  add_rope_question(cli, rope);
  cli.mode("--heads");
  add_heads_options(cli, heads, kv_heads, v_head_dim);
  cli.mode("");
  cli.flag("--json", json, "one JSON document on standard output");
  cli.report_options();
  cli.epilog(
      "  sightline explain 'causal & window(4)' --q 3..4 --kv 0..4\n"
      "  sightline explain 'causal & segment' --kv 0..4 --segments 0,0,0,1,1 --why 3,0\n"
      "  sightline explain --rope --dim 128 --scaling yarn --factor 10 --original-context 2048 --distance "
      "100\n"
      "  sightline explain --heads --hidden 576 --q-heads 9 --kv-heads 9,3,1 --head-dim 64\n"
      "Rules: causal, window(n), ahead(n), first(n), segment, chunk(n), span, dilated(n), tree, "
      "query_is(b),\n"
      "key_is(b), dense, all, none; joined by & | ! and parentheses. docs/masks.md draws each.");
  if (auto ended = cli.parse(call)) return *ended;
  if (static_cast<int>(shows_rope) + static_cast<int>(shows_heads) + static_cast<int>(!mask.mask.empty()) !=
      1) {
    return fail(ErrorKind::kInvalidArgument,
                "explain: expected one of MASK, --rope and --heads (see 'sightline explain --help')");
  }
  SIGHTLINE_CHECK(cli.check_mode(shows_rope ? "--rope" : shows_heads ? "--heads" : "MASK"));
  if (shows_rope) {
    SIGHTLINE_TRY(const RopeReport report, answer(rope));
    return print(call, report, json);
  }
  if (shows_heads) {
    heads.v_head_dim = v_head_dim.value_or(heads.qk_head_dim);
    SIGHTLINE_TRY(heads.num_kv_heads, parse_list("--kv-heads", kv_heads));
    SIGHTLINE_TRY(const HeadsReport report, make_heads_report(heads));
    return print(call, report, json);
  }
  call.below_error = caret_of(mask.mask);
  SIGHTLINE_TRY(const MaskReport report, make_mask_report(mask));
  return print(call, report, json);
}

}  // namespace sightline::apps
