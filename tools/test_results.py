#!/usr/bin/env python3
"""Adds up the JUnit files and failed stages of tools/test; the last line is `N passed, N failed`."""

import dataclasses
import pathlib
import re
import sys
import xml.etree.ElementTree as ElementTree

# What a Catch2 binary prints at its end: one ctest entry stands for all its test cases.
CATCH_ALL_PASSED = re.compile(r"All tests passed \(\d+ assertions? in (\d+) test cases?\)")
CATCH_SOME_FAILED = re.compile(r"^test cases:\s*(\d+) \|.*?(\d+) failed", re.MULTILINE)


@dataclasses.dataclass
class Count:
    passed: int = 0
    failed: int = 0
    skipped: int = 0


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


def count_file(path: pathlib.Path) -> Count:
    count = Count()
    for case in ElementTree.parse(path).getroot().iter("testcase"):
        count_case(case, count)
    return count


def main() -> int:
    folder = pathlib.Path(sys.argv[1])
    total = Count()
    for path in sorted(folder.glob("*.xml")):
        count = count_file(path)
        print(f"{path.stem}: {count.passed} passed, {count.failed} failed, {count.skipped} skipped")
        total.passed += count.passed
        total.failed += count.failed

    stages = folder / "failed_stages"
    failed_stages = stages.read_text().splitlines() if stages.exists() else []
    for line in failed_stages:
        print(f"failed stage {line}")
    # A stage whose tests failed is counted by them; one that never got to a test counts as one.
    if failed_stages and total.failed < len(failed_stages):
        total.failed = len(failed_stages)
    print(f"{total.passed} passed, {total.failed} failed")
    return 0 if total.passed and not total.failed else 1


if __name__ == "__main__":
    sys.exit(main())
