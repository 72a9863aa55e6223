"""What traces cost: CPU of gateway, engine and a worker that computes nothing, a request.

    .venv/bin/python tests/bench/service/tracing_cost.py

Three services take turns: `off`, without a collector; `on`, each request is recorded and a collector
takes the spans; `tenth`, one trace in ten is recorded. 16 clients step without pause. The ratio of a
round compares its turn with that of `off`. Prints the median of the rounds, the least and the most.
"""

import argparse
import http.server
import pathlib
import statistics
import sys
import threading

HERE = pathlib.Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parents[1])]
from machine import machine_line  # noqa: E402
from null_service import NullService  # noqa: E402

CASES = {"off": None, "on": "1", "tenth": "0.1"}


class Sink(http.server.BaseHTTPRequestHandler):
    """Takes spans and forgets them. Its CPU is not counted."""

    num_bytes = 0

    def do_POST(self):
        Sink.num_bytes += len(self.rfile.read(int(self.headers["Content-Length"])))
        self.send_response(200)
        self.send_header("Content-Length", "2")
        self.end_headers()
        self.wfile.write(b"{}")

    def log_message(self, *_):
        pass


def service(endpoint, ratio):
    options = ("--tracing-endpoint", endpoint, "--tracing-sample-ratio", ratio) if ratio else ()
    return NullService(engine=options, gateway=options)


def dropped(running):
    lines = running.metrics().splitlines()
    return sum(float(line.split()[1]) for line in lines
               if line.startswith("lathe_engine_trace_spans_dropped_total "))


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--seconds", type=float, default=3)
    parser.add_argument("--clients", type=int, default=16)
    args = parser.parse_args()
    collector = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Sink)
    threading.Thread(target=collector.serve_forever, daemon=True).start()
    endpoint = f"http://127.0.0.1:{collector.server_port}"
    print(machine_line())
    services = {name: service(endpoint, ratio).__enter__() for name, ratio in CASES.items()}
    costs = {name: [] for name in CASES}
    try:
        loads = {name: running.load() for name, running in services.items()}
        for turn in range(args.rounds + 1):
            for name, running in services.items():
                before = running.cpu_seconds()
                run = loads[name].run(op="steps", clients=args.clients, seconds=args.seconds)
                cost = 1e6 * (running.cpu_seconds() - before) / run["requests"]
                if turn > 0:  # the first warms up
                    costs[name].append(cost)
        for load in loads.values():
            load.close()
        print(f"spans dropped: {dropped(services['on']):.0f} of the engine's")
    finally:
        for running in services.values():
            running.__exit__()
    for name in CASES:
        ratios = [cost / off for cost, off in zip(costs[name], costs["off"])]
        print(f"{name:6} {statistics.median(costs[name]):6.0f} us of CPU a request, "
              f"{statistics.median(ratios):.3f} of `off` ({min(ratios):.3f} to {max(ratios):.3f})")


if __name__ == "__main__":
    main()
