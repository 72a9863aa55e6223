"""What tools/test ends with: counts, times, slowest cases, and the record of times."""

import pathlib
import subprocess
import sys

import pytest

PROGRAM = pathlib.Path(__file__).with_name("test_results.py")
CATCH = "<system-out>All tests passed (90 assertions in 7 test cases)</system-out>"
CATCH_FAILED = ("<failure/><system-out>test cases: 5 | 3 passed | 2 failed\n</system-out>")


def results(folder, stages=(), **suites):
    """The exit code and the lines that the program prints about these suites."""
    for name, cases in suites.items():
        (folder / f"{name}.xml").write_text(f"<testsuites><testsuite>{cases}</testsuite></testsuites>")
    if stages:
        (folder / "stages.tsv").write_text("".join(f"{line}\n" for line in stages))
    done = subprocess.run([sys.executable, str(PROGRAM), "--record", str(folder / "times.md"),
                           str(folder)], capture_output=True, text=True)
    assert not done.stderr
    return done.returncode, done.stdout.splitlines()


def case(name, content="", seconds=1.0):
    return f'<testcase classname="suite" name="{name}" time="{seconds}">{content}</testcase>'


@pytest.mark.parametrize("cases, code, last", [
    (case("a") + case("b"), 0, "2 passed, 0 failed"),
    (case("a", CATCH), 0, "7 passed, 0 failed"),
    (case("a", CATCH_FAILED), 1, "3 passed, 2 failed"),
    (case("a") + case("b", "<failure/>") + case("c", "<error/>"), 1, "1 passed, 2 failed"),
    (case("a") + case("b", "<skipped/>"), 0, "1 passed, 0 failed, 1 skipped"),
    ("", 1, "0 passed, 0 failed"),
])
def test_the_last_line_counts_cases(tmp_path, cases, code, last):
    status, lines = results(tmp_path, unit=cases)
    assert (status, lines[-1]) == (code, last)


@pytest.mark.parametrize("content, failed", [("", 1), ("<failure/>", 1)])
def test_a_stage_that_failed_counts_once_with_and_without_results(tmp_path, content, failed):
    status, lines = results(tmp_path, ["e2e\t3\t2"], unit=case("a") + case("b", content))
    assert status == 1 and f"{failed} failed" in lines[-1]
    assert "failed stage e2e: exit code 2" in lines


def test_times_of_stages_stand_beside_their_budget(tmp_path):
    _, lines = results(tmp_path, ["build\t360\t0", "unit\t36\t0"], unit=case("a"))
    assert "    360 s   10.0% of  20.0%   build" in lines
    assert any(line.split()[0] == "396" and line.endswith("in all") for line in lines)


def test_the_slowest_cases_are_named_with_their_suite(tmp_path):
    _, lines = results(tmp_path, unit=case("program", CATCH, 7.5),
                       e2e="".join(case(f"case{number}", seconds=number) for number in range(9)))
    begin = lines.index("slowest cases:") + 1
    assert [line.split()[-1] for line in lines[begin:begin + 5]] == [
        "case8", "program", "case7", "case6", "case5"]
    assert "      8 s  e2e: suite case8" in lines


def test_each_run_adds_a_row_to_the_record(tmp_path):
    for _ in range(2):
        results(tmp_path, ["build\t360\t0", "unit\t36\t0"], unit=case("a"))
    rows = [line.split("|") for line in (tmp_path / "times.md").read_text().splitlines()
            if line.startswith("|")]
    assert len(rows) == 4 and len({len(row) for row in rows}) == 1
    columns = [cell.strip() for cell in rows[0]]
    assert rows[2][columns.index("build")].strip() == "360"
    assert rows[2][columns.index("in all")].strip() == "396"
    assert rows[2][columns.index("e2e")].strip() == ""
