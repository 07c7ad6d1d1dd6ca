// Diagnosis of arrays.
#include "bind.h"
#include "docstrings.h"
#include "following.h"
#include "sightline/checker/diagnose.h"
#include "sightline/checker/html.h"

namespace sightline::python {

namespace {

using Flat = nb::ndarray<const double, nb::ndim<1>, nb::c_contig, nb::device::cpu>;

std::vector<double> values(const Flat& array) { return {array.data(), array.data() + array.shape(0)}; }

}  // namespace

nb::tuple report_tuple(const checker::Report& report, const std::string& declared,
                       const std::string& reproducer) {
  return nb::make_tuple(checker::to_json(report).dump(2), checker::to_text(report),
                        checker::to_html(report, {declared, {}, reproducer}));
}

void bind_checker(nb::module_& m) {
  using checker::Observation;
  nb::class_<Observation>(m, "Observation", "One sequence: inputs, declared meaning, and what came out.")
      .def(
          "__init__",
          [](Observation* self, const AttentionSpec& spec, const std::string& type, const Tokens& q_tokens,
             const Tokens& kv_tokens, const std::vector<std::int64_t>& call_begins,
             std::int64_t rope_length) {
            Observation o;
            o.spec = spec;
            o.type = element_type(type);
            o.q_coords = q_tokens.coords;
            o.kv_coords = kv_tokens.coords;
            o.q_rope_pos = q_tokens.rope_pos;
            o.kv_rope_pos = kv_tokens.rope_pos;
            o.call_begins = call_begins;
            o.rope_length = rope_length;
            new (self) Observation(std::move(o));
          },
          nb::arg("spec"), nb::arg("type"), nb::arg("q_tokens"), nb::arg("kv_tokens"), nb::arg("call_begins"),
          nb::arg("rope_length") = 0)
      .def(
          "set",
          [](Observation& o, const std::string& name, const Flat& array) {
            if (name == "draft_parents") {
              const std::vector<double> given = values(array);
              const auto parents =
                  checker::draft_parents_from(std::vector<std::int64_t>(given.begin(), given.end()));
              if (!parents) throw nb::value_error(parents.error().message.c_str());
              o.draft_parents = *parents;
              return;
            }
            if (name == "dense") {
              for (const double x : values(array)) o.dense.push_back(x != 0 ? 1 : 0);
              return;
            }
            std::vector<double>* const places[] = {&o.q,   &o.k,       &o.v,   &o.bias, &o.d_out, &o.out,
                                                   &o.lse, &o.weights, &o.d_q, &o.d_k,  &o.d_v};
            constexpr const char* kNames[] = {"q",   "k",       "v",   "bias", "d_out", "out",
                                              "lse", "weights", "d_q", "d_k",  "d_v"};
            for (std::size_t i = 0; i < std::size(kNames); ++i) {
              if (name != kNames[i]) continue;
              *places[i] = values(array);
              return;
            }
            throw nb::value_error(fmt::format("an observation has no array {}", name).c_str());
          },
          nb::arg("name"), nb::arg("array"), "Sets one array, flattened in row-major order.");
  m.def(
      "diagnose",
      [](const std::vector<Observation*>& observations, const std::string& follows) {
        std::vector<Observation> all;
        for (const Observation* o : observations) all.push_back(*o);
        const checker::Report report = following(
            follows, [&] { return checker::diagnose(all, {.stop = wants_to_raise, .guesses_calls = true}); });
        return report_tuple(report, all.front().spec, "");
      },
      nb::arg("observations"), nb::arg("follows"), kDoc_checker_diagnose);
}

}  // namespace sightline::python
