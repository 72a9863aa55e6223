"""How soon the first data of a page of runs comes, each with a checkpoint of both kinds.

    .venv/bin/python tests/bench/service/runs_page.py [--store postgres] [--runs N]

Makes the runs over HTTP with a worker that computes nothing, and lists them as the dashboard does. Prints the
median, the least and the most of 20 lists, for pages of 20 and of all.
"""

import argparse
import concurrent.futures
import json
import pathlib
import statistics
import sys
import time
import types
import urllib.request

HERE = pathlib.Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parents[1])]
from machine import machine_line  # noqa: E402
from null_service import NullService  # noqa: E402
from support.raw_api import RawApi  # noqa: E402

LISTS = 20


def make_run(api, session, number):
    made = api.result(api.made("create_model", {
        "session_id": session, "model_seq_id": number, "base_model": "null", "lora_config": {"rank": 4}}))
    for seq, operation in enumerate(("save_weights", "save_weights_for_sampler"), 1):
        api.result(api.made(operation, {"model_id": made["model_id"], "seq_id": seq, "path": "kept"}))


def first_data(server, limit):
    """Seconds until the first byte, and the rows of the answer."""
    request = urllib.request.Request(f"{server.url}/api/v1/training_runs?limit={limit}",
                                     headers={"X-API-Key": server.api_key})
    began = time.monotonic()
    with urllib.request.urlopen(request, timeout=60) as answer:
        first = answer.read(1)
        seconds = time.monotonic() - began
        return seconds, json.loads(first + answer.read())["training_runs"]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--store", choices=("sqlite", "postgres"), default="sqlite")
    parser.add_argument("--runs", type=int, default=1000)
    args = parser.parse_args()
    print(machine_line())
    with NullService(store=args.store) as running:
        server = types.SimpleNamespace(url=f"http://127.0.0.1:{running.port}", api_key=running.key(),
                                       model_name="null")
        api = RawApi(server)
        session = api.new_session()
        with concurrent.futures.ThreadPoolExecutor(16) as pool:
            list(pool.map(lambda number: make_run(api, session, number), range(args.runs)))
        for limit in (20, args.runs):
            times, rows = zip(*(first_data(server, limit) for _ in range(LISTS)))
            assert len(rows[0]) == limit and all(row["last_checkpoint"] and row["last_sampler_checkpoint"]
                                                 for row in rows[0])
            print(f"{limit:5} runs: first data after {1e3 * statistics.median(times):.1f} ms "
                  f"({1e3 * min(times):.1f} to {1e3 * max(times):.1f})")


if __name__ == "__main__":
    main()
