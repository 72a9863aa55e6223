"""Plants each kind of difference in a small tree and expects check_threads to name it."""

import pathlib
import subprocess
import sys

import pytest
from planted_tree import run_check

CHECK = pathlib.Path(__file__).with_name("check_threads.py")
PAGE = """# Architecture

| `not-a-thread` | `nor-this` |

## Threads

| Process | Thread | Runs |
|---|---|---|
| engine | gRPC's own | `callbacks` |
| engine | `one` (4) | work |
| engine | `two`, `many-*`, with ranks | more work |

## Next

| engine | `no-thread` | |
"""
ONE = """class A {
  NamedThread thread_;
};
"""
ONE_CC = 'A::A() : thread_("one", [this] { Run(); }) {}\n'
OTHERS = """std::optional<PeriodicTask> task;
task.emplace("two", period, [] {});
std::vector<NamedThread> threads;
threads.emplace_back("many-" + std::to_string(i), [] {});
"""


def check(root, page, others=OTHERS, more=None):
    files = {"ARCHITECTURE.md": page, "services/engine/a.h": ONE, "services/engine/a.cc": ONE_CC,
             "tools/lathe/b.cc": others, "services/engine/a_test.cc": "std::thread t;\n"}
    return run_check(CHECK, root, files | (more or {}))


DIFFERENCES = {
    "a missing row": (
        dict(page=PAGE.replace("`one`", "one")),
        "services/engine/a.cc:1: the thread `one` is missing in ARCHITECTURE.md"),
    "a missing numbered row": (
        dict(page=PAGE.replace(", `many-*`", "")),
        "tools/lathe/b.cc:4: the thread `many-*` is missing in ARCHITECTURE.md"),
    "a surplus row": (
        dict(page=PAGE.replace("`two`", "`two`, `three`")),
        "ARCHITECTURE.md:11: nothing starts the thread `three`"),
    "a row that stands there twice": (
        dict(page=PAGE.replace("gRPC's own", "`two`")),
        "ARCHITECTURE.md:11: the thread `two` stands here twice"),
    "a made thread": (
        dict(page=PAGE, more={
            "libs/common/c.cc": 'x = std::make_unique<NamedThread>(\n    "made", [] {});\n'}),
        "libs/common/c.cc:1: the thread `made` is missing in ARCHITECTURE.md"),
    "a thread without a name": (
        dict(page=PAGE, more={"libs/common/c.cc": "\nstd::jthread thread([] {});\n"}),
        "libs/common/c.cc:2: a thread without a name: use NamedThread"),
    "a name that is no literal": (
        dict(page=PAGE, more={"libs/common/c.h": "NamedThread thread_;\n"}),
        "libs/common/c.h:1: declares a thread that gets no name here"),
}


@pytest.mark.parametrize("name", DIFFERENCES)
def test_a_difference_is_named_with_its_line(name, tmp_path):
    tree, message = DIFFERENCES[name]
    result = check(tmp_path, **tree)
    assert message in result.stdout
    assert result.returncode == 1


def test_a_table_that_has_every_thread_passes(tmp_path):
    result = check(tmp_path, PAGE)
    assert result.returncode == 0, result.stdout
    assert "3 named threads, 0 violations" in result.stdout


def test_this_tree_passes():
    result = subprocess.run([sys.executable, str(CHECK)], capture_output=True, text=True)
    assert result.returncode == 0, result.stdout
