#include "tools/lathe/terminal/table.h"

#include <catch2/catch.hpp>
#include <string>
#include <vector>

#include "tools/lathe/terminal/text.h"

namespace lathe::cli {
namespace {

const std::vector<TableColumn> kColumns = {
    {.title = "RUN"}, {.title = "SEQ", .is_number = true, .sacrifice = 1}, {.title = "NAME"}};

TEST_CASE("A table aligns numbers at their right and ends its lines with text", "[terminal]") {
  const std::vector<std::string> lines =
      TableLines(kColumns, {{"a", "7", "first"}, {"bcde", "1234", ""}}, 0);
  CHECK(lines == std::vector<std::string>{"RUN    SEQ  NAME", "a        7  first", "bcde  1234"});
}

TEST_CASE("A table without rows is its titles", "[terminal]") {
  CHECK(TableLines(kColumns, {}, 80) == std::vector<std::string>{"RUN  SEQ  NAME"});
}

TEST_CASE("On a narrow terminal the least column goes first, then the widest is cut",
          "[terminal]") {
  const std::vector<std::vector<std::string>> rows = {{"run-1", "12", "a very long name"}};
  CHECK(TableLines(kColumns, rows, 24)[1] == "run-1  a very long name");
  CHECK(TableLines(kColumns, rows, 12)[1] == "run-1  a ve~");
}

TEST_CASE("A column with a least width is cut before others are left out", "[terminal]") {
  std::vector<TableColumn> columns = kColumns;
  columns[2].min_width = 4;
  CHECK(TableLines(columns, {{"run-1", "12", "a very long name"}}, 20)[1] ==
        "run-1   12  a very ~");
}

TEST_CASE("No line is wider than the terminal", "[terminal]") {
  const int width = GENERATE(1, 2, 3, 5, 8, 13, 40);
  for (const std::string& line : TableLines(kColumns, {{"模型模型", "12", "name"}}, width)) {
    CHECK(TextWidth(line) <= width);
  }
}

TEST_CASE("A cell longer than its column is cut", "[terminal]") {
  const std::vector<TableColumn> columns = {{.title = "A", .max_width = 3}, {.title = "B"}};
  CHECK(TableLines(columns, {{"abcdef", "x"}}, 0)[1] == "ab~  x");
}

}  // namespace
}  // namespace lathe::cli
