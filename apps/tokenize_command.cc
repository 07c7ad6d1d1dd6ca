// sightline tokenize: text to token ids and back, with a model's or a vocabulary-only file's tokenizer.
#include "apps/model_options.h"
#include "apps/standard_input.h"
#include "sightline/base/file.h"
#include "sightline/model/model_text.h"

namespace sightline::apps {

namespace {

/// Ids separated by commas or white space.
Result<std::vector<TokenId>> parse_id_list(std::string_view text) {
  std::vector<TokenId> ids;
  while (true) {
    const std::size_t begin = text.find_first_not_of(", \t\r\n");
    if (begin == std::string_view::npos) return ids;
    text.remove_prefix(begin);
    const std::string_view word = text.substr(0, text.find_first_of(", \t\r\n"));
    std::int64_t id = 0;
    SIGHTLINE_CHECK(parse_value("token id", word, id));
    if (id < 0 || id > INT32_MAX) return fail(ErrorKind::kInvalidArgument, "{} is no token id", id);
    ids.push_back(static_cast<TokenId>(id));
    text.remove_prefix(word.size());
  }
}

}  // namespace

Result<int> run_tokenize(Invocation& call) {
  ModelOptions model;
  std::vector<std::string> texts;
  std::filesystem::path file;
  bool decode = false, json = false, parse_special = false, no_bos = false, keep_special = false;
  Cli cli("tokenize", "Turns text into token ids and back.");
  add_load_options(cli, model).required();
  cli.positional("TEXT", texts, "the text, or the ids with --decode; standard input when absent");
  cli.option("-f,--file", file, "FILE", "the text from a file");
  cli.flag("--decode", decode, "ids to text");
  cli.flag("--special", parse_special,
           "control tokens written in the text are control tokens; with --decode: print them");
  cli.flag("--no-bos", no_bos, "adds no begin- or end-of-text token");
  cli.flag("--json", json, "one JSON document: ids, and the text of each (U+FFFD where it is not UTF-8)");
  cli.report_options();
  if (auto ended = cli.parse(call)) return *ended;
  keep_special = decode && parse_special;
  if (!file.empty() && !texts.empty()) {
    return fail(ErrorKind::kInvalidArgument, "tokenize: give TEXT or -f, not both");
  }

  SIGHTLINE_TRY(const LoadOptions load, to_load_options(model.statements));
  SIGHTLINE_TRY(const ModelText text, load_model_text(model.model, load));
  std::string input;
  std::string source = "TEXT";
  if (!file.empty()) {
    source = file.string();
    SIGHTLINE_TRY(input, read_file(file, std::uint64_t{64} << 20));
  } else if (texts.empty()) {
    source = "standard input";
    SIGHTLINE_TRY(input, read_standard_input());
  } else {
    input = fmt::format("{}", fmt::join(texts, " "));
  }

  std::vector<TokenId> ids;
  if (decode) {
    SIGHTLINE_TRY(ids, in_source(source, parse_id_list(input)));
    SIGHTLINE_TRY(const std::string out, in_source(source, text.tokenizer.decode(ids, !keep_special)));
    if (json) {
      call.out.print("{}\n", Json(JsonObject{{"text", out}}).dump());
    } else {
      call.out.print("{}\n", out);
    }
    return 0;
  }
  SIGHTLINE_TRY(ids, in_source(source, text.tokenizer.encode(
                                           input, {.add_special = !no_bos, .parse_special = parse_special})));
  if (!json) {
    call.out.print("{}\n", fmt::join(ids, ","));
    return 0;
  }
  JsonArray ids_out, pieces;
  for (const TokenId id : ids) {
    ids_out.push_back(id);
    pieces.push_back(text.tokenizer.token_text(id));
  }
  call.out.print("{}\n", Json(JsonObject{{"ids", std::move(ids_out)}, {"pieces", std::move(pieces)}}).dump());
  return 0;
}

}  // namespace sightline::apps
