// `sightline check`: what a dump of arrays, or answers to probes, say about an implementation.
#include <algorithm>

#include "apps/check/declaration.h"
#include "apps/check/model_check.h"
#include "apps/check/subject_options.h"
#include "apps/command.h"
#include "apps/interrupt.h"
#include "sightline/checker/conventions.h"
#include "sightline/checker/diagnose.h"
#include "sightline/checker/html.h"
#include "sightline/subjects/dump/dump.h"

namespace sightline::apps {

namespace {

struct DumpQuestion {
  std::filesystem::path dump;
  std::string axes;
  std::vector<std::string> names;
};

struct CheckQuestion {
  DeclarationOptions declaration;
  DumpQuestion dump;
  SubjectOptions subject;
  ModelQuestion model;
  std::optional<std::string> type;
  std::string follows;
  std::filesystem::path html;
};

// The command that was typed, for a shell.
std::string command_line(const std::vector<std::string>& args) {
  std::string line = "sightline check";
  for (const std::string& arg : args) {
    const bool is_plain = !arg.empty() && arg.find_first_not_of(
                                              "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
                                              "0123456789-_=+./:,@%") == arg.npos;
    line += ' ';
    if (is_plain) {
      line += arg;
      continue;
    }
    line += '\'';
    for (const char c : arg) line += c == '\'' ? std::string("'\\''") : std::string(1, c);
    line += '\'';
  }
  return line;
}

// A report with what it stands on.
struct Answer {
  checker::Report report;
  std::string declared;
  std::vector<std::string> assumptions;
};

void add_options(Cli& cli, CheckQuestion& question) {
  cli.positional("DUMP", question.dump.dump, "an .npz or .safetensors file, or a folder of .npy files");
  add_subject_options(cli, question.subject);
  cli.option("--model", question.model.model, "FILE",
             "a model file or folder; DUMP then holds token ids with log-probabilities or tensors of layers");
  cli.option(
      "--against", question.model.against, "FILE",
      "with --model, in place of DUMP: another file or folder of the same model, compared without running");
  cli.option("--chunk", question.model.chunk, "N",
             "tokens of one of their calls on a cache, of a dump or with --model; 0: all at once")
      .range(0, 1 << 20);
  cli.option(
      "--tolerance", question.model.tolerance, "NATS",
      "with --model: by which rounding of f32 moves their log-probabilities; of tensors the share of their "
      "root mean square");
  cli.flag("--layers", question.model.layers,
           "with --model: hold the tensors of layers in DUMP alone, and run no faulted model");
  cli.option("--their-types", question.model.their_types, "TYPES",
             "with --model: what they round, in place of f32: llama.cpp, or what products read and what the "
             "cache holds, such as q8/f16, of f32, bf16, f16, q8, q8_k");
  cli.option("-t,--threads", question.model.threads, "N", "with --model: threads; 0: all").range(0, 1024);
  add_load_statements(cli, question.model.statements);
  add_declaration_options(cli, question.declaration);
  cli.option("--axes", question.dump.axes, "ORDER",
             "axes of q in a dump: td, thd, htd, bthd or bhtd; guessed if not given");
  cli.option("--name", question.dump.names, "OURS=THEIRS", "what the dump calls an array; may be repeated");
  cli.option("--type", question.type, "TYPE",
             "what the outputs are computed in; guessed from a dump, else f32, if not given")
      .choices({"f64", "f32", "bf16", "f16"});
  const std::vector<std::string_view> libraries = checker::convention_libraries();
  cli.option("--follows", question.follows, "LIBRARY",
             "documented ways of this library are conventions, no faults")
      .choices({libraries.begin(), libraries.end()});
}

std::optional<checker::ElementType> chosen_type(const CheckQuestion& question) {
  return question.type ? checker::parse_element_type(*question.type) : std::nullopt;
}

Result<std::vector<std::pair<std::string, std::string>>> dump_names(const CheckQuestion& question) {
  std::vector<std::pair<std::string, std::string>> names;
  for (const std::string& name : question.dump.names) {
    const auto equals = name.find('=');
    if (equals == std::string::npos || equals == 0) {
      return fail(ErrorKind::kInvalidArgument, "check: --name {}, expected OURS=THEIRS", name);
    }
    names.emplace_back(name.substr(0, equals), name.substr(equals + 1));
  }
  return names;
}

Result<subjects::DumpOptions> dump_options(const CheckQuestion& question) {
  subjects::DumpOptions options;
  options.axes = question.dump.axes;
  SIGHTLINE_TRY(options.names, dump_names(question));
  options.type = chosen_type(question);
  options.chunk = question.model.chunk;
  return options;
}

Result<Answer> answer_from_dump(const CheckQuestion& question) {
  if (question.subject != SubjectOptions{}) {
    return fail(ErrorKind::kInvalidArgument,
                "check: --heads, --tokens and the like are for --process, --library or --engine; a dump has "
                "its own sizes");
  }
  SIGHTLINE_TRY(subjects::DumpOptions options, dump_options(question));
  SIGHTLINE_TRY(const subjects::Dump dump, subjects::read_dump(question.dump.dump));
  SIGHTLINE_TRY(const HeadSpec heads, subjects::read_heads(dump, options));
  SIGHTLINE_TRY(options.spec, declared_spec(question.declaration, heads));
  if (!(options.spec.heads == HeadSpec{}) && !(options.spec.heads == heads)) {
    const auto sizes = [](const HeadSpec& h) {
      return fmt::format("{} query and {} key heads of {} (values {})", h.num_q_heads, h.num_kv_heads,
                         h.qk_head_dim, h.v_head_dim);
    };
    return fail(ErrorKind::kInvalidContent, "{} declares {}, the arrays have {}",
                question.declaration.spec.string(), sizes(options.spec.heads), sizes(heads));
  }
  SIGHTLINE_TRY(const subjects::DumpContent content, subjects::read_observations(dump, options));
  SIGHTLINE_TRY(checker::Report report, checker::diagnose(content.observations, {.guesses_calls = true}));
  return Answer{std::move(report), describe(content.observations.front().spec), content.assumptions};
}

Result<Answer> answer_from_subject(const CheckQuestion& question, Output& err) {
  if (!question.dump.axes.empty() || !question.dump.names.empty() || !question.dump.dump.empty()) {
    return fail(ErrorKind::kInvalidArgument, "check: DUMP, --axes and --name are for a dump, not for {}",
                question.subject.process.empty() ? "--library or --engine" : "--process");
  }
  SIGHTLINE_TRY(const HeadSpec heads, subject_heads(question.subject));
  SIGHTLINE_TRY(AttentionSpec spec, declared_spec(question.declaration, heads));
  // A file that states no heads means those of the options.
  if (spec.heads == HeadSpec{}) spec.heads = heads;
  SIGHTLINE_CHECK(validate(spec));
  SIGHTLINE_TRY(checker::CheckOptions options, check_options(question.subject));
  options.type = chosen_type(question).value_or(checker::ElementType::kF32);
  if (question.subject.engine && options.type == checker::ElementType::kF64) {
    return fail(ErrorKind::kInvalidArgument, "check: --engine computes in f32, not in f64");
  }
  Progress progress(err);
  options.progress = [&](int done, int total, std::string_view step) {
    progress.update(static_cast<std::uint64_t>(done), static_cast<std::uint64_t>(total), step);
  };
  const Result<std::unique_ptr<checker::Subject>> subject = start_subject(question.subject);
  if (!subject && subject.error().kind == ErrorKind::kIo) {
    return Answer{checker::broken_report("it was started", subject.error().message), describe(spec), {}};
  }
  if (!subject && !question.subject.process.empty()) {
    return Answer{checker::broken_report("it was greeted (docs/subjects.md)", subject.error().message),
                  describe(spec),
                  {}};
  }
  if (!subject) return tl::unexpected<Error>(subject.error());
  SIGHTLINE_TRY(checker::Report report, checker::check(**subject, spec, options));
  return Answer{std::move(report), describe(spec), {}};
}

Result<Answer> answer_from_model(const CheckQuestion& question, Output& err) {
  if (question.subject != SubjectOptions{} || question.declaration != DeclarationOptions{}) {
    return fail(ErrorKind::kInvalidArgument,
                "check: --model declares everything, got options of a declaration or of "
                "a subject beside it");
  }
  if (question.model.against.empty() == question.dump.dump.empty()) {
    return fail(ErrorKind::kInvalidArgument, "check: --model needs a DUMP or --against, one of them");
  }
  const ModelQuestion files{.model = question.model.model,
                            .against = question.model.against,
                            .statements = question.model.statements};
  if (!files.against.empty() && (question.model != files || !question.dump.names.empty())) {
    return fail(
        ErrorKind::kInvalidArgument,
        "check: --chunk, --tolerance, --their-types, --threads, --layers and --name are for a DUMP; with "
        "--against nothing is run");
  }
  if (!question.dump.axes.empty() || question.type) {
    return fail(ErrorKind::kInvalidArgument,
                "check: --axes and --type are for arrays of attention, not for --model");
  }
  ModelQuestion model = question.model;
  model.dump = question.dump.dump;
  SIGHTLINE_TRY(model.names, dump_names(question));
  Progress progress(err);
  SIGHTLINE_TRY(ModelAnswer answer, check_model(model, [&](int done, int total, std::string_view step) {
                  progress.update(static_cast<std::uint64_t>(done), static_cast<std::uint64_t>(total), step);
                }));
  return Answer{std::move(answer.report), std::move(answer.declared), {}};
}

Result<Answer> find_answer(const CheckQuestion& question, Output& err) {
  if (!question.model.model.empty()) return answer_from_model(question, err);
  if (question.model.statements != LoadStatements{}) {
    return fail(ErrorKind::kInvalidArgument,
                "check: --rope-theta, --window, --ignore-key and what else states something about a file are "
                "for --model");
  }
  const ModelQuestion chunk_alone{.chunk = question.model.chunk};
  if (question.model != chunk_alone) {
    return fail(ErrorKind::kInvalidArgument,
                "check: --against, --tolerance, --their-types, --threads and --layers are for --model");
  }
  if (question.subject.is_given() && question.model.chunk != 0) {
    return fail(ErrorKind::kInvalidArgument,
                "check: --chunk is for what a DUMP holds; a subject is asked in chunks by the probes");
  }
  return question.subject.is_given() ? answer_from_subject(question, err) : answer_from_dump(question);
}

Json to_json(const std::vector<std::string>& lines) {
  Json json = JsonArray{};
  for (const std::string& line : lines) json.push_back(line);
  return json;
}

void print(const Answer& answer, bool as_json, Output& out) {
  if (as_json) {
    Json document = checker::to_json(answer.report);
    document.set("declared", answer.declared);
    document.set("assumptions", to_json(answer.assumptions));
    out.print("{}\n", document.dump(2));
    return;
  }
  out.write(checker::to_text(answer.report));
  out.print("\n  declared  {}\n", answer.declared);
  for (const std::string& line : answer.assumptions) out.print("  assumed   {}\n", line);
}

Result<void> write_html(const CheckQuestion& question, const Answer& answer, const std::string& command) {
  const checker::HtmlContext context{answer.declared, answer.assumptions, command};
  const std::string page = checker::to_html(answer.report, context);
  SIGHTLINE_TRY(OutputFile file, OutputFile::create(question.html, true));
  SIGHTLINE_CHECK(file.append(std::as_bytes(std::span(page))));
  return file.commit();
}

}  // namespace

Result<int> run_check(Invocation& call) {
  CheckQuestion question;
  bool json = false;
  Cli cli(
      "check",
      "Says whether an implementation does what was declared, and if not, which fault explains it. What is "
      "checked is a dump of its arrays (q, k and v before rotation and at least one of out, lse, weights, "
      "d_q, d_k and d_v), or something that runs and answers probes.");
  add_options(cli, question);
  cli.option("--html", question.html, "FILE", "also write the report as one page to FILE; replaces it");
  cli.flag("--json", json, "one JSON document on standard output");
  cli.report_options();
  cli.epilog(
      "  sightline check layer0.npz --mask 'causal & window(256)' --rope half_split --theta 500000\n"
      "  sightline check --process 'python3 mine.py' --heads 8/2 --head-dim 64 --mask causal\n"
      "  sightline check --library ./libmine.so --mask 'causal & window(16)'\n"
      "  sightline check theirs.json --model model.gguf --their-types llama.cpp\n"
      "  sightline check layers.npz --model model.gguf --layers\n"
      "  sightline check --model model.gguf --against hf-folder\n"
      "Exit: 0 agrees, rounding or a convention; 1 anything else; 65 or 66 when the dump cannot be read.");
  const std::vector<std::string> args = call.args;
  if (auto ended = cli.parse(call)) return *ended;
  SIGHTLINE_CHECK(check_declaration(question.declaration));
  std::error_code ignored;  // a page that is not there yet is no dump
  if (std::filesystem::equivalent(question.html, question.dump.dump, ignored)) {
    return fail(ErrorKind::kInvalidArgument, "check: --html {} is the DUMP itself", question.html.string());
  }
  if (question.dump.dump.empty() && !question.subject.is_given() && question.model.model.empty()) {
    return fail(ErrorKind::kInvalidArgument, "check: what? Give a DUMP, --process, --library or --engine");
  }
  // A subject has a process group of its own, which Ctrl-C does not reach: it must be ended from here.
  std::optional<InterruptGuard> interrupt;
  if (question.subject.is_given()) interrupt.emplace();
  Result<Answer> found = find_answer(question, call.err);
  if (interrupt && InterruptGuard::requested()) {
    call.out.discard();
    return kExitInterrupted;
  }
  SIGHTLINE_TRY(Answer answer, std::move(found));
  if (!question.follows.empty()) SIGHTLINE_CHECK(checker::apply_conventions(question.follows, answer.report));
  if (!question.html.empty()) SIGHTLINE_CHECK(write_html(question, answer, command_line(args)));
  print(answer, json, call.out);
  return checker::exit_code(answer.report.verdict);
}

}  // namespace sightline::apps
