#!/usr/bin/env python3
"""Writes how a check ended to docs/measurements/checks.md, which keeps the last run of each.

    tools/record_check.py [--page PAGE.md] NAME RESULT SECONDS
"""

import argparse
import datetime
import os
import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).parent))
from test_results import commit  # noqa: E402

PAGE = pathlib.Path(__file__).resolve().parents[1] / "docs" / "measurements" / "checks.md"
HEAD = """# Last runs of the slow checks

Written by `tools/check --record NAME`. A commit with a `+` had changes that were not committed.

| check | result | seconds | cores | date | commit |
|---|---|---|---|---|---|
"""


def record(page: pathlib.Path, name: str, result: str, seconds: int) -> None:
    rows = {}
    if page.exists():
        for line in page.read_text().removeprefix(HEAD).splitlines():
            rows[line.split("|")[1].strip()] = line
    cells = [name, result, str(seconds), str(os.cpu_count()), datetime.date.today().isoformat(),
             commit()]
    rows[name] = f"| {' | '.join(cells)} |"
    page.parent.mkdir(parents=True, exist_ok=True)
    page.write_text(HEAD + "".join(f"{rows[one]}\n" for one in sorted(rows)))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--page", type=pathlib.Path, default=PAGE)
    parser.add_argument("name")
    parser.add_argument("result", choices=["passed", "failed"])
    parser.add_argument("seconds", type=int)
    args = parser.parse_args()
    record(args.page, args.name, args.result, args.seconds)
    return 0


if __name__ == "__main__":
    sys.exit(main())
