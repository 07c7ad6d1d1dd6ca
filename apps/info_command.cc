// sightline info MODEL: what each layer means, what was assumed while reading it, and the memory it takes.
#include "apps/command.h"
#include "apps/model_options.h"
#include "sightline/kernels/kernel_table.h"
#include "sightline/model/model_info.h"

namespace sightline::apps {

namespace {

std::string in_mib(std::int64_t bytes) {
  return fmt::format("{:.1f} MiB", static_cast<double>(bytes) / (1 << 20));
}

void print_layers(Output& out, const ModelSpec& spec) {
  out.print("{}\n", out.paint(Color::kBold, "layers"));
  for (const LayerGroup& group : layer_groups(spec)) {
    const std::string name = group.end - group.begin == 1
                                 ? fmt::format("layer {}", group.begin)
                                 : fmt::format("layers {}..{}", group.begin, group.end - 1);
    out.print("  {}: {}\n    {}\n", name, group.attention, group.rest);
  }
}

void print_model(Output& out, const ModelSpec& spec) {
  const char* norm = spec.norm.kind == NormKind::kRms ? "RMS norm" : "layer norm";
  out.print("family {}, {} parameters, {} layers, width {}, vocabulary {}, context {}\n", spec.family,
            count_parameters(spec).total(), spec.layers.size(), spec.model_dim, spec.vocab_size,
            spec.context_length);
  out.print("{} epsilon {:.6g}, {} head", norm, spec.norm.epsilon, spec.tied_head ? "tied" : "own");
  if (spec.num_learned_positions > 0) out.print(", {} learned positions", spec.num_learned_positions);
  if (spec.final_logit_softcap > 0) out.print(", logits capped at {}", spec.final_logit_softcap);
  out.print("\n");
}

void print_tensors(Output& out, const ModelInfo& info) {
  std::string text;
  for (const ModelInfo::TypeCount& type : info.tensor_types) {
    text += fmt::format("{}{} {} ({})", text.empty() ? "" : ", ", type.num_tensors, type.type,
                        in_mib(type.bytes));
  }
  out.print("tensors: {}\n", text);
}

void print_assumptions(Output& out, const ModelInfo& info) {
  out.print("{}\n", out.paint(Color::kBold, "assumptions"));
  if (info.assumptions.empty()) out.print("  none: the file says everything\n");
  for (const Assumption& a : info.assumptions) out.print("  {} = {}: {}\n", a.key, a.taken, a.reason);
  for (const std::string& warning : info.warnings) out.print("  warning: {}\n", warning);
}

void print_memory(Output& out, const ModelInfo& info, const MemoryTable& table) {
  out.print("{}\n", out.paint(Color::kBold, fmt::format("memory at context {}, {} tokens a call",
                                                        table.context, table.chunk)));
  const std::int64_t rest = table.weights + table.activations + table.workspace + table.metadata;
  out.print("  {:<24}{:>14}\n", fmt::format("weights, {}", to_string(info.matmul)), in_mib(table.weights));
  out.print("  {:<24}{:>14}\n", "cache, f32", in_mib(table.cache_f32));
  out.print("  {:<24}{:>14}\n", "cache, bf16", in_mib(table.cache_bf16));
  out.print("  {:<24}{:>14}\n", "activations", in_mib(table.activations));
  out.print("  {:<24}{:>14}\n", "workspace", in_mib(table.workspace));
  out.print("  {:<24}{:>14}\n", "metadata, about", in_mib(table.metadata));
  out.print("  {:<24}{:>14}   (with a bf16 cache {})\n", "sum, f32 cache", in_mib(rest + table.cache_f32),
            in_mib(rest + table.cache_bf16));
}

}  // namespace

Result<int> run_info(Invocation& call) {
  std::string path;
  std::int64_t context = 0;
  bool json = false;
  LoadStatements statements;
  std::string matmul = "native";
  Cli cli("info", "Says what every layer of a model file means, and what was assumed. Reads no weights.");
  cli.positional("MODEL", path, "a GGUF file, or a folder with config.json and safetensors").required();
  cli.option("-c,--ctx-size", context, "N",
             "tokens of context in the memory table; 0: those it was trained for")
      .range(0, 1 << 24);
  add_load_statements(cli, statements);
  add_matmul_option(cli, matmul);
  cli.flag("--json", json, "one JSON document on standard output");
  cli.report_options();
  if (auto ended = cli.parse(call)) return *ended;

  SIGHTLINE_TRY(LoadOptions options, to_load_options(statements));
  options.matmul = parse_matmul(matmul);
  SIGHTLINE_TRY(const ModelInfo info, read_model_info(path, options));
  const std::string isa(kernels::active_table().name);
  if (json) {
    Json report = to_json(info);
    report.set("kernels", isa);
    if (!info.vocabulary_only) report.set("memory", to_json(memory_table(info, context)));
    call.out.print("{}\n", report.dump(2));
    return 0;
  }
  call.out.print("{}: {}\n", info.path, info.file_kind);
  if (info.vocabulary_only) {
    call.out.print("holds a vocabulary and no weights\n");
  } else {
    print_model(call.out, info.spec);
    print_layers(call.out, info.spec);
    call.out.print("q and k rows: {}\n", info.qk_row_order);
    print_tensors(call.out, info);
  }
  call.out.print("tokenizer: {}{}\n", info.tokenizer ? *info.tokenizer : "none",
                 info.has_chat_template ? ", with a chat template" : "");
  call.out.print("kernels: {}\n", isa);
  print_assumptions(call.out, info);
  if (!info.vocabulary_only) print_memory(call.out, info, memory_table(info, context));
  return 0;
}

}  // namespace sightline::apps
