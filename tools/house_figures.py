#!/usr/bin/env python3
"""Measures the shape of the C++ code: files, functions, include cycles, comments.

Prints the table of docs/measurements/house.md: one row a figure, one column for each tree that is
named, by default this one. Another commit is measured from a copy of its tree:

  mkdir /tmp/then && git archive COMMIT | tar -x -C /tmp/then
  tools/house_figures.py /tmp/then .

The code is services/, libs/ and tools/lathe. Tests are files *_test, folders `testing` and tests/,
and the simulation. Functions need universal-ctags, which tools/setup_check installs.
"""

import argparse
import collections
import json
import pathlib
import re
import shutil
import statistics
import subprocess
import sys

from check_prose import ELLIPTIC, first_lines

FOLDERS = ("services", "libs", "tools/lathe")
SUFFIXES = {".h", ".cc", ".cuh", ".cu"}
HEADERS = {".h", ".cuh"}
TEST_SUFFIXES = SUFFIXES | {".py"}
SMALL_LINES = 30
LONG_FUNCTION_LINES = 70
WORDS = ("nobody", "told", "the one", "whoever", "somebody", "goes on")

INCLUDE = re.compile(r'#include "(.*)"')


class Tree:
    """The lines of a tree's files, by their paths below its root."""

    def __init__(self, root):
        self.root = root
        files = [file for folder in FOLDERS for file in sorted((root / folder).rglob("*"))
                 if file.suffix in SUFFIXES and file.is_file()]
        self.files = {file.relative_to(root): file.read_text(encoding="utf-8").splitlines()
                      for file in files}
        self.source = {path: lines for path, lines in self.files.items() if not is_test(path)}
        self.includes = {path: [found[1] for line in lines if (found := INCLUDE.match(line))]
                         for path, lines in self.source.items()}


def is_test(path):
    return path.stem.endswith("_test") or not {"testing", "simulation"}.isdisjoint(path.parts)


def tenth_largest(values):
    """The value that nine tenths of all do not exceed."""
    return sorted(values)[len(values) * 9 // 10]


def number(value):
    return f"{value:,.1f}".removesuffix(".0")


def percent(part, whole, digits=1):
    return f"{part / max(whole, 1):.{digits}%}".replace("%", " %")


def file_figures(tree):
    counts = [len(lines) for lines in tree.source.values()]
    medians = [number(statistics.median([len(lines) for path, lines in tree.source.items()
                                         if (path.suffix in HEADERS) == are_headers]))
               for are_headers in (True, False)]
    small = sum(count < SMALL_LINES for count in counts)
    return {
        "source files / k lines": f"{number(len(counts))} / {sum(counts) / 1000:.1f}",
        "file lines: median, p90, max": ", ".join(
            map(number, (statistics.median(counts), tenth_largest(counts), max(counts)))),
        "`.h` / `.cc` median": " / ".join(medians),
        f"files under {SMALL_LINES} lines": f"{small} ({percent(small, len(counts), 0)})",
    }


def function_lengths(tree):
    """How many lines each function has; a lambda is one too."""
    found = subprocess.run(
        ["ctags", "--languages=C++", "--langmap=C++:.h.cc.cuh.cu", "--kinds-C++=f", "--fields=+ne",
         "--output-format=json", "-f", "-", "-L", "-"],
        input="\n".join(str(tree.root / path) for path in tree.source), capture_output=True,
        text=True, check=True)
    tags = map(json.loads, found.stdout.splitlines())
    return [tag["end"] - tag["line"] + 1 for tag in tags if "end" in tag]


def function_figures(tree):
    lengths = function_lengths(tree)
    long = sum(length > LONG_FUNCTION_LINES for length in lengths)
    return {
        "function lines: median, p90": ", ".join(
            map(number, (statistics.median(lengths), tenth_largest(lengths)))),
        f"functions over {LONG_FUNCTION_LINES} lines, longest":
            f"{long} of {number(len(lengths))}, {max(lengths)}",
    }


def cycles(arrows):
    """The strongly connected components of more than one node (Tarjan), without recursion."""
    indices, lows, stack, is_on_stack, found = {}, {}, [], set(), []
    for start in arrows:
        work = [(start, iter(arrows[start]))] if start not in indices else []
        while work:
            node, targets = work[-1]
            if node not in indices:
                indices[node] = lows[node] = len(indices)
                stack.append(node)
                is_on_stack.add(node)
            for target in targets:
                if target not in indices:
                    work.append((target, iter(arrows[target])))
                    break
                if target in is_on_stack:
                    lows[node] = min(lows[node], indices[target])
            else:
                work.pop()
                if work:
                    lows[work[-1][0]] = min(lows[work[-1][0]], lows[node])
                if lows[node] == indices[node]:
                    component = []
                    while not component or component[-1] != node:
                        component.append(stack.pop())
                        is_on_stack.discard(component[-1])
                    found.append(component)
    return [component for component in found if len(component) > 1]


def include_figures(tree):
    # A module is a header with its source.
    arrows = {path.with_suffix(""): set() for path in tree.source}
    own_first = num_own = bare = total = 0
    for path, includes in tree.includes.items():
        module = path.with_suffix("")
        targets = [pathlib.Path(include).with_suffix("") for include in includes]
        arrows[module].update(target for target in targets if target in arrows and target != module)
        total += len(includes)
        bare += sum("/" not in include for include in includes)
        if path.suffix not in HEADERS and module in targets:
            num_own += 1
            own_first += targets[0] == module
    largest = max(cycles(arrows), key=len, default=[])
    home = collections.Counter(module.parent.as_posix() for module in largest).most_common(1)
    return {
        "largest module cycle": f"{len(largest)} in {home[0][0]}" if largest else "none",
        "own header first": f"{number(own_first)} of {number(num_own)}",
        "quoted includes without folder": f"{bare} of {number(total)}",
    }


def comment_figures(tree):
    full_lines = sum(line.lstrip().startswith("//") for lines in tree.source.values()
                     for line in lines)
    starts = [line for lines in tree.source.values()
              for _, line in first_lines("\n".join(lines))]
    elliptic = sum(bool(ELLIPTIC.match(line)) for line in starts)
    # Words are counted in comments behind code and in those of tests too.
    comments = "\n".join(line[line.index("//"):].lower() for lines in tree.files.values()
                         for line in lines if "//" in line)
    words = re.compile(rf"\b({'|'.join(WORDS)})\b")
    counts = collections.Counter(words.findall(comments))
    return {
        "comment share of lines": percent(full_lines, sum(map(len, tree.source.values()))),
        "comments that begin without a subject": percent(elliptic, len(starts)),
        "words in comments": ", ".join(f"{word} {counts[word]}" for word in WORDS),
    }


def test_figures(tree):
    tests = sum(len(lines) for path, lines in tree.files.items() if is_test(path))
    tests += sum(len(file.read_text(encoding="utf-8").splitlines())
                 for file in (tree.root / "tests").rglob("*")
                 if file.suffix in TEST_SUFFIXES and file.is_file())
    return {"test : source lines": f"{tests / max(sum(map(len, tree.source.values())), 1):.2f}"}


def folder_figures(tree):
    """Files in view: those that a listing of the folder shows, tests and build file included."""
    counts = collections.Counter(
        file.parent.relative_to(tree.root).as_posix()
        for folder in FOLDERS for file in (tree.root / folder).rglob("*") if file.is_file())
    return {"most files in a folder": ", ".join(
        f"{folder.split('/')[-1]} {count}" for folder, count in counts.most_common(8))}


def figures(root):
    tree = Tree(root)
    return {name: value for make in (file_figures, function_figures, include_figures,
                                     comment_figures, test_figures, folder_figures)
            for name, value in make(tree).items()}


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("root", nargs="*", type=pathlib.Path,
                        default=[pathlib.Path(__file__).resolve().parents[1]])
    roots = parser.parse_args().root
    if shutil.which("ctags") is None:
        sys.exit("house_figures: error: ctags is missing; tools/setup_check installs it")
    columns = [figures(root.resolve()) for root in roots]
    print("| Figure |" + "".join(f" {root.resolve().name} |" for root in roots))
    print("|---|" + "---|" * len(columns))
    for name in columns[0]:
        print(f"| {name} | " + " | ".join(column[name] for column in columns) + " |")


if __name__ == "__main__":
    main()
