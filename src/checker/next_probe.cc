#include "checker/next_probe.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

#include "checker/probe_inputs.h"
#include "checker/probes.h"
#include "sightline/checker/parting.h"

namespace sightline::checker {
namespace {

// How the inputs of a probe are made; what is not named is as in the observation.
struct Shape {
  AttentionSpec spec;
  ElementType type = ElementType::kF32;
  std::int64_t kv_len = 0;
  std::int64_t q_len = 0;
  std::int64_t call_length = 0;  // of calls after the first; 0: one call
  std::int64_t second_document = 0;
  std::int64_t num_pads = 0;  // in front, and one fewer behind
  std::int64_t rope_origin = 0;
  double loudness = 1;
  bool has_bias = false, has_lse = false, has_gradients = false;
};

Shape shape_of(const Observation& o) {
  Shape shape{.spec = o.spec, .type = o.type, .kv_len = o.kv_len(), .q_len = o.q_len()};
  if (o.call_begins.size() > 1) shape.call_length = o.call_begins[1];
  shape.has_bias = !o.bias.empty();
  shape.has_lse = !o.lse.empty();
  shape.has_gradients = !o.d_q.empty() || !o.d_k.empty() || !o.d_v.empty();
  return shape;
}

void make_whole(Shape& s) {
  s.q_len = s.kv_len = std::max<std::int64_t>({s.kv_len, 24, telling_length(s.spec.mask)});
  s.call_length = 0;
}
void make_calls(Shape& s, std::int64_t call_length) {
  make_whole(s);
  s.call_length = call_length;
  s.has_gradients = false;
}

struct Change {
  const char* what;
  void (*apply)(Shape&);
};

// Cheap questions first; each changes one thing.
constexpr Change kChanges[] = {
    {"other numbers of the same shape", [](Shape&) {}},
    {"the log-sum-exp beside the output", [](Shape& s) { s.has_lse = true; }},
    {"the same in f32", [](Shape& s) { s.type = ElementType::kF32; }},
    {"one call with more tokens than the mask's rules reach", make_whole},
    {"tokens in calls of 5, on the cache of those before", [](Shape& s) { make_calls(s, 5); }},
    {"one token a call, on the cache of those before", [](Shape& s) { make_calls(s, 1); }},
    {"rotary positions beyond 4096",
     [](Shape& s) {
       make_whole(s);
       s.rope_origin = kFarPosition;
     }},
    {"queries six times as large",
     [](Shape& s) {
       make_whole(s);
       s.loudness = kLoud;
     }},
    {"gradients of one call",
     [](Shape& s) {
       make_whole(s);
       s.has_gradients = true;
     }},
    {"two documents in a row of tokens",
     [](Shape& s) {
       make_whole(s);
       s.second_document = s.kv_len / 3 + 1;
     }},
    {"two documents in calls of 5",
     [](Shape& s) {
       make_calls(s, 5);
       s.second_document = s.kv_len / 3 + 1;
     }},
    {"padding in front and behind",
     [](Shape& s) {
       make_whole(s);
       s.num_pads = 3;
     }},
    {"an additive bias",
     [](Shape& s) {
       make_whole(s);
       s.has_bias = true;
     }},
    {"a layer of 6 query heads on 2 key heads",
     [](Shape& s) {
       make_whole(s);
       s.spec.heads.num_q_heads = 6;
       s.spec.heads.num_kv_heads = 2;
       ScoreSpec& score = s.spec.score;
       if (!score.alibi_slopes.empty()) score.alibi_slopes = alibi_slopes(6);
       if (!score.sink_logits.empty()) score.sink_logits.resize(6, 0.5);
     }},
    {"values of another width than keys",
     [](Shape& s) {
       make_whole(s);
       s.spec.heads.v_head_dim = s.spec.heads.qk_head_dim + 3;
     }},
};

Observation make_probe(const Shape& s) {
  Observation o;
  o.spec = s.spec;
  o.type = s.type;
  o.rope_length = s.kv_len;
  TokenLayout layout{.num_tokens = s.kv_len, .num_front_pads = s.num_pads};
  layout.num_back_pads = std::max<std::int64_t>(0, s.num_pads - 1);
  if (s.second_document > 0) layout.document_begins = {s.second_document};
  o.kv_coords = lay_out(layout);
  for (const TokenCoord& coord : o.kv_coords) {
    o.kv_rope_pos.push_back(s.rope_origin + coord.pos - coord.segment_start);
  }
  o.q_coords.assign(o.kv_coords.end() - s.q_len, o.kv_coords.end());
  o.q_rope_pos.assign(o.kv_rope_pos.end() - s.q_len, o.kv_rope_pos.end());
  Rng rng(1);
  draw_inputs(rng, s.loudness, o);
  if (s.has_bias) o.bias = draw(rng, s.type, s.spec.heads.num_q_heads * s.q_len * s.kv_len);
  if (s.call_length > 0) {
    for (std::int64_t begin = 0; begin < s.q_len; begin += s.call_length) o.call_begins.push_back(begin);
  }
  // One number says that an output is wanted.
  o.out = {0.0};
  if (s.has_lse) o.lse = {0.0};
  if (s.has_gradients) {
    draw_upstream(rng, o);
    o.d_q = o.d_k = o.d_v = {0.0};
  }
  return o;
}

// The largest difference of two predictions, in units of the rounding bound.
double distance(const Prediction& a, const Prediction& b) {
  double most = 0;
  const auto compare = [&](const PredictedArray& x, const PredictedArray& y) {
    for (std::size_t i = 0; i < x.values.size(); ++i) {
      const double a_i = x.values[i];
      const double b_i = y.values[i];
      if (a_i == b_i || (std::isnan(a_i) && std::isnan(b_i))) continue;
      if (std::isinf(x.bounds[i]) || std::isinf(y.bounds[i])) continue;  // either may be anything
      const double difference = std::abs(a_i - b_i);
      most = std::max(most, std::isfinite(difference) ? difference / std::max(x.bounds[i], y.bounds[i])
                                                      : std::numeric_limits<double>::infinity());
    }
  };
  compare(a.out, b.out);
  compare(a.lse, b.lse);
  compare(a.d_q, b.d_q);
  compare(a.d_k, b.d_k);
  compare(a.d_v, b.d_v);
  return most;
}

std::vector<std::int64_t> spread_rows(std::int64_t q_len) {
  constexpr std::int64_t kMaxRows = 40;
  std::vector<std::int64_t> rows;
  const std::int64_t step = std::max<std::int64_t>(1, q_len / kMaxRows);
  for (std::int64_t row = (q_len - 1) % step; row < q_len; row += step) rows.push_back(row);
  return rows;
}

Parting part_on(const Observation& probe, std::span<const Candidate> candidates) {
  const Simulator simulator(probe, spread_rows(probe.q_len()));
  std::vector<Prediction> answers;
  for (const Candidate& c : candidates) {
    Result<Prediction> answer = simulator.predict(c.faults);
    // A fault that does not apply answers rightly.
    if (!answer) answer = simulator.predict({});
    if (!answer) return {};
    answers.push_back(std::move(*answer));
  }
  return part(answers, kExcluded, distance);
}

std::string describe(const Change& change, const Shape& shape) {
  std::string text = fmt::format("{}: {} tokens", change.what, shape.kv_len);
  if (shape.q_len < shape.kv_len) text += fmt::format(", the last {} as queries", shape.q_len);
  if (shape.call_length > 0) text += fmt::format(", {} a call", shape.call_length);
  if (shape.second_document > 0)
    text += fmt::format(", a second document from token {}", shape.second_document);
  if (shape.rope_origin > 0) text += fmt::format(", rotated from position {}", shape.rope_origin);
  return text;
}

}  // namespace

std::string next_probe(const Observation& seen, std::span<const Candidate> candidates) {
  const auto num_candidates = static_cast<int>(candidates.size());
  const int num_pairs = num_candidates * (num_candidates - 1) / 2;
  std::string best;
  int most = 0;
  for (const Change& change : kChanges) {
    Shape shape = shape_of(seen);
    change.apply(shape);
    const Parting parting = part_on(make_probe(shape), candidates);
    if (parting.num_parted <= most) continue;
    most = parting.num_parted;
    best = describe(change, shape);
    if (most == num_pairs) {
      return best +
             fmt::format("; there they differ by {:.2g} times the rounding bound or more", parting.least);
    }
  }
  if (most == 0) return "";
  return best + fmt::format("; that tells apart {} of {} pairs", most, num_pairs);
}

}  // namespace sightline::checker
