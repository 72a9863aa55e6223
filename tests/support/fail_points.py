"""Tells running processes where to fail, and reads how often they did (libs/common/fail_point)."""

import os
import pathlib
import re
import sys
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
# An engine of this build migrates its database to this version.
SCHEMA_VERSION = len(list((ROOT / "services/engine/store/sql/schema/sqlite").glob("*.sql")))
LISTED = re.compile(r'^ +\{"([a-z_.]+)",', re.MULTILINE)


def listed(prefix=""):
    """Names of all fail points that begin so, in the order of the list."""
    text = (ROOT / "libs/common/fail_point/fail_point_list.cc").read_text()
    return [name for name in LISTED.findall(text) if name.startswith(prefix)]


class FailPoints:
    """Rules of the processes that get `env`; `folder` is an empty directory."""

    def __init__(self, folder):
        self._rules = pathlib.Path(folder, "rules")
        self._counts = pathlib.Path(folder, "counts")
        self._counts.mkdir(parents=True)
        self.env = {"LATHE_FAIL_POINTS_FILE": str(self._rules),
                    "LATHE_FAIL_POINT_COUNTS": str(self._counts)}

    def set(self, *rules):
        """Replaces all rules; processes obey from the next point they pass."""
        fresh = self._rules.with_suffix(".new")
        fresh.write_text("\n".join(rules))
        os.replace(fresh, self._rules)

    def clear(self):
        self.set()

    def counts(self):
        """{name: (passed, fired)}, summed over all processes that ever lived."""
        total = {name: (0, 0) for name in listed()}
        for file in self._counts.iterdir():
            for line in file.read_text().splitlines():
                words = line.split()
                # A process that is starting may have written only part of its lines.
                if len(words) == 3 and words[0] in total:
                    name, passed, fired = words
                    total[name] = total[name][0] + int(passed), total[name][1] + int(fired)
        return total

    def fired(self, name):
        return self.counts()[name][1]

    def wait_fired(self, name, more_than=0, timeout=60):
        """Until the point has fired more than so often in all."""
        deadline = time.monotonic() + timeout
        while self.fired(name) <= more_than:
            assert time.monotonic() < deadline, f"{name} did not fire in {timeout} s"
            time.sleep(0.01)


def main():
    """Prints what a long run did: .venv/bin/python tests/support/fail_points.py FOLDER [MINIMUM]
    fails when a point fired less than MINIMUM times."""
    points = FailPoints.__new__(FailPoints)
    points._counts = pathlib.Path(sys.argv[1], "counts")
    minimum = int(sys.argv[2]) if len(sys.argv) > 2 else 0
    counts = points.counts()
    for name, (passed, fired) in counts.items():
        print(f"{name:32} passed {passed:10} fired {fired:6}")
    few = [name for name, (_, fired) in counts.items() if fired < minimum]
    print(f"{len(few)} of {len(counts)} fired less than {minimum} times: {' '.join(few)}")
    return 1 if few else 0


if __name__ == "__main__":
    sys.exit(main())
