"""Latency of the service itself, on the tiny model, through SDK-identical HTTP.

Prints: no-op request (optim_step) submit -> result p50/p99, with the SDK's HTTP client and with one
that costs little itself; the same after pauses in which all threads fall asleep; the same with 1,000
waiting polls and the ratio of the submit times; thread counts; idle CPU of gateway, engine and worker
together.
Run: .venv/bin/python tests/bench/service_latency.py
"""

import argparse
import asyncio
import http.client
import json
import os
import random
import statistics
import sys
import time

import httpx

sys.path.insert(0, os.path.join(os.path.dirname(__file__), ".."))
from support.lathe_server import LatheServer, tiny_model  # noqa: E402


class Client:
    """The few calls of the contract that the measurements need."""

    def __init__(self, server, limits=None):
        self.http = httpx.AsyncClient(
            base_url=server.url, headers={"X-API-Key": server.api_key}, timeout=60,
            limits=limits or httpx.Limits(max_connections=None, max_keepalive_connections=None))

    async def post(self, path, body):
        answer = await self.http.post("/api/v1/" + path, json=body)
        answer.raise_for_status()
        return answer.json()

    async def result(self, request_id):
        while True:
            answer = await self.post("retrieve_future",
                                     {"request_id": request_id, "allow_metadata_only": False})
            if answer.get("type") != "try_again":
                return answer

    async def new_model(self, base_model, rank=8):
        session = (await self.post("create_session", {
            "tags": [], "user_metadata": {}, "sdk_version": "bench", "type": "create_session"}))
        future = await self.post("create_model", {
            "session_id": session["session_id"], "model_seq_id": 0, "base_model": base_model,
            "lora_config": {"rank": rank, "seed": 1, "train_unembed": True, "train_mlp": True,
                            "train_attn": True}, "type": "create_model"})
        return (await self.result(future["request_id"]))["model_id"]

    def optim_step(self, model_id, seq_id):
        return self.post("optim_step", optim_step_json(model_id, seq_id))


def optim_step_json(model_id, seq_id):
    return {"adam_params": {"learning_rate": 1e-4, "beta1": 0.9, "beta2": 0.95, "eps": 1e-12,
                            "weight_decay": 0.0, "grad_clip_norm": 0.0},
            "model_id": model_id, "seq_id": seq_id, "type": "optim_step"}


def forward_backward_json(model_id, seq_id):
    tensor = lambda data, dtype: {"data": data, "dtype": dtype, "shape": [len(data)]}
    return {"forward_backward_input": {
        "data": [{"model_input": {"chunks": [{"type": "encoded_text", "tokens": [5, 6, 7]}]},
                  "loss_fn_inputs": {"target_tokens": tensor([6, 7, 8], "int64"),
                                     "weights": tensor([1.0, 1.0, 1.0], "float32")}}],
        "loss_fn": "cross_entropy"}, "model_id": model_id, "seq_id": seq_id}


async def noop_round(client, model_id, first_seq, count):
    """Returns (submit seconds, submit-to-result seconds) of `count` sequential steps."""
    submits, totals = [], []
    for seq in range(first_seq, first_seq + count):
        begin = time.perf_counter()
        future = await client.optim_step(model_id, seq)
        submits.append(time.perf_counter() - begin)
        await client.result(future["request_id"])
        totals.append(time.perf_counter() - begin)
    return submits, totals


def lean_round(server, model_id, first_seq, count):
    """As noop_round's second list, by Python's own HTTP client: most of httpx' time is its own."""
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=60)
    headers = {"X-API-Key": server.api_key, "Content-Type": "application/json"}

    def post(path, body):
        connection.request("POST", "/api/v1/" + path, json.dumps(body), headers)
        answer = connection.getresponse()
        text = answer.read()
        assert answer.status == 200, text
        return json.loads(text)

    totals = []
    for seq in range(first_seq, first_seq + count):
        begin = time.perf_counter()
        future = post("optim_step", optim_step_json(model_id, seq))
        question = {"request_id": future["request_id"], "allow_metadata_only": False}
        while post("retrieve_future", question).get("type") == "try_again":
            pass
        totals.append(time.perf_counter() - begin)
    connection.close()
    return totals


async def paused_round(client, model_id, first_seq, count):
    """Seconds from submit to result of `count` steps, each after a second or more of silence."""
    rng, totals = random.Random(1), []
    for seq in range(first_seq, first_seq + count):
        await asyncio.sleep(rng.uniform(1, 3))
        totals += (await noop_round(client, model_id, seq, 1))[1]
    return totals


def percentile(values, q):
    return sorted(values)[min(len(values) - 1, int(q * len(values)))]


def threads_of(pid):
    return len(os.listdir(f"/proc/{pid}/task"))


def cpu_seconds(pids):
    total = 0
    for pid in pids:
        with open(f"/proc/{pid}/stat") as stat:
            fields = stat.read().rsplit(")", 1)[1].split()
        total += int(fields[11]) + int(fields[12])
    return total / os.sysconf("SC_CLK_TCK")


async def measure(args):
    with LatheServer(tiny_model()) as server:
        base_model = server.model_name
        pids = [server.pids()[name] for name in ("engine", "worker", "gateway")]
        client = Client(server)
        model_id = await client.new_model(base_model)
        await noop_round(client, model_id, 1, 50)
        seq = 51
        _, totals = await noop_round(client, model_id, seq, args.steps)
        seq += args.steps
        print(f"no-op optim_step submit->result  p50 {statistics.median(totals) * 1e3:.2f} ms  "
              f"p99 {percentile(totals, 0.99) * 1e3:.2f} ms  ({args.steps} steps)")

        totals = lean_round(server, model_id, seq, args.steps)
        seq += args.steps
        print(f"the same with a lean HTTP client    p50 {statistics.median(totals) * 1e3:.2f} ms  "
              f"p99 {percentile(totals, 0.99) * 1e3:.2f} ms  ({args.steps} steps)")

        totals = await paused_round(client, model_id, seq, args.pauses)
        seq += args.pauses
        print(f"the same after 1 to 3 s of silence  p50 {statistics.median(totals) * 1e3:.2f} ms  "
              f"p90 {percentile(totals, 0.9) * 1e3:.2f} ms  worst {max(totals) * 1e3:.2f} ms  "
              f"({args.pauses} steps)")

        begin_cpu, begin = cpu_seconds(pids), time.perf_counter()
        await asyncio.sleep(args.idle_seconds)
        share = (cpu_seconds(pids) - begin_cpu) / (time.perf_counter() - begin)
        print(f"idle CPU of the three processes  {share * 100:.2f} % of one core "
              f"({args.idle_seconds} s)")

        # forward_backward requests over a gap stay pending: raw HTTP sessions are concurrent.
        waiting = Client(server)
        parked_model = await waiting.new_model(base_model)
        futures = [await waiting.post("forward_backward",
                                      forward_backward_json(parked_model, number + 2))
                   for number in range(args.polls)]
        before, after = [], []
        idle_threads = [threads_of(pid) for pid in pids]
        for _ in range(args.rounds):
            submits, _ = await noop_round(client, model_id, seq, 60)
            seq += 60
            before.append(statistics.median(submits))
            polls = [asyncio.ensure_future(waiting.post(
                "retrieve_future", {"request_id": future["request_id"],
                                    "allow_metadata_only": False})) for future in futures]
            await asyncio.sleep(2)
            submits, _ = await noop_round(client, model_id, seq, 60)
            seq += 60
            after.append(statistics.median(submits))
            busy_threads = [threads_of(pid) for pid in pids]
            pending = sum(not poll.done() for poll in polls)
            for poll in polls:
                poll.cancel()
            await asyncio.gather(*polls, return_exceptions=True)
            await asyncio.sleep(0.5)
        ratio = statistics.median(b / a for a, b in zip(before, after))
        print(f"submit p50 alone {statistics.median(before) * 1e3:.2f} ms, with {pending} waiting "
              f"polls {statistics.median(after) * 1e3:.2f} ms, ratio {ratio:.2f} "
              f"({args.rounds} alternating rounds)")
        print(f"threads engine/worker/gateway: {idle_threads} alone, {busy_threads} with the polls")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=500)
    parser.add_argument("--pauses", type=int, default=40)
    parser.add_argument("--idle-seconds", type=float, default=10)
    parser.add_argument("--polls", type=int, default=1000)
    parser.add_argument("--rounds", type=int, default=5)
    asyncio.run(measure(parser.parse_args()))
