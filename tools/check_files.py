#!/usr/bin/env python3
"""Checks the shape of the source tree: few small files and no long functions.

  * Fewer than 10 % of the .h and .cc files under services/ and libs/ have under 30 lines.
  * No function outside tests is longer than 70 lines, its braces included.

Prints the share, each function that is too long as file:line, and ends with 1 if a rule is broken.
"""

import argparse
import pathlib
import re
import sys

SMALL_LINES = 30
MAX_SMALL_SHARE = 0.10
MAX_FUNCTION_LINES = 70

# First words of constructs that may open a brace and are no functions.
NO_FUNCTION = re.compile(
    r" *(namespace|struct|class|enum|union|extern|template <|if|for|while|switch|else|do|try|case|default|"
    r"TEST_CASE|SECTION)\b")
LAMBDA = re.compile(r"[(=,] *\[[^\]]*\] *[({]")


def small_files(root: pathlib.Path) -> tuple[int, int]:
    """The number of small files, and of all."""
    counts = [len(file.read_text(encoding="utf-8").splitlines())
              for folder in ("services", "libs")
              for file in (root / folder).rglob("*") if file.suffix in (".h", ".cc")]
    return sum(count < SMALL_LINES for count in counts), len(counts)


def begins_statement(previous: str) -> bool:
    text = previous.strip()
    return not text or text.endswith(("{", "}", ";", ":")) or text.startswith(("//", "#"))


def long_functions(lines: list[str]) -> list[tuple[int, int]]:
    """(first line, number of lines) of each function that is too long.

    clang-format puts the closing brace of a function in the column in which the function begins.
    """
    found = []
    number = 0  # of the line at which the present statement begins
    for i, line in enumerate(lines):
        if i < number:
            continue
        if i > 0 and begins_statement(lines[i - 1]):
            number = i
        statement = " ".join(lines[number:i + 1])
        if not line.endswith("{") or "(" not in statement or NO_FUNCTION.match(lines[number]) or (
                LAMBDA.search(statement)):
            continue
        indent = lines[number][:len(lines[number]) - len(lines[number].lstrip())]
        end = next((j for j in range(i + 1, len(lines)) if lines[j].startswith(indent + "}")), i)
        # A table or a call ends with more than a brace.
        if lines[end] == indent + "}" and end - number + 1 > MAX_FUNCTION_LINES:
            found.append((number + 1, end - number + 1))
        number = end + 1
    return found


def find_long_functions(root: pathlib.Path) -> list[str]:
    found = []
    for folder in ("services", "libs", "tools/lathe"):
        for file in sorted((root / folder).rglob("*")):
            if file.suffix not in (".h", ".cc", ".cu", ".cuh") or file.stem.endswith("_test") or (
                    "testing" in file.parts):
                continue
            path = file.relative_to(root).as_posix()
            for line, count in long_functions(file.read_text(encoding="utf-8").splitlines()):
                found.append(f"{path}:{line}: a function of {count} lines, the bound is "
                             f"{MAX_FUNCTION_LINES}")
    return found


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    default_root = pathlib.Path(__file__).resolve().parent.parent
    parser.add_argument("--root", type=pathlib.Path, default=default_root, help="tree to check")
    root = parser.parse_args().root
    num_small, num_files = small_files(root)
    too_long = find_long_functions(root)
    print(*too_long, sep="\n", end="\n" if too_long else "")
    share = num_small / max(num_files, 1)
    print(f"check_files: {num_small} of {num_files} files have under {SMALL_LINES} lines "
          f"({share:.1%}, the bound is {MAX_SMALL_SHARE:.0%}), {len(too_long)} functions are too long")
    return 1 if too_long or share >= MAX_SMALL_SHARE else 0


if __name__ == "__main__":
    sys.exit(main())
