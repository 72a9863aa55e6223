"""Cases of service_bench.py with the real worker: recovery on the tiny model, snapshots on the
Qwen3-0.6B shape."""

import contextlib
import os
import signal
import statistics
import threading
import time

import httpx

from machine import percent
from null_service import PostgresCluster
from support.lathe_server import LatheServer, tiny_model
from support.metrics_page import MetricsPages
from support.raw_api import RawApi, RawModel

RESTARTS = {"engine": 5, "worker": 8, "everything": 10}


class Steps:
    """A client that trains without a pause and repeats what fails, as the SDK does. Ends with its
    context."""

    def __init__(self, server):
        self.model = RawModel(RawApi(server))
        self.done = []  # (submitted, result there)
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._run)

    def __enter__(self):
        self._thread.start()
        self.wait(5)
        return self

    def __exit__(self, *_):
        self._is_over.set()
        self._thread.join()
        self.model.api.close()

    def _run(self):
        while not self._is_over.is_set():
            begin = time.monotonic()
            self._repeat("forward_backward", self.model.body())
            self.done.append((begin, time.monotonic()))

    def _repeat(self, path, body):
        while not self._is_over.is_set():
            try:
                answer = self.model.api.post(path, body)
                if answer.status_code == 200:
                    result = self.model.api.result(answer.json())
                    assert "error" not in result, result
                    return
            except (httpx.HTTPError, AssertionError) as error:
                if "result" in str(error) and "500" in str(error):
                    raise
            time.sleep(0.01)

    def wait(self, count, timeout=120):
        """For that many more results."""
        goal, deadline = len(self.done) + count, time.monotonic() + timeout
        while len(self.done) < goal:
            assert time.monotonic() < deadline, f"{len(self.done)} of {goal} results"
            time.sleep(0.002)

    def first_after(self, moment, timeout=120):
        """Seconds from then to the first result of a request that was sent later."""
        deadline = time.monotonic() + timeout
        while True:
            later = [end for begin, end in list(self.done) if begin > moment]
            if later:
                return later[0] - moment
            assert time.monotonic() < deadline, "no result after the kill"
            time.sleep(0.002)


def recovery(args):
    cluster = PostgresCluster() if args.store == "postgres" else None
    try:
        if cluster:
            cluster.start()
        store = cluster.create_database("recovery") if cluster else None
        with LatheServer(tiny_model(), store=store) as server, Steps(server) as steps:
            for target, goal in RESTARTS.items():
                times = []
                for _ in range(args.rounds):
                    steps.wait(20)
                    moment = time.monotonic()
                    if target == "everything":
                        server.kill_everything()
                        server.start()
                    else:
                        server.kill(target)
                    times.append(steps.first_after(moment))
                    time.sleep(1)
                yield (f"first result after kill -9 of {target}",
                       f"{statistics.median(times):.2f} s (worst of {args.rounds}: {max(times):.2f})",
                       f"{goal} s", max(times) <= goal)
    finally:
        if cluster:
            cluster.__exit__()


class Tenants:
    """Eight tenants' models of rank 32 on one server, stepping together."""

    def __init__(self, server, tokens):
        keys = [server.create_key(f"tenant{i}") for i in range(8)]
        self.models = [RawModel(RawApi(server, key), rank=32) for key in keys]
        self.tokens = tokens

    def step(self):
        """Seconds."""
        begin = time.monotonic()
        futures = []
        for model in self.models:
            body = model.body(data=[datum_of(self.tokens)])
            step = {"model_id": model.model_id, "seq_id": model.next_seq_id(), "adam_params": {
                "learning_rate": 1e-5, "beta1": 0.9, "beta2": 0.95, "eps": 1e-8,
                "weight_decay": 0.0, "grad_clip_norm": 0.0}}
            model.api.made("forward_backward", body)
            futures.append((model, model.api.made("optim_step", step)))
        for model, future in futures:
            result = model.api.result(future)
            assert "error" not in result, result
        return time.monotonic() - begin


def datum_of(num_tokens):
    tensor = lambda values, dtype: {"data": values, "dtype": dtype, "shape": [num_tokens]}
    return {"model_input": {"chunks": [{"type": "encoded_text", "tokens": [5] * num_tokens}]},
            "loss_fn_inputs": {"target_tokens": tensor([6] * num_tokens, "int64"),
                               "weights": tensor([1.0] * num_tokens, "float32")}}


def signal_all(server, number):
    for pid in server.pids().values():
        os.kill(pid, number)


def snapshots(args):
    """Blocks of steps with and without snapshots in turns; the default interval and share. Who has
    not its turn is stopped: a snapshot would be written in the other's time."""
    folder = tiny_model("--size", "0.6b")
    off = {"LATHE_ENGINE__SNAPSHOT_INTERVAL": "0s"}
    listen = ["--metrics-listen", "127.0.0.1:0"]
    with (LatheServer(folder, args=listen) as with_them,
          LatheServer(folder, args=listen, env=off) as without):
        servers = (with_them, without)
        pairs = [(server, Tenants(server, tokens=args.tokens)) for server in servers]
        for _, tenants in pairs:
            tenants.step()
        before = num_snapshots(with_them)
        with contextlib.ExitStack() as stopped:
            for server in servers:
                signal_all(server, signal.SIGSTOP)
                stopped.callback(signal_all, server, signal.SIGCONT)
            ratios = []
            for _ in range(args.rounds):
                times = [block_of(*pair, args.block) for pair in pairs]
                ratios.append(times[0] / times[1] - 1)
        num_written = num_snapshots(with_them) - before
        assert num_written > 0 and num_snapshots(without) == 0, num_written
    cost = statistics.median(ratios)
    yield (f"8 tenants, rank 32, 0.6B shape: a step with snapshots takes longer by",
           f"{percent(cost)} ({args.rounds} pairs of {args.block} steps of {times[1]:.1f} s, "
           f"{num_written:.0f} snapshots: {', '.join(percent(one) for one in ratios)})",
           "3.5 %", cost <= 0.035)


def num_snapshots(server):
    return MetricsPages(server).value("engine", "lathe_engine_snapshots_total", outcome="ok")


def block_of(server, tenants, num_steps):
    """Seconds of a step."""
    signal_all(server, signal.SIGCONT)
    try:
        return statistics.mean(tenants.step() for _ in range(num_steps))
    finally:
        signal_all(server, signal.SIGSTOP)
