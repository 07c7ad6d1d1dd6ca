#include "sightline/reference/trace_player.h"

#include <algorithm>

namespace sightline::reference {
namespace {

std::size_t at(std::int64_t index) { return static_cast<std::size_t>(index); }

/// The rows of one token, [num_heads, dim].
std::vector<double> token_rows(const StridedView<const double, 3>& view, std::int64_t token_idx) {
  std::vector<double> rows;
  for (std::int64_t h = 0; h < view.shape[1]; ++h) {
    for (std::int64_t c = 0; c < view.shape[2]; ++c) rows.push_back(view(token_idx, h, c));
  }
  return rows;
}

Result<void> check_view(const StridedView<const double, 3>& view, std::array<std::int64_t, 3> expected,
                        const char* name) {
  if (view.shape == expected) return {};
  return fail(ErrorKind::kInvalidArgument, "trace: {} has shape [{}], expected [{}]", name,
              fmt::join(view.shape, ", "), fmt::join(expected, ", "));
}

Result<std::vector<std::int64_t>> filled_rope_pos(const std::vector<TokenCoord>& coords,
                                                  const std::vector<std::int64_t>& rope_pos,
                                                  const char* step) {
  if (!rope_pos.empty()) {
    if (rope_pos.size() == coords.size()) return rope_pos;
    return fail(ErrorKind::kInvalidArgument, "trace {}: rope_pos has {} entries, coords {}", step,
                rope_pos.size(), coords.size());
  }
  std::vector<std::int64_t> filled;
  for (const TokenCoord& coord : coords) filled.push_back(coord.pos);
  return filled;
}

}  // namespace

TracePlayer::TracePlayer(AttentionSpec spec, std::int64_t rope_length, Deviation deviation)
    : spec_(std::move(spec)), rope_length_(rope_length), deviation_(std::move(deviation)) {}

Result<TracePlayer> TracePlayer::create(AttentionSpec spec, std::int64_t rope_length, Deviation deviation) {
  SIGHTLINE_CHECK(validate(spec));
  for (const MaskOp op : {MaskOp::kDense, MaskOp::kTree}) {
    if (uses(spec.mask, op)) {
      return fail(ErrorKind::kInvalidArgument, "trace: the mask '{}' needs tables, which a trace has not",
                  to_string(spec.mask));
    }
  }
  return TracePlayer(std::move(spec), rope_length, std::move(deviation));
}

std::int64_t TracePlayer::length(int sequence) const {
  const auto found = sequences_.find(sequence);
  return found == sequences_.end() ? 0 : found->second.length;
}

std::span<const StoredToken> TracePlayer::tokens(int sequence) const {
  const auto found = sequences_.find(sequence);
  if (found == sequences_.end()) return {};
  return found->second.tokens;
}

Result<AttentionOutputs> TracePlayer::play(const TraceStep& step, const TraceStepData& data, Keep keep) {
  if (const auto* s = std::get_if<TraceQuery>(&step)) return query(*s, data, keep);
  Result<void> done;
  if (const auto* s = std::get_if<TraceAppend>(&step)) done = append(*s, data);
  if (const auto* s = std::get_if<TraceTruncate>(&step)) done = truncate(*s);
  if (const auto* s = std::get_if<TraceEvict>(&step)) done = evict(*s);
  if (const auto* s = std::get_if<TraceShift>(&step)) done = shift(*s);
  if (const auto* s = std::get_if<TraceFork>(&step)) done = fork(*s);
  SIGHTLINE_CHECK(done);
  return AttentionOutputs{};
}

Result<TracePlayer::Sequence*> TracePlayer::find(int sequence, const char* step) {
  const auto found = sequences_.find(sequence);
  if (found != sequences_.end()) return &found->second;
  return fail(ErrorKind::kInvalidArgument, "trace {}: no sequence {}", step, sequence);
}

Result<void> TracePlayer::check_range(const Sequence& sequence, std::int64_t begin, std::int64_t end,
                                      const char* step) const {
  if (0 <= begin && begin <= end && end <= sequence.length) return {};
  return fail(ErrorKind::kInvalidArgument, "trace {}: ordinals [{}, {}) are not within [0, {}]", step, begin,
              end, sequence.length);
}

Result<void> TracePlayer::append(const TraceAppend& step, const TraceStepData& data) {
  const auto num_tokens = static_cast<std::int64_t>(step.coords.size());
  const HeadSpec& heads = spec_.heads;
  SIGHTLINE_TRY(const std::vector<std::int64_t> rope_pos,
                filled_rope_pos(step.coords, step.rope_pos, "append"));
  SIGHTLINE_CHECK(check_view(data.k, {num_tokens, heads.num_kv_heads, heads.qk_head_dim}, "k"));
  SIGHTLINE_CHECK(check_view(data.v, {num_tokens, heads.num_kv_heads, heads.v_head_dim}, "v"));
  Sequence& sequence = sequences_[step.sequence];
  sequence.num_before = static_cast<std::int64_t>(sequence.tokens.size());

  std::int64_t rope_length = rope_length_;
  if (spec_.rope.length_policy == RopeLengthPolicy::kCurrentLength) {
    rope_length = 0;
    for (const StoredToken& token : sequence.tokens) {
      if (token.coord.valid) rope_length = std::max(rope_length, token.rope_pos + 1);
    }
    for (std::int64_t i = 0; i < num_tokens; ++i) {
      if (step.coords[at(i)].valid) rope_length = std::max(rope_length, rope_pos[at(i)] + 1);
    }
  }
  for (std::int64_t i = 0; i < num_tokens; ++i) {
    if (!step.coords[at(i)].valid) continue;
    sequence.tokens.push_back({.ordinal = sequence.length++,
                               .coord = step.coords[at(i)],
                               .rope_pos = rope_pos[at(i)],
                               .turned_to = rope_pos[at(i)],
                               .rope_length = rope_length,
                               .k = token_rows(data.k, i),
                               .v = token_rows(data.v, i)});
  }
  return {};
}

Result<AttentionOutputs> TracePlayer::query(const TraceQuery& step, const TraceStepData& data,
                                            Keep keep) const {
  const auto found = sequences_.find(step.sequence);
  if (found == sequences_.end()) {
    return fail(ErrorKind::kInvalidArgument, "trace query: no sequence {}", step.sequence);
  }
  const bool reads_rotated = spec_.rope.cache_stage == CacheStage::kAfterRotation;
  const bool keeps_length = reads_rotated && spec_.rope.length_policy == RopeLengthPolicy::kCurrentLength;
  std::vector<double> k, v;
  std::vector<TokenCoord> coords;
  std::vector<std::int64_t> rope_pos, rope_lengths;
  for (const StoredToken& token : found->second.tokens) {
    k.insert(k.end(), token.k.begin(), token.k.end());
    v.insert(v.end(), token.v.begin(), token.v.end());
    coords.push_back(token.coord);
    rope_pos.push_back(reads_rotated ? token.turned_to : token.rope_pos);
    if (keeps_length) rope_lengths.push_back(token.rope_length);
  }
  const auto kv_len = static_cast<std::int64_t>(coords.size());
  const HeadSpec& heads = spec_.heads;
  AttentionInputs inputs;
  inputs.q = data.q;
  inputs.k = dense_view<const double, 3>(k.data(), {kv_len, heads.num_kv_heads, heads.qk_head_dim});
  inputs.v = dense_view<const double, 3>(v.data(), {kv_len, heads.num_kv_heads, heads.v_head_dim});
  inputs.q_coords = step.coords;
  inputs.q_rope_pos = step.rope_pos;
  inputs.kv_coords = coords;
  inputs.kv_rope_pos = rope_pos;
  inputs.kv_rope_length = rope_lengths;
  inputs.rope_length = rope_length_;
  inputs.num_cached = std::min(found->second.num_before, kv_len);
  return attention_forward(spec_, inputs, keep, deviation_);
}

Result<void> TracePlayer::truncate(const TraceTruncate& step) {
  SIGHTLINE_TRY(Sequence * sequence, find(step.sequence, "truncate"));
  SIGHTLINE_CHECK(check_range(*sequence, step.num_tokens, sequence->length, "truncate"));
  std::erase_if(sequence->tokens, [&](const StoredToken& token) { return token.ordinal >= step.num_tokens; });
  sequence->length = step.num_tokens;
  return {};
}

Result<void> TracePlayer::evict(const TraceEvict& step) {
  SIGHTLINE_TRY(Sequence * sequence, find(step.sequence, "evict"));
  SIGHTLINE_CHECK(check_range(*sequence, step.begin, step.end, "evict"));
  std::erase_if(sequence->tokens, [&](const StoredToken& token) {
    return step.begin <= token.ordinal && token.ordinal < step.end;
  });
  return {};
}

Result<void> TracePlayer::shift(const TraceShift& step) {
  SIGHTLINE_TRY(Sequence * sequence, find(step.sequence, "shift"));
  SIGHTLINE_CHECK(check_range(*sequence, step.begin, step.end, "shift"));
  const auto is_moved = [&](const StoredToken& token) {
    return step.begin <= token.ordinal && token.ordinal < step.end;
  };
  const auto fits = [&](std::int64_t x) { return is_coordinate(x) && is_coordinate(x + step.delta); };
  for (const StoredToken& token : sequence->tokens) {
    if (!is_moved(token)) continue;
    const TokenCoord& coord = token.coord;
    if (is_coordinate(step.delta) && fits(coord.pos) && fits(coord.segment_start) && fits(token.rope_pos) &&
        fits(token.turned_to)) {
      continue;
    }
    return fail(ErrorKind::kInvalidArgument, "trace shift: delta = {} moves ordinal {} beyond 2^53",
                step.delta, token.ordinal);
  }
  for (StoredToken& token : sequence->tokens) {
    if (!is_moved(token)) continue;
    token.coord.pos += step.delta;
    token.coord.segment_start += step.delta;
    token.rope_pos += step.delta;
    if (step.rerotate) token.turned_to += step.delta;
  }
  return {};
}

Result<void> TracePlayer::fork(const TraceFork& step) {
  SIGHTLINE_TRY(const Sequence* from, find(step.from, "fork"));
  Sequence copy = *from;
  sequences_[step.to] = std::move(copy);
  return {};
}

Result<std::vector<AttentionOutputs>> play_trace(const AttentionSpec& spec, const Trace& trace,
                                                 std::span<const TraceStepData> data,
                                                 std::int64_t rope_length, const Deviation& deviation) {
  if (data.size() != trace.steps.size()) {
    return fail(ErrorKind::kInvalidArgument, "play_trace: data for {} steps, the trace has {}", data.size(),
                trace.steps.size());
  }
  SIGHTLINE_TRY(TracePlayer player, TracePlayer::create(spec, rope_length, deviation));
  std::vector<AttentionOutputs> outputs;
  for (std::size_t i = 0; i < trace.steps.size(); ++i) {
    auto played = player.play(trace.steps[i], data[i]);
    if (!played) return fail(played.error().kind, "step {}: {}", i, played.error().message);
    outputs.push_back(std::move(*played));
  }
  return outputs;
}

}  // namespace sightline::reference
