#include "sightline/checker/batch.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <optional>
#include <tuple>

#include "checker/batch_rows.h"
#include "sightline/checker/named_fault.h"

namespace sightline::checker {
namespace {

std::size_t at(std::int64_t i) { return static_cast<std::size_t>(i); }

Result<void> validate(const TrainingBatch& batch, const BatchDeclaration& declaration) {
  SIGHTLINE_CHECK(sightline::validate(declaration.loss));
  SIGHTLINE_CHECK(sightline::validate(declaration.mask));
  if (uses(declaration.mask, MaskOp::kDense) || uses(declaration.mask, MaskOp::kTree)) {
    return fail(ErrorKind::kInvalidArgument, "check_batch: the mask '{}' needs tables",
                to_string(declaration.mask));
  }
  if (batch.num_rows < 1 || batch.num_tokens < 2 || batch.input_ids.empty()) {
    return fail(ErrorKind::kInvalidArgument, "check_batch: {} rows of {} tokens, expected some of at least 2",
                batch.num_rows, batch.num_tokens);
  }
  const std::int64_t size = batch.num_rows * batch.num_tokens;
  const std::pair<const char*, const std::vector<std::int64_t>*> arrays[] = {
      {"input_ids", &batch.input_ids},           {"labels", &batch.labels},
      {"attention_mask", &batch.attention_mask}, {"position_ids", &batch.position_ids},
      {"segment_ids", &batch.segment_ids},       {"is_prompt", &batch.is_prompt}};
  for (const auto& [name, array] : arrays) {
    if (!array->empty() && static_cast<std::int64_t>(array->size()) != size) {
      return fail(ErrorKind::kInvalidArgument, "check_batch: {} has {} numbers, expected {}", name,
                  array->size(), size);
    }
  }
  if (!batch.pair_mask.empty() &&
      static_cast<std::int64_t>(batch.pair_mask.size()) != size * batch.num_tokens) {
    return fail(ErrorKind::kInvalidArgument, "check_batch: the pair mask has {} numbers, expected {}",
                batch.pair_mask.size(), size * batch.num_tokens);
  }
  return {};
}

// A fault with the rows that show it.
struct Found {
  std::string slug, variant, what;
  std::vector<MeasuredParameter> parameters;
  std::int64_t num_rows = 0;
};

NamedFault named(const Found& found) {
  NamedFault fault = named_fault(found.slug);
  fault.variant = found.variant;
  fault.what = found.what;
  fault.parameters = found.parameters;
  fault.certain = found.num_rows >= 2;
  return fault;
}

class BatchCheck {
 public:
  BatchCheck(const TrainingBatch& batch, const BatchDeclaration& declaration)
      : batch_(batch), declaration_(declaration) {
    for (std::int64_t r = 0; r < batch.num_rows; ++r) rows_.push_back(batch_row(batch, declaration, r));
  }

  Report report() {
    count();
    if (!batch_.labels.empty()) explain_labels();
    explain_positions();
    explain_padding();
    explain_sight();
    Report report = std::move(report_);
    if (found_.empty() && unexplained_.empty()) {
      report.verdict = Verdict::kAgrees;
      report.summary = "agrees: the batch is what was declared";
      return report;
    }
    std::string names;
    for (const Found& found : found_) {
      report.faults.push_back(named(found));
      names += (names.empty() ? "" : " and ") + full_name(report.faults.back());
    }
    if (unexplained_.empty()) {
      report.verdict = Verdict::kFault;
      report.summary = fmt::format("fault: {}: {}", names, found_.front().what);
      return report;
    }
    report.verdict = Verdict::kUnknown;
    report.summary = fmt::format("unknown: the {} are not those declared, and no known fault explains them",
                                 fmt::join(unexplained_, " and "));
    if (!names.empty()) report.summary += "; beside it " + names;
    return report;
  }

 private:
  void count() {
    std::int64_t real = 0, documents = 0;
    for (const BatchRow& row : rows_) {
      real += std::ranges::count(row.coords, true, &TokenCoord::valid);
      documents += row.num_documents;
    }
    evidence(fmt::format("rows of {} tokens", batch_.num_tokens), batch_.num_rows);
    evidence("tokens that are no padding", real);
    evidence("documents", documents);
  }

  void evidence(std::string what, std::int64_t value) {
    report_.evidence.push_back({std::move(what), static_cast<double>(value)});
  }

  // Rows in which the labels are not those of the deviation.
  std::int64_t num_rows_against(const LabelDeviation& deviation) const {
    std::int64_t count = 0;
    for (std::int64_t r = 0; r < batch_.num_rows; ++r) {
      const auto given = given_targets(batch_, declaration_, r);
      auto expected = expected_targets(batch_, declaration_.loss, rows_[at(r)], deviation);
      // Nothing comes before the first token: what labels that are not shifted ask of it is free.
      if (deviation.later < 0) expected.front() = given.front();
      count += expected != given ? 1 : 0;
    }
    return count;
  }

  void explain_labels() {
    const std::int64_t num_wrong_rows = compare_targets();
    if (num_wrong_rows == 0) return;
    // Fewest deviations first.
    std::vector<std::pair<int, LabelDeviation>> deviations;
    for (const int later : {0, 1, -1}) {
      for (unsigned bits = 0; bits < 16; ++bits) {
        const LabelDeviation deviation{later, (bits & 1U) != 0, (bits & 2U) != 0, (bits & 4U) != 0,
                                       (bits & 8U) != 0};
        const int count = __builtin_popcount(bits) + (later != 0 ? 1 : 0);
        deviations.emplace_back(count, deviation);
      }
    }
    std::ranges::stable_sort(deviations, {}, &std::pair<int, LabelDeviation>::first);
    for (const auto& [count, deviation] : deviations) {
      if (num_rows_against(deviation) > 0) continue;
      name_labels(deviation, num_wrong_rows);
      return;
    }
    unexplained_.push_back("labels");
  }

  // Counts targets and finds the first that differs. Gives the number of rows that differ.
  std::int64_t compare_targets() {
    std::int64_t num_given = 0, num_expected = 0, num_wrong_rows = 0;
    for (std::int64_t r = 0; r < batch_.num_rows; ++r) {
      const auto expected = expected_targets(batch_, declaration_.loss, rows_[at(r)], {});
      const auto given = given_targets(batch_, declaration_, r);
      const auto is_target = [&](std::int64_t x) { return x != batch_.ignore_index; };
      num_given += std::ranges::count_if(given, is_target);
      num_expected += std::ranges::count_if(expected, is_target);
      num_wrong_rows += expected != given ? 1 : 0;
      const auto wrong = std::ranges::mismatch(expected, given).in1 - expected.begin();
      if (wrong < static_cast<std::ptrdiff_t>(expected.size()) && !report_.first_difference) {
        const std::int64_t label = wrong + (declaration_.model_shifts ? 1 : 0);
        report_.first_difference = {"labels",
                                    {r, label},
                                    static_cast<double>(expected[at(wrong)]),
                                    static_cast<double>(given[at(wrong)])};
      }
    }
    evidence("targets carry loss", num_given);
    evidence("targets were declared", num_expected);
    return num_wrong_rows;
  }

  void name_labels(const LabelDeviation& deviation, std::int64_t num_rows) {
    const auto scope = [&](bool is_so, std::string variant, std::string what) {
      if (is_so) found_.push_back({"loss.scope", std::move(variant), std::move(what), {}, num_rows});
    };
    if (deviation.later != 0) {
      found_.push_back({"loss.label_shift",
                        "",
                        deviation.later > 0 ? "targets are shifted twice"
                                            : "targets are not shifted: each token is asked for itself",
                        {{"shift", static_cast<double>(declaration_.loss.shift + deviation.later),
                          "positions between a token and its target"}},
                        num_rows});
    }
    scope(deviation.ignores_pad_value, "by_value",
          "tokens that equal the padding id carry no loss, genuine ends of text among them");
    scope(deviation.asks_padding, "padding", "padding carries loss");
    const bool next_is_out = declaration_.loss.next_document == NextDocumentScope::kOut;
    scope(deviation.flips_next_document, "",
          next_is_out ? "the last token of a document predicts the first of the next"
                      : "the last token of a document predicts nothing");
    scope(deviation.flips_prompt, "prompt",
          declaration_.loss.prompt == PromptScope::kOut ? "the prompt carries loss"
                                                        : "the prompt carries no loss");
  }

  // Where the real tokens of a row stand: counted within each document or along the row, without the padding
  // in front of the text or with it.
  struct Counting {
    bool restarts = true;
    bool counts_padding = false;
  };

  // The first real token of row `r` whose position is another, and what it should be.
  std::optional<Difference> first_other_position(std::int64_t r, const Counting& counting) const {
    const BatchRow& row = rows_[at(r)];
    const auto num_in_front = std::ranges::find(row.coords, true, &TokenCoord::valid) - row.coords.begin();
    for (std::int64_t i = 0; i < batch_.num_tokens; ++i) {
      const TokenCoord& coord = row.coords[at(i)];
      if (!coord.valid) continue;
      std::int64_t expected = coord.pos - (counting.restarts ? coord.segment_start : 0);
      const bool is_behind_padding = !counting.restarts || coord.segment == 0;
      if (counting.counts_padding && is_behind_padding) expected += num_in_front;
      const std::int64_t given = batch_.position_ids[at(r * batch_.num_tokens + i)];
      if (given == expected) continue;
      return Difference{"position_ids", {r, i}, static_cast<double>(expected), static_cast<double>(given)};
    }
    return std::nullopt;
  }

  void explain_positions() {
    if (batch_.position_ids.empty()) return;
    const bool restarts = declaration_.positions_restart;
    const Counting others[] = {{restarts, true}, {!restarts, false}, {!restarts, true}};
    std::int64_t num_counting_padding = 0, num_otherwise_restarting = 0, num_unexplained = 0;
    for (std::int64_t r = 0; r < batch_.num_rows; ++r) {
      const std::optional<Difference> difference = first_other_position(r, {restarts, false});
      if (!difference) continue;
      if (!report_.first_difference) report_.first_difference = difference;
      const auto* const found = std::ranges::find_if(
          others, [&](const Counting& other) { return !first_other_position(r, other); });
      if (found == std::end(others)) {
        ++num_unexplained;
        continue;
      }
      num_counting_padding += found->counts_padding ? 1 : 0;
      num_otherwise_restarting += found->restarts != restarts ? 1 : 0;
    }
    if (num_counting_padding > 0) {
      found_.push_back({"pos.left_padding",
                        "",
                        "positions count the padding in front of the text",
                        {},
                        num_counting_padding});
    }
    if (num_otherwise_restarting > 0) {
      found_.push_back({"pack.position_reset",
                        "",
                        restarts ? "positions run on where they should restart with each document"
                                 : "positions restart with each document where they should run on",
                        {},
                        num_otherwise_restarting});
    }
    if (num_unexplained > 0) {
      unexplained_.push_back("positions");
      evidence("rows whose positions are not the declared ones", num_unexplained);
    }
  }

  // An attention mask of ones over a run of padding at the end, which no text ends with.
  void explain_padding() {
    if (batch_.attention_mask.empty() || !batch_.pad_id || batch_.pad_id == batch_.eos_id) return;
    std::int64_t num_rows = 0;
    for (std::int64_t r = 0; r < batch_.num_rows; ++r) {
      const BatchRow& row = rows_[at(r)];
      const auto is_seen_pad = [&](std::int64_t i) {
        return row.ids[at(i)] == *batch_.pad_id && row.coords[at(i)].valid;
      };
      num_rows += is_seen_pad(0) || is_seen_pad(batch_.num_tokens - 1) ? 1 : 0;
    }
    if (num_rows == 0) return;
    found_.push_back({"mask.padding_ignored", "", "the attention mask counts padding as text", {}, num_rows});
  }

  void explain_sight() {
    const auto has_several = [](const BatchRow& row) { return row.num_documents > 1; };
    const std::int64_t packed = std::ranges::count_if(rows_, has_several);
    if (batch_.pair_mask.empty()) {
      const bool is_told = !batch_.segment_ids.empty() || !batch_.position_ids.empty();
      if (packed > 0 && uses(declaration_.mask, MaskOp::kSegment) && !is_told) {
        found_.push_back({"pack.cross_document",
                          "",
                          "nothing in the batch tells documents apart: an end-of-text token isolates nothing",
                          {},
                          packed});
      }
      return;
    }
    explain_pairs();
  }

  // Rows whose pair mask is not `mask`, padding rows aside.
  std::int64_t num_rows_against(const MaskSpec& mask, bool sees_padding) const {
    std::int64_t count = 0;
    for (std::int64_t r = 0; r < batch_.num_rows; ++r) {
      const BatchRow& row = rows_[at(r)];
      bool equal = true;
      for (std::int64_t i = 0; i < batch_.num_tokens && equal; ++i) {
        if (!row.coords[at(i)].valid) continue;
        for (std::int64_t j = 0; j < batch_.num_tokens && equal; ++j) {
          TokenCoord key = row.coords[at(j)];
          if (sees_padding && !key.valid) {
            key.valid = true;
            key.pos = row.coords[at(i)].pos + (j > i ? 1 : -1);  // before or after, as its row
          }
          const bool given = batch_.pair_mask[at((r * batch_.num_tokens + i) * batch_.num_tokens + j)] != 0;
          equal = given == is_visible(mask, {}, {row.coords[at(i)], i}, {key, j});
        }
      }
      count += equal ? 0 : 1;
    }
    return count;
  }

  void explain_pairs() {
    const MaskSpec& declared = declaration_.mask;
    const std::int64_t num_wrong = num_rows_against(declared, false);
    if (num_wrong == 0) return;
    const auto without = [&](MaskOp op) {
      MaskSpec mask = declared;
      for (MaskNode& node : mask.nodes) {
        if (node.op == op) node = {MaskOp::kAll, 0};
      }
      return mask;
    };
    const std::tuple<const char*, const char*, MaskSpec, bool> hypotheses[] = {
        {"pack.cross_document", "packed documents read each other", without(MaskOp::kSegment), false},
        {"mask.causal_dropped", "queries see later keys", without(MaskOp::kCausal), false},
        {"mask.window_scope", "the window is not applied", without(MaskOp::kWindow), false},
        {"mask.padding_ignored", "padding is seen as text", declared, true},
        {"mask.polarity_or_kind", "true is taken for hidden", !declared, false},
    };
    for (const auto& [slug, what, mask, sees_padding] : hypotheses) {
      if (num_rows_against(mask, sees_padding) > 0) continue;
      found_.push_back({slug, "", what, {}, num_wrong});
      return;
    }
    unexplained_.push_back("pairs of the mask");
    evidence("rows whose pair mask is not the declared one", num_wrong);
  }

  const TrainingBatch& batch_;
  const BatchDeclaration& declaration_;
  std::vector<BatchRow> rows_;
  std::vector<Found> found_;
  std::vector<std::string> unexplained_;  // what is not as declared, and no known fault explains
  Report report_;
};

}  // namespace

Result<Report> check_batch(const TrainingBatch& batch, const BatchDeclaration& declaration) {
  SIGHTLINE_CHECK(validate(batch, declaration));
  return BatchCheck(batch, declaration).report();
}

}  // namespace sightline::checker
