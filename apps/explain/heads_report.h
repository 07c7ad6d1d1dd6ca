// What `explain --heads` shows: the same attention with several numbers of key heads, side by side.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "sightline/base/json.h"
#include "sightline/spec/heads.h"

namespace sightline::apps {

struct HeadsQuestion {
  std::int64_t hidden = 4096;
  std::int64_t num_q_heads = 32;
  std::vector<std::int64_t> num_kv_heads{32, 8, 1};
  std::int64_t qk_head_dim = 128;
  std::int64_t v_head_dim = 128;
  std::int64_t num_tokens = 4096;
  std::int64_t num_layers = 1;
  std::int64_t bytes_per_number = 2;
};

struct HeadsReport {
  struct Column {
    HeadSpec heads;
    std::int64_t wq = 0, wk = 0, wv = 0, wo = 0;  // parameters
    std::int64_t qk_flop = 0, av_flop = 0;        // all pairs, one layer
    std::int64_t cache_bytes = 0;                 // num_tokens, all layers
  };
  HeadsQuestion question;
  std::vector<Column> columns;
};

/// Errors (kInvalidArgument): sizes out of range, key heads that do not divide the query heads.
[[nodiscard]] Result<HeadsReport> make_heads_report(const HeadsQuestion& question);
[[nodiscard]] std::string to_text(const HeadsReport& report);
[[nodiscard]] Json to_json(const HeadsReport& report);

}  // namespace sightline::apps
