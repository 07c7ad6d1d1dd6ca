// sightline eval loss: loss and perplexity of a text, teacher-forced and step by step.
#include <optional>

#include "apps/interrupt.h"
#include "apps/model_options.h"
#include "sightline/base/file.h"
#include "sightline/generate/evaluate.h"

namespace sightline::apps {

namespace {

// What stands beside the bar: the way of feeding, its speed, and how long it will still take.
std::string progress_text(std::string_view name, std::int64_t done, std::int64_t all,
                          std::chrono::steady_clock::time_point start) {
  const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  if (done == 0 || seconds <= 0) return fmt::format("tokens {}", name);
  const double speed = static_cast<double>(done) / seconds;
  return fmt::format("tokens {}, {:.1f} tokens/s, {:.0f} s left", name, speed,
                     static_cast<double>(all - done) / speed);
}

}  // namespace

namespace {

// Into `json` where there is one, else printed.
void report_divergence(Output& out, const EvalResult& result, const std::string& matmul, JsonObject* json) {
  const Divergence& d = *result.divergence;
  const double difference = result.loss - d.reference_loss;
  if (json != nullptr) {
    json->emplace_back("against_f32", JsonObject{{"matmul", matmul},
                                                 {"loss_f32", d.reference_loss},
                                                 {"loss_difference", difference},
                                                 {"mean_kl", d.mean_kl},
                                                 {"max_kl", d.max_kl},
                                                 {"same_top", d.same_top}});
    return;
  }
  out.print(
      "{} against f32: loss {:+.6f} ({:.9f} in f32), KL {:.3e} nats mean, {:.3e} largest, same top "
      "token at {:.2f} %\n",
      matmul, difference, d.reference_loss, d.mean_kl, d.max_kl, 100 * d.same_top);
}

}  // namespace

Result<int> run_eval(Invocation& call) {
  ModelOptions o;
  std::string task;
  std::filesystem::path file;
  EvalOptions eval;
  std::string mode = "both";
  bool json = false, no_bos = false, kl = false;
  Cli cli("eval", "Measures a model: `eval loss` prints loss and perplexity of a text.");
  cli.positional("TASK", task, "what to measure").required().choices({"loss"});
  add_load_options(cli, o).required();
  cli.option("-f,--file", file, "FILE", "the text").required();
  cli.option("-c,--ctx-size", eval.context, "N", "tokens of a window; 0: what the model was trained for")
      .range(0, INT32_MAX);
  cli.option("--chunk", eval.chunk, "N", "tokens of one forward when teacher-forced").range(1, 1 << 20);
  cli.option("--mode", mode, "MODE",
             "teacher: chunks, fast; steps: one token a forward, some ten times slower; both: first the one, "
             "then the other, which must agree to the bit")
      .choices({"both", "teacher", "steps"});
  cli.flag(
      "--kl", kl,
      "also runs the model with --matmul f32, chunk by chunk beside it, and prints what the arithmetic of "
      "--matmul costs: difference of the losses and KL divergence");
  cli.flag("--no-bos", no_bos, "adds no begin-of-text token");
  add_run_options(cli, o);
  cli.flag("--json", json, "one JSON document");
  cli.report_options();
  cli.epilog(
      "Cost: `teacher` feeds --chunk tokens a forward; `steps` feeds one, reads all weights for it, and took "
      "ten\n"
      "times as long on SmolLM2-135M with 2 cores in f32 (31 tokens a second, not 320); `both`, the default, "
      "is\n"
      "their sum.\n"
      "sightline eval loss -m model.gguf -f text.txt --mode teacher");
  if (auto ended = cli.parse(call)) return *ended;
  if (kl && mode == "steps") {
    return fail(ErrorKind::kInvalidArgument, "--kl compares chunks: it needs --mode both or teacher");
  }

  SIGHTLINE_TRY(const LoadOptions load, to_load_options(o));
  SIGHTLINE_TRY(const ModelText text, load_model_text(o.model, load));
  SIGHTLINE_TRY(const std::string content, read_file(file));
  SIGHTLINE_TRY(const auto ids,
                in_source(file.string(), text.tokenizer.encode(content, {.add_special = !no_bos})));
  if (ids.size() < 2) {
    return fail(ErrorKind::kInvalidContent, "{}: {} tokens, at least 2 are needed", file.string(),
                ids.size());
  }
  ThreadPool pool(resolve_threads(o.num_threads, call.err));
  const InterruptGuard interrupt;
  Progress progress(call.err);
  progress.update(0, 0, "loading weights");
  SIGHTLINE_TRY(Model model, Model::load(o.model, load, pool));
  std::optional<Model> exact;
  if (kl) {
    LoadOptions exact_load = load;
    exact_load.matmul = Matmul::kF32;
    SIGHTLINE_TRY(exact, Model::load(o.model, exact_load, pool));
  }
  const auto run = [&](bool step_by_step) {
    eval.step_by_step = step_by_step;
    eval.reference = exact && !step_by_step ? &*exact : nullptr;
    const std::string_view name = step_by_step ? "step by step" : "teacher-forced";
    const auto start = std::chrono::steady_clock::now();
    progress.clear();  // so that the next line is drawn at once
    progress.update(0, static_cast<std::uint64_t>(ids.size()), progress_text(name, 0, 0, start));
    return evaluate_loss(model, ids, eval, [&](std::int64_t done, std::int64_t all) {
      progress.update(static_cast<std::uint64_t>(done), static_cast<std::uint64_t>(all),
                      progress_text(name, done, all, start));
      return !InterruptGuard::requested();
    });
  };
  JsonObject out{{"file", file.string()}, {"num_tokens", std::ssize(ids)}};
  std::vector<EvalResult> results;
  for (const bool step_by_step : {false, true}) {
    if (mode == (step_by_step ? "teacher" : "steps")) continue;
    auto result = run(step_by_step);
    progress.clear();
    if (!result && InterruptGuard::requested()) return kExitInterrupted;
    if (!result) return tl::unexpected<Error>(in_model(o, std::move(result)).error());
    const char* name = step_by_step ? "step_by_step" : "teacher_forced";
    out.emplace_back(name, JsonObject{{"num_targets", result->num_targets},
                                      {"loss", result->loss},
                                      {"perplexity", result->perplexity}});
    if (!json) {
      call.out.print("{:<15} loss {:.9f}  perplexity {:.6f}  over {} targets\n",
                     step_by_step ? "step by step" : "teacher-forced", result->loss, result->perplexity,
                     result->num_targets);
      SIGHTLINE_CHECK(call.out.flush());  // the second way may take ten times as long
    }
    if (result->divergence) report_divergence(call.out, *result, o.matmul, json ? &out : nullptr);
    results.push_back(std::move(*result));
  }
  bool equal = true;
  if (results.size() == 2) {
    equal = results[0].nll == results[1].nll;
    out.emplace_back("equal", equal);
    if (!json) {
      call.out.print("{}\n",
                     equal ? "equal to the bit at every position"
                           : "NOT EQUAL: the model reads what it is asked to predict, or the cache is wrong");
    }
  }
  if (json) call.out.print("{}\n", Json(std::move(out)).dump());
  return equal ? 0 : 1;
}

}  // namespace sightline::apps
