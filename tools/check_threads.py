#!/usr/bin/env python3
"""Compares the threads that the code starts with the thread table of ARCHITECTURE.md.

The rules:

  * a thread has a name: std::thread and std::jthread objects are made in NamedThread only;
  * every name that a NamedThread, a PeriodicTask or a call of pthread_setname_np or prctl gets as a
    literal stands in the second column of the table, in backticks;
  * every name of the table is started somewhere, and stands there once.

A name that ends in a number at run time is `NAME-*` in the table. Threads that libraries start have
no name of ours, so their rows have no backticks. Tests, benches and the simulation are left out.

Prints each difference, with file:line where there is one, and ends with 1 if there is one.
"""

import argparse
import dataclasses
import pathlib
import re
import sys

SOURCE_SUFFIXES = {".h", ".cc", ".cuh", ".cu"}
SOURCE_FOLDERS = ("libs", "services", "tools/lathe")
LEFT_OUT = re.compile(r"(_test|_bench|/test_[^/]*|/fake_[^/]*)\.|/(testing|simulation)/")
# NamedThread and PeriodicTask themselves.
HOME = "libs/common/concurrency/"

PAGE = "ARCHITECTURE.md"
HEADING = "## Threads"

TYPES = r"(?:NamedThread|PeriodicTask)"
# A member or variable of one of the types, also in a smart pointer, an optional or a vector.
DECLARATION = re.compile(rf"\b{TYPES}>*\s+(\w+)\s*[;({{]")
# What a constructor's first argument begins with: "name", or "name" + a number.
NAME = r'\s*"([^"]+)"\s*(\+)?'
MADE = re.compile(rf"\b(?:make_(?:unique|shared)<)?{TYPES}>?\({NAME}")
SET_NAME = re.compile(rf"pthread_setname_np\([^,()]*(?:\(\))?,{NAME}|PR_SET_NAME,{NAME}")
UNNAMED = re.compile(r"\bstd::j?thread\b(?!::)")


@dataclasses.dataclass(frozen=True)
class Start:
    path: str
    line: int
    name: str


def read_sources(root: pathlib.Path) -> dict[str, str]:
    sources = {}
    for folder in SOURCE_FOLDERS:
        for file in sorted((root / folder).rglob("*")):
            path = file.relative_to(root).as_posix()
            if file.suffix in SOURCE_SUFFIXES and file.is_file() and not LEFT_OUT.search(path):
                sources[path] = without_comments(file.read_text(encoding="utf-8"))
    return sources


def without_comments(text: str) -> str:
    return re.sub(r"//[^\n]*", "", text)


def line_of(text: str, offset: int) -> int:
    return text.count("\n", 0, offset) + 1


def declarations(sources: dict[str, str], path: str) -> set[str]:
    """Names of the threads that a file declares, itself or in the header of the same name."""
    stem = path.rpartition(".")[0]
    texts = (sources.get(stem + suffix, "") for suffix in sorted(SOURCE_SUFFIXES))
    return {name for text in texts for name in DECLARATION.findall(text)}


def initialisation(variable: str) -> re.Pattern:
    """thread_("name", …), thread_{"name"}, thread.emplace("name", …), emplace_back("name", …)."""
    return re.compile(rf"\b{variable}(?:[({{]|\.emplace(?:_back)?\(){NAME}")


def find_starts(sources: dict[str, str]) -> list[Start]:
    found = []
    for path, text in sources.items():
        patterns = [MADE, SET_NAME]
        patterns += [initialisation(variable) for variable in sorted(declarations(sources, path))]
        for pattern in patterns:
            for match in pattern.finditer(text):
                name = next(group for group in match.groups() if group is not None)
                is_numbered = match[0].endswith("+")
                found.append(Start(path, line_of(text, match.start()), name + "*" * is_numbered))
    return found


def find_unnamed(sources: dict[str, str], starts: list[Start]):
    """Threads without a name, and declared ones whose name is no literal this can read."""
    for path, text in sources.items():
        if path.startswith(HOME):
            continue
        for match in UNNAMED.finditer(text):
            yield path, line_of(text, match.start()), "a thread without a name: use NamedThread"
        if DECLARATION.search(text) and not any(same_unit(path, start.path) for start in starts):
            line = line_of(text, DECLARATION.search(text).start())
            yield path, line, "declares a thread that gets no name here"


def same_unit(one: str, other: str) -> bool:
    return one.rpartition(".")[0] == other.rpartition(".")[0]


def table_names(root: pathlib.Path) -> list[tuple[int, str]]:
    """(line, name) of every name in the second column of the table."""
    names, is_inside = [], False
    for number, line in enumerate((root / PAGE).read_text(encoding="utf-8").splitlines(), start=1):
        if line.startswith("## "):
            is_inside = line.rstrip() == HEADING
        if is_inside and line.startswith("|"):
            names += [(number, name) for name in re.findall(r"`([^`]+)`", thread_cell(line))]
    return names


def thread_cell(row: str) -> str:
    # What stands in brackets says how many there are.
    return re.sub(r"\([^)]*\)", "", row.split("|")[2])


def find_violations(root: pathlib.Path) -> list[str]:
    sources = read_sources(root)
    starts = find_starts(sources)
    listed = table_names(root)
    found = list(find_unnamed(sources, starts))
    known = {name for _, name in listed}
    for start in starts:
        if start.name not in known:
            message = f"the thread `{start.name}` is missing in {PAGE}"
            found.append((start.path, start.line, message))
    started = {start.name for start in starts}
    seen = set()
    for line, name in listed:
        if name not in started:
            found.append((PAGE, line, f"nothing starts the thread `{name}`"))
        if name in seen:
            found.append((PAGE, line, f"the thread `{name}` stands here twice"))
        seen.add(name)
    return [f"{path}:{line}: {message}" for path, line, message in sorted(found)]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    default_root = pathlib.Path(__file__).resolve().parent.parent
    parser.add_argument("--root", type=pathlib.Path, default=default_root, help="tree to check")
    root = parser.parse_args().root
    violations = find_violations(root)
    print(*violations, sep="\n", end="\n" if violations else "")
    names = {name for _, name in table_names(root)}
    print(f"check_threads: {len(names)} named threads, {len(violations)} violations")
    return 1 if violations else 0


if __name__ == "__main__":
    sys.exit(main())
