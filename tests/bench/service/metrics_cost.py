"""What kept metrics cost: CPU of gateway, engine and a worker that computes nothing, a request.

    .venv/bin/python tests/bench/service/metrics_cost.py [--store postgres] [--rounds N]

Two services take turns, in alternating order: `off` with metrics.keep 0s, and `on`. 16 clients step
without pause. The ratio of a round compares its two turns. Prints the median of the rounds, the
least and the most, and which part of the points was folded at the end.
"""

import argparse
import contextlib
import pathlib
import statistics
import sys

HERE = pathlib.Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parents[1])]
from machine import machine_line  # noqa: E402
from null_service import NullService  # noqa: E402

CASES = {"off": "0s", "on": "9600h"}


def points(running):
    """Points that were kept, and those that still wait."""
    values = {line.rsplit(" ", 1)[0]: float(line.rsplit(" ", 1)[1])
              for line in running.metrics().splitlines() if line.startswith("lathe_engine_metric_")}
    return (values['lathe_engine_metric_points_total{outcome="kept"}'],
            values["lathe_engine_metric_points_pending"])


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--store", choices=("sqlite", "postgres"), default="sqlite")
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--seconds", type=float, default=4)
    parser.add_argument("--clients", type=int, default=16)
    args = parser.parse_args()
    print(machine_line())
    costs = {name: [] for name in CASES}
    with contextlib.ExitStack() as stack:
        services = {name: stack.enter_context(
            NullService(store=args.store, engine=("--metrics-keep", keep)))
            for name, keep in CASES.items()}
        loads = {name: running.load() for name, running in services.items()}
        for turn in range(args.rounds + 1):
            for name in list(CASES)[::1 if turn % 2 else -1]:
                before = services[name].cpu_seconds()
                run = loads[name].run(op="steps", clients=args.clients, seconds=args.seconds)
                cost = 1e6 * (services[name].cpu_seconds() - before) / run["requests"]
                if turn > 0:  # the first warms up
                    costs[name].append(cost)
        for load in loads.values():
            load.close()
        kept, waiting = points(services["on"])
        print(f"{kept:.0f} points were folded, {waiting:.0f} wait")
    for name in CASES:
        ratios = [cost / off for cost, off in zip(costs[name], costs["off"])]
        print(f"{name:4} {statistics.median(costs[name]):6.0f} us of CPU a request, "
              f"{statistics.median(ratios):.3f} of `off` ({min(ratios):.3f} to {max(ratios):.3f})")


if __name__ == "__main__":
    main()
