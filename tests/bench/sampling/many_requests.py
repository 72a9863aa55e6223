"""2,000 requests of 32 tokens at once, through HTTP, of the tiny model.

All must be answered with 32 tokens each and none refused; prints tokens/s and how far the worker's
and the engine's memory grew from round to round. The client, one Python process, is in the figures.
Run: .venv/bin/python tests/bench/sampling/many_requests.py
"""

import argparse
import asyncio
import json
import pathlib
import statistics
import sys
import time

ROOT = pathlib.Path(__file__).resolve().parents[3]
sys.path.insert(0, str(ROOT / "tests"))
from support.lathe_server import LatheServer, tiny_model  # noqa: E402
from support.raw_api import RawApi  # noqa: E402

TOKENS = 32


def resident_mib(pid):
    for line in pathlib.Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1]) / 1024
    raise RuntimeError(f"process {pid} has no VmRSS")


class Connection:
    """One connection that is kept, without a client library: theirs cost more than the service."""

    def __init__(self, server):
        self.server, self.streams = server, None

    async def post(self, path, body):
        if self.streams is None:
            self.streams = await asyncio.open_connection("127.0.0.1", self.server.port)
        reader, writer = self.streams
        data = json.dumps(body).encode()
        writer.write(f"POST {path} HTTP/1.1\r\nHost: localhost\r\nX-API-Key: {self.server.api_key}\r\n"
                     f"Content-Length: {len(data)}\r\n\r\n".encode() + data)
        head = (await reader.readuntil(b"\r\n\r\n")).decode().lower()
        length = int(head.partition("content-length:")[2].partition("\r\n")[0])
        answer = await reader.readexactly(length)
        if " 200 " not in head.partition("\r\n")[0]:
            raise RuntimeError(f"{path} was refused: {head} {answer}")
        return json.loads(answer)


async def one_sample(server, sampler, seq_id):
    connection = Connection(server)
    future = await connection.post("/api/v1/asample", {
        "sampling_session_id": sampler, "seq_id": seq_id, "num_samples": 1, "type": "sample",
        "prompt": {"chunks": [{"type": "encoded_text", "tokens": [30 + seq_id % 500, 31, 32, 33]}]},
        "sampling_params": {"max_tokens": TOKENS, "seed": seq_id, "stop": [], "temperature": 1.0,
                            "top_k": -1, "top_p": 1.0}})
    poll = {"request_id": future["request_id"], "allow_metadata_only": False}
    while True:
        result = await connection.post("/api/v1/retrieve_future", poll)
        if result.get("type") == "try_again":
            continue
        if "error" in result:
            raise RuntimeError(f"failed: {result}")
        connection.streams[1].close()
        return sum(len(sequence["tokens"]) for sequence in result["sequences"])


async def one_round(server, sampler, first_seq_id, count):
    begin = time.perf_counter()
    counts = await asyncio.gather(*(one_sample(server, sampler, first_seq_id + i)
                                    for i in range(count)))
    return time.perf_counter() - begin, counts


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--requests", type=int, default=2000)
    args = parser.parse_args()
    with LatheServer(tiny_model()) as server:
        api = RawApi(server)
        session = api.new_session()
        sampler = api.made("create_sampling_session", {
            "session_id": session, "sampling_session_seq_id": 0,
            "base_model": server.model_name})["sampling_session_id"]
        rates, memory = [], []
        for turn in range(args.rounds + 1):
            seconds, counts = asyncio.run(one_round(server, sampler, turn * args.requests,
                                                    args.requests))
            assert counts == [TOKENS] * args.requests
            rates.append(args.requests * TOKENS / seconds)
            memory.append({name: resident_mib(server.pids()[name]) for name in ("engine", "worker")})
            print(f"turn {turn}: {rates[-1]:.0f} tokens/s", file=sys.stderr, flush=True)
        growth = ", ".join(f"{name} {memory[0][name]:.0f} -> {memory[-1][name]:.0f} MiB"
                           for name in memory[0])
        print(f"{args.requests} requests of {TOKENS} tokens at once, tiny model, through HTTP: all answered, "
              f"{statistics.median(rates[1:]):.0f} tokens/s; memory after the first and the last round: "
              f"{growth}", flush=True)


if __name__ == "__main__":
    main()
