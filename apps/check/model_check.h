// `check --model`: what another program does with the same model file. A core-only build has a stub.
#pragma once

#include <filesystem>
#include <functional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "apps/load_options.h"
#include "sightline/base/error.h"
#include "sightline/checker/report.h"

namespace sightline::apps {

struct ModelQuestion {
  std::filesystem::path model;
  std::filesystem::path dump;     ///< what another program made of it
  std::filesystem::path against;  ///< or: another file of the same model
  LoadStatements statements;      ///< what the files leave out, of `against` too
  double tolerance = 2e-3;        ///< nats, as in subjects::ModelDiagnosisOptions; without `against`
  std::string their_types;        ///< as parse_foreign_types reads them; empty: f32
  std::int64_t chunk = 0;         ///< tokens of one of the other program's forwards; 0: all at once
  int threads = 0;                ///< 0: all
  bool layers = false;            ///< tensors of layers alone: no faulted runs, and no tokenizer is needed
  std::vector<std::pair<std::string, std::string>> names;  ///< (our name, the dump's)

  friend bool operator==(const ModelQuestion&, const ModelQuestion&) = default;
};

struct ModelAnswer {
  checker::Report report;
  std::string declared;  ///< one line: what the file says
};

/// Runs the model beside the dump, or compares two files without running either. Errors: those of reading the
/// files and of running the model; kConfiguration in a build of the core alone.
[[nodiscard]] Result<ModelAnswer> check_model(
    const ModelQuestion& question, const std::function<void(int, int, std::string_view)>& progress);

}  // namespace sightline::apps
