// From named arrays and a declaration to observations.
#include <algorithm>
#include <cmath>
#include <limits>

#include "sightline/base/half.h"
#include "sightline/formats/tensor_info.h"
#include "subjects/dump/axes.h"
#include "subjects/dump/names.h"

namespace sightline::subjects {
namespace {

using checker::ElementType;
using checker::Observation;

std::size_t at(std::int64_t i) { return static_cast<std::size_t>(i); }

// Everything that was found, under our names.
struct Found {
  const DumpArray *q, *k, *v, *out, *lse, *weights, *d_q, *d_k, *d_v, *d_out;
  const DumpArray *bias, *mask, *valid, *q_pos, *kv_pos, *q_rope_pos, *kv_rope_pos, *segment, *call_begins,
      *draft_parents;
};

Result<Found> find_all(const Dump& dump, const DumpOptions& options, std::vector<std::string>& assumptions) {
  for (const auto& [ours, theirs] : options.names) {
    if (std::ranges::find(array_names(), ours, &ArrayNames::ours) != array_names().end()) continue;
    return fail(ErrorKind::kInvalidArgument,
                "--name {}={}: no array has the name {} (docs/check.md lists them)", ours, theirs, ours);
  }
  Found found{};
  const DumpArray** places[] = {&found.q,           &found.k,       &found.v,           &found.out,
                                &found.lse,         &found.weights, &found.d_q,         &found.d_k,
                                &found.d_v,         &found.d_out,   &found.bias,        &found.mask,
                                &found.valid,       &found.q_pos,   &found.kv_pos,      &found.q_rope_pos,
                                &found.kv_rope_pos, &found.segment, &found.call_begins, &found.draft_parents};
  static_assert(std::size(places) == 20);
  for (std::size_t i = 0; i < std::size(places); ++i) {
    const std::string_view ours = array_names()[i].ours;
    SIGHTLINE_TRY(*places[i], find_array(dump, options, ours));
    if (*places[i] != nullptr && (*places[i])->name != ours) {
      assumptions.push_back(fmt::format("{} is {}", ours, (*places[i])->name));
    }
  }
  for (const auto& [array, name] : {std::pair{found.q, "q"}, {found.k, "k"}, {found.v, "v"}}) {
    if (array != nullptr) continue;
    std::string names;
    for (const DumpArray& a : dump.arrays) names += (names.empty() ? "" : ", ") + a.name;
    return fail(ErrorKind::kInvalidContent, "{}: no array {}; there are: {} (--name {}=THEIRS names one)",
                dump.source, name, names.empty() ? "none" : names, name);
  }
  return found;
}

// The narrowest type that holds every number.
ElementType narrowest(const DumpArray& array) {
  bool bf16 = true;
  bool f16 = true;
  bool f32 = true;
  for (const double x : array.values) {
    if (std::isnan(x)) continue;
    const auto narrow = static_cast<float>(x);
    f32 = f32 && static_cast<double>(narrow) == x;
    bf16 = bf16 && static_cast<double>(to_f32(to_bf16(narrow))) == x;
    f16 = f16 && static_cast<double>(to_f32(to_f16(narrow))) == x;
    if (!f32) return ElementType::kF64;
  }
  return bf16 ? ElementType::kBf16 : f16 ? ElementType::kF16 : ElementType::kF32;
}

Result<Layout> layout_of(const Dump& dump, const Found& found, const DumpOptions& options) {
  return find_layout(dump, {found.q, found.k, found.v, found.out, found.q_pos != nullptr}, options.axes);
}

class Reader {
 public:
  Reader(const Dump& dump, const DumpOptions& options, const Found& found, const Layout& layout)
      : dump_(dump), options_(options), found_(found), layout_(layout) {}

  Result<Observation> batch_row(std::int64_t b) const {
    Observation o;
    o.spec = options_.spec;
    o.spec.heads = layout_.heads;
    o.q = to_tokens_heads_dim(*found_.q, layout_.axes, b);
    o.k = to_tokens_heads_dim(*found_.k, layout_.axes, b);
    o.v = to_tokens_heads_dim(*found_.v, layout_.axes, b);
    SIGHTLINE_CHECK(read_coords(b, o));
    SIGHTLINE_TRY(o.out, like_out(found_.out, b));
    SIGHTLINE_TRY(o.d_out, like_out(found_.d_out, b));
    SIGHTLINE_TRY(o.d_q, like(found_.d_q, *found_.q, b));
    SIGHTLINE_TRY(o.d_k, like(found_.d_k, *found_.k, b));
    SIGHTLINE_TRY(o.d_v, like(found_.d_v, *found_.v, b));
    SIGHTLINE_TRY(o.lse, read_lse(b));
    SIGHTLINE_TRY(o.weights, over_pairs(found_.weights, b));
    SIGHTLINE_CHECK(read_bias(b, o));
    if (found_.draft_parents != nullptr && uses(o.spec.mask, MaskOp::kTree)) {
      const DumpArray& parents = *found_.draft_parents;
      if (parents.shape.size() != 1) return wrong_shape(parents, "one number a draft");
      SIGHTLINE_TRY(const auto all, integers(&parents, parents.shape[0], 0));
      Result<std::vector<std::int32_t>> read = checker::draft_parents_from(all);
      if (!read) return fail(ErrorKind::kInvalidContent, "{}: {}", dump_.source, read.error().message);
      o.draft_parents = std::move(*read);
    }
    if (found_.call_begins != nullptr) {
      for (const double x : found_.call_begins->values) o.call_begins.push_back(static_cast<std::int64_t>(x));
    } else if (options_.chunk > 0) {
      for (std::int64_t row = 0; row < layout_.q_len; row += options_.chunk) o.call_begins.push_back(row);
    }
    return o;
  }

 private:
  [[nodiscard]] tl::unexpected<Error> wrong_shape(const DumpArray& array, const std::string& expected) const {
    return fail(ErrorKind::kInvalidContent, "{}: {} has shape {}, expected {}", dump_.source, array.name,
                shape_to_string(array.shape), expected);
  }

  // An array with the shape of another.
  [[nodiscard]] Result<std::vector<double>> like(const DumpArray* array, const DumpArray& other,
                                                 std::int64_t b) const {
    if (array == nullptr) return std::vector<double>();
    if (array->shape != other.shape) return wrong_shape(*array, shape_to_string(other.shape));
    return to_tokens_heads_dim(*array, layout_.axes, b);
  }

  // out and its gradient: with the axes of q, or with heads merged into dim, which is the same memory.
  [[nodiscard]] Result<std::vector<double>> like_out(const DumpArray* array, std::int64_t b) const {
    if (array == nullptr) return std::vector<double>();
    const std::int64_t count =
        layout_.num_batch * layout_.q_len * layout_.heads.num_q_heads * layout_.heads.v_head_dim;
    if (static_cast<std::int64_t>(array->values.size()) != count) {
      return wrong_shape(*array, fmt::format("{} numbers", count));
    }
    if (array->shape.size() == layout_.axes.size()) return to_tokens_heads_dim(*array, layout_.axes, b);
    const std::int64_t row = count / layout_.num_batch;
    return std::vector(array->values.begin() + b * row, array->values.begin() + (b + 1) * row);
  }

  // [batch, heads, tokens] or [batch, tokens, heads], whichever the sizes say; as q when they leave it open.
  [[nodiscard]] Result<std::vector<double>> read_lse(std::int64_t b) const {
    if (found_.lse == nullptr) return std::vector<double>();
    const DumpArray& lse = *found_.lse;
    std::string own = layout_.axes;
    std::erase(own, 'd');
    std::string swapped = own;
    const auto t = own.find('t');
    const auto h = own.find('h');
    if (h != std::string::npos) std::swap(swapped[t], swapped[h]);
    for (const std::string& axes : {own, swapped}) {
      std::vector<std::int64_t> shape;
      for (const char c : axes) {
        shape.push_back(c == 'b' ? layout_.num_batch : c == 't' ? layout_.q_len : layout_.heads.num_q_heads);
      }
      if (lse.shape == shape) return to_tokens_heads_dim(lse, axes, b);
    }
    return wrong_shape(lse, fmt::format("{} heads by {} tokens", layout_.heads.num_q_heads, layout_.q_len));
  }

  // [batch, heads, q_len, kv_len] with axes of size 1 or missing in front repeated.
  [[nodiscard]] Result<std::vector<double>> over_pairs(const DumpArray* array, std::int64_t b) const {
    if (array == nullptr) return std::vector<double>();
    const std::int64_t full[] = {layout_.num_batch, layout_.heads.num_q_heads, layout_.q_len, layout_.kv_len};
    std::int64_t strides[4] = {};
    const auto rank = static_cast<std::int64_t>(array->shape.size());
    std::int64_t stride = 1;
    for (std::int64_t axis = 3; axis >= 0; --axis) {
      const std::int64_t i = rank - 4 + axis;
      if (i < 0) continue;
      const std::int64_t size = array->shape[at(i)];
      if (size != full[axis] && size != 1) {
        return wrong_shape(*array,
                           fmt::format("[{}, {}, {}, {}] or sizes of 1", full[0], full[1], full[2], full[3]));
      }
      strides[axis] = size == 1 ? 0 : stride;
      stride *= size;
    }
    if (rank > 4 || rank < 2) return wrong_shape(*array, "[heads, q_len, kv_len]");
    std::vector<double> out;
    for (std::int64_t h = 0; h < full[1]; ++h) {
      for (std::int64_t i = 0; i < full[2]; ++i) {
        for (std::int64_t j = 0; j < full[3]; ++j) {
          out.push_back(array->values[at(b * strides[0] + h * strides[1] + i * strides[2] + j * strides[3])]);
        }
      }
    }
    return out;
  }

  // The bias, and a mask of 0 and 1: the matrix of a mask that says `dense`, else a bias of minus infinity.
  Result<void> read_bias(std::int64_t b, Observation& o) const {
    SIGHTLINE_TRY(o.bias, over_pairs(found_.bias, b));
    SIGHTLINE_TRY(const std::vector<double> mask, over_pairs(found_.mask, b));
    if (mask.empty()) return {};
    if (found_.mask->type != "BOOL") {
      return fail(
          ErrorKind::kInvalidContent,
          "{}: {} is {}, expected booleans (a mask of numbers that is added is a bias: --name bias={})",
          dump_.source, found_.mask->name, found_.mask->type, found_.mask->name);
    }
    if (uses(o.spec.mask, MaskOp::kDense)) {
      const auto num_pairs = at(layout_.q_len * layout_.kv_len);
      for (std::size_t i = 0; i < mask.size(); ++i) {
        if (i < num_pairs) o.dense.push_back(mask[i] != 0 ? 1 : 0);
        if (mask[i] != mask[i % num_pairs]) {
          return fail(ErrorKind::kInvalidContent, "{}: {} differs by head, expected one matrix for `dense`",
                      dump_.source, found_.mask->name);
        }
      }
      return {};
    }
    if (o.bias.empty()) o.bias.assign(mask.size(), 0.0);
    for (std::size_t i = 0; i < mask.size(); ++i) {
      if (mask[i] == 0) o.bias[i] = -std::numeric_limits<double>::infinity();
    }
    return {};
  }

  // Integers of one batch row, [tokens] or [batch, tokens]; empty when there is no array.
  [[nodiscard]] Result<std::vector<std::int64_t>> integers(const DumpArray* array, std::int64_t num_tokens,
                                                           std::int64_t b) const {
    std::vector<std::int64_t> out;
    if (array == nullptr) return out;
    const std::vector<std::int64_t> per_batch{layout_.num_batch, num_tokens};
    const std::vector<std::int64_t> one_for_all{1, num_tokens};
    const bool is_shared =
        array->shape.size() == 1 ? array->shape[0] == num_tokens : array->shape == one_for_all;
    if (!is_shared && array->shape != per_batch) {
      return wrong_shape(*array, fmt::format("[{}] or {}", num_tokens, shape_to_string(per_batch)));
    }
    const std::int64_t first = is_shared ? 0 : b * num_tokens;
    for (std::int64_t i = first; i < first + num_tokens; ++i) {
      const double x = array->values[at(i)];
      if (x != std::floor(x) || std::abs(x) > 0x1p52) {
        return fail(ErrorKind::kInvalidContent, "{}: {}[{}] = {}, expected an integer", dump_.source,
                    array->name, i, x);
      }
      out.push_back(static_cast<std::int64_t>(x));
    }
    return out;
  }

  Result<void> read_coords(std::int64_t b, Observation& o) const {
    SIGHTLINE_TRY(const auto valid, integers(found_.valid, layout_.kv_len, b));
    SIGHTLINE_TRY(const auto kv_pos, integers(found_.kv_pos, layout_.kv_len, b));
    SIGHTLINE_TRY(const auto q_pos, integers(found_.q_pos, layout_.q_len, b));
    SIGHTLINE_TRY(const auto segment, integers(found_.segment, layout_.kv_len, b));
    std::int64_t next = 0;  // padding takes no position
    for (std::int64_t i = 0; i < layout_.kv_len; ++i) {
      TokenCoord coord;
      coord.valid = valid.empty() || valid[at(i)] != 0;
      coord.pos = kv_pos.empty() ? next : kv_pos[at(i)];
      if (coord.valid) ++next;
      if (!segment.empty()) coord.segment = static_cast<std::int32_t>(segment[at(i)]);
      o.kv_coords.push_back(coord);
    }
    set_segment_starts(o.kv_coords);
    // Queries are the last tokens, with all that is known of them, unless their positions say otherwise.
    const std::int64_t first = layout_.kv_len - layout_.q_len;
    for (std::int64_t i = 0; i < layout_.q_len; ++i) {
      TokenCoord coord = first >= 0 ? o.kv_coords[at(first + i)] : TokenCoord{};
      if (!q_pos.empty()) coord.pos = q_pos[at(i)];
      o.q_coords.push_back(coord);
    }
    SIGHTLINE_TRY(o.q_rope_pos, integers(found_.q_rope_pos, layout_.q_len, b));
    SIGHTLINE_TRY(o.kv_rope_pos, integers(found_.kv_rope_pos, layout_.kv_len, b));
    return {};
  }

  static void set_segment_starts(std::vector<TokenCoord>& coords) {
    for (TokenCoord& coord : coords) {
      const auto first = std::ranges::find_if(
          coords, [&](const TokenCoord& c) { return c.valid && c.segment == coord.segment; });
      if (first != coords.end()) coord.segment_start = first->pos;
    }
  }

  const Dump& dump_;
  const DumpOptions& options_;
  const Found& found_;
  const Layout& layout_;
};

}  // namespace

Result<HeadSpec> read_heads(const Dump& dump, const DumpOptions& options) {
  std::vector<std::string> assumptions;
  SIGHTLINE_TRY(const Found found, find_all(dump, options, assumptions));
  SIGHTLINE_TRY(const Layout layout, layout_of(dump, found, options));
  return layout.heads;
}

Result<DumpContent> read_observations(const Dump& dump, const DumpOptions& options) {
  DumpContent content;
  SIGHTLINE_TRY(const Found found, find_all(dump, options, content.assumptions));
  SIGHTLINE_TRY(
      const Layout layout,
      find_layout(dump, {found.q, found.k, found.v, found.out, found.q_pos != nullptr}, options.axes));
  if (!layout.assumption.empty()) content.assumptions.push_back(layout.assumption);
  if (found.q_pos == nullptr && layout.q_len < layout.kv_len) {
    content.assumptions.push_back(
        fmt::format("the {} queries are the last tokens of the {} keys", layout.q_len, layout.kv_len));
  }
  if (options.chunk > 0 && found.call_begins != nullptr) {
    return fail(ErrorKind::kInvalidArgument, "{}: {} says where calls begin, and --chunk {} does too",
                dump.source, found.call_begins->name, options.chunk);
  }
  ElementType type = options.type.value_or(ElementType::kF32);
  const DumpArray* judged = found.out != nullptr ? found.out : found.weights;
  if (!options.type && judged != nullptr) {
    type = narrowest(*judged);
    // Programs in f32 widen on the way out; only f64 inputs are a sign of f64 arithmetic.
    if (type == ElementType::kF64 && narrowest(*found.q) != ElementType::kF64) type = ElementType::kF32;
    content.assumptions.push_back(
        fmt::format("{} was computed in {} (--type sets it)", judged->name, checker::to_string(type)));
  }
  const Reader reader(dump, options, found, layout);
  for (std::int64_t b = 0; b < layout.num_batch; ++b) {
    SIGHTLINE_TRY(Observation o, reader.batch_row(b));
    o.type = type;
    const Result<void> valid = validate(o);
    if (!valid) return fail(ErrorKind::kInvalidContent, "{}: {}", dump.source, valid.error().message);
    content.observations.push_back(std::move(o));
  }
  return content;
}

}  // namespace sightline::subjects
