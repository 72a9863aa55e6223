#include "tools/lathe/terminal/table.h"

#include <algorithm>
#include <numeric>

#include "absl/strings/ascii.h"
#include "tools/lathe/terminal/text.h"

namespace lathe::cli {
namespace {

constexpr int kGap = 2;

struct Layout {
  int TotalOf(const std::vector<int>& of) const {
    const int gaps = kGap * (static_cast<int>(shown.size()) - 1);
    return std::accumulate(shown.begin(), shown.end(), gaps,
                           [&of](int sum, std::size_t column) { return sum + of[column]; });
  }

  // Indexes of the columns that are shown.
  std::vector<std::size_t> shown;
  // Width of each column, shown or not, and what it keeps while others can give something.
  std::vector<int> widths;
  std::vector<int> needed;
};

std::vector<int> NaturalWidths(const std::vector<TableColumn>& columns,
                               const std::vector<std::vector<std::string>>& rows) {
  std::vector<int> widths;
  for (std::size_t column = 0; column < columns.size(); ++column) {
    int width = TextWidth(columns[column].title);
    for (const std::vector<std::string>& row : rows) {
      width = std::max(width, TextWidth(row[column]));
    }
    const int limit = columns[column].max_width;
    widths.push_back(limit > 0 ? std::min(width, limit) : width);
  }
  return widths;
}

// Takes columns from the widest cells, down to `least` of each column, until all fit.
void CutWidest(int width, const std::vector<int>& least, Layout& layout) {
  const auto slack = [&](std::size_t column) {
    return layout.widths[column] > least[column] ? layout.widths[column] : 0;
  };
  while (layout.TotalOf(layout.widths) > width) {
    const auto widest =
        std::max_element(layout.shown.begin(), layout.shown.end(),
                         [&](std::size_t a, std::size_t b) { return slack(a) < slack(b); });
    if (slack(*widest) == 0) break;
    --layout.widths[*widest];
  }
}

// Leaves columns out until the others can fit, then cuts the widest.
void Shrink(const std::vector<TableColumn>& columns, int width, Layout& layout) {
  const auto sacrifice = [&columns](std::size_t column) { return columns[column].sacrifice; };
  while (layout.TotalOf(layout.needed) > width) {
    const auto first =
        std::max_element(layout.shown.begin(), layout.shown.end(),
                         [&](std::size_t a, std::size_t b) { return sacrifice(a) < sacrifice(b); });
    if (sacrifice(*first) == 0) break;
    layout.shown.erase(first);
  }
  CutWidest(width, layout.needed, layout);
  CutWidest(width, std::vector<int>(columns.size(), 1), layout);
}

}  // namespace

std::vector<std::string> TableLines(const std::vector<TableColumn>& columns,
                                    const std::vector<std::vector<std::string>>& rows, int width) {
  Layout layout;
  layout.widths = NaturalWidths(columns, rows);
  for (std::size_t column = 0; column < columns.size(); ++column) {
    const int least = columns[column].min_width;
    const int natural = layout.widths[column];
    layout.needed.push_back(least > 0 ? std::min(least, natural) : natural);
  }
  layout.shown.resize(columns.size());
  std::iota(layout.shown.begin(), layout.shown.end(), 0);
  if (width > 0) Shrink(columns, width, layout);
  const auto line_of = [&](const auto& cell_of) {
    std::string line;
    for (const std::size_t column : layout.shown) {
      if (!line.empty()) line.append(kGap, ' ');
      line += PadText(cell_of(column), layout.widths[column], columns[column].is_number);
    }
    absl::StripTrailingAsciiWhitespace(&line);
    return width > 0 ? CutText(line, width) : line;
  };
  std::vector<std::string> lines = {
      line_of([&columns](std::size_t column) { return columns[column].title; })};
  for (const std::vector<std::string>& row : rows) {
    lines.push_back(line_of([&row](std::size_t column) { return row[column]; }));
  }
  return lines;
}

}  // namespace lathe::cli
