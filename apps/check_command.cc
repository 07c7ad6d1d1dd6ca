// `sightline check`: what a dump of arrays says about the implementation that wrote it.
#include <algorithm>

#include "apps/command.h"
#include "apps/rope_options.h"
#include "sightline/base/file.h"
#include "sightline/checker/diagnose.h"
#include "sightline/subjects/dump/dump.h"

namespace sightline::apps {

namespace {

constexpr std::uint64_t kMaxSpecBytes = std::uint64_t{1} << 20;

// What the options say of the meaning.
struct Declaration {
  std::string mask = "causal";
  std::string rope = "none";
  std::optional<int> rotary_dim;
  RopeOptions rope_options;
  std::optional<double> scale;
  double softcap = 0.0;
  bool has_alibi = false;

  friend bool operator==(const Declaration&, const Declaration&) = default;
};

struct CheckQuestion {
  std::filesystem::path dump;
  std::filesystem::path spec;
  Declaration declaration;
  std::string axes;
  std::vector<std::string> names;
  std::optional<std::string> type;
};

void add_options(Cli& cli, CheckQuestion& question) {
  cli.positional("DUMP", question.dump, "an .npz or .safetensors file, or a folder of .npy files").required();
  Declaration& declared = question.declaration;
  cli.option("--spec", question.spec, "FILE",
             "the declaration as JSON, in place of the options from --mask to --alibi");
  cli.option("--mask", declared.mask, "TEXT", "who sees whom, for example 'causal & window(256)'");
  cli.option("--rope", declared.rope, "WORD",
             "whether q and k are rotated, and which components turn together")
      .choices({"none", "half_split", "interleaved"});
  cli.option("--rotary-dim", declared.rotary_dim, "N", "components that rotate; all of a head if not given")
      .range(2, 4096);
  add_rope_options(cli, declared.rope_options);
  cli.option("--scale", declared.scale, "X", "softmax scale; 1/sqrt(head dim) if not given");
  cli.option("--softcap", declared.softcap, "X", "cap of the logits; 0: none");
  cli.flag("--alibi", declared.has_alibi, "scores have ALiBi with the usual slopes");
  cli.option("--axes", question.axes, "ORDER", "axes of q: td, thd, htd, bthd or bhtd; guessed if not given");
  cli.option("--name", question.names, "OURS=THEIRS", "what the dump calls an array; may be repeated");
  cli.option("--type", question.type, "TYPE", "what the outputs were computed in; guessed if not given")
      .choices({"f64", "f32", "bf16", "f16"});
}

// Options that would change nothing are refused: a declaration other than the intended one names a fault that
// is none.
Result<void> check_declaration(const CheckQuestion& question) {
  const Declaration& declared = question.declaration;
  if (!question.spec.empty() && declared != Declaration{}) {
    return fail(ErrorKind::kInvalidArgument,
                "check: --spec holds the whole declaration, got options of it beside the file");
  }
  if (declared.rope == "none" && (declared.rotary_dim || declared.rope_options != RopeOptions{})) {
    return fail(
        ErrorKind::kInvalidArgument,
        "check: --rotary-dim, --theta, --scaling and its numbers need --rope half_split or interleaved");
  }
  return {};
}

// Heads of the dump are known only when it is read; whatever hangs on them is set then.
Result<AttentionSpec> declared_spec(const CheckQuestion& question, const HeadSpec& heads) {
  AttentionSpec spec;
  if (!question.spec.empty()) {
    SIGHTLINE_TRY(const std::string text, read_file(question.spec, kMaxSpecBytes));
    SIGHTLINE_TRY(const Json json, parse_json(text, question.spec.string()));
    SIGHTLINE_TRY(spec, attention_spec_from_json(json));
    return spec;
  }
  const Declaration& declared = question.declaration;
  SIGHTLINE_TRY(spec.mask, parse_mask(declared.mask));
  if (declared.rope != "none") {
    const int rotary_dim = declared.rotary_dim.value_or(heads.qk_head_dim);
    SIGHTLINE_TRY(spec.rope,
                  to_rope_spec(declared.rope_options, *parse_rope_pairing(declared.rope), rotary_dim));
  }
  spec.score.softmax_scale = declared.scale;
  spec.score.logit_softcap = declared.softcap;
  if (declared.has_alibi) spec.score.alibi_slopes = alibi_slopes(heads.num_q_heads);
  return spec;
}

Result<subjects::DumpOptions> dump_options(const CheckQuestion& question) {
  subjects::DumpOptions options;
  options.axes = question.axes;
  for (const std::string& name : question.names) {
    const auto equals = name.find('=');
    if (equals == std::string::npos || equals == 0) {
      return fail(ErrorKind::kInvalidArgument, "check: --name {}, expected OURS=THEIRS", name);
    }
    options.names.emplace_back(name.substr(0, equals), name.substr(equals + 1));
  }
  for (int t = 0; t < 4; ++t) {
    const auto type = static_cast<checker::ElementType>(t);
    if (checker::to_string(type) == question.type) options.type = type;
  }
  return options;
}

Json to_json(const std::vector<std::string>& lines) {
  Json json = JsonArray{};
  for (const std::string& line : lines) json.push_back(line);
  return json;
}

}  // namespace

Result<int> run_check(Invocation& call) {
  CheckQuestion question;
  bool json = false;
  Cli cli(
      "check",
      "Says whether arrays are what was declared, and if not, which fault explains them. The dump holds q, k "
      "and v before rotation and at least one of out, lse, weights, d_q, d_k and d_v.");
  add_options(cli, question);
  cli.flag("--json", json, "one JSON document on standard output");
  cli.report_options();
  cli.epilog(
      "  sightline check layer0.npz --mask 'causal & window(256)' --rope half_split --theta 500000\n"
      "Exit: 0 agrees, rounding or a convention; 1 anything else; 65 or 66 when the dump cannot be read.");
  if (auto ended = cli.parse(call)) return *ended;
  SIGHTLINE_CHECK(check_declaration(question));
  SIGHTLINE_TRY(subjects::DumpOptions options, dump_options(question));
  SIGHTLINE_TRY(const subjects::Dump dump, subjects::read_dump(question.dump));
  SIGHTLINE_TRY(const HeadSpec heads, subjects::read_heads(dump, options));
  SIGHTLINE_TRY(options.spec, declared_spec(question, heads));
  SIGHTLINE_TRY(const subjects::DumpContent content, subjects::read_observations(dump, options));
  SIGHTLINE_TRY(const checker::Report report, checker::diagnose(content.observations));
  const AttentionSpec& spec = content.observations.front().spec;
  if (json) {
    Json document = checker::to_json(report);
    document.set("declared", describe(spec));
    document.set("assumptions", to_json(content.assumptions));
    call.out.print("{}\n", document.dump(2));
  } else {
    call.out.write(checker::to_text(report));
    call.out.print("\n  declared  {}\n", describe(spec));
    for (const std::string& line : content.assumptions) call.out.print("  assumed   {}\n", line);
  }
  return checker::exit_code(report.verdict);
}

}  // namespace sightline::apps
