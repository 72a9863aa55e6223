#!/usr/bin/env python3
"""Finds comments that begin without a subject.

A comment that begins with a bare "Of", "What", "Who", "Until" and the like leaves out what it is
about. Less than 1 % of the comments of the C++ code and the protos may begin so.

Prints each with file:line, and ends with 1 if there are too many.
"""

import argparse
import pathlib
import re
import sys

FOLDERS = ("libs", "protos", "services", "tests", "tools")
SUFFIXES = {".h", ".cc", ".cuh", ".cu", ".proto"}
MAX_SHARE = 0.01

COMMENT = re.compile(r"\s*//+ ?(.*)")
ELLIPTIC = re.compile(
    r"(Of|What|Who|Whom|Whose|That|Those|Until|Whether|Where|By|Nobody)\b"
)


def first_lines(text: str):
    """The first line of each run of comment lines, as (line number, text)."""
    is_inside = False
    for number, line in enumerate(text.splitlines(), 1):
        found = COMMENT.match(line)
        if found and not is_inside:
            yield number, found[1]
        is_inside = bool(found)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("root", nargs="?", default=pathlib.Path(__file__).parents[1], type=pathlib.Path)
    root = parser.parse_args().root
    num_comments = 0
    elliptic = []
    for folder in FOLDERS:
        for file in sorted((root / folder).rglob("*")):
            if file.suffix not in SUFFIXES or not file.is_file():
                continue
            for number, line in first_lines(file.read_text(encoding="utf-8")):
                num_comments += 1
                if ELLIPTIC.match(line):
                    elliptic.append(f"{file.relative_to(root).as_posix()}:{number}: {line}")
    print(*elliptic, sep="\n", end="\n" if elliptic else "")
    print(f"check_prose: {num_comments} comments, {len(elliptic)} begin without a subject")
    return len(elliptic) > MAX_SHARE * num_comments


if __name__ == "__main__":
    sys.exit(main())
