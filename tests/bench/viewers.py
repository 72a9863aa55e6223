"""What clients that watch one live run cost the gateway: CPU, memory, and how late they are told.

A run gets one update a second, of as many metrics as `--metrics`; each client receives its events over a
connection of its own. The clients are a process of their own and do not count. CPU time of the gateway
before the clients come, with the updates, is taken off.
Run: .venv/bin/python tests/bench/viewers.py
"""

import argparse
import asyncio
import json
import multiprocessing
import os
import pathlib
import statistics
import sys
import time

sys.path.insert(0, os.path.join(os.path.dirname(__file__), ".."))
from support.lathe_server import LatheServer, tiny_model  # noqa: E402
from support.raw_api import RawApi, RawModel  # noqa: E402

TICKS_PER_SECOND = os.sysconf("SC_CLK_TCK")
PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")


def cpu_seconds(pid):
    fields = pathlib.Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / TICKS_PER_SECOND


def resident_bytes(pid):
    return int(pathlib.Path(f"/proc/{pid}/statm").read_text().split()[1]) * PAGE_BYTES


async def view(port, key, run, received):
    """Notes for each step when it was told."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port, limit=1 << 20)
    writer.write(f"GET /api/v1/events?runs={run}&topics= HTTP/1.1\r\nHost: 127.0.0.1\r\nX-API-Key: {key}\r\n\r\n".encode())
    while line := await reader.readline():
        if line.startswith(b"data: ") and b'"steps"' in line:
            now = time.time()
            received.append((json.loads(line[6:])["series"][0]["steps"][-1], now))


async def view_all(port, key, run, count, stopping):
    received = [[] for _ in range(count)]
    tasks = [asyncio.create_task(view(port, key, run, one)) for one in received]
    while not stopping.is_set():
        await asyncio.sleep(0.2)
    for task in tasks:
        task.cancel()
    return received


def run_viewers(port, key, run, count, stopping, results):
    os.nice(5)
    results.put(asyncio.run(view_all(port, key, run, count, stopping)))


def update(api, run, first_step, seconds, num_metrics):
    """One update a second. Returns the time of each step's answer."""
    answered = {}
    began = time.time()
    for step in range(first_step, first_step + seconds):
        api.made(f"training_runs/{run}/metrics", {"points": [
            {"name": f"metric{number}", "step": step, "value": number / (step + 1)} for number in range(num_metrics)]})
        answered[step] = time.time()
        time.sleep(max(0.0, began + step - first_step + 1 - time.time()))
    return answered


def measure(lathe, api, run, count, seconds, num_metrics):
    pid = lathe.pids()["gateway"]
    before = cpu_seconds(pid)
    update(api, run, 0, seconds, num_metrics)
    alone = cpu_seconds(pid) - before
    memory = resident_bytes(pid)
    stopping, results = multiprocessing.Event(), multiprocessing.Queue()
    process = multiprocessing.Process(target=run_viewers, args=(
        lathe.port, lathe.api_key, run, count, stopping, results))
    process.start()
    try:
        time.sleep(5)
        before = cpu_seconds(pid)
        answered = update(api, run, seconds, seconds, num_metrics)
        watched = cpu_seconds(pid) - before
        memory = resident_bytes(pid) - memory
        time.sleep(2)
    finally:
        stopping.set()
        received = results.get(timeout=60)
        process.join()
    delays = [at - answered[step] for one in received for step, at in one if step in answered]
    steps_of_each = [len({step for step, _ in one if step in answered}) for one in received]
    return {"viewers": count, "metrics": num_metrics, "seconds": seconds,
            "percent_of_a_core": round(100 * (watched - alone) / seconds, 2),
            "percent_without_viewers": round(100 * alone / seconds, 2),
            "kib_per_viewer": round(memory / count / 1024, 1),
            "updates_of_the_worst_viewer": min(steps_of_each), "updates": len(answered),
            "delay_median_s": round(statistics.median(delays), 3), "delay_max_s": round(max(delays), 3)}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--viewers", type=int, default=500)
    parser.add_argument("--seconds", type=int, default=30)
    parser.add_argument("--metrics", type=int, default=10)
    args = parser.parse_args()
    with LatheServer(tiny_model()) as lathe:
        api = RawApi(lathe)
        run = RawModel(api).model_id
        print(json.dumps(measure(lathe, api, run, args.viewers, args.seconds, args.metrics)))


if __name__ == "__main__":
    main()
