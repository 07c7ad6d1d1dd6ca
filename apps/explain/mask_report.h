// What `explain MASK` shows: the tokens a person named, the picture, the proofs, the reason for one pair.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "sightline/base/json.h"
#include "sightline/spec/mask.h"

namespace sightline::apps {

/// As typed; empty: not given.
struct MaskQuestion {
  std::string mask;
  std::string q, kv;                                                    // positions
  std::string segments, segment_starts, spans, flags, valid;            // one entry a key
  std::string q_segments, q_segment_starts, q_spans, q_flags, q_valid;  // one entry a query
  std::string q_nodes, kv_nodes, parents;                               // draft tree
  std::string dense;                                                    // rows of digits: 110,011
  std::string why;                                                      // QUERY,KEY by position, or #row
};

struct MaskReport {
  MaskSpec mask;
  std::vector<TokenCoord> q, kv;
  std::vector<std::uint8_t> dense;
  std::vector<std::int32_t> q_node, kv_node, parent;
  std::optional<Why> reason;  // of the pair asked about

  [[nodiscard]] MaskTables tables() const;
};

/// Errors (kInvalidArgument): the mask, with the column; lists that do not fit each other.
[[nodiscard]] Result<MaskReport> make_mask_report(const MaskQuestion& question);

/// The picture with its legend and proofs, or the reason.
[[nodiscard]] std::string to_text(const MaskReport& report);
[[nodiscard]] Json to_json(const MaskReport& report);

}  // namespace sightline::apps
