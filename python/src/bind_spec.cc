// Specs, tokens, pictures and reasons.
#include <map>

#include "bind.h"
#include "docstrings.h"
#include "sightline/spec/attention_spec.h"

namespace sightline::python {

namespace {

using Column = nb::ndarray<const std::int64_t, nb::ndim<1>, nb::c_contig, nb::device::cpu>;

Tokens make_tokens(const Column& pos, const std::optional<Column>& rope_pos,
                   const std::optional<Column>& segment, const std::optional<Column>& span,
                   const std::optional<Column>& flags, const std::optional<Column>& valid) {
  Tokens tokens;
  const std::size_t size = pos.shape(0);
  const auto column = [&](const std::optional<Column>& given, const char* name) -> const std::int64_t* {
    if (!given) return nullptr;
    if (given->shape(0) != size) {
      throw nb::value_error(
          fmt::format("{} has {} entries, pos has {}", name, given->shape(0), size).c_str());
    }
    return given->data();
  };
  const std::int64_t* segments = column(segment, "segment");
  const std::int64_t* spans = column(span, "span");
  const std::int64_t* bits = column(flags, "flags");
  const std::int64_t* is_valid = column(valid, "valid");
  const std::int64_t* rope = column(rope_pos, "rope_pos");
  for (std::size_t i = 0; i < size; ++i) {
    TokenCoord coord;
    coord.pos = pos.data()[i];
    if (segments != nullptr) coord.segment = static_cast<std::int32_t>(segments[i]);
    if (spans != nullptr) coord.span = static_cast<std::int32_t>(spans[i]);
    if (bits != nullptr) coord.flags = static_cast<std::uint32_t>(bits[i]);
    if (is_valid != nullptr) coord.valid = is_valid[i] != 0;
    tokens.coords.push_back(coord);
    if (rope != nullptr) tokens.rope_pos.push_back(rope[i]);
  }
  return tokens;
}

Tokens slice(const Tokens& tokens, std::size_t begin, std::size_t count) {
  if (begin > tokens.coords.size() || count > tokens.coords.size() - begin) {
    throw nb::value_error(fmt::format("{} tokens from {} of {}", count, begin, tokens.coords.size()).c_str());
  }
  const auto part = [&](const auto& all) {
    using Column = std::remove_cvref_t<decltype(all)>;
    return all.empty() ? Column{} : Column(all.data() + begin, all.data() + begin + count);
  };
  return {part(tokens.coords), part(tokens.rope_pos)};
}

// Where the segments of one sequence start: the first valid position among its keys, which its queries share.
void set_segment_starts(std::span<TokenCoord> q, std::span<TokenCoord> kv) {
  std::map<std::int32_t, std::int64_t> starts;
  for (const TokenCoord& c : kv) {
    if (c.valid) starts.emplace(c.segment, c.pos);
  }
  for (const std::span<TokenCoord> coords : {q, kv}) {
    for (TokenCoord& c : coords) {
      const auto found = starts.find(c.segment);
      c.segment_start = found == starts.end() ? 0 : found->second;
    }
  }
}

// The same for sequences of one length that follow each other.
void set_all_segment_starts(Tokens& q, Tokens& kv, std::size_t num_sequences) {
  if (num_sequences == 0) return;
  const std::size_t q_len = q.coords.size() / num_sequences;
  const std::size_t kv_len = kv.coords.size() / num_sequences;
  for (std::size_t s = 0; s < num_sequences; ++s) {
    set_segment_starts(std::span(q.coords).subspan(s * q_len, q_len),
                       std::span(kv.coords).subspan(s * kv_len, kv_len));
  }
}

AttentionSpec spec_from_json(const std::string& text) {
  AttentionSpec spec = unwrap(attention_spec_from_json(unwrap(parse_json(text, "AttentionSpec"))));
  unwrap(validate(spec));
  return spec;
}

}  // namespace

void bind_spec(nb::module_& m) {
  nb::class_<Tokens>(m, "Tokens", "Coordinates of the tokens of one array, by row.")
      .def(
          "__init__",
          [](Tokens* self, const Column& pos, const std::optional<Column>& rope_pos,
             const std::optional<Column>& segment, const std::optional<Column>& span,
             const std::optional<Column>& flags, const std::optional<Column>& valid) {
            new (self) Tokens(make_tokens(pos, rope_pos, segment, span, flags, valid));
          },
          nb::arg("pos"), nb::arg("rope_pos") = nb::none(), nb::arg("segment") = nb::none(),
          nb::arg("span") = nb::none(), nb::arg("flags") = nb::none(), nb::arg("valid") = nb::none())
      .def("__len__", [](const Tokens& tokens) { return tokens.coords.size(); })
      .def("slice", &slice, nb::arg("begin"), nb::arg("count"), "Tokens [begin, begin + count).");
  m.def("set_segment_starts", &set_all_segment_starts, nb::arg("q"), nb::arg("kv"), nb::arg("num_sequences"),
        "Sets where each segment starts, for queries and keys, from the keys.");

  nb::class_<AttentionSpec>(m, "AttentionSpec", kDoc_spec_AttentionSpec)
      .def_static("from_json", &spec_from_json, nb::arg("text"), kDoc_spec_attention_spec_from_json)
      .def(
          "to_json", [](const AttentionSpec& spec) { return to_json(spec).dump(2); }, kDoc_spec_to_json)
      .def("__repr__", [](const AttentionSpec& spec) { return "AttentionSpec(" + describe(spec) + ")"; })
      .def("__eq__", [](const AttentionSpec& a, const AttentionSpec& b) { return a == b; })
      .def_prop_ro(
          "mask", [](const AttentionSpec& spec) { return to_string(spec.mask); }, "Who sees whom, as text.")
      .def_prop_ro(
          "rope", [](const AttentionSpec& spec) { return spec.rope; }, "How q and k are rotated, a RopeSpec.")
      .def_prop_ro(
          "softmax_scale", [](const AttentionSpec& spec) { return softmax_scale(spec.score, spec.heads); },
          "Multiplies q . k; 1 / sqrt(qk_head_dim) unless stated.")
      .def_prop_ro(
          "num_q_heads", [](const AttentionSpec& spec) { return spec.heads.num_q_heads; }, "Query heads.")
      .def_prop_ro(
          "num_kv_heads", [](const AttentionSpec& spec) { return spec.heads.num_kv_heads; },
          "Key and value heads; divides num_q_heads.")
      .def_prop_ro(
          "qk_head_dim", [](const AttentionSpec& spec) { return spec.heads.qk_head_dim; },
          "Width of a query and a key head.")
      .def_prop_ro(
          "v_head_dim", [](const AttentionSpec& spec) { return spec.heads.v_head_dim; },
          "Width of a value head.");

  m.def(
      "draw",
      [](const std::string& mask, const Tokens& q, const Tokens& kv, bool labels) {
        return draw(unwrap(parse_mask(mask)), {}, q.coords, kv.coords, {labels});
      },
      nb::arg("mask"), nb::arg("q"), nb::arg("kv"), nb::arg("labels") = false, kDoc_spec_draw);
  m.def(
      "visible",
      [](const std::string& text, const Tokens& q, const Tokens& kv) {
        const MaskSpec mask = unwrap(parse_mask(text));
        unwrap(validate_tables(mask, {}, std::ssize(q.coords), std::ssize(kv.coords)));
        std::vector<std::uint8_t> seen(q.coords.size() * kv.coords.size());
        {
          const nb::gil_scoped_release released;
          auto to = seen.begin();
          for (std::size_t i = 0; i < q.coords.size(); ++i) {
            const TokenRef query{q.coords[i], static_cast<std::int64_t>(i)};
            for (std::size_t j = 0; j < kv.coords.size(); ++j) {
              *to++ = is_visible(mask, {}, query, {kv.coords[j], static_cast<std::int64_t>(j)}) ? 1 : 0;
            }
          }
        }
        return to_numpy(std::move(seen), {q.coords.size(), kv.coords.size()});
      },
      nb::arg("mask"), nb::arg("q"), nb::arg("kv"), kDoc_spec_is_visible);
  m.def(
      "why",
      [](const std::string& mask, const Tokens& q, const Tokens& kv, std::int64_t q_row,
         std::int64_t kv_row) {
        const auto ref = [](const Tokens& tokens, std::int64_t row) {
          if (row < 0 || row >= static_cast<std::int64_t>(tokens.coords.size())) {
            throw nb::value_error(fmt::format("row {} of {}", row, tokens.coords.size()).c_str());
          }
          return TokenRef{tokens.coords[static_cast<std::size_t>(row)], row};
        };
        return why(unwrap(parse_mask(mask)), {}, ref(q, q_row), ref(kv, kv_row)).text;
      },
      nb::arg("mask"), nb::arg("q"), nb::arg("kv"), nb::arg("q_row"), nb::arg("kv_row"), kDoc_spec_why);
}

}  // namespace sightline::python
