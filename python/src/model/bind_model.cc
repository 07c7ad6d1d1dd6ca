// The extension module _model: a model file's logits, log-probabilities and text. A module of its own,
// because it needs the tokenizer's Rust part, which the wheel may be built without. Shares no types with
// _core: specs go as JSON.
#include <algorithm>
#include <memory>
#include <mutex>

#include "bind.h"
#include "model_docstrings.h"
#include "sightline/checker/html.h"
#include "sightline/generate/evaluate.h"
#include "sightline/generate/generate.h"
#include "sightline/subjects/model/model_diagnosis.h"

namespace sightline::python {

namespace {

using IdList = std::vector<TokenId>;

/// A model with its threads; one call at a time.
struct LoadedModel {
  LoadedModel(ThreadPool* threads, Model loaded) : pool(threads), model(std::move(loaded)) {}
  std::unique_ptr<ThreadPool> pool;
  Model model;
  std::optional<ModelText> text;
  std::string no_text;  ///< why there is none
  std::mutex mutex;

  const Tokenizer& tokenizer() const {
    if (!text) throw nb::value_error(no_text.c_str());
    return text->tokenizer;
  }
};

// Runs `body` without the interpreter's lock; a pending exception of the interpreter comes before its error.
template <typename Body>
auto run(LoadedModel& self, Body body) {
  auto got = [&] {
    const nb::gil_scoped_release released;
    const std::lock_guard lock(self.mutex);
    return body();
  }();
  if (PyErr_Occurred() != nullptr) throw nb::python_error();
  return unwrap(std::move(got));
}

LoadOptions load_options(const std::string& matmul) {
  LoadOptions options;
  for (const Matmul known : {Matmul::kNative, Matmul::kBf16, Matmul::kF32}) {
    options.matmul = known;
    if (matmul == to_string(known)) return options;
  }
  throw nb::value_error(fmt::format("Model: matmul = '{}', expected native, bf16 or f32", matmul).c_str());
}

LoadedModel* load(const std::string& path, int num_threads, const std::string& matmul) {
  const LoadOptions options = load_options(matmul);
  auto pool = std::make_unique<ThreadPool>(num_threads > 0 ? num_threads : available_threads());
  Result<Model> model = [&] {
    const nb::gil_scoped_release released;
    return Model::load(path, options, *pool);
  }();
  Model loaded = unwrap(std::move(model));
  auto* self = new LoadedModel(pool.release(), std::move(loaded));
  Result<ModelText> text = load_model_text(path);
  if (text) {
    self->text = std::move(*text);
  } else {
    self->no_text = text.error().message;
  }
  return self;
}

nb::ndarray<nb::numpy, float> logits(LoadedModel& self, const IdList& ids, std::int64_t chunk) {
  if (ids.empty() || chunk < 1)
    throw nb::value_error("logits: at least one token and a chunk of 1 are needed");
  const auto rows = static_cast<std::int64_t>(ids.size());
  const std::int64_t vocab_size = self.model.spec().vocab_size;
  std::vector<float> out(static_cast<std::size_t>(rows * vocab_size));
  run(self, [&]() -> Result<void> {
    SIGHTLINE_TRY(KvCache cache, make_cache(self.model, {.context = rows}));
    const std::vector<SequenceId> sequences{cache.add_sequence()};
    const std::vector<TokenCoord> coords = coords_range(0, rows);
    for (std::int64_t begin = 0; begin < rows; begin += chunk) {
      const std::int64_t count = std::min(chunk, rows - begin);
      const std::vector<std::int64_t> offsets{0, count};
      std::vector<std::int64_t> wanted;
      for (std::int64_t i = 0; i < count; ++i) wanted.push_back(i);
      ForwardBatch batch;
      batch.sequences = sequences;
      batch.offsets = offsets;
      batch.token_ids =
          std::span(ids).subspan(static_cast<std::size_t>(begin), static_cast<std::size_t>(count));
      batch.q_coords =
          std::span(coords).subspan(static_cast<std::size_t>(begin), static_cast<std::size_t>(count));
      batch.logit_rows = wanted;
      SIGHTLINE_CHECK(self.model.forward(
          batch, cache, dense_view<float, 2>(out.data() + begin * vocab_size, {count, vocab_size})));
      if (wants_to_raise()) return fail(ErrorKind::kTryLater, "logits: interrupted");
    }
    return {};
  });
  return to_numpy(std::move(out), {static_cast<std::size_t>(rows), static_cast<std::size_t>(vocab_size)});
}

nb::ndarray<nb::numpy, double> log_probs(LoadedModel& self, const IdList& ids) {
  EvalOptions options;
  options.context = std::max<std::int64_t>(2, static_cast<std::int64_t>(ids.size()));
  EvalResult result = run(self, [&] {
    return evaluate_loss(self.model, ids, options,
                         [](std::int64_t, std::int64_t) { return !wants_to_raise(); });
  });
  for (double& x : result.nll) x = -x;
  const std::size_t size = result.nll.size();
  return to_numpy(std::move(result.nll), {size});
}

nb::dict to_dict(const GenerateResult& result, const Tokenizer& tokenizer) {
  nb::dict out;
  // A model may give bytes that are no UTF-8; they become U+FFFD, as everywhere.
  out["text"] = nb::steal(
      PyUnicode_DecodeUTF8(result.text.data(), static_cast<Py_ssize_t>(result.text.size()), "replace"));
  out["ids"] = result.ids;
  out["prompt_ids"] = result.prompt_ids;
  out["reason"] = std::string(to_string(result.reason));
  nb::list logprobs;
  for (const TokenLogprob& entry : result.logprobs) {
    nb::list top;
    for (const AlternativeLogprob& other : entry.top) top.append(nb::make_tuple(other.id, other.logprob));
    const std::string_view piece = tokenizer.token_text(entry.id);
    logprobs.append(nb::make_tuple(entry.id, nb::bytes(piece.data(), piece.size()), entry.logprob, top));
  }
  out["logprobs"] = logprobs;
  return out;
}

// (JSON, text, page) of a report on what another program made of some texts.
nb::tuple diagnose(LoadedModel& self, const std::vector<IdList>& texts,
                   const std::vector<std::vector<std::optional<double>>>& logprobs, std::int64_t chunk,
                   double tolerance, const std::string& their_types, const std::string& reproducer) {
  if (texts.size() != logprobs.size()) {
    throw nb::value_error(
        fmt::format("{} texts, and log-probabilities of {}", texts.size(), logprobs.size()).c_str());
  }
  std::vector<subjects::ModelObservation> observations;
  for (std::size_t i = 0; i < texts.size(); ++i) {
    subjects::ModelObservation o{.ids = texts[i], .chunk = chunk, .logprobs = {}, .tensors = {}};
    for (const std::optional<double>& x : logprobs[i]) {
      if (!x && o.num_unseen < std::ssize(o.logprobs)) {
        throw nb::value_error("log-probabilities: None is for the first ones of a text");
      }
      if (!x) ++o.num_unseen;
      o.logprobs.push_back(x.value_or(0));
    }
    observations.push_back(std::move(o));
  }
  const Tokenizer& tokenizer = self.tokenizer();
  const checker::Report report = run(self, [&]() -> Result<checker::Report> {
    subjects::ModelDiagnosisOptions options{.tolerance = tolerance, .stop = wants_to_raise};
    if (!their_types.empty()) {
      SIGHTLINE_TRY(options.types,
                    subjects::parse_foreign_types(their_types, self.model.info().tensor_types));
    }
    return subjects::diagnose_model(self.model, tokenizer, observations, options);
  });
  const std::string declared =
      "the model file as it is; layer 0: " + describe(self.model.attention_specs().front());
  return nb::make_tuple(checker::to_json(report).dump(2), checker::to_text(report),
                        checker::to_html(report, {declared, {}, reproducer}));
}

struct Asked {
  GenerateOptions options;
};

nb::list generate_text(LoadedModel& self, const std::vector<IdList>& prompts, const Asked& asked) {
  const Tokenizer& tokenizer = self.tokenizer();
  GenerateHooks hooks;
  hooks.cancelled = [] { return wants_to_raise(); };
  const std::vector<GenerateResult> results =
      run(self, [&] { return generate(self.model, tokenizer, prompts, asked.options, hooks); });
  nb::list out;
  for (const GenerateResult& result : results) out.append(to_dict(result, tokenizer));
  return out;
}

Asked asked(std::int64_t max_tokens, double temperature, int top_k, double top_p, double min_p,
            double repetition_penalty, std::uint64_t seed, const std::vector<std::string>& stops,
            std::optional<int> num_logprobs, bool echo, bool ignore_end) {
  Asked out;
  out.options.max_tokens = max_tokens;
  SamplingOptions& sampling = out.options.sampling;
  sampling.temperature = temperature;
  sampling.top_k = top_k;
  sampling.top_p = top_p;
  sampling.min_p = min_p;
  sampling.repetition_penalty = repetition_penalty;
  sampling.seed = seed;
  out.options.stops = stops;
  out.options.num_logprobs = num_logprobs;
  out.options.echo = echo;
  out.options.ignore_end = ignore_end;
  return out;
}

}  // namespace

NB_MODULE(_model, m) {
  m.doc() = "Model files: the part of the package sightline that needs the tokenizer's Rust library.";
  nb::class_<Asked>(m, "Asked", "What a generation is asked for: GenerateOptions by name.")
      .def(nb::new_(&asked), nb::arg("max_tokens"), nb::arg("temperature"), nb::arg("top_k"),
           nb::arg("top_p"), nb::arg("min_p"), nb::arg("repetition_penalty"), nb::arg("seed"),
           nb::arg("stops"), nb::arg("num_logprobs").none(), nb::arg("echo"), nb::arg("ignore_end"));
  nb::class_<LoadedModel>(m, "Model", kDoc_model_load)
      .def(nb::new_(&load), nb::arg("path"), nb::arg("num_threads"), nb::arg("matmul"))
      .def("logits", &logits, nb::arg("ids"), nb::arg("chunk"), kDoc_model_forward)
      .def("log_probs", &log_probs, nb::arg("ids"), kDoc_generate_evaluate_loss)
      .def("diagnose", &diagnose, nb::arg("texts"), nb::arg("logprobs"), nb::arg("chunk"),
           nb::arg("tolerance"), nb::arg("their_types"), nb::arg("reproducer"), kDoc_model_diagnose_model)
      .def("generate", &generate_text, nb::arg("prompts"), nb::arg("asked"), kDoc_generate_generate)
      .def(
          "encode",
          [](const LoadedModel& self, const std::string& text, bool add_special, bool parse_special) {
            return unwrap(self.tokenizer().encode(text, {add_special, parse_special}));
          },
          nb::arg("text"), nb::arg("add_special"), nb::arg("parse_special"), kDoc_text_encode)
      .def(
          "decode",
          [](const LoadedModel& self, const IdList& ids, bool skip_special) {
            const std::string text = unwrap(self.tokenizer().decode(ids, skip_special));
            return nb::steal(
                PyUnicode_DecodeUTF8(text.data(), static_cast<Py_ssize_t>(text.size()), "replace"));
          },
          nb::arg("ids"), nb::arg("skip_special"), kDoc_text_decode)
      .def("info", [](const LoadedModel& self) { return to_json(self.model.info()).dump(); })
      .def("attention_specs",
           [](const LoadedModel& self) {
             std::vector<std::string> out;
             for (const AttentionSpec& spec : self.model.attention_specs())
               out.push_back(to_json(spec).dump());
             return out;
           })
      .def_prop_ro("vocab_size", [](const LoadedModel& self) { return self.model.spec().vocab_size; })
      .def_prop_ro("context_length",
                   [](const LoadedModel& self) { return self.model.spec().context_length; });
}

}  // namespace sightline::python
