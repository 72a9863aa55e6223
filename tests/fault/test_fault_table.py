"""The tests that docs/reliability.md names exist."""

import fnmatch
import os
import re
import sys

import pytest

sys.path.insert(0, os.path.join(os.path.dirname(__file__), ".."))
from support.fail_points import ROOT  # noqa: E402

ROW = re.compile(r"^\| ([A-F]\d[^|]*) \| [^|]+ \| (.+) \|$", re.MULTILINE)
# The rows of the specification, in its order.
ROWS = [f"{letter}{i}" for letter, last in zip("ABCDEF", (11, 10, 13, 14, 11, 8), strict=True)
        for i in range(1, last + 1)]
# Catch2 prints and filters by what stands between the quotes.
CASE = re.compile(r'TEST_CASE\(\s*((?:"[^"]*"\s*)+)')


def rows():
    """Pairs of a row's numbers and its column of tests."""
    text = (ROOT / "docs" / "reliability.md").read_text()
    return [(numbers, tests) for numbers, tests in ROW.findall(text)]


def numbers_of(cell):
    """ "D3–D6, D11" -> D3, D4, D5, D6, D11"""
    numbers = []
    for part in cell.split(", "):
        first, _, last = part.partition("–")
        letter = first[0]
        numbers += [f"{letter}{i}"
                    for i in range(int(first[1:]), int((last or first)[1:]) + 1)]
    return numbers


@pytest.fixture(scope="module")
def known():
    names = set()
    for file in (ROOT / "tests").rglob("test_*.py"):
        names.update(re.findall(r"^def (test_\w+)", file.read_text(), re.MULTILINE))
    for file in [*(ROOT / "services").rglob("*_test.cc"), *(ROOT / "libs").rglob("*_test.cc")]:
        for quoted in CASE.findall(file.read_text()):
            names.add("".join(re.findall(r'"([^"]*)"', quoted)))
    for file in [*(ROOT / "services").rglob("CMakeLists.txt"),
                 *(ROOT / "libs").rglob("CMakeLists.txt")]:
        names.update(re.findall(r"\b\w+_test\b", file.read_text()))
    return names


def test_every_row_is_there_once():
    assert sorted(n for cell, _ in rows() for n in numbers_of(cell)) == sorted(ROWS)


@pytest.mark.parametrize(("numbers", "tests"), rows())
def test_what_a_row_names_exists(numbers, tests, known):
    for name, program in re.findall(r"`([^`]+)`(?: \((\w+_test))?", tests):
        if name.startswith("tests/"):
            assert (ROOT / name.split()[0]).exists(), f"{numbers}: {name}"
        elif name.split()[0].endswith(".py"):
            assert (ROOT / "tests" / "fault" / name.split()[0]).exists(), f"{numbers}: {name}"
        elif name.startswith("test_") or ": " in name or name.endswith("_test") or program:
            pattern = name.replace(" …", "*")
            assert fnmatch.filter(known, pattern), f"{numbers}: no test is called {name}"
    for name in re.findall(r"(?<![`\w/])(\w+_test)\b(?!`)", tests):
        assert name in known, f"{numbers}: no test program is called {name}"
