#include "subjects/dump/axes.h"

#include <algorithm>
#include <array>

#include "sightline/formats/tensor_info.h"

namespace sightline::subjects {
namespace {

// Size and stride of an axis; an axis that is not there has one entry.
struct Axis {
  std::int64_t size = 1;
  std::int64_t stride = 0;
};

Axis axis_of(const DumpArray& array, const std::string& axes, char letter) {
  const auto at = axes.find(letter);
  if (at == std::string::npos) return {};
  std::int64_t stride = 1;
  for (std::size_t i = at + 1; i < array.shape.size(); ++i) stride *= array.shape[i];
  return {array.shape[at], stride};
}

std::string without_heads(std::string axes) {
  std::erase(axes, 'h');
  return axes;
}

// The sizes, if q, k, v and out agree under these axes.
std::optional<Layout> sizes_under(const AxesQuestion& question, const std::string& axes) {
  Layout layout;
  const std::size_t rank = axes.size();
  if (question.q->shape.size() != rank || question.k->shape.size() != rank ||
      question.v->shape.size() != rank) {
    return std::nullopt;
  }
  const auto size = [&](const DumpArray* array, char letter) { return axis_of(*array, axes, letter).size; };
  layout.axes = axes;
  layout.num_batch = size(question.q, 'b');
  layout.q_len = size(question.q, 't');
  layout.kv_len = size(question.k, 't');
  const std::int64_t num_q_heads = size(question.q, 'h');
  const std::int64_t num_kv_heads = size(question.k, 'h');
  const std::int64_t v_dim = size(question.v, 'd');
  bool fits = size(question.k, 'b') == layout.num_batch && size(question.v, 'b') == layout.num_batch &&
              size(question.v, 't') == layout.kv_len && size(question.v, 'h') == num_kv_heads &&
              size(question.q, 'd') == size(question.k, 'd') && num_kv_heads > 0 && layout.q_len > 0 &&
              num_q_heads % num_kv_heads == 0 && (layout.q_len <= layout.kv_len || question.has_positions);
  if (fits && question.out != nullptr) {
    const std::vector<std::int64_t>& out = question.out->shape;
    if (out.size() == rank) {
      fits = size(question.out, 'b') == layout.num_batch && size(question.out, 't') == layout.q_len &&
             size(question.out, 'h') == num_q_heads && size(question.out, 'd') == v_dim;
    } else {
      const std::string merged = without_heads(axes);
      layout.is_merged = true;
      fits = out.size() == merged.size() && axis_of(*question.out, merged, 't').size == layout.q_len &&
             axis_of(*question.out, merged, 'b').size == layout.num_batch &&
             axis_of(*question.out, merged, 'd').size == num_q_heads * v_dim;
    }
  }
  if (!fits) return std::nullopt;
  layout.heads = {static_cast<int>(num_q_heads), static_cast<int>(num_kv_heads),
                  static_cast<int>(size(question.q, 'd')), static_cast<int>(v_dim)};
  return layout;
}

std::string shapes_of(const AxesQuestion& question) {
  std::string text = fmt::format("{} {}, {} {}, {} {}", question.q->name, shape_to_string(question.q->shape),
                                 question.k->name, shape_to_string(question.k->shape), question.v->name,
                                 shape_to_string(question.v->shape));
  if (question.out != nullptr) {
    text += fmt::format(", {} {}", question.out->name, shape_to_string(question.out->shape));
  }
  return text;
}

std::string in_words(const std::string& axes) {
  std::string text;
  for (const char c : axes) {
    const char* word = c == 'b' ? "batch" : c == 't' ? "tokens" : c == 'h' ? "heads" : "dim";
    text += (text.empty() ? "" : ", ") + std::string(word);
  }
  return "[" + text + "]";
}

}  // namespace

Result<Layout> find_layout(const Dump& dump, const AxesQuestion& question, const std::string& told) {
  static constexpr std::array kOrders = {"td", "thd", "htd", "bthd", "bhtd"};
  std::vector<Layout> fitting;
  for (const std::string axes : kOrders) {
    if (!told.empty() && axes != told) continue;
    if (auto layout = sizes_under(question, axes)) fitting.push_back(std::move(*layout));
  }
  if (fitting.empty()) {
    const bool is_known = told.empty() || std::ranges::find(kOrders, told) != kOrders.end();
    if (!is_known) {
      return fail(ErrorKind::kInvalidArgument, "--axes {}, expected one of td, thd, htd, bthd, bhtd", told);
    }
    return fail(ErrorKind::kInvalidContent, "{}: shapes do not agree{}: {}", dump.source,
                told.empty() ? "" : fmt::format(" as {}", in_words(told)), shapes_of(question));
  }
  if (fitting.size() == 1) return fitting.front();
  // Tokens and heads could be either way round: heads are the fewer.
  const Layout* best = nullptr;
  for (const Layout& layout : fitting) {
    if (layout.heads.num_q_heads < layout.q_len) {
      if (best != nullptr)
        best = nullptr;
      else
        best = &layout;
    }
  }
  if (best == nullptr) {
    return fail(ErrorKind::kInvalidContent,
                "{}: heads and tokens cannot be told apart by size ({}); say --axes {} or {}", dump.source,
                shapes_of(question), fitting[0].axes, fitting[1].axes);
  }
  Layout layout = *best;
  layout.assumption = fmt::format("axes {}: {} heads, {} tokens (--axes {} or another sets them)",
                                  in_words(layout.axes), layout.heads.num_q_heads, layout.q_len, layout.axes);
  return layout;
}

std::vector<double> to_tokens_heads_dim(const DumpArray& array, const std::string& axes, std::int64_t b) {
  const Axis batch = axis_of(array, axes, 'b');
  const Axis tokens = axis_of(array, axes, 't');
  const Axis heads = axis_of(array, axes, 'h');
  const Axis dim = axis_of(array, axes, 'd');
  std::vector<double> out;
  out.reserve(static_cast<std::size_t>(tokens.size * heads.size * dim.size));
  for (std::int64_t t = 0; t < tokens.size; ++t) {
    for (std::int64_t h = 0; h < heads.size; ++h) {
      for (std::int64_t d = 0; d < dim.size; ++d) {
        const std::int64_t at = b * batch.stride + t * tokens.stride + h * heads.stride + d * dim.stride;
        out.push_back(array.values[static_cast<std::size_t>(at)]);
      }
    }
  }
  return out;
}

}  // namespace sightline::subjects
