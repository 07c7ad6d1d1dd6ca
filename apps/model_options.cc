#include "apps/model_options.h"

#include "sightline/base/thread_pool.h"

namespace sightline::apps {

CliArgument& add_load_options(Cli& cli, ModelOptions& o) {
  CliArgument& model = cli.option("-m,--model", o.model, "PATH", "a GGUF file or a Hugging Face folder");
  add_load_statements(cli, o.statements);
  return model;
}

void add_run_options(Cli& cli, ModelOptions& o) {
  cli.option("-t,--threads", o.num_threads, "N", "threads (default: all that this process may use)")
      .range(1, 10000);
  add_matmul_option(cli, o.matmul);
}

CliArgument& add_matmul_option(Cli& cli, std::string& matmul) {
  return cli
      .option("--matmul", matmul, "TYPE",
              "arithmetic of linear layers: native runs each weight as it is stored (quantised: int8 dot "
              "products with activations quantised per token and block of 32), bf16 and f32 convert all "
              "weights at load")
      .choices({"native", "bf16", "f32"});
}

Matmul parse_matmul(std::string_view text) {
  if (text == "bf16") return Matmul::kBf16;
  return text == "f32" ? Matmul::kF32 : Matmul::kNative;
}

Result<LoadOptions> to_load_options(const ModelOptions& o) {
  SIGHTLINE_TRY(LoadOptions load, to_load_options(o.statements));
  load.matmul = parse_matmul(o.matmul);
  return load;
}

int resolve_threads(std::optional<std::int64_t> requested, Output& err) {
  const int available = available_threads();
  if (!requested) return available;
  if (*requested > available) {
    err.print("note: -t {} is more than the {} threads this process may use; running {}\n", *requested,
              available, available);
    return available;
  }
  return static_cast<int>(*requested);
}

Result<StorageType> parse_storage_type(std::string_view what, std::string_view text) {
  if (text == "f32") return StorageType::kF32;
  if (text == "bf16") return StorageType::kBf16;
  return fail(ErrorKind::kInvalidArgument, "{}: {} is no cache type, expected f32 or bf16", what,
              quote(text));
}

}  // namespace sightline::apps
