// Tables of text for a terminal.
#pragma once

#include <string>
#include <vector>

namespace lathe::cli {

struct TableColumn {
  std::string title;
  // Numbers are aligned at their right.
  bool is_number = false;
  // On a narrow terminal the columns with the largest number are left out first; 0: never.
  int sacrifice = 0;
  // Columns down to which cells are cut before a column is left out; 0: they are not cut for that.
  int min_width = 0;
  // Columns that a cell may take; 0: any number. A longer cell is cut.
  int max_width = 0;
};

// Returns the line of the titles and one line for each row, each at most `width` columns (0: no
// limit). A row has a cell for each column; cells are made by SafeText. The last column has what is
// left of the width.
std::vector<std::string> TableLines(const std::vector<TableColumn>& columns,
                                    const std::vector<std::vector<std::string>>& rows, int width);

}  // namespace lathe::cli
