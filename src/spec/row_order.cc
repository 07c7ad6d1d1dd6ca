#include "sightline/spec/row_order.h"

namespace sightline {
namespace {

std::size_t at(std::int64_t i) { return static_cast<std::size_t>(i); }

// Where row `row` of halves stands among neighbours, for heads of `width`.
std::int64_t among_neighbours(std::int64_t row, int width) {
  const std::int64_t within = row % width, half = width / 2;
  return row - within + 2 * (within % half) + within / half;
}

}  // namespace

std::vector<int> other_head_widths(std::int64_t num_rows, int head_dim) {
  std::vector<int> widths;
  for (int width = 2; width <= num_rows; width += 2) {
    if (num_rows % width == 0 && width != head_dim) widths.push_back(width);
  }
  return widths;
}

std::vector<std::int64_t> misplaced_rows(RowMistake mistake, std::int64_t num_rows, int head_dim, int width,
                                         RopePairing pairing) {
  const int written = mistake == RowMistake::kWritten ? width : head_dim;
  const int read = mistake == RowMistake::kRead ? width : head_dim;
  std::vector<std::int64_t> file(at(num_rows)), from(at(num_rows));
  for (std::int64_t r = 0; r < num_rows; ++r) file[at(among_neighbours(r, written))] = r;
  for (std::int64_t r = 0; r < num_rows; ++r) from[at(r)] = file[at(among_neighbours(r, read))];
  if (pairing != RopePairing::kInterleaved) return from;
  // Rows that should be neighbours are those of the file; seen from halves the mistake is the same.
  std::vector<std::int64_t> neighbours(at(num_rows));
  for (std::int64_t r = 0; r < num_rows; ++r) {
    neighbours[at(among_neighbours(r, head_dim))] = among_neighbours(from[at(r)], head_dim);
  }
  return neighbours;
}

}  // namespace sightline
