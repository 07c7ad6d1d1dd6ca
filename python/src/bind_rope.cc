// Rotations of arrays by a RopeSpec: in f32 with the engine's arithmetic, in float64 with the oracle's.
#include "arrays.h"
#include "bind.h"
#include "docstrings.h"
#include "sightline/kernels/rope.h"
#include "sightline/kv_cache/rotary_pairs.h"
#include "sightline/reference/rotate.h"
#include "sightline/spec/attention_spec.h"

namespace sightline::python {

namespace {

using Positions = nb::ndarray<const std::int64_t, nb::ndim<1>, nb::c_contig, nb::device::cpu>;

// RopeSpec has a JSON form as a member of AttentionSpec; the head around it is as wide as the rotation.
RopeSpec rope_from_json(const std::string& text) {
  const Json rope = unwrap(parse_json(text, "RopeSpec"));
  std::int64_t rotary_dim = 0;
  if (const Json* given = rope.find("rotary_dim"); given != nullptr && given->as_int() != nullptr) {
    rotary_dim = *given->as_int();
  }
  const std::int64_t dim = std::clamp<std::int64_t>(rotary_dim, 1, 4096);
  const Json heads(JsonObject{{"qk_head_dim", Json(dim)}, {"v_head_dim", Json(dim)}});
  const AttentionSpec spec =
      unwrap(attention_spec_from_json(Json(JsonObject{{"heads", heads}, {"rope", rope}})));
  unwrap(validate(spec.rope, static_cast<int>(dim)));
  return spec.rope;
}

std::string rope_to_json(const RopeSpec& rope) {
  AttentionSpec spec;
  spec.rope = rope;
  return to_json(spec).find("rope")->dump(2);
}

void check_positions(const Positions& positions, std::int64_t num_tokens) {
  if (static_cast<std::int64_t>(positions.shape(0)) == num_tokens) return;
  throw nb::value_error(
      fmt::format("pos has {} entries, expected {}", positions.shape(0), num_tokens).c_str());
}

nb::ndarray<nb::numpy, float> rotate_f32(const RopeSpec& rope, const AnyArray& array,
                                         const Positions& positions, bool inverse, std::int64_t rope_length) {
  const Rows x(array, "x");
  check_positions(positions, x.num_sequences() * x.num_tokens());
  unwrap(validate(rope, static_cast<int>(x.dim())));
  const std::int64_t dim = x.dim();
  std::vector<float> out(static_cast<std::size_t>(x.num_sequences() * x.num_tokens() * x.num_heads() * dim));
  {
    const nb::gil_scoped_release released;
    const kernels::RotaryPairs pairs = rotary_pairs(rope);
    const std::vector<double> frequencies = rope_frequencies(rope, rope_length);
    const double magnitude = inverse ? 1.0 / rope.cos_sin_magnitude : rope.cos_sin_magnitude;
    const auto turn = inverse ? &kernels::rotate_head_back : &kernels::rotate_head;
    std::vector<float> cos(frequencies.size());
    std::vector<float> sin(frequencies.size());
    float* to = out.data();
    const std::int64_t* pos = positions.data();
    for (std::int64_t s = 0; s < x.num_sequences(); ++s) {
      const StridedView<const float, 3> rows = x.sequence(s);
      for (std::int64_t t = 0; t < x.num_tokens(); ++t, ++pos) {
        kernels::rope_cos_sin(frequencies, *pos, magnitude, cos.data(), sin.data());
        for (std::int64_t h = 0; h < x.num_heads(); ++h, to += dim) {
          gather_row(&rows(t, h, std::int64_t{0}), rows.strides[2], dim, to);
          turn(pairs, cos.data(), sin.data(), to, 1, to, 1);
        }
      }
    }
  }
  return to_numpy(std::move(out), {static_cast<std::size_t>(x.num_sequences() * x.num_tokens()),
                                   static_cast<std::size_t>(x.num_heads()), static_cast<std::size_t>(dim)});
}

nb::ndarray<nb::numpy, double> rotate_f64(const RopeSpec& rope, const Input<double, 3>& array,
                                          const Positions& positions, bool inverse,
                                          std::int64_t rope_length) {
  const StridedView<const double, 3> x = view3(array);
  check_positions(positions, x.shape[0]);
  unwrap(validate(rope, static_cast<int>(x.shape[2])));
  std::vector<double> out(static_cast<std::size_t>(x.size()));
  const std::vector<double> frequencies = rope_frequencies(rope, rope_length);
  const auto turn = inverse ? reference::Turn::kInverse : reference::Turn::kForward;
  const auto dim = static_cast<std::size_t>(x.shape[2]);
  std::span<double> rest(out);
  for (std::int64_t t = 0; t < x.shape[0]; ++t) {
    for (std::int64_t h = 0; h < x.shape[1]; ++h, rest = rest.subspan(dim)) {
      if (dim == 0) continue;
      gather_row(&x(t, h, std::int64_t{0}), x.strides[2], x.shape[2], rest.data());
      reference::rotate(rope, frequencies, positions.data()[t], rest.first(dim), turn);
    }
  }
  return to_numpy(std::move(out),
                  {static_cast<std::size_t>(x.shape[0]), static_cast<std::size_t>(x.shape[1]), dim});
}

}  // namespace

void bind_rope(nb::module_& m) {
  nb::class_<RopeSpec>(
      m, "RopeSpec",
      "Which components of a head turn together, how fast, and by which scaling: the member `rope` "
      "of an AttentionSpec. Built by sightline.rope_spec.")
      .def_static("from_json", &rope_from_json, nb::arg("text"),
                  "A RopeSpec from its JSON form; ValueError names an unknown member or a wrong type.")
      .def("to_json", &rope_to_json, "JSON of every field; reading it gives an equal spec.")
      .def("__eq__", [](const RopeSpec& a, const RopeSpec& b) { return a == b; })
      .def("__repr__",
           [](const RopeSpec& rope) { return "RopeSpec.from_json('" + rope_to_json(rope) + "')"; })
      .def_prop_ro(
          "pairing", [](const RopeSpec& rope) { return std::string(to_string(rope.pairing)); },
          "none, interleaved or half_split.")
      .def_prop_ro(
          "rotary_dim", [](const RopeSpec& rope) { return rope.rotary_dim; },
          "Leading components that rotate.")
      .def_prop_ro(
          "theta", [](const RopeSpec& rope) { return rope.theta; }, "Base of the frequencies.")
      .def_prop_ro(
          "cos_sin_magnitude", [](const RopeSpec& rope) { return rope.cos_sin_magnitude; },
          "Multiplies cos and sin.");
  m.def("rotate_f32", &rotate_f32, nb::arg("rope"), nb::arg("x").noconvert(), nb::arg("pos"),
        nb::arg("inverse") = false, nb::arg("rope_length") = 0, kDoc_kernels_rotate_head);
  m.def("rotate_f64", &rotate_f64, nb::arg("rope"), nb::arg("x").noconvert(), nb::arg("pos"),
        nb::arg("inverse") = false, nb::arg("rope_length") = 0, kDoc_reference_rotate);
  m.def(
      "rope_frequencies",
      [](const RopeSpec& rope, std::int64_t rope_length) {
        std::vector<double> frequencies = rope_frequencies(rope, rope_length);
        const std::size_t size = frequencies.size();
        return to_numpy(std::move(frequencies), {size});
      },
      nb::arg("rope"), nb::arg("rope_length") = 0, kDoc_spec_rope_frequencies);
}

}  // namespace sightline::python
