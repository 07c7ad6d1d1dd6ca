#include "apps/check/declaration.h"

#include "sightline/base/file.h"

namespace sightline::apps {
namespace {

constexpr std::uint64_t kMaxSpecBytes = std::uint64_t{1} << 20;

}  // namespace

void add_declaration_options(Cli& cli, DeclarationOptions& options) {
  Declaration& declared = options.declaration;
  cli.option("--spec", options.spec, "FILE",
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
}

Result<void> check_declaration(const DeclarationOptions& options) {
  const Declaration& declared = options.declaration;
  if (!options.spec.empty() && declared != Declaration{}) {
    return fail(ErrorKind::kInvalidArgument,
                "check: --spec holds the whole declaration, got options of it beside the file");
  }
  if (declared.rope == "none" && (declared.rotary_dim || declared.rope_options != RopeOptions{})) {
    return fail(
        ErrorKind::kInvalidArgument,
        "check: --rotary-dim, --theta, --scaling and its numbers need --rope half_split or interleaved");
  }
  if (declared.softcap < 0) {
    return fail(ErrorKind::kInvalidArgument, "check: --softcap {}, expected 0 (none) or more",
                declared.softcap);
  }
  return {};
}

Result<AttentionSpec> declared_spec(const DeclarationOptions& options, const HeadSpec& heads) {
  AttentionSpec spec;
  if (!options.spec.empty()) {
    SIGHTLINE_TRY(const std::string text, read_file(options.spec, kMaxSpecBytes));
    SIGHTLINE_TRY(const Json json, parse_json(text, options.spec.string()));
    SIGHTLINE_TRY(spec, attention_spec_from_json(json));
    return spec;
  }
  const Declaration& declared = options.declaration;
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

}  // namespace sightline::apps
