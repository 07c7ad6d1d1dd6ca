#include "sightline/subjects/model/read_model_observations.h"

#include <algorithm>
#include <charconv>
#include <cmath>

#include <fmt/ranges.h>

#include "sightline/base/file.h"
#include "sightline/subjects/dump/dump.h"

namespace sightline::subjects {
namespace {

constexpr std::uint64_t kMaxJsonBytes = std::uint64_t{128} << 20;

std::size_t at(std::int64_t i) { return static_cast<std::size_t>(i); }

Result<TokenId> token_id(double x, const std::string& source) {
  if (!(x >= 0 && x < 2147483648.0) || x != std::floor(x)) {
    return fail(ErrorKind::kInvalidContent, "{}: {} is no token id", source, x);
  }
  return static_cast<TokenId>(x);
}

// Log-probability of each next token from logits of one text.
std::vector<double> next_logprobs(const double* logits, std::int64_t vocab, const std::vector<TokenId>& ids) {
  std::vector<double> logprobs;
  for (std::size_t i = 0; i + 1 < ids.size(); ++i) {
    const double* row = logits + static_cast<std::int64_t>(i) * vocab;
    const double largest = *std::max_element(row, row + vocab);
    double sum = 0;
    for (std::int64_t c = 0; c < vocab; ++c) sum += std::exp(row[c] - largest);
    logprobs.push_back(row[ids[i + 1]] - largest - std::log(sum));
  }
  return logprobs;
}

// Leading axes of an array beyond `rank`, as one number of texts.
Result<std::int64_t> num_texts(const DumpArray& array, std::size_t rank, const std::string& source) {
  if (array.shape.size() == rank) return 1;
  if (array.shape.size() == rank + 1) return array.shape.front();
  return fail(ErrorKind::kInvalidContent, "{}: {} has {} axes, expected {} or {}", source, array.name,
              array.shape.size(), rank, rank + 1);
}

class DumpReader {
 public:
  explicit DumpReader(const Dump& dump) : dump_(dump) {}

  Result<std::vector<ModelObservation>> read() {
    const DumpArray* ids = dump_.find("input_ids");
    if (ids == nullptr) return fail(ErrorKind::kInvalidContent, "{}: input_ids is missing", dump_.source);
    SIGHTLINE_TRY(const std::int64_t count, num_texts(*ids, 1, dump_.source));
    const std::int64_t length = ids->shape.back();
    if (count == 0) return fail(ErrorKind::kInvalidContent, "{}: input_ids hold no text", dump_.source);
    texts_.resize(at(count));
    for (std::int64_t t = 0; t < count; ++t) {
      for (std::int64_t i = 0; i < length; ++i) {
        SIGHTLINE_TRY(const TokenId id, token_id(ids->values[at(t * length + i)], dump_.source));
        texts_[at(t)].ids.push_back(id);
      }
    }
    if (const DumpArray* logprobs = dump_.find("logprobs")) {
      SIGHTLINE_TRY(const auto rows, rows_of(*logprobs, {length - 1}));
      for (std::int64_t t = 0; t < count; ++t) texts_[at(t)].logprobs = rows[at(t)];
    } else if (const DumpArray* logits = dump_.find("logits")) {
      SIGHTLINE_CHECK(add_logits(*logits, length));
    }
    SIGHTLINE_CHECK(add_tensors());
    return std::move(texts_);
  }

 private:
  // The part of each text, of a shape that begins with `leading`.
  Result<std::vector<std::vector<double>>> rows_of(const DumpArray& array,
                                                   std::vector<std::int64_t> leading) {
    if (array.shape.size() < leading.size()) {
      return fail(ErrorKind::kInvalidContent, "{}: {} has {} axes, expected {} or more", dump_.source,
                  array.name, array.shape.size(), leading.size());
    }
    const std::size_t rank =
        array.shape.size() - (texts_.size() == 1 && array.shape.front() == leading.front() ? 0 : 1);
    SIGHTLINE_TRY(const std::int64_t count,
                  num_texts(array, std::max<std::size_t>(rank, leading.size()), dump_.source));
    const auto first =
        array.shape.end() - static_cast<std::ptrdiff_t>(std::max<std::size_t>(rank, leading.size()));
    if (count != std::ssize(texts_) || *first != leading.front()) {
      return fail(ErrorKind::kInvalidContent, "{}: {} does not fit {} texts of {} tokens", dump_.source,
                  array.name, texts_.size(), texts_.front().ids.size());
    }
    const std::size_t size = array.values.size() / texts_.size();
    std::vector<std::vector<double>> rows;
    for (std::size_t t = 0; t < texts_.size(); ++t) {
      const auto begin = array.values.begin() + static_cast<std::ptrdiff_t>(t * size);
      rows.emplace_back(begin, begin + static_cast<std::ptrdiff_t>(size));
    }
    return rows;
  }

  Result<void> add_logits(const DumpArray& logits, std::int64_t length) {
    SIGHTLINE_TRY(const auto rows, rows_of(logits, {length, 0}));
    const std::int64_t vocab = logits.shape.back();
    for (std::size_t t = 0; t < texts_.size(); ++t) {
      ModelObservation& text = texts_[t];
      if (std::ranges::any_of(text.ids, [&](TokenId id) { return id >= vocab; })) {
        return fail(ErrorKind::kInvalidContent, "{}: logits of {} tokens, and ids beyond them", dump_.source,
                    vocab);
      }
      text.logprobs = next_logprobs(rows[t].data(), vocab, text.ids);
    }
    return {};
  }

  // hidden.N and layer.N.TENSOR, with an axis of texts in front where the ids have one.
  Result<void> add_tensors() {
    const bool has_texts = dump_.find("input_ids")->shape.size() == 2;
    for (const DumpArray& array : dump_.arrays) {
      const bool is_hidden = array.name.starts_with("hidden.");
      if (!is_hidden && !array.name.starts_with("layer.")) continue;
      LayerTensor tensor;
      const char* end = array.name.data() + array.name.size();
      const auto [rest, error] =
          std::from_chars(array.name.data() + array.name.find('.') + 1, end, tensor.layer);
      const bool is_named = is_hidden ? rest == end : end - rest > 1 && *rest == '.';
      if (error != std::errc() || !is_named) {
        return fail(ErrorKind::kInvalidContent, "{}: {}, expected hidden.N or layer.N.TENSOR", dump_.source,
                    array.name);
      }
      if (!is_hidden) tensor.tensor = std::string(rest + 1, end);
      tensor.shape = array.shape;
      if (has_texts || (array.shape.size() == 4 && array.shape.front() == 1)) {
        if (array.shape.empty() || array.shape.front() != std::ssize(texts_)) {
          return fail(ErrorKind::kInvalidContent, "{}: {} has shape [{}], expected {} texts first",
                      dump_.source, array.name, fmt::join(array.shape, ", "), texts_.size());
        }
        tensor.shape.erase(tensor.shape.begin());
      }
      const std::size_t size = array.values.size() / texts_.size();
      for (std::size_t t = 0; t < texts_.size(); ++t) {
        const auto begin = array.values.begin() + static_cast<std::ptrdiff_t>(t * size);
        tensor.rows.assign(begin, begin + static_cast<std::ptrdiff_t>(size));
        texts_[t].tensors.push_back(tensor);
      }
    }
    return {};
  }

  const Dump& dump_;
  std::vector<ModelObservation> texts_;
};

Result<void> append_ids(const Json& json, std::string_view member, const std::string& source,
                        std::vector<TokenId>& ids) {
  const Json* found = json.find(member);
  if (found == nullptr) return {};
  if (found->as_array() == nullptr)
    return fail(ErrorKind::kInvalidContent, "{}: {} is no array", source, member);
  for (const Json& element : *found->as_array()) {
    double number = -1;
    if (!element.get_number(number))
      return fail(ErrorKind::kInvalidContent, "{}: {}: no number", source, member);
    SIGHTLINE_TRY(const TokenId id, token_id(number, source));
    ids.push_back(id);
  }
  return {};
}

Result<ModelObservation> text_from(const Json& json, const std::string& source) {
  ModelObservation text;
  for (const std::string_view member : {"input_ids", "prompt_ids", "ids"}) {
    SIGHTLINE_CHECK(append_ids(json, member, source, text.ids));
  }
  const Json* logprobs = json.find("logprobs");
  if (text.ids.empty() || logprobs == nullptr || logprobs->as_array() == nullptr) {
    return fail(ErrorKind::kInvalidContent, "{}: expected ids and logprobs", source);
  }
  for (std::size_t i = 0; i < logprobs->as_array()->size(); ++i) {
    const Json& element = (*logprobs->as_array())[i];
    const Json* value = element.as_object() != nullptr ? element.find("logprob") : &element;
    if (i == 0 && (value == nullptr || value->is_null())) continue;
    double number = 0;
    if (value == nullptr || !value->get_number(number)) {
      return fail(ErrorKind::kInvalidContent, "{}: logprobs[{}] is no number", source, i);
    }
    text.logprobs.push_back(number);
  }
  return text;
}

}  // namespace

Result<std::vector<ModelObservation>> read_model_observations(
    const std::filesystem::path& path, std::span<const std::pair<std::string, std::string>> names) {
  if (path.extension() != ".json") {
    SIGHTLINE_TRY(Dump dump, read_dump(path));
    for (const auto& [ours, theirs] : names) {
      const auto found = std::ranges::find(dump.arrays, theirs, &DumpArray::name);
      if (found == dump.arrays.end())
        return fail(ErrorKind::kInvalidContent, "{}: there is no array {}", dump.source, theirs);
      found->name = ours;
    }
    return DumpReader(dump).read();
  }
  SIGHTLINE_TRY(const std::string content, read_file(path, kMaxJsonBytes));
  SIGHTLINE_TRY(const Json json, parse_json(content, path.string()));
  std::vector<ModelObservation> texts;
  const JsonArray* many = json.as_array();
  const std::span<const Json> all =
      many != nullptr ? std::span<const Json>(*many) : std::span<const Json>(&json, 1);
  for (const Json& one : all) {
    SIGHTLINE_TRY(ModelObservation text, text_from(one, path.string()));
    texts.push_back(std::move(text));
  }
  return texts;
}

}  // namespace sightline::subjects
