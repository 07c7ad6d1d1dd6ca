#include "checker/probes.h"

#include <algorithm>

#include "checker/probe_inputs.h"

namespace sightline::checker {
namespace {

constexpr std::int64_t kMinTokens = 33;
constexpr std::int64_t kMaxTokens = 768;
// Two roots, branches of unlike lengths, neither breadth first nor depth first.
constexpr std::int32_t kDraftParents[] = {-1, 0, 0, 1, -1, 2, 4, 3, 3};
constexpr auto kNumDrafts = std::ssize(kDraftParents);

bool needs_segments(const MaskSpec& mask) {
  constexpr MaskOp kOps[] = {MaskOp::kSegment, MaskOp::kSpan, MaskOp::kQueryIs, MaskOp::kKeyIs};
  return std::ranges::any_of(kOps, [&](MaskOp op) { return uses(mask, op); });
}

// Makes questions of one spec; each draws inputs of its own.
class ProbeMaker {
 public:
  ProbeMaker(const AttentionSpec& spec, const SubjectTraits& traits, const CheckOptions& options)
      : spec_(spec),
        traits_(traits),
        type_(options.type),
        num_tokens_(options.num_tokens > 0 ? options.num_tokens : telling_length(spec.mask)),
        rng_(options.seed) {}

  // All tokens as queries and keys, in one call.
  Observation whole(std::int64_t num_tokens, double loudness = 1) {
    Observation o;
    o.spec = spec_;
    o.type = type_;
    o.kv_coords = tokens(num_tokens);
    o.q_coords = o.kv_coords;
    draw_inputs(rng_, loudness, o);
    if (uses(spec_.mask, MaskOp::kTree)) {
      grow_drafts(o.kv_coords);
      o.q_coords = o.kv_coords;
      o.draft_parents.assign(std::begin(kDraftParents), std::end(kDraftParents));
    }
    return o;
  }
  Observation whole() { return whole(num_tokens_); }

  // The last third of the tokens as queries, the rest in the cache.
  Observation continued() {
    Observation o = whole(num_tokens_ + 4);
    const std::int64_t q_len = o.kv_len() / 3;
    o.q_coords.assign(o.kv_coords.end() - q_len, o.kv_coords.end());
    o.q.resize(static_cast<std::size_t>(q_len * spec_.heads.num_q_heads * spec_.heads.qk_head_dim));
    return o;
  }

  Observation far() {
    Observation o = whole();
    for (std::vector<TokenCoord>* coords : {&o.q_coords, &o.kv_coords}) {
      for (TokenCoord& coord : *coords) {
        coord.pos += kFarPosition;
        coord.segment_start += kFarPosition;
      }
    }
    return o;
  }

  Observation loud() { return whole(num_tokens_, kLoud); }

  Observation padded() {
    Observation o = whole();
    constexpr std::int64_t kPads = 3;
    for (std::int64_t i = 0; i < kPads; ++i) o.kv_coords[static_cast<std::size_t>(i)].valid = false;
    for (TokenCoord& coord : o.kv_coords) {
      coord.pos -= kPads;
      coord.segment_start = std::max<std::int64_t>(coord.segment_start - kPads, 0);
    }
    o.q_coords = o.kv_coords;
    return o;
  }

  Observation with_gradients() {
    Observation o = whole();
    draw_upstream(rng_, o);
    return o;
  }

  // Chunks of unlike lengths, single tokens among them.
  std::vector<std::int64_t> chunk_begins(std::int64_t q_len) {
    std::vector<std::int64_t> begins;
    constexpr std::int64_t kLengths[] = {7, 1, 4, 1, 1, 6, 2};
    std::size_t i = 0;
    const std::int64_t stretch = std::max<std::int64_t>(1, q_len / 40);
    for (std::int64_t begin = 0; begin < q_len; begin += stretch * kLengths[i++ % std::size(kLengths)]) {
      begins.push_back(begin);
    }
    if (uses(spec_.mask, MaskOp::kTree)) {  // a tree comes in one call
      std::erase_if(begins, [&](std::int64_t begin) { return begin >= q_len - kNumDrafts; });
      begins.push_back(q_len - kNumDrafts);
    }
    return begins;
  }

 private:
  // The last tokens become drafts, each at its depth.
  static void grow_drafts(std::vector<TokenCoord>& coords) {
    const auto first = coords.size() - std::size(kDraftParents);
    for (std::size_t node = 0; node < std::size(kDraftParents); ++node) {
      const std::int32_t parent = kDraftParents[node];
      TokenCoord& coord = coords[first + node];
      coord = parent < 0 ? coords[first - 1] : coords[first + static_cast<std::size_t>(parent)];
      ++coord.pos;
    }
  }

  // Positions from 0; documents, spans and flags where the mask reads them and the subject is told.
  std::vector<TokenCoord> tokens(std::int64_t n) {
    if (!traits_.takes_segments || !needs_segments(spec_.mask)) return coords_range(0, n);
    std::vector<TokenCoord> coords =
        lay_out({.num_tokens = n, .document_begins = {2 * n / 5, 2 * n / 5 + n / 4}});
    for (TokenCoord& coord : coords) coord.flags = static_cast<std::uint32_t>(rng_.next_u64());
    return coords;
  }

  const AttentionSpec& spec_;
  const SubjectTraits& traits_;
  ElementType type_;
  std::int64_t num_tokens_;
  Rng rng_;
};

}  // namespace

std::int64_t telling_length(const MaskSpec& mask) {
  std::int64_t n = kMinTokens;
  for (const MaskNode& node : mask.nodes) {
    const bool reaches = node.op == MaskOp::kWindow || node.op == MaskOp::kChunk ||
                         node.op == MaskOp::kFirst || node.op == MaskOp::kAhead;
    if (reaches && node.n < kMaxTokens) n = std::max(n, node.n + node.n / 3 + 7);
  }
  return std::min(n, kMaxTokens);
}

std::vector<Probe> make_probes(const AttentionSpec& spec, const SubjectTraits& traits,
                               const CheckOptions& options) {
  ProbeMaker make(spec, traits, options);
  std::vector<Probe> probes;
  probes.push_back({"whole", make.whole()});
  if (traits.takes_chunks) {
    Probe chunks{"chunks", probes.front().question};
    chunks.question.call_begins = make.chunk_begins(chunks.question.q_len());
    probes.push_back(std::move(chunks));
    if (!traits.holds_cache) probes.push_back({"continued", make.continued()});
  }
  if (traits.takes_positions) probes.push_back({"far positions", make.far()});
  probes.push_back({"large logits", make.loud()});
  if (traits.takes_padding) probes.push_back({"padding", make.padded()});
  if (traits.takes_gradients) probes.push_back({"gradients", make.with_gradients()});
  return probes;
}

std::vector<std::string> blind_spots(const AttentionSpec& spec, const SubjectTraits& traits,
                                     std::int64_t num_tokens) {
  std::vector<std::string> spots;
  for (const MaskNode& node : spec.mask.nodes) {
    if ((node.op == MaskOp::kWindow || node.op == MaskOp::kChunk) && node.n >= num_tokens) {
      spots.push_back(
          fmt::format("{} reaches further than the {} tokens of a probe", to_string(node), num_tokens));
    }
  }
  if (needs_segments(spec.mask) && !traits.takes_segments) {
    spots.push_back("the subject is not told documents, spans or flags: every token is of one document");
  }
  if (!traits.takes_chunks)
    spots.push_back("the subject takes no fewer queries than keys: no chunks, no cache");
  if (!traits.takes_positions && spec.rope.pairing != RopePairing::kNone) {
    spots.push_back("the subject is not told positions: nothing beyond the first tokens");
  }
  if (!traits.takes_gradients) spots.push_back("the subject gives no gradients: forward only");
  return spots;
}

}  // namespace sightline::checker
