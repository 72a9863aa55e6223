#!/usr/bin/env python3
"""Adds up what tools/test has left in a folder: JUnit files, and `stages.tsv` with a line
`name<TAB>seconds<TAB>exit code` for each stage. Prints the time of each stage beside its share of the
budget and the slowest cases; the last line is `N passed, N failed`, then `, N skipped` if some were. A
case counts once for each build that ran it: the stage `sanitizers` repeats a part of `unit`.

    tools/test_results.py [--record PAGE.md] [--cold] FOLDER
"""

import argparse
import dataclasses
import datetime
import os
import pathlib
import re
import subprocess
import sys
import xml.etree.ElementTree as ElementTree

# Summary lines of a Catch2 binary, whose test cases share one ctest entry.
CATCH_ALL_PASSED = re.compile(r"All tests passed \(\d+ assertions? in (\d+) test cases?\)")
CATCH_SOME_FAILED = re.compile(r"^test cases:\s*(\d+) \|.*?(\d+) failed", re.MULTILINE)

# Time limit of a CI run in minutes, on a machine with two cores and nothing installed.
CI_LIMIT = 60
# Budget of each stage in minutes. The rest of CI_LIMIT is a reserve for slower machines.
BUDGET = {"setup": 4, "house": 1, "build": 12, "sanitizers": 4, "unit": 2, "e2e": 3, "parity": 2,
          "fault": 4, "deploy": 4, "sdk": 2, "cookbook": 2}
NUM_SLOWEST = 5

PAGE_HEAD = """# Times of tools/test

Written by `tools/test --record`: seconds of each stage. A cold start had no build folder; whether the
compiler's cache was filled is not known here. A stage that did not run is empty.

"""


@dataclasses.dataclass
class Count:
    passed: int = 0
    failed: int = 0
    skipped: int = 0


@dataclasses.dataclass
class Stage:
    name: str
    seconds: int
    exit_code: int


def count_case(case: ElementTree.Element, count: Count) -> None:
    output = case.findtext("system-out") or ""
    if case.find("failure") is not None or case.find("error") is not None:
        summary = CATCH_SOME_FAILED.search(output)
        num_cases, num_failed = (int(n) for n in summary.groups()) if summary else (1, 1)
        count.failed += num_failed
        count.passed += num_cases - num_failed
    elif case.find("skipped") is not None:
        count.skipped += 1
        print(f"  skipped: {case.get('classname')} {case.get('name')}")
    else:
        summary = CATCH_ALL_PASSED.search(output)
        count.passed += int(summary[1]) if summary else 1


def cases_of(path: pathlib.Path) -> list[ElementTree.Element]:
    return list(ElementTree.parse(path).getroot().iter("testcase"))


def count_file(path: pathlib.Path) -> Count:
    count = Count()
    for case in cases_of(path):
        count_case(case, count)
    return count


def count_folder(folder: pathlib.Path) -> Count:
    """Prints a line for each file; returns the sum."""
    total = Count()
    for path in sorted(folder.glob("*.xml")):
        count = count_file(path)
        print(f"{path.stem}: {count.passed} passed, {count.failed} failed, {count.skipped} skipped")
        total.passed += count.passed
        total.failed += count.failed
        total.skipped += count.skipped
    return total


def read_stages(folder: pathlib.Path) -> list[Stage]:
    path = folder / "stages.tsv"
    lines = path.read_text().splitlines() if path.exists() else []
    return [Stage(name, int(seconds), int(code))
            for name, seconds, code in (line.split("\t") for line in lines)]


def print_times(stages: list[Stage]) -> None:
    def row(name, seconds, minutes):
        share = f"{seconds / 60 / CI_LIMIT:6.1%}"
        bound = f"of {minutes / CI_LIMIT:6.1%}" if minutes else ""
        print(f"  {seconds:5d} s  {share} {bound:10}  {name}")

    print(f"time, and its share of CI's {CI_LIMIT} minutes beside the share that is planned:")
    for stage in stages:
        row(stage.name, stage.seconds, BUDGET.get(stage.name, 0))
    row("in all", sum(stage.seconds for stage in stages),
        sum(BUDGET.get(stage.name, 0) for stage in stages))


def print_slowest(folder: pathlib.Path) -> None:
    found = [(float(case.get("time") or 0), path.stem, case)
             for path in folder.glob("*.xml") for case in cases_of(path)]
    found.sort(key=lambda one: one[0], reverse=True)
    print("slowest cases:")
    for seconds, suite, case in found[:NUM_SLOWEST]:
        group = "" if suite in ("unit", "sanitizers") else f"{case.get('classname')} "
        print(f"  {seconds:5.0f} s  {suite}: {group}{case.get('name')}")


def commit() -> str:
    """Of the checkout that ran; with a mark if it holds changes."""
    described = subprocess.run(["git", "describe", "--always", "--abbrev=9", "--dirty=+"],
                          capture_output=True, text=True, check=False)
    return described.stdout.strip() or "unknown"


def record(page: pathlib.Path, stages: list[Stage], is_cold: bool) -> None:
    """Appends a row to the page, which is begun if it is not there."""
    columns = list(BUDGET)
    if not page.exists():
        page.parent.mkdir(parents=True, exist_ok=True)
        heads = ["date", "commit", "cores", "start", *columns, "in all"]
        page.write_text(PAGE_HEAD + f"| {' | '.join(heads)} |\n|{'---|' * len(heads)}\n")
    seconds = {stage.name: stage.seconds for stage in stages}
    cells = [datetime.date.today().isoformat(), commit(), str(os.cpu_count()),
             "cold" if is_cold else "warm", *(str(seconds.get(name, "")) for name in columns),
             str(sum(seconds.values()))]
    with page.open("a") as file:
        file.write(f"| {' | '.join(cells)} |\n")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--record", type=pathlib.Path, metavar="PAGE",
                        help="add the times to this page")
    parser.add_argument("--cold", action="store_true", help="all was compiled; for the record")
    parser.add_argument("folder", type=pathlib.Path)
    args = parser.parse_args()

    stages = read_stages(args.folder)
    total = count_folder(args.folder)
    failed_stages = [stage for stage in stages if stage.exit_code != 0]
    for stage in failed_stages:
        print(f"failed stage {stage.name}: exit code {stage.exit_code}")
    # Failed tests already count for their stage. A stage that failed without a test counts as one.
    total.failed = max(total.failed, len(failed_stages))
    if stages:
        print_times(stages)
    print_slowest(args.folder)
    if args.record:
        record(args.record, stages, args.cold)
    skipped = f", {total.skipped} skipped" if total.skipped else ""
    print(f"{total.passed} passed, {total.failed} failed{skipped}")
    return 0 if total.passed and not total.failed else 1


if __name__ == "__main__":
    sys.exit(main())
