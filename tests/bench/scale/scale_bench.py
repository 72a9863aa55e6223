#!/usr/bin/env python3
"""Whether engine and gateways hold under size and hostility: each case of docs/measurements/scale.md,
as one Markdown table of goals and measured figures.

    .venv/bin/python tests/bench/scale/scale_bench.py [--cases rows,soak] [--stores sqlite]
    .venv/bin/python tests/bench/scale/scale_bench.py --cases noop64 --base /tmp/old/bin

--record PAGE also writes the figures below the line LAST_RUN of a page.
All cases but `soak` run with lathe-null-worker. The exit code is 0 if every case ran and nothing
was broken, whether or not the goals were reached; 1 after an error, a wrong answer or a violation."""

import argparse
import dataclasses
import pathlib
import shlex
import sys
import time
import traceback

HERE = pathlib.Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent / "service"), str(HERE.parents[2] / "tests" / "fault"),
                str(HERE.parents[1]), str(HERE.parents[2] / "tools")]
import call_cases  # noqa: E402
import ledger_cases  # noqa: E402
import memory_case  # noqa: E402
import soak  # noqa: E402
from machine import fsync_ms, machine_line, ms  # noqa: E402
from result import SIZES, Broken  # noqa: E402
from test_results import commit  # noqa: E402

CASES = {"steps": ledger_cases.steps, "rows": ledger_cases.rows,
         "searches": ledger_cases.searches, "noop64": call_cases.noop,
         "gateways": call_cases.gateways, "bodies": call_cases.bodies,
         "memory": memory_case.memory, "soak": soak.soak}
# No store takes part in it.
WITHOUT_STORE = {"steps"}
# Lines of the page below this one are replaced by a run.
LAST_RUN = "## Last run\n"


def parse():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cases", default=",".join(CASES), help="some of %(default)s")
    parser.add_argument("--stores", default="sqlite,postgres")
    parser.add_argument("--scale", choices=SIZES, default="full")
    parser.add_argument("--rounds", type=int, help="of what is measured in turns")
    parser.add_argument("--minutes", type=float, default=60, help="of the soak")
    parser.add_argument("--seed", type=int, default=1, help="of the soak")
    parser.add_argument("--base", type=pathlib.Path, help="programs to compare `noop64` with")
    parser.add_argument("--record", type=pathlib.Path, metavar="PAGE")
    args = parser.parse_args()
    args.cases, args.stores = args.cases.split(","), args.stores.split(",")
    for words, known in ((args.cases, CASES), (args.stores, ("sqlite", "postgres"))):
        if unknown := set(words) - set(known):
            parser.error(f"{', '.join(sorted(unknown))} is none of {', '.join(known)}")
    args.size = SIZES[args.scale]
    if args.rounds:
        args.size = dataclasses.replace(args.size, rounds=args.rounds)
    return args


class Report:
    """Prints lines, and keeps them for the page."""

    def __init__(self):
        self.lines = []

    def say(self, line):
        print(line, flush=True)
        self.lines.append(line)

    def write(self, page):
        fixed, _, _ = page.read_text().partition(LAST_RUN)
        command = shlex.join(["tests/bench/scale/scale_bench.py", *sys.argv[1:]])
        page.write_text(f"{fixed}{LAST_RUN}\nCommit {commit()}, `{command}`.\n"
                        + "".join(f"{line}\n" for line in self.lines))


def run_case(name, store, args, report):
    """Reports the rows of a case. Returns whether nothing was broken."""
    begin, is_sound = time.monotonic(), True
    shown = "none" if name in WITHOUT_STORE else store

    def say(what, goal, measured, verdict):
        # A table has one line per row, and no other bars.
        cells = [" ".join(str(cell).replace("|", "/").split())
                 for cell in (f"{name}: {what}", shown, goal, measured, verdict)]
        report.say("| " + " | ".join(cells) + " |")

    try:
        for row in CASES[name](store, args):
            say(*row[:3], {None: "", True: "holds", False: "misses"}[row.holds])
    except Exception as error:
        if not isinstance(error, Broken):
            traceback.print_exc()
        say(f"{type(error).__name__} {error}", "", "", "broken")
        is_sound = False
    print(f"{name}, {shown}: {time.monotonic() - begin:.0f} s", file=sys.stderr, flush=True)
    return is_sound


def main():
    args = parse()
    report = Report()
    p50, p99 = fsync_ms()
    report.say(f"Machine: {machine_line()}; write of 4 KiB and fdatasync: p50 {ms(p50)}, p99 {ms(p99)}\n")
    report.say("| Case | Store | Goal | Measured | |\n|---|---|---|---|---|")
    sound = [run_case(name, store, args, report) for name in args.cases
             for store in (args.stores[:1] if name in WITHOUT_STORE else args.stores)]
    if args.record:
        report.write(args.record)
    return 0 if all(sound) else 1


if __name__ == "__main__":
    sys.exit(main())
