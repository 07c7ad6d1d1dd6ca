// Columns of text, each as wide as its widest cell. No colour, no borders.
#pragma once

#include <algorithm>
#include <string>
#include <vector>

namespace sightline::apps {

class TextTable {
 public:
  enum class Align { kLeft, kRight };
  explicit TextTable(std::vector<Align> columns) : columns_(std::move(columns)) {}

  void add(std::vector<std::string> cells) { rows_.push_back(std::move(cells)); }

  /// One line a row, two spaces between columns, none at the end of a line.
  [[nodiscard]] std::string text() const {
    std::vector<std::size_t> widths(columns_.size(), 0);
    for (const auto& row : rows_) {
      for (std::size_t i = 0; i < row.size(); ++i) widths[i] = std::max(widths[i], row[i].size());
    }
    std::string out;
    for (const auto& row : rows_) {
      std::string line;
      for (std::size_t i = 0; i < row.size(); ++i) {
        const std::string fill(widths[i] - row[i].size(), ' ');
        if (i > 0) line += "  ";
        line += columns_[i] == Align::kRight ? fill + row[i] : row[i] + fill;
      }
      line.erase(line.find_last_not_of(' ') + 1);
      out += line + '\n';
    }
    return out;
  }

 private:
  std::vector<Align> columns_;
  std::vector<std::vector<std::string>> rows_;
};

}  // namespace sightline::apps
