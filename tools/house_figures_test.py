"""Plants a tree of which every figure is known, and expects house_figures to print them."""

import shutil

import house_figures
import pytest

A_HEADER = """// Of two numbers, nobody knows which.
#include "services/b.h"
"""
A_SOURCE = """#include "services/a.h"
#include "bare.h"

int F() {
  // Adds, whoever asks.
  return 1;
}
"""


def plant(root):
    """Writes a cycle of two modules, a module beside it, two tests and the simulation."""
    for path, text in {
        "services/a.h": A_HEADER,
        "services/a.cc": A_SOURCE,
        "services/b.h": '#include "services/a.h"\n',
        "services/c.cc": '#include "services/a.h"\n' + "int x;\n" * 39,
        "services/a_test.cc": "int t;  // told\n" * 10,
        "services/simulation/s.cc": "int s;\n" * 5,
        "tests/e2e/test_a.py": "x = 1\n" * 10,
        "tests/notes.md": "not a test\n",
    }.items():
        file = root / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
    return house_figures.Tree(root)


def test_files(tmp_path):
    assert house_figures.file_figures(plant(tmp_path)) == {
        "source files / k lines": "4 / 0.1",
        "file lines: median, p90, max": "4.5, 40, 40",
        "`.h` / `.cc` median": "1.5 / 23.5",
        "files under 30 lines": "3 (75 %)",
    }


def test_includes(tmp_path):
    assert house_figures.include_figures(plant(tmp_path)) == {
        "largest module cycle": "2 in services",
        "own header first": "1 of 1",
        "quoted includes without folder": "1 of 5",
    }


def test_comments(tmp_path):
    assert house_figures.comment_figures(plant(tmp_path)) == {
        "comment share of lines": "4.0 %",
        "comments that begin without a subject": "50.0 %",
        "words in comments":
            "nobody 1, told 10, the one 0, whoever 1, somebody 0, goes on 0",
    }


def test_tests_and_folders(tmp_path):
    tree = plant(tmp_path)
    assert house_figures.test_figures(tree) == {"test : source lines": "0.50"}
    assert house_figures.folder_figures(tree) == {
        "most files in a folder": "services 5, simulation 1"}


@pytest.mark.parametrize("arrows,sizes", [
    ({1: {2}, 2: {3}, 3: set()}, []),
    ({1: {2}, 2: {3}, 3: {1}, 4: {1}}, [3]),
    ({1: {2}, 2: {1, 3}, 3: {4}, 4: {3, 5}, 5: {6}, 6: {4}}, [2, 4]),
])
def test_cycles(arrows, sizes):
    assert sorted(map(len, house_figures.cycles(arrows))) == sizes


@pytest.mark.skipif(shutil.which("ctags") is None, reason="tools/setup_check installs ctags")
def test_functions(tmp_path):
    assert house_figures.function_figures(plant(tmp_path)) == {
        "function lines: median, p90": "4, 4",
        "functions over 70 lines, longest": "0 of 1, 4",
    }


@pytest.mark.skipif(shutil.which("ctags") is None, reason="tools/setup_check installs ctags")
def test_each_tree_has_a_column(tmp_path, capsys, monkeypatch):
    roots = [tmp_path / "then", tmp_path / "now"]
    for root in roots:
        plant(root)
    monkeypatch.setattr("sys.argv", ["house_figures.py", *map(str, roots)])
    house_figures.main()
    rows = capsys.readouterr().out.splitlines()
    assert rows[:2] == ["| Figure | then | now |", "|---|---|---|"]
    assert "| test : source lines | 0.50 | 0.50 |" in rows
