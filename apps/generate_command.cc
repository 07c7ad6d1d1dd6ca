// sightline generate: text, ids or log-probabilities from a model, for one prompt or a file of them.
#include <chrono>
#include <utility>

#include "apps/fault_option.h"
#include "apps/interrupt.h"
#include "apps/model_options.h"
#include "apps/standard_input.h"
#include "sightline/base/file.h"
#include "sightline/generate/generate.h"

namespace sightline::apps {

namespace {

struct Options {
  ModelOptions model;
  std::string prompt;
  std::vector<std::string> prompt_parts;
  std::filesystem::path prompt_file, batch_file;
  std::optional<std::string> tokens;
  std::string system;
  bool has_prompt = false;
  bool chat = false, json = false, print_ids = false, parse_special = false, no_bos = false;
  std::string key_type = "f32", value_type = "f32";
  std::optional<std::string> fault;
  std::optional<int> num_logprobs;
  GenerateOptions generate;
};

/// "1,2,3" as ids.
Result<std::vector<TokenId>> parse_ids(const std::string& text) {
  std::vector<TokenId> ids;
  std::size_t begin = 0;
  while (begin <= text.size()) {
    const std::size_t end = std::min(text.find(',', begin), text.size());
    std::int64_t id = 0;
    SIGHTLINE_CHECK(parse_value("--tokens", std::string_view(text).substr(begin, end - begin), id));
    if (id < 0 || id > INT32_MAX) {
      return fail(ErrorKind::kInvalidArgument, "--tokens: {} is no token id", id);
    }
    ids.push_back(static_cast<TokenId>(id));
    begin = end + 1;
  }
  return ids;
}

void add_options(Cli& cli, Options& o) {
  add_load_options(cli, o.model);
  cli.option("-p,--prompt", o.prompt_parts, "TEXT",
             "the prompt; standard input when none is given; '' begins from the begin-of-text token");
  cli.option("-f,--file", o.prompt_file, "FILE", "the prompt from a file");
  cli.option("--batch", o.batch_file, "FILE", "one prompt a line; all run in one mixed batch");
  cli.option("--tokens", o.tokens, "1,2,3", "the prompt as token ids");
  cli.flag("--chat", o.chat, "the prompt is a user's message; applies the model's chat template");
  cli.option("--system", o.system, "TEXT", "the system message of --chat");
  cli.flag("--special", o.parse_special, "control tokens written in the prompt are control tokens");
  cli.flag("--no-bos", o.no_bos, "adds no begin-of-text token");
  cli.option("-n,--predict", o.generate.max_tokens, "N", "new tokens at most; 0 only scores the prompt")
      .range(0, 1 << 30);
  cli.option("-c,--ctx-size", o.generate.context, "N", "context in tokens; 0: what the model was trained for")
      .range(0, INT32_MAX);
  SamplingOptions& s = o.generate.sampling;
  cli.option("--temp", s.temperature, "X", "temperature; 0 is greedy");
  cli.option("--top-k", s.top_k, "N", "keeps the N likeliest; 0: all");
  cli.option("--top-p", s.top_p, "X", "keeps the likeliest that make up probability X");
  cli.option("--min-p", s.min_p, "X", "drops what is less likely than X times the likeliest");
  cli.option("--repeat-penalty", s.repetition_penalty, "X", "weakens tokens seen before; 1: off");
  cli.option("--repeat-last-n", s.penalty_last_n, "N", "how far back they count; -1: all");
  cli.option("--seed", s.seed, "N", "seed of the sampler");
  cli.option("--stop", o.generate.stops, "TEXT", "ends before this text; may be repeated");
  cli.flag("--ignore-eos", o.generate.ignore_end, "goes on after an end-of-generation token");
  cli.option("--logprobs", o.num_logprobs, "N", "natural log-probabilities with the N likeliest")
      .range(0, 1 << 20);
  cli.flag("--echo", o.generate.echo, "the prompt is part of the output");
  cli.flag("--ids", o.print_ids, "prints token ids instead of text");
  cli.option("--chunk", o.generate.chunk, "N", "prompt tokens of one forward").range(1, 1 << 20);
  cli.option("-ctk,--cache-type-k", o.key_type, "TYPE", "storage of cached keys").choices({"f32", "bf16"});
  cli.option("-ctv,--cache-type-v", o.value_type, "TYPE", "storage of cached values")
      .choices({"f32", "bf16"});
  cli.option("--fault", o.fault, "SLUG",
             "plants a fault of the table (--fault list) as data: what goes wrong?");
  add_run_options(cli, o.model);
  cli.flag("--json", o.json, "one JSON document");
  cli.report_options();
}

/// The prompts as ids, from whichever source was named.
Result<std::vector<std::vector<TokenId>>> read_prompts(const Options& o, const ModelText& text) {
  const int num_sources = (o.prompt_parts.empty() ? 0 : 1) + (o.prompt_file.empty() ? 0 : 1) +
                          (o.batch_file.empty() ? 0 : 1) + (o.tokens ? 1 : 0);
  if (num_sources > 1 || o.prompt_parts.size() > 1) {
    return fail(ErrorKind::kInvalidArgument, "generate: give one of -p, -f, --batch, --tokens, once");
  }
  if (o.chat && o.tokens) {
    return fail(ErrorKind::kInvalidArgument, "generate: --chat is about text, and --tokens gives none");
  }
  if (!o.system.empty() && !o.chat) {
    return fail(ErrorKind::kInvalidArgument, "generate: --system needs --chat");
  }
  if (o.tokens) {
    SIGHTLINE_TRY(auto ids, parse_ids(*o.tokens));
    return std::vector<std::vector<TokenId>>{std::move(ids)};
  }
  std::vector<std::string> prompts;
  std::string source = "--prompt";
  if (!o.batch_file.empty()) {
    source = o.batch_file.string();
    SIGHTLINE_TRY(const std::string lines, read_file(o.batch_file, std::uint64_t{64} << 20));
    for (std::size_t begin = 0; begin < lines.size();) {
      const std::size_t end = std::min(lines.find('\n', begin), lines.size());
      prompts.push_back(lines.substr(begin, end - begin));
      begin = end + 1;
    }
    if (prompts.empty())
      return fail(ErrorKind::kInvalidContent, "{}: holds no prompt", o.batch_file.string());
  } else if (!o.prompt_file.empty()) {
    source = o.prompt_file.string();
    SIGHTLINE_TRY(prompts.emplace_back(), read_file(o.prompt_file, std::uint64_t{64} << 20));
  } else if (!o.prompt_parts.empty()) {
    prompts.push_back(o.prompt_parts.front());
  } else {
    source = "standard input";
    if (is_standard_input_given()) {
      SIGHTLINE_TRY(prompts.emplace_back(), read_standard_input());
    }
    if (prompts.empty() || prompts.front().empty()) {
      return fail(
          ErrorKind::kInvalidArgument,
          "generate: no prompt; give one with -p, -f, --batch, --tokens or on standard input, or -p '' "
          "to begin from nothing");
    }
  }
  std::vector<std::vector<TokenId>> ids;
  for (std::size_t i = 0; i < prompts.size(); ++i) {
    const std::string& prompt = prompts[i];
    const std::string where = o.batch_file.empty() ? source : fmt::format("{}: line {}", source, i + 1);
    if (o.chat) {
      if (!text.chat_template) {
        return fail(ErrorKind::kInvalidContent, "{}: holds no chat template, which --chat needs",
                    o.model.model);
      }
      std::vector<ChatMessage> messages;
      if (!o.system.empty()) messages.push_back({"system", o.system});
      messages.push_back({"user", prompt});
      SIGHTLINE_TRY(ids.emplace_back(),
                    in_source(where, text.chat_template->encode(text.tokenizer, messages, true)));
    } else {
      SIGHTLINE_TRY(ids.emplace_back(),
                    in_source(where, text.tokenizer.encode(prompt, {.add_special = !o.no_bos,
                                                                    .parse_special = o.parse_special})));
    }
    if (ids.back().empty() && text.tokenizer.bos_id() >= 0) ids.back().push_back(text.tokenizer.bos_id());
  }
  return ids;
}

Json logprobs_json(const std::vector<TokenLogprob>& logprobs) {
  JsonArray out;
  for (const auto& entry : logprobs) {
    JsonArray top;
    for (const auto& other : entry.top)
      top.push_back(JsonObject{{"id", other.id}, {"logprob", other.logprob}});
    out.push_back(JsonObject{{"id", entry.id},
                             {"logprob", entry.logprob ? Json(*entry.logprob) : Json()},
                             {"top", std::move(top)}});
  }
  return out;
}

Json ids_json(const std::vector<TokenId>& ids) {
  JsonArray out;
  for (const TokenId id : ids) out.push_back(id);
  return out;
}

Json result_json(const GenerateResult& result, bool with_logprobs) {
  JsonObject out{{"prompt_ids", ids_json(result.prompt_ids)},
                 {"ids", ids_json(result.ids)},
                 {"text", result.text},
                 {"finish_reason", to_string(result.reason)}};
  if (with_logprobs) out.emplace_back("logprobs", logprobs_json(result.logprobs));
  return out;
}

void print_result(Invocation& call, const Options& o, const Tokenizer& tokenizer,
                  const GenerateResult& result, bool streamed) {
  if (o.print_ids) {
    std::vector<TokenId> ids = o.generate.echo ? result.prompt_ids : std::vector<TokenId>{};
    ids.insert(ids.end(), result.ids.begin(), result.ids.end());
    call.out.print("{}\n", fmt::join(ids, ","));
  } else {
    call.out.print("{}\n", streamed ? "" : result.text);
  }
  for (const auto& entry : result.logprobs) {
    call.out.print("{:>8}  {:>10}  {}\n", entry.id,
                   entry.logprob ? fmt::format("{:.6f}", *entry.logprob) : std::string("-"),
                   quote(tokenizer.token_text(entry.id)));
    for (const auto& other : entry.top) {
      call.out.print("{:>8}    {:>10.6f}  {}\n", other.id, other.logprob,
                     quote(tokenizer.token_text(other.id)));
    }
  }
}

/// How long the parts of a run took, for a person at a terminal.
class Speed {
 public:
  void prompts_done() {
    if (!decode_start_) decode_start_ = Clock::now();
  }
  [[nodiscard]] double seconds() const { return seconds_between(start_, Clock::now()); }
  /// Nothing where standard error is no terminal.
  void say(Output& err, const std::vector<GenerateResult>& results) const {
    if (!err.is_terminal()) return;
    std::ptrdiff_t num_prompt = 0, num_new = 0;
    for (const auto& result : results) {
      num_prompt += std::ssize(result.prompt_ids);
      num_new += std::ssize(result.ids);
    }
    const Clock::time_point end = Clock::now();
    const double prefill = seconds_between(start_, decode_start_.value_or(end));
    const double decode = seconds_between(decode_start_.value_or(end), end);
    // The first new token of each prompt comes out of the prefill.
    const std::ptrdiff_t num_decoded = num_new - std::ssize(results);
    const std::string rate =
        num_decoded > 0 && decode > 0
            ? fmt::format(" ({:.1f} tokens/s)", static_cast<double>(num_decoded) / decode)
            : std::string();
    err.print("note: {} prompt tokens in {:.2f} s ({:.1f} tokens/s), {} new in {:.2f} s{}\n", num_prompt,
              prefill, static_cast<double>(num_prompt) / std::max(prefill, 1e-9), num_new, decode, rate);
  }

 private:
  using Clock = std::chrono::steady_clock;
  static double seconds_between(Clock::time_point begin, Clock::time_point end) {
    return std::chrono::duration<double>(end - begin).count();
  }
  Clock::time_point start_ = Clock::now();
  std::optional<Clock::time_point> decode_start_;
};

void say_finish(Invocation& call, const GenerateResult& result, std::int64_t context) {
  if (result.reason == FinishReason::kContext) {
    call.err.print("note: ended because the context of {} token{} is full\n", context,
                   context == 1 ? "" : "s");
  }
}

}  // namespace

Result<int> run_generate(Invocation& call) {
  Options o;
  o.generate.sampling.top_k = 40;
  o.generate.sampling.top_p = 0.95;
  o.generate.sampling.min_p = 0.05;
  Cli cli("generate", "Writes text with a model.");
  add_options(cli, o);
  cli.epilog(
      "Greedy by default; --temp 0.8 samples.\n"
      "sightline generate -m model.gguf -p 'The capital of France is' -n 16\n"
      "sightline generate -m model.gguf --chat -p 'Why is the sky blue?'");
  if (auto ended = cli.parse(call)) return *ended;
  if (o.fault == "list") return list_faults(call);
  if (o.model.model.empty()) return fail(ErrorKind::kInvalidArgument, "generate: -m PATH is missing");

  SIGHTLINE_TRY(const LoadOptions load, to_load_options(o.model));
  SIGHTLINE_TRY(o.generate.key_type, parse_storage_type("-ctk", o.key_type));
  SIGHTLINE_TRY(o.generate.value_type, parse_storage_type("-ctv", o.value_type));
  o.generate.num_logprobs = o.num_logprobs;
  SIGHTLINE_CHECK(validate(o.generate.sampling));
  SIGHTLINE_TRY(const ModelText text, load_model_text(o.model.model, load));
  SIGHTLINE_TRY(const auto prompts, read_prompts(o, text));
  ThreadPool pool(resolve_threads(o.model.num_threads, call.err));

  const InterruptGuard interrupt;
  Progress progress(call.err);
  progress.update(0, 0, "loading weights");
  SIGHTLINE_TRY(Model model, Model::load(o.model.model, load, pool));
  const std::int64_t context = o.generate.context > 0 ? o.generate.context : model.spec().context_length;
  if (context > model.spec().context_length) {
    call.err.print("note: -c {} is more than the {} tokens the model was trained for\n", context,
                   model.spec().context_length);
  }

  GenerateHooks hooks;
  if (o.fault) SIGHTLINE_CHECK(plant_fault(*o.fault, model, hooks));
  hooks.cancelled = [&] { return InterruptGuard::requested() || !call.out.ok(); };
  const bool streams = prompts.size() == 1 && !o.json && !o.print_ids;
  Speed speed;
  if (streams) {
    hooks.on_text = [&](std::size_t, std::string_view piece) {
      progress.clear();
      call.out.write(piece);
      (void)call.out.flush();
    };
  }
  hooks.on_progress = [&](std::int64_t num_prefilled, std::int64_t num_prompt, std::int64_t num_new) {
    if (num_prefilled == num_prompt) speed.prompts_done();
    if (streams && call.out.is_terminal() && num_new > 0) return;  // the text itself is the progress
    const double seconds = speed.seconds();
    const auto num_done = static_cast<double>(num_prefilled + num_new);
    progress.update(static_cast<std::uint64_t>(num_prefilled + num_new),
                    static_cast<std::uint64_t>(num_prompt + o.generate.max_tokens * std::ssize(prompts)),
                    fmt::format("{} prompt + {} new tokens, {:.1f} tokens/s", num_prefilled, num_new,
                                seconds > 0 ? num_done / seconds : 0.0));
  };
  SIGHTLINE_TRY(const auto results,
                in_model(o.model, generate(model, text.tokenizer, prompts, o.generate, hooks)));
  progress.clear();

  if (o.json) {
    Json out;
    if (o.batch_file.empty()) {
      out = result_json(results.front(), o.num_logprobs.has_value());
    } else {
      for (const auto& result : results) out.push_back(result_json(result, o.num_logprobs.has_value()));
    }
    call.out.print("{}\n", out.dump());
  } else {
    for (const auto& result : results) print_result(call, o, text.tokenizer, result, streams);
  }
  bool cancelled = false;
  for (const auto& result : results) {
    say_finish(call, result, context);
    cancelled = cancelled || result.reason == FinishReason::kCancelled;
  }
  speed.say(call.err, results);
  SIGHTLINE_CHECK(call.out.flush());
  return cancelled ? kExitInterrupted : 0;
}

}  // namespace sightline::apps
