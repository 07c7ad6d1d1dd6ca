#include "apps/check/model_check.h"

#include <algorithm>

#include "sightline/model/model_text.h"
#include "sightline/subjects/model/layer_diagnosis.h"
#include "sightline/subjects/model/model_files.h"
#include "sightline/subjects/model/read_model_observations.h"

namespace sightline::apps {
namespace {

// What a diagnosis refuses here came out of the dump, not from the command line.
Result<checker::Report> of_content(Result<checker::Report> report) {
  if (report || report.error().kind != ErrorKind::kInvalidArgument) return report;
  return fail(ErrorKind::kInvalidContent, "{}", report.error().message);
}

}  // namespace

Result<ModelAnswer> check_model(const ModelQuestion& question,
                                const std::function<void(int, int, std::string_view)>& progress) {
  SIGHTLINE_TRY(const LoadOptions load, to_load_options(question.statements));
  if (!question.against.empty()) {
    SIGHTLINE_TRY(checker::Report report,
                  subjects::check_model_files(question.model.string(), question.against.string(), load));
    return ModelAnswer{std::move(report), question.model.string() + ", as it says and holds"};
  }
  SIGHTLINE_TRY(std::vector<subjects::ModelObservation> texts,
                subjects::read_model_observations(question.dump, question.names));
  for (subjects::ModelObservation& text : texts) text.chunk = question.chunk;
  ThreadPool pool(question.threads > 0 ? question.threads : available_threads());
  SIGHTLINE_TRY(Model model, Model::load(question.model.string(), load, pool));
  const std::string declared =
      fmt::format("{}, every layer as the file says; layer 0: {}", question.model.string(),
                  describe(model.attention_specs().front()));
  const bool has_logprobs = std::ranges::any_of(
      texts, [](const subjects::ModelObservation& text) { return !text.logprobs.empty(); });
  if (question.layers || !has_logprobs) {
    SIGHTLINE_TRY(checker::Report report,
                  of_content(subjects::diagnose_layers(model, texts, question.tolerance)));
    return ModelAnswer{std::move(report), declared};
  }
  SIGHTLINE_TRY(const ModelText text, load_model_text(question.model.string(), load));
  subjects::ModelDiagnosisOptions options{.tolerance = question.tolerance, .progress = progress};
  if (!question.their_types.empty()) {
    SIGHTLINE_TRY(options.types,
                  subjects::parse_foreign_types(question.their_types, model.info().tensor_types));
  }
  SIGHTLINE_TRY(checker::Report report,
                of_content(subjects::diagnose_model(model, text.tokenizer, texts, options)));
  return ModelAnswer{std::move(report), declared};
}

}  // namespace sightline::apps
