#include "subjects/process/protocol.h"

#include <cmath>
#include <limits>
#include <utility>

namespace sightline::subjects {
namespace {

using checker::Observation;
using checker::SubjectTraits;

constexpr int kMaxNesting = 4;

constexpr std::pair<const char*, bool SubjectTraits::*> kTakes[] = {
    {"positions", &SubjectTraits::takes_positions}, {"segments", &SubjectTraits::takes_segments},
    {"padding", &SubjectTraits::takes_padding},     {"gradients", &SubjectTraits::takes_gradients},
    {"chunks", &SubjectTraits::takes_chunks},       {"batch", &SubjectTraits::takes_batch},
    {"drafts", &SubjectTraits::takes_drafts},
};

Json array_of(const std::vector<double>& x) {
  JsonArray array;
  array.reserve(x.size());
  for (const double y : x) array.emplace_back(y);
  return array;
}

Json tensor(const std::vector<double>& x, std::initializer_list<std::int64_t> shape) {
  Json sizes = JsonArray{};
  for (const std::int64_t n : shape) sizes.push_back(n);
  Json json = JsonObject{};
  json.set("shape", std::move(sizes));
  json.set("data", array_of(x));
  return json;
}

// One member of every coordinate.
template <typename Field>
Json column(const std::vector<TokenCoord>& coords, Field field) {
  Json array = JsonArray{};
  for (const TokenCoord& coord : coords) array.push_back(static_cast<std::int64_t>(field(coord)));
  return array;
}

void set_tokens(const std::string& prefix, const std::vector<TokenCoord>& coords,
                const std::vector<std::int64_t>& rope_pos, Json& json) {
  json.set(prefix + "_pos", column(coords, [](const TokenCoord& c) { return c.pos; }));
  Json rope = JsonArray{};
  for (std::size_t i = 0; i < coords.size(); ++i)
    rope.push_back(rope_pos.empty() ? coords[i].pos : rope_pos[i]);
  json.set(prefix + "_rope_pos", std::move(rope));
  json.set(prefix + "_segment", column(coords, [](const TokenCoord& c) { return c.segment; }));
  json.set(prefix + "_segment_start", column(coords, [](const TokenCoord& c) { return c.segment_start; }));
  json.set(prefix + "_span", column(coords, [](const TokenCoord& c) { return c.span; }));
  json.set(prefix + "_flags", column(coords, [](const TokenCoord& c) { return c.flags; }));
  json.set(prefix + "_valid", column(coords, [](const TokenCoord& c) { return c.valid ? 1 : 0; }));
}

// One text of 0 and 1 a query.
Json visible_rows(const Observation& call) {
  const std::vector<std::uint8_t> pairs = checker::visible_pairs(call);
  const auto kv_len = static_cast<std::size_t>(call.kv_len());
  Json rows = JsonArray{};
  for (std::size_t i = 0; i < call.q_coords.size(); ++i) {
    std::string row;
    for (std::size_t j = 0; j < kv_len; ++j) row += pairs[i * kv_len + j] != 0 ? '1' : '0';
    rows.push_back(std::move(row));
  }
  return rows;
}

Result<void> add_numbers(const Json& json, std::string_view name, int depth, std::vector<double>& to) {
  if (const JsonArray* array = json.as_array()) {
    if (depth >= kMaxNesting) return fail(ErrorKind::kInvalidContent, "{}: nested too deep", name);
    for (const Json& element : *array) SIGHTLINE_CHECK(add_numbers(element, name, depth + 1, to));
    return {};
  }
  double number = std::numeric_limits<double>::quiet_NaN();
  if (!json.is_null() && !json.get_number(number)) {
    return fail(ErrorKind::kInvalidContent, "{}: expected numbers, got {}", name, json.dump().substr(0, 40));
  }
  to.push_back(number);
  return {};
}

Result<const Json*> member(const Json& json, const std::string& name) {
  const Json* found = json.find(name);
  if (found == nullptr) return fail(ErrorKind::kInvalidContent, "{} is missing", name);
  return found;
}

Result<std::vector<double>> tensor_from(const Json& json, const std::string& name) {
  SIGHTLINE_TRY(const Json* found, member(json, name));
  SIGHTLINE_TRY(const Json* data, member(*found, "data"));
  std::vector<double> numbers;
  SIGHTLINE_CHECK(add_numbers(*data, name, 0, numbers));
  return numbers;
}

Result<std::vector<std::int64_t>> integers_from(const Json& json, const std::string& name) {
  SIGHTLINE_TRY(const Json* found, member(json, name));
  std::vector<std::int64_t> integers;
  if (const JsonArray* array = found->as_array()) {
    for (const Json& element : *array) {
      if (element.as_int() == nullptr) return fail(ErrorKind::kInvalidContent, "{}: expected integers", name);
      integers.push_back(*element.as_int());
    }
    return integers;
  }
  return fail(ErrorKind::kInvalidContent, "{}: expected an array of integers", name);
}

Result<void> read_tokens(const Json& json, const std::string& prefix, std::vector<TokenCoord>& coords,
                         std::vector<std::int64_t>& rope_pos) {
  SIGHTLINE_TRY(const std::vector<std::int64_t> pos, integers_from(json, prefix + "_pos"));
  coords.assign(pos.size(), {});
  const auto column_of = [&](const char* name, auto set) -> Result<void> {
    SIGHTLINE_TRY(const std::vector<std::int64_t> values, integers_from(json, prefix + name));
    if (values.size() != coords.size()) {
      return fail(ErrorKind::kInvalidContent, "{}{} has {} entries, expected {}", prefix, name, values.size(),
                  coords.size());
    }
    for (std::size_t i = 0; i < coords.size(); ++i) set(coords[i], values[i]);
    return {};
  };
  SIGHTLINE_CHECK(column_of("_pos", [](TokenCoord& c, std::int64_t x) { c.pos = x; }));
  SIGHTLINE_CHECK(
      column_of("_segment", [](TokenCoord& c, std::int64_t x) { c.segment = static_cast<std::int32_t>(x); }));
  SIGHTLINE_CHECK(column_of("_segment_start", [](TokenCoord& c, std::int64_t x) { c.segment_start = x; }));
  SIGHTLINE_CHECK(
      column_of("_span", [](TokenCoord& c, std::int64_t x) { c.span = static_cast<std::int32_t>(x); }));
  SIGHTLINE_CHECK(
      column_of("_flags", [](TokenCoord& c, std::int64_t x) { c.flags = static_cast<std::uint32_t>(x); }));
  SIGHTLINE_CHECK(column_of("_valid", [](TokenCoord& c, std::int64_t x) { c.valid = x != 0; }));
  SIGHTLINE_TRY(rope_pos, integers_from(json, prefix + "_rope_pos"));
  return {};
}

}  // namespace

Json to_json(const SubjectTraits& traits) {
  Json takes = JsonArray{};
  for (const auto& [word, field] : kTakes) {
    if (traits.*field) takes.push_back(word);
  }
  Json json = JsonObject{};
  json.set("takes", std::move(takes));
  json.set("holds_cache", traits.holds_cache);
  if (traits.cache_bytes_per_token > 0) json.set("cache_bytes_per_token", traits.cache_bytes_per_token);
  return json;
}

Result<SubjectTraits> traits_from_json(const Json& json) {
  SIGHTLINE_TRY(const Json* takes, member(json, "takes"));
  const JsonArray* words = takes->as_array();
  if (words == nullptr) return fail(ErrorKind::kInvalidContent, "takes: expected an array of words");
  SubjectTraits traits;
  traits.takes_chunks = false;
  for (const Json& word : *words) {
    bool known = false;
    for (const auto& [name, field] : kTakes) {
      if (word.as_string() == nullptr || *word.as_string() != name) continue;
      traits.*field = true;
      known = true;
    }
    if (!known) {
      return fail(ErrorKind::kInvalidContent,
                  "takes: {}, expected positions, segments, padding, gradients, chunks, batch or drafts",
                  word.dump());
    }
  }
  if (const Json* holds = json.find("holds_cache")) {
    if (holds->as_bool() == nullptr)
      return fail(ErrorKind::kInvalidContent, "holds_cache: expected a boolean");
    traits.holds_cache = *holds->as_bool();
  }
  if (const Json* bytes = json.find("cache_bytes_per_token")) {
    if (!bytes->get_number(traits.cache_bytes_per_token) || traits.cache_bytes_per_token < 0) {
      return fail(ErrorKind::kInvalidContent, "cache_bytes_per_token: expected a number of bytes");
    }
  }
  return traits;
}

Json call_to_json(const Observation& call) {
  const HeadSpec& heads = call.spec.heads;
  Json json = JsonObject{};
  json.set("do", "answer");
  json.set("type", checker::to_string(call.type));
  json.set("q", tensor(call.q, {call.q_len(), heads.num_q_heads, heads.qk_head_dim}));
  json.set("k", tensor(call.k, {call.kv_len(), heads.num_kv_heads, heads.qk_head_dim}));
  json.set("v", tensor(call.v, {call.kv_len(), heads.num_kv_heads, heads.v_head_dim}));
  if (!call.bias.empty())
    json.set("bias", tensor(call.bias, {heads.num_q_heads, call.q_len(), call.kv_len()}));
  if (!call.d_out.empty()) {
    json.set("d_out", tensor(call.d_out, {call.q_len(), heads.num_q_heads, heads.v_head_dim}));
  }
  set_tokens("q", call.q_coords, call.q_rope_pos, json);
  set_tokens("kv", call.kv_coords, call.kv_rope_pos, json);
  json.set("is_self_attention", call.is_self_attention());
  if (!call.draft_parents.empty()) {
    Json parents = JsonArray{};
    for (const std::int32_t parent : call.draft_parents) parents.push_back(std::int64_t{parent});
    json.set("draft_parents", std::move(parents));
  }
  json.set("visible", visible_rows(call));
  json.set("spec", to_json(call.spec));
  return json;
}

Json batch_to_json(std::span<const Observation> rows) {
  Json calls = JsonArray{};
  for (const Observation& row : rows) calls.push_back(call_to_json(row));
  Json json = JsonObject{};
  json.set("do", "answer_batch");
  json.set("rows", std::move(calls));
  return json;
}

Result<Observation> call_from_json(const Json& json) {
  Observation call;
  SIGHTLINE_TRY(const Json* spec, member(json, "spec"));
  SIGHTLINE_TRY(call.spec, attention_spec_from_json(*spec));
  SIGHTLINE_TRY(const Json* type, member(json, "type"));
  const auto parsed =
      type->as_string() != nullptr ? checker::parse_element_type(*type->as_string()) : std::nullopt;
  if (!parsed) {
    return fail(ErrorKind::kInvalidContent, "type: {}, expected f64, f32, bf16 or f16", type->dump());
  }
  call.type = *parsed;
  SIGHTLINE_TRY(call.q, tensor_from(json, "q"));
  SIGHTLINE_TRY(call.k, tensor_from(json, "k"));
  SIGHTLINE_TRY(call.v, tensor_from(json, "v"));
  if (json.find("bias") != nullptr) {
    SIGHTLINE_TRY(call.bias, tensor_from(json, "bias"));
  }
  if (json.find("d_out") != nullptr) {
    SIGHTLINE_TRY(call.d_out, tensor_from(json, "d_out"));
  }
  SIGHTLINE_CHECK(read_tokens(json, "q", call.q_coords, call.q_rope_pos));
  SIGHTLINE_CHECK(read_tokens(json, "kv", call.kv_coords, call.kv_rope_pos));
  if (json.find("draft_parents") != nullptr) {
    SIGHTLINE_TRY(const std::vector<std::int64_t> parents, integers_from(json, "draft_parents"));
    SIGHTLINE_TRY(call.draft_parents, checker::draft_parents_from(parents));
  }
  // Sizes are held against the spec as those of an answered call are.
  SIGHTLINE_CHECK(validate(call.spec));
  const HeadSpec& heads = call.spec.heads;
  call.out.assign(static_cast<std::size_t>(call.q_len() * heads.num_q_heads * heads.v_head_dim), 0.0);
  SIGHTLINE_CHECK(validate(call));
  call.out.clear();
  return call;
}

Json answer_to_json(const Observation& call) {
  Json json = JsonObject{};
  for (const auto& [name, field] : checker::kOutputArrays) {
    if (!(call.*field).empty()) json.set(name, array_of(call.*field));
  }
  return json;
}

Result<void> read_answer(const Json& json, Observation& call) {
  if (json.as_object() == nullptr) return fail(ErrorKind::kInvalidContent, "the answer is no object");
  for (const auto& [name, field] : checker::kOutputArrays) {
    if (const Json* found = json.find(name)) SIGHTLINE_CHECK(add_numbers(*found, name, 0, call.*field));
  }
  return {};
}

Result<void> read_batch_answer(const Json& json, std::span<Observation> rows) {
  SIGHTLINE_TRY(const Json* answers, member(json, "rows"));
  const JsonArray* array = answers->as_array();
  if (array == nullptr || array->size() != rows.size()) {
    return fail(ErrorKind::kInvalidContent, "rows: expected an array of {} answers", rows.size());
  }
  for (std::size_t r = 0; r < rows.size(); ++r) SIGHTLINE_CHECK(read_answer((*array)[r], rows[r]));
  return {};
}

}  // namespace sightline::subjects
