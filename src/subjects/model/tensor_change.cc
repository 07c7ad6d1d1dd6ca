#include "subjects/model/tensor_change.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <numeric>

namespace sightline::subjects {
namespace {

constexpr std::int64_t kMaxShift = 8;  // rows
constexpr std::array kSimplestFirst{ChangeKind::kScaled,    ChangeKind::kOffset, ChangeKind::kShifted,
                                    ChangeKind::kHeads,     ChangeKind::kTokens, ChangeKind::kComponents,
                                    ChangeKind::kHeadsFirst};

std::size_t at(std::int64_t i) { return static_cast<std::size_t>(i); }

std::int64_t width(const TensorPair& pair) { return pair.num_heads * pair.dim; }

// Of the finite numbers.
double root_mean_square(std::span<const double> x) {
  double sum = 0, count = 0;
  for (const double value : x) {
    if (!std::isfinite(value)) continue;
    sum += value * value;
    count += 1;
  }
  return count == 0 ? 0.0 : std::sqrt(sum / count);
}

// Compares numbers of ours with numbers of theirs by the pair's own bound.
class Comparison {
 public:
  Comparison(const TensorPair& pair, double tolerance)
      : pair_(pair), bound_(tolerance * root_mean_square(pair.theirs)) {}

  [[nodiscard]] bool same(double ours, double theirs) const {
    return std::abs(theirs - ours) <= bound_ || (std::isinf(ours) && std::isinf(theirs));
  }
  [[nodiscard]] double ours(std::int64_t row, std::int64_t column) const {
    return pair_.ours[at(row * width(pair_) + column)];
  }
  [[nodiscard]] double theirs(std::int64_t row, std::int64_t column) const {
    return pair_.theirs[at(row * width(pair_) + column)];
  }
  [[nodiscard]] bool same_row(std::int64_t ours_row, std::int64_t theirs_row) const {
    for (std::int64_t c = 0; c < width(pair_); ++c) {
      if (!same(ours(ours_row, c), theirs(theirs_row, c))) return false;
    }
    return true;
  }
  [[nodiscard]] bool same_component(std::int64_t ours_column, std::int64_t theirs_column) const {
    for (std::int64_t i = 0; i < pair_.num_tokens; ++i) {
      if (!same(ours(i, ours_column), theirs(i, theirs_column))) return false;
    }
    return true;
  }
  [[nodiscard]] bool same_head(std::int64_t ours_head, std::int64_t theirs_head) const {
    for (std::int64_t i = 0; i < pair_.num_tokens; ++i) {
      for (std::int64_t c = 0; c < pair_.dim; ++c) {
        if (!same(ours(i, ours_head * pair_.dim + c), theirs(i, theirs_head * pair_.dim + c))) return false;
      }
    }
    return true;
  }

 private:
  const TensorPair& pair_;
  double bound_;
};

// An assignment theirs -> ours, one to one, that keeps what already fits in its place; empty: there is none,
// or it moves nothing. Numbers that are equal twice (one token at two places) are taken in order.
template <typename Same>
std::vector<std::int64_t> find_order(std::int64_t count, Same same) {
  std::vector<std::int64_t> order(at(count), -1);
  std::vector<bool> taken(at(count), false);
  bool moves = false;
  for (std::int64_t i = 0; i < count; ++i) {
    if (!same(i, i)) continue;
    order[at(i)] = i;
    taken[at(i)] = true;
  }
  for (std::int64_t i = 0; i < count; ++i) {
    if (order[at(i)] >= 0) continue;
    std::int64_t j = 0;
    while (j < count && (taken[at(j)] || !same(j, i))) ++j;
    if (j == count) return {};
    order[at(i)] = j;
    taken[at(j)] = true;
    moves = true;
  }
  return moves ? order : std::vector<std::int64_t>{};
}

// The order that holds in every one of the texts, which have one length where rows are moved.
std::vector<std::int64_t> order_of(std::span<const TensorPair> texts, ChangeKind kind, double tolerance) {
  const auto same = [&](std::int64_t ours, std::int64_t theirs) {
    return std::ranges::all_of(texts, [&](const TensorPair& pair) {
      const Comparison compare(pair, tolerance);
      return kind == ChangeKind::kHeads    ? compare.same_head(ours, theirs)
             : kind == ChangeKind::kTokens ? compare.same_row(ours, theirs)
                                           : compare.same_component(ours, theirs);
    });
  };
  const TensorPair& first = texts.front();
  return find_order(kind == ChangeKind::kHeads    ? first.num_heads
                    : kind == ChangeKind::kTokens ? first.num_tokens
                                                  : width(first),
                    same);
}

// An order of each length of text; empty where one of them has none.
std::vector<std::int64_t> order_of_tokens(std::span<const TensorPair> texts, double tolerance) {
  std::vector<std::int64_t> first;
  std::vector<TensorPair> alike;
  for (const TensorPair& text : texts) {
    alike.clear();
    std::ranges::copy_if(texts, std::back_inserter(alike),
                         [&](const TensorPair& other) { return other.num_tokens == text.num_tokens; });
    std::vector<std::int64_t> order = order_of(alike, ChangeKind::kTokens, tolerance);
    if (order.empty()) return {};
    if (first.empty()) first = std::move(order);
  }
  return first;
}

// Heads that differ in any text; empty when all do.
std::vector<std::int64_t> changed_heads(std::span<const TensorPair> texts, double tolerance) {
  std::vector<std::int64_t> heads;
  for (std::int64_t h = 0; h < texts.front().num_heads; ++h) {
    const bool differs = std::ranges::any_of(
        texts, [&](const TensorPair& pair) { return !Comparison(pair, tolerance).same_head(h, h); });
    if (differs) heads.push_back(h);
  }
  if (std::ssize(heads) == texts.front().num_heads) heads.clear();
  return heads;
}

bool concerns(const TensorChange& change, std::int64_t head) {
  return change.heads.empty() || std::ranges::find(change.heads, head) != change.heads.end();
}

// The number that brings ours nearest to theirs over all texts, by least squares.
double measure(std::span<const TensorPair> texts, const TensorChange& change) {
  double products = 0, squares = 0, differences = 0, count = 0;
  for (const TensorPair& pair : texts) {
    for (std::size_t i = 0; i < pair.ours.size(); ++i) {
      const std::int64_t column = static_cast<std::int64_t>(i) % width(pair);
      if (!concerns(change, column / pair.dim) || !std::isfinite(pair.ours[i] + pair.theirs[i])) continue;
      products += pair.ours[i] * pair.theirs[i];
      squares += pair.ours[i] * pair.ours[i];
      differences += pair.theirs[i] - pair.ours[i];
      count += 1;
    }
  }
  return change.kind == ChangeKind::kScaled ? products / squares : differences / count;
}

// What stands at (row, column) after the change; nothing where it leaves that open.
std::optional<double> predicted(const TensorPair& pair, const TensorChange& change, std::int64_t row,
                                std::int64_t column) {
  const std::int64_t n = pair.num_tokens;
  const auto ours = [&](std::int64_t i, std::int64_t c) { return pair.ours[at(i * width(pair) + c)]; };
  const std::int64_t head = column / pair.dim;
  switch (change.kind) {
    case ChangeKind::kScaled:
      return ours(row, column) * (concerns(change, head) ? change.value : 1.0);
    case ChangeKind::kOffset:
      return ours(row, column) + (concerns(change, head) ? change.value : 0.0);
    case ChangeKind::kShifted: {
      const std::int64_t from = row - static_cast<std::int64_t>(change.value);
      return from >= 0 && from < n ? std::optional(ours(from, column)) : std::nullopt;
    }
    case ChangeKind::kHeads:
      return ours(row, change.order[at(head)] * pair.dim + column % pair.dim);
    case ChangeKind::kTokens:
      if (std::ssize(change.order) != n) return std::nullopt;  // a text of another length
      return ours(change.order[at(row)], column);
    case ChangeKind::kComponents:
      return ours(row, change.order[at(column)]);
    case ChangeKind::kHeadsFirst: {
      const std::int64_t flat = row * width(pair) + column;
      return ours(flat / pair.dim % n, flat / (n * pair.dim) * pair.dim + flat % pair.dim);
    }
  }
  return std::nullopt;
}

double misfit(const TensorPair& pair, const TensorChange& change, double tolerance) {
  std::vector<double> ours(pair.ours.begin(), pair.ours.end());
  for (std::int64_t i = 0; i < pair.num_tokens; ++i) {
    for (std::int64_t c = 0; c < width(pair); ++c) {
      const std::size_t index = at(i * width(pair) + c);
      ours[index] = predicted(pair, change, i, c).value_or(pair.theirs[index]);
    }
  }
  return tensor_misfit({ours, pair.theirs, pair.num_tokens, pair.num_heads, pair.dim}, tolerance).worst;
}

// Sets the misfit of a change that has its parameter. True when it explains every text.
bool explains(std::span<const TensorPair> texts, TensorChange& change, double tolerance) {
  change.misfit = 0;
  for (const TensorPair& pair : texts)
    change.misfit = std::max(change.misfit, misfit(pair, change, tolerance));
  return change.misfit <= 1;
}

std::optional<TensorChange> of_kind(std::span<const TensorPair> texts, ChangeKind kind, double tolerance) {
  TensorChange change{kind, 0, {}, {}, 0};
  const TensorPair& first = texts.front();
  switch (kind) {
    case ChangeKind::kScaled:
    case ChangeKind::kOffset:
      change.heads = changed_heads(texts, tolerance);
      change.value = measure(texts, change);
      break;
    case ChangeKind::kShifted:
      for (std::int64_t shift = 1; shift <= std::min(kMaxShift, first.num_tokens / 2); ++shift) {
        for (const std::int64_t sign : {1, -1}) {
          change.value = static_cast<double>(sign * shift);
          if (explains(texts, change, tolerance)) return change;
        }
      }
      return std::nullopt;
    case ChangeKind::kHeads:
    case ChangeKind::kTokens:
    case ChangeKind::kComponents:
      change.order =
          kind == ChangeKind::kTokens ? order_of_tokens(texts, tolerance) : order_of(texts, kind, tolerance);
      if (change.order.empty()) return std::nullopt;
      break;
    case ChangeKind::kHeadsFirst:
      if (first.num_heads == 1 || first.num_tokens == 1) return std::nullopt;
      break;
  }
  return explains(texts, change, tolerance) ? std::optional(change) : std::nullopt;
}

// A kind that says the same as a simpler one where both fit: rows moved round are rows in another order.
bool includes(ChangeKind wider, ChangeKind simpler) {
  return (wider == ChangeKind::kTokens && simpler == ChangeKind::kShifted) ||
         (wider == ChangeKind::kComponents && simpler == ChangeKind::kHeads);
}

}  // namespace

TensorMisfit tensor_misfit(const TensorPair& pair, double tolerance) {
  const double bound = tolerance * root_mean_square(pair.theirs);
  TensorMisfit misfit;
  for (std::size_t i = 0; i < pair.ours.size(); ++i) {
    const double difference = std::abs(pair.theirs[i] - pair.ours[i]);
    const bool is_same =
        pair.theirs[i] == pair.ours[i] || (std::isinf(pair.theirs[i]) && std::isinf(pair.ours[i]));
    const double ratio = is_same                     ? 0.0
                         : std::isfinite(difference) ? difference / bound
                                                     : std::numeric_limits<double>::infinity();
    misfit.worst = std::max(misfit.worst, ratio);
    if (misfit.index < 0 && !(ratio <= 1)) misfit.index = static_cast<std::int64_t>(i);
  }
  return misfit;
}

std::optional<TensorChange> explain_change(std::span<const TensorPair> texts, double tolerance) {
  for (const ChangeKind kind : kSimplestFirst) {
    if (auto change = of_kind(texts, kind, tolerance)) return change;
  }
  return std::nullopt;
}

std::int64_t num_decisive(std::span<const TensorPair> texts, const TensorChange& change, double tolerance) {
  return std::ranges::count_if(texts, [&](const TensorPair& pair) {
    // A shift beyond the end of a text predicts no row of it.
    if (change.kind == ChangeKind::kShifted &&
        std::abs(change.value) >= static_cast<double>(pair.num_tokens)) {
      return false;
    }
    return std::ranges::none_of(kSimplestFirst, [&](ChangeKind kind) {
      return kind != change.kind && !includes(kind, change.kind) &&
             of_kind(std::span(&pair, 1), kind, tolerance).has_value();
    });
  });
}

std::string describe(const TensorChange& change) {
  const std::string heads =
      change.heads.empty() ? std::string() : fmt::format(", in heads {} alone", fmt::join(change.heads, " "));
  switch (change.kind) {
    case ChangeKind::kScaled:
      return fmt::format("ours times {:.6g}{}", change.value, heads);
    case ChangeKind::kOffset:
      return fmt::format("ours plus {:.6g}{}", change.value, heads);
    case ChangeKind::kShifted:
      return fmt::format("the rows of ours shifted by {:g}: row i is row i {} {:g} of ours", change.value,
                         change.value > 0 ? '-' : '+', std::abs(change.value));
    case ChangeKind::kHeads:
      return fmt::format("the heads of ours in the order {}", fmt::join(change.order, " "));
    case ChangeKind::kTokens:
      return fmt::format("the rows of ours in the order {}", fmt::join(change.order, " "));
    case ChangeKind::kComponents:
      return fmt::format("the components of ours in the order {}", fmt::join(change.order, " "));
    case ChangeKind::kHeadsFirst:
      return "[heads, tokens, dim] of ours read as [tokens, heads * dim]";
  }
  return {};
}

}  // namespace sightline::subjects
