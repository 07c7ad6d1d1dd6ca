#include "checker/ask.h"

#include <algorithm>

namespace sightline::checker {
namespace {

// Rows [begin, end) of the queries, and the keys that exist by then.
Observation call_of(const Observation& o, std::int64_t begin, std::int64_t end) {
  const HeadSpec& heads = o.spec.heads;
  const std::int64_t num_keys = o.is_self_attention() ? o.kv_len() - o.q_len() + end : o.kv_len();
  const auto rows = [](const auto& all, std::int64_t first, std::int64_t last, std::int64_t width) {
    if (all.empty()) return all;
    return std::decay_t<decltype(all)>(all.begin() + first * width, all.begin() + last * width);
  };
  Observation call;
  call.spec = o.spec;
  call.type = o.type;
  call.rope_length = o.rope_length;
  call.q = rows(o.q, begin, end, std::int64_t{heads.num_q_heads} * heads.qk_head_dim);
  call.k = rows(o.k, 0, num_keys, std::int64_t{heads.num_kv_heads} * heads.qk_head_dim);
  call.v = rows(o.v, 0, num_keys, std::int64_t{heads.num_kv_heads} * heads.v_head_dim);
  call.q_coords = rows(o.q_coords, begin, end, 1);
  call.kv_coords = rows(o.kv_coords, 0, num_keys, 1);
  call.q_rope_pos = rows(o.q_rope_pos, begin, end, 1);
  call.kv_rope_pos = rows(o.kv_rope_pos, 0, num_keys, 1);
  // The drafts are in the last call, and earlier ones know of none.
  if (end == o.q_len()) call.draft_parents = o.draft_parents;
  call.d_out = rows(o.d_out, begin, end, std::int64_t{heads.num_q_heads} * heads.v_head_dim);
  if (!o.bias.empty()) {
    for (int h = 0; h < heads.num_q_heads; ++h) {
      for (std::int64_t i = begin; i < end; ++i) {
        const auto row = o.bias.begin() + (h * o.q_len() + i) * o.kv_len();
        call.bias.insert(call.bias.end(), row, row + num_keys);
      }
    }
  }
  return call;
}

// Puts the answer for rows [begin, ...) of `o` where it belongs.
void place(const Observation& call, std::int64_t begin, Observation& o) {
  const HeadSpec& heads = o.spec.heads;
  const auto append = [](const std::vector<double>& from, std::vector<double>& to) {
    to.insert(to.end(), from.begin(), from.end());
  };
  append(call.out, o.out);
  append(call.lse, o.lse);
  if (!call.weights.empty()) {
    o.weights.resize(static_cast<std::size_t>(heads.num_q_heads * o.q_len() * o.kv_len()));
    for (int h = 0; h < heads.num_q_heads; ++h) {
      for (std::int64_t i = 0; i < call.q_len(); ++i) {
        std::copy_n(call.weights.begin() + (h * call.q_len() + i) * call.kv_len(), call.kv_len(),
                    o.weights.begin() + (h * o.q_len() + begin + i) * o.kv_len());
      }
    }
  }
  if (o.d_out.empty()) return;
  o.d_q = call.d_q;
  o.d_k = call.d_k;
  o.d_v = call.d_v;
}

}  // namespace

Observation without_outputs(Observation answered) {
  for (const auto& [name, array] : kOutputArrays) (answered.*array).clear();
  return answered;
}

Result<void> ask(Subject& subject, Observation& question) {
  SIGHTLINE_CHECK(subject.begin_sequence());
  std::vector<std::int64_t> begins = question.call_begins;
  if (begins.empty()) begins.push_back(0);
  begins.push_back(question.q_len());
  for (std::size_t c = 0; c + 1 < begins.size(); ++c) {
    Observation call = call_of(question, begins[c], begins[c + 1]);
    SIGHTLINE_CHECK(subject.answer(call));
    if (call.out.empty()) return fail(ErrorKind::kInvalidContent, "it answered without out");
    if (const Result<void> valid = validate(call); !valid) {
      return fail(ErrorKind::kInvalidContent, "its answer does not fit the question: {}",
                  valid.error().message);
    }
    place(call, begins[c], question);
  }
  if (const Result<void> valid = validate(question); !valid) {
    return fail(ErrorKind::kInvalidContent, "it answered some calls and not others: {}",
                valid.error().message);
  }
  return {};
}

}  // namespace sightline::checker
