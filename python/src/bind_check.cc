// check with a Python callable as the subject.
#include "bind.h"
#include "docstrings.h"
#include "following.h"
#include "sightline/checker/check.h"

namespace sightline::python {

namespace {

using checker::CheckOptions;
using checker::Observation;
using checker::SubjectTraits;

using Flat = nb::ndarray<const double, nb::ndim<1>, nb::c_contig, nb::device::cpu>;

std::vector<std::size_t> shape3(std::int64_t a, std::int64_t b, std::int64_t c) {
  return {static_cast<std::size_t>(a), static_cast<std::size_t>(b), static_cast<std::size_t>(c)};
}

// One member of every coordinate, as int64.
template <typename Field>
nb::object column(const std::vector<TokenCoord>& coords, Field field) {
  std::vector<std::int64_t> values;
  for (const TokenCoord& coord : coords) values.push_back(static_cast<std::int64_t>(field(coord)));
  const std::size_t length = values.size();
  return nb::cast(to_numpy(std::move(values), {length}));
}

void set_tokens(nb::dict& to, const std::string& prefix, const std::vector<TokenCoord>& coords,
                const std::vector<std::int64_t>& rope_pos) {
  const auto set = [&](const char* name, nb::object value) {
    to[(prefix + name).c_str()] = std::move(value);
  };
  set("_pos", column(coords, [](const TokenCoord& c) { return c.pos; }));
  set("_rope_pos", rope_pos.empty() ? column(coords, [](const TokenCoord& c) { return c.pos; })
                                    : nb::cast(to_numpy(std::vector(rope_pos), {rope_pos.size()})));
  set("_segment", column(coords, [](const TokenCoord& c) { return c.segment; }));
  set("_segment_start", column(coords, [](const TokenCoord& c) { return c.segment_start; }));
  set("_span", column(coords, [](const TokenCoord& c) { return c.span; }));
  set("_flags", column(coords, [](const TokenCoord& c) { return c.flags; }));
  set("_valid", column(coords, [](const TokenCoord& c) { return c.valid ? 1 : 0; }));
}

nb::dict question_of(const Observation& call) {
  const HeadSpec& heads = call.spec.heads;
  nb::dict question;
  question["q"] = to_numpy(std::vector(call.q), shape3(call.q_len(), heads.num_q_heads, heads.qk_head_dim));
  question["k"] = to_numpy(std::vector(call.k), shape3(call.kv_len(), heads.num_kv_heads, heads.qk_head_dim));
  question["v"] = to_numpy(std::vector(call.v), shape3(call.kv_len(), heads.num_kv_heads, heads.v_head_dim));
  if (!call.d_out.empty()) {
    question["d_out"] =
        to_numpy(std::vector(call.d_out), shape3(call.q_len(), heads.num_q_heads, heads.v_head_dim));
  }
  set_tokens(question, "q", call.q_coords, call.q_rope_pos);
  set_tokens(question, "kv", call.kv_coords, call.kv_rope_pos);
  question["mask"] = to_numpy(checker::visible_pairs(call), {call.q_coords.size(), call.kv_coords.size()});
  question["draft_parents"] = to_numpy(std::vector(call.draft_parents), {call.draft_parents.size()});
  question["is_self_attention"] = call.is_self_attention();
  return question;
}

// `ask` takes a dict of arrays and returns one of flat float64 arrays; `ask_batch` a list of them.
class PythonSubject : public checker::Subject {
 public:
  PythonSubject(nb::callable ask, nb::callable ask_batch, const SubjectTraits& traits)
      : ask_(std::move(ask)), ask_batch_(std::move(ask_batch)), traits_(traits) {}

  [[nodiscard]] SubjectTraits traits() const override { return traits_; }

  Result<void> answer(Observation& call) override {
    return asking([&] { read(nb::cast<nb::dict>(ask_(question_of(call))), call); });
  }

  Result<void> answer_batch(std::span<Observation> rows) override {
    return asking([&] {
      nb::list questions;
      for (const Observation& row : rows) questions.append(question_of(row));
      const auto answers = nb::cast<nb::list>(ask_batch_(questions));
      for (std::size_t r = 0; r < rows.size(); ++r) read(nb::cast<nb::dict>(answers[r]), rows[r]);
    });
  }

 private:
  // Runs `exchange` with the interpreter held; what Python raises becomes the error.
  template <typename Exchange>
  static Result<void> asking(Exchange exchange) {
    const nb::gil_scoped_acquire locked;
    try {
      exchange();
    } catch (const nb::python_error& error) {
      if (!error.matches(PyExc_Exception)) throw;  // KeyboardInterrupt and the like end the check
      const std::string what = nb::cast<std::string>(nb::str(error.value()));
      return fail(ErrorKind::kInvalidContent, "{}: {}",
                  nb::cast<std::string>(nb::handle(error.type()).attr("__name__")), what);
    }
    return {};
  }

  static void read(const nb::dict& answers, Observation& call) {
    for (const auto& [name, field] : checker::kOutputArrays) {
      if (!answers.contains(name)) continue;
      const auto array = nb::cast<Flat>(answers[name]);
      (call.*field).assign(array.data(), array.data() + array.shape(0));
    }
  }

  nb::callable ask_, ask_batch_;
  SubjectTraits traits_;
};

SubjectTraits traits_of(const nb::dict& traits) {
  const auto is = [&](const char* name) { return nb::cast<bool>(traits[name]); };
  return {.takes_positions = is("takes_positions"),
          .takes_segments = is("takes_segments"),
          .takes_padding = is("takes_padding"),
          .takes_gradients = is("takes_gradients"),
          .takes_chunks = is("takes_chunks"),
          .takes_drafts = is("takes_drafts"),
          .takes_batch = is("takes_batch"),
          .cache_bytes_per_token = nb::cast<double>(traits["cache_bytes_per_token"])};
}

}  // namespace

checker::ElementType element_type(const std::string& type) {
  return checker::parse_element_type(type).value_or(checker::ElementType::kF32);
}

void bind_check(nb::module_& m) {
  m.def(
      "check",
      [](nb::callable ask, nb::callable ask_batch, const AttentionSpec& spec, const nb::dict& traits,
         const std::string& type, std::int64_t num_tokens, std::uint64_t seed, double budget,
         const std::string& follows, const std::string& reproducer) {
        PythonSubject subject(std::move(ask), std::move(ask_batch), traits_of(traits));
        CheckOptions options;
        options.type = element_type(type);
        options.num_tokens = num_tokens;
        options.seed = seed;
        options.budget = std::chrono::milliseconds(static_cast<std::int64_t>(budget * 1000));
        options.stop = wants_to_raise;
        const checker::Report report =
            following(follows, [&] { return checker::check(subject, spec, options); });
        return report_tuple(report, spec, reproducer);
      },
      nb::arg("ask"), nb::arg("ask_batch"), nb::arg("spec"), nb::arg("traits"), nb::kw_only(),
      nb::arg("type"), nb::arg("num_tokens"), nb::arg("seed"), nb::arg("budget"), nb::arg("follows"),
      nb::arg("reproducer"), kDoc_checker_check);
}

}  // namespace sightline::python
