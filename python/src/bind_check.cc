// check with a Python callable as the subject.
#include "bind.h"
#include "docstrings.h"
#include "sightline/checker/check.h"
#include "sightline/checker/conventions.h"

namespace sightline::python {

namespace {

using checker::CheckOptions;
using checker::Observation;
using checker::SubjectTraits;

using Flat = nb::ndarray<const double, nb::ndim<1>, nb::c_contig, nb::device::cpu>;

constexpr std::pair<const char*, std::vector<double> Observation::*> kOutputs[] = {
    {"out", &Observation::out}, {"lse", &Observation::lse}, {"weights", &Observation::weights},
    {"d_q", &Observation::d_q}, {"d_k", &Observation::d_k}, {"d_v", &Observation::d_v},
};

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
  question["is_self_attention"] = call.is_self_attention();
  return question;
}

// `ask` takes a dict of arrays and returns one of flat float64 arrays.
class PythonSubject : public checker::Subject {
 public:
  PythonSubject(nb::callable ask, const SubjectTraits& traits) : ask_(std::move(ask)), traits_(traits) {}

  [[nodiscard]] SubjectTraits traits() const override { return traits_; }

  Result<void> answer(Observation& call) override {
    const nb::gil_scoped_acquire locked;
    try {
      const auto answers = nb::cast<nb::dict>(ask_(question_of(call)));
      for (const auto& [name, field] : kOutputs) {
        if (!answers.contains(name)) continue;
        const auto array = nb::cast<Flat>(answers[name]);
        (call.*field).assign(array.data(), array.data() + array.shape(0));
      }
    } catch (const nb::python_error& error) {
      if (!error.matches(PyExc_Exception)) throw;  // KeyboardInterrupt and the like end the check
      const std::string what = nb::cast<std::string>(nb::str(error.value()));
      return fail(ErrorKind::kInvalidContent, "{}: {}",
                  nb::cast<std::string>(nb::handle(error.type()).attr("__name__")), what);
    }
    return {};
  }

 private:
  nb::callable ask_;
  SubjectTraits traits_;
};

}  // namespace

checker::ElementType element_type(const std::string& type) {
  return checker::parse_element_type(type).value_or(checker::ElementType::kF32);
}

void bind_check(nb::module_& m) {
  m.def(
      "check",
      [](nb::callable ask, const AttentionSpec& spec, bool takes_positions, bool takes_segments,
         bool takes_padding, bool takes_gradients, bool takes_chunks, const std::string& type,
         std::int64_t num_tokens, std::uint64_t seed, double budget, const std::string& follows,
         const std::string& reproducer) {
        PythonSubject subject(std::move(ask), {.takes_positions = takes_positions,
                                               .takes_segments = takes_segments,
                                               .takes_padding = takes_padding,
                                               .takes_gradients = takes_gradients,
                                               .takes_chunks = takes_chunks});
        CheckOptions options;
        options.type = element_type(type);
        options.num_tokens = num_tokens;
        options.seed = seed;
        options.budget = std::chrono::milliseconds(static_cast<std::int64_t>(budget * 1000));
        Result<checker::Report> got;
        {
          const nb::gil_scoped_release released;
          got = checker::check(subject, spec, options);
          if (got && !follows.empty()) {
            if (const Result<void> applied = checker::apply_conventions(follows, *got); !applied) {
              got = tl::unexpected<Error>(applied.error());
            }
          }
        }
        const checker::Report report = unwrap(std::move(got));
        return report_tuple(report, spec, reproducer);
      },
      nb::arg("ask"), nb::arg("spec"), nb::kw_only(), nb::arg("takes_positions"), nb::arg("takes_segments"),
      nb::arg("takes_padding"), nb::arg("takes_gradients"), nb::arg("takes_chunks"), nb::arg("type"),
      nb::arg("num_tokens"), nb::arg("seed"), nb::arg("budget"), nb::arg("follows"), nb::arg("reproducer"),
      kDoc_checker_check);
}

}  // namespace sightline::python
