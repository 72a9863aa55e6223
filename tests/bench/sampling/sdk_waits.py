"""2,000 samples of the tiny model from the stock SDK, which waits for them in two ways: with one
retrieve_futures for all, and with one retrieve_future each.

Prints requests/s and the CPU seconds of client, gateway, engine and worker for both, alternating.
Run: .venv/bin/python tests/bench/sampling/sdk_waits.py
"""

import argparse
import os
import pathlib
import statistics
import sys
import time

import tinker
from tinker import types

ROOT = pathlib.Path(__file__).resolve().parents[3]
sys.path.insert(0, str(ROOT / "tests"))
from support.lathe_server import LatheServer, tiny_model  # noqa: E402
from support.sdk import resolved  # noqa: E402

PROCESSES = ("client", "gateway", "engine", "worker")


def cpu_seconds(pid):
    fields = pathlib.Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


class Side:
    """A server that tells its clients to wait in one way, and a client."""

    def __init__(self, name, retrieve_futures):
        self.name = name
        self.server = LatheServer(
            tiny_model(), env={"LATHE_GATEWAY__RETRIEVE_FUTURES": retrieve_futures})
        self.server.start()
        service = tinker.ServiceClient(base_url=self.server.url, api_key=self.server.api_key)
        self.sampler = resolved(service.create_sampling_client(base_model=self.server.model_name))
        self.rounds = []

    def cpu(self):
        pids = {**self.server.pids(), "client": os.getpid()}
        return [cpu_seconds(pids[process]) for process in PROCESSES]

    def run(self, count, max_tokens):
        """Seconds of a round, and CPU seconds by process."""
        params = types.SamplingParams(max_tokens=max_tokens, stop=[])
        before, begin = self.cpu(), time.perf_counter()
        futures = [self.sampler.sample(types.ModelInput.from_ints([30 + i % 500, 31, 32]), 1, params)
                   for i in range(count)]
        for future in futures:
            assert len(future.result().sequences[0].tokens) == max_tokens
        seconds = time.perf_counter() - begin
        return [seconds, *(after - first for first, after in zip(before, self.cpu()))]


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--requests", type=int, default=2000)
    parser.add_argument("--max-tokens", type=int, default=8)
    args = parser.parse_args()
    sides = [Side("one poll for all", "true"), Side("one poll each", "false")]
    try:
        for side in sides:
            side.run(args.requests // 4, args.max_tokens)  # warm
        for _ in range(args.rounds):
            for side in sides:
                side.rounds.append(side.run(args.requests, args.max_tokens))
    finally:
        for side in sides:
            side.server.stop()
    for side in sides:
        seconds, *cpu = (statistics.median(column) for column in zip(*side.rounds))
        used = ", ".join(f"{name} {value:.2f} s" for name, value in zip(PROCESSES, cpu))
        print(f"{side.name:17} {args.requests / seconds:6.0f} requests/s; CPU: {used}")


if __name__ == "__main__":
    main()
