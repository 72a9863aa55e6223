"""A run with a metric of a million points: how long it takes to store, and to read its curve.

    .venv/bin/python tests/bench/service/metrics_size.py [--points N]

Appends the points over HTTP in calls of 1,000, and reads the curve at
several resolutions. Prints the median of ten reads, the bytes of an answer and the size of the
database. Checks that the curve has every point and the spike among them.
"""

import argparse
import json
import os
import pathlib
import statistics
import sys
import time
import urllib.request

HERE = pathlib.Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parents[1])]
from machine import machine_line  # noqa: E402
from support.lathe_server import LatheServer, tiny_model  # noqa: E402
from support.raw_api import RawApi, RawModel  # noqa: E402

SPIKE_AT = 123_456


def append(api, run, count):
    for begin in range(0, count, 1000):
        points = [{"name": "reward", "step": i, "value": 1e6 if i == SPIKE_AT else i % 97}
                  for i in range(begin, begin + 1000)]
        answer = api.post(f"training_runs/{run}/metrics", {"points": points})
        assert answer.status_code == 200, answer.text


def read(server, run, query):
    request = urllib.request.Request(f"{server.url}/api/v1/training_runs/{run}/metrics?{query}",
                                     headers={"X-API-Key": server.api_key})
    begin = time.monotonic()
    with urllib.request.urlopen(request, timeout=60) as answer:
        first = answer.read(1)
        seconds = time.monotonic() - begin
        return seconds, first + answer.read()


def size_of(server):
    return sum(os.path.getsize(path) for path in pathlib.Path(server.data_dir).glob("lathe.db*"))


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--points", type=int, default=1_000_000)
    args = parser.parse_args()
    print(machine_line())
    with LatheServer(tiny_model()) as server:
        api = RawApi(server)
        run = RawModel(api).model_id
        size = size_of(server)
        begin = time.monotonic()
        append(api, run, args.points)
        seconds = time.monotonic() - begin
        print(f"stored in {seconds:.1f} s, {args.points / seconds:.0f} points/s")
        middle = args.points // 2
        for query in ("points=0", "points=800", "points=2000",
                      f"from_step={middle}&to_step={middle + 799}", f"from_step={middle}"):
            times = []
            for _ in range(10):
                took, body = read(server, run, query)
                times.append(took)
            (series,) = json.loads(body)["series"]
            assert series["count"] == args.points
            if query.startswith("points=") and query != "points=0":
                assert sum(series["counts"]) == args.points, sum(series["counts"])
                assert args.points <= SPIKE_AT or max(series["max"]) == 1e6
            print(f"{query}: first byte after {1000 * statistics.median(times):.1f} ms "
                  f"(at most {1000 * max(times):.1f}), {len(body)} bytes, "
                  f"level {series.get('level', '-')}")
        print(f"database: {(size_of(server) - size) / args.points:.1f} bytes a point")


if __name__ == "__main__":
    main()
