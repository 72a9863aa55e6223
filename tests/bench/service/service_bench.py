"""Speed of the service: every figure of docs/measurements/service.md, as one Markdown table.

    .venv/bin/python tests/bench/service/service_bench.py [--store postgres] [--cases one,many]

Most cases run engine and gateway with lathe-null-worker, which answers at once; clients are one
thread of C++ (lathe_service_load). `recovery` and `snapshots` run the real worker. All of it takes
about a quarter of an hour on each store.
"""

import argparse
import pathlib
import sys
import time

HERE = pathlib.Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parents[1])]
import cases  # noqa: E402
import real_cases  # noqa: E402
from machine import fsync_ms, grpc_echo, machine_line, ms  # noqa: E402

CASES = {"one": cases.one_client, "many": cases.many_clients, "polls": cases.waiting_polls,
         "bodies": cases.large_bodies, "flood": cases.flood, "ledger": cases.large_ledger,
         "recovery": real_cases.recovery, "snapshots": real_cases.snapshots}


def parse():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cases", default=",".join(CASES), help="some of %(default)s")
    parser.add_argument("--store", choices=("sqlite", "postgres"), default="sqlite")
    parser.add_argument("--rounds", type=int, default=5, help="of each measurement; medians count")
    parser.add_argument("--seconds", type=float, default=5, help="of a round")
    parser.add_argument("--polls", type=int, default=8192)
    parser.add_argument("--hold", type=int, default=20, help="seconds of a poll")
    parser.add_argument("--flood", type=int, default=10000, help="requests of a flood")
    parser.add_argument("--finished", type=int, default=1_000_000, help="requests of the ledger")
    parser.add_argument("--waiting", type=int, default=100_000, help="requests of the ledger")
    parser.add_argument("--block", type=int, default=6, help="steps of one turn of `snapshots`")
    parser.add_argument("--tokens", type=int, default=64, help="of a tenant's step of `snapshots`")
    args = parser.parse_args()
    args.cases = args.cases.split(",")
    unknown = set(args.cases) - set(CASES)
    if unknown:
        parser.error(f"cases are {', '.join(CASES)}, not {', '.join(sorted(unknown))}")
    return args


def main():
    args = parse()
    print(f"Machine: {machine_line()}\n")
    p50, p99 = fsync_ms()
    print(f"Write of 4 KiB and fdatasync: p50 {ms(p50)}, p99 {ms(p99)}")
    echo = grpc_echo()
    print(f"Bare gRPC call between two processes: p50 {echo['p50_us']:.0f} us, "
          f"p99 {echo['p99_us']:.0f} us\n")
    print(f"| Case ({args.store}) | Measured | Goal | |\n|---|---|---|---|", flush=True)
    for name in args.cases:
        begin = time.monotonic()
        for what, measured, goal, is_met in CASES[name](args):
            verdict = {None: "", True: "met", False: "missed"}[is_met]
            print(f"| {what} | {measured} | {goal} | {verdict} |", flush=True)
        print(f"{name}: {time.monotonic() - begin:.0f} s", file=sys.stderr, flush=True)


if __name__ == "__main__":
    main()
