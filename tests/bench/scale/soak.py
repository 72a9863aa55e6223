"""Case `soak` of scale_bench.py: honest tenants beside as many hostile ones, for an hour by default.

Honest tenants train step by step. Their latencies count, first alone, then beside
hostile_clients.py. Some of them are clients of tests/fault/chaos.py, whose oracle knows each number
that they must be told. Nothing is killed; whatever ends is a violation."""

import concurrent.futures
import contextlib
import functools
import json
import os
import pathlib
import sqlite3
import statistics
import subprocess
import sys
import threading
import time

from cases import histogram_quantile
from chaos import LIVENESS_SECONDS, wait_until
from chaos_history import History, Wrong
from chaos_load import RawClient, start_threads, undisturbed
from chaos_strays import GAP_TIMEOUT, SESSION_KEPT, SESSION_TIMEOUT, Returning, Vanishing
from cpu_quota import REAL_TIME
from machine import ms
from null_service import BIN, NullService
from result import Broken, Row
from support.bench import Driver
from support.lathe_server import free_port
from support.process_memory import resident_bytes

HERE = pathlib.Path(__file__).resolve().parent
# Results that nobody fetches stay for a day. So few of them may that the bound is reached early.
MAX_UNFETCHED = 4096
ENGINE = ("--max-unfetched-results-total", str(MAX_UNFETCHED),
          "--session-timeout", f"{SESSION_TIMEOUT}s", "--session-kept", f"{SESSION_KEPT}s",
          "--gap-timeout", f"{GAP_TIMEOUT}s", "--snapshot-interval", "2s")
MIB = 1 << 20
STEP_PAUSE = 0.5  # seconds between two steps of an honest client
STEP_TOKENS = 64
# Larger changes are growth: caches and malloc's pieces vary by less.
FLAT_FACTOR, FLAT_BYTES = 1.1, 16 * MIB
SAMPLE_SECONDS = 1


class SoakService(NullService):
    """As the clients of chaos know a server."""

    model_name = "null"

    def __init__(self, store, **options):
        self.grpc_port = free_port()
        gateway = ("--grpc-listen", f"127.0.0.1:{self.grpc_port}")
        super().__init__(store, engine=ENGINE, gateway=gateway, **options)

    @property
    def url(self):
        return f"http://127.0.0.1:{self.port}"

    @functools.cached_property
    def api_key(self):
        return self.key()

    def status(self):
        answer = subprocess.run([str(self.programs / "lathe"), "status", "--format", "json",
                                 "--data-dir", self.data_dir], check=True, capture_output=True,
                                text=True)
        return json.loads(answer.stdout)


class Paced(RawClient):
    """Rests between two steps, as one whose batches take time does."""

    def look_around(self):
        super().look_around()
        self.history.stopping.wait(STEP_PAUSE)


class MemoryOverTime:
    """Resident bytes of each process, from here on."""

    def __init__(self, service):
        self.service = service
        self.samples = {name: [] for name in service.pids()}
        self.over = threading.Event()
        self.thread = threading.Thread(target=self._run, daemon=True)
        self.thread.start()

    def _run(self):
        while not self.over.wait(SAMPLE_SECONDS):
            for name, pid in self.service.pids().items():
                with contextlib.suppress(OSError, RuntimeError):  # it has ended
                    self.samples[name].append(resident_bytes(pid))

    def end(self):
        """{process: (bytes in the second quarter, in the last quarter, at most)}"""
        self.over.set()
        self.thread.join()
        found = {}
        for name, samples in self.samples.items():
            quarter = len(samples) // 4
            if quarter > 0:
                found[name] = (statistics.median(samples[quarter:2 * quarter]),
                               statistics.median(samples[-quarter:]), max(samples))
        return found


class HostileHalf:
    """hostile_clients.py as a process of its own, which gets what the others leave of the CPU: such
    clients have machines of their own."""

    def __init__(self, service, keys, num_bodies):
        self.process = subprocess.Popen(
            [sys.executable, str(HERE / "hostile_clients.py")], stdin=subprocess.PIPE,
            stdout=subprocess.PIPE, text=True, preexec_fn=self._yield_cpu,
            env={**os.environ, "PYTHONPATH": str(HERE.parents[1])})
        self.process.stdin.write(json.dumps({
            "port": service.port, "grpc_port": service.grpc_port, "base_model": "null",
            "api_keys": keys, "bodies": num_bodies}) + "\n")
        self.process.stdin.flush()
        self.process.stdout.readline()  # it is ready

    @staticmethod
    def _yield_cpu():
        if os.sched_getscheduler(0) in REAL_TIME:
            os.sched_setscheduler(0, os.SCHED_OTHER, os.sched_param(0))
        os.nice(19)

    def end(self):
        """{kind: {answer: number}}"""
        try:
            printed, _ = self.process.communicate(timeout=300)
        except subprocess.TimeoutExpired:
            self.process.kill()
            raise
        if self.process.returncode != 0:
            raise RuntimeError("the hostile clients ended")
        return json.loads(printed)


class Soak:
    """One run; `go` before `rows`."""

    def __init__(self, service, table, args):
        self.service, self.args = service, args
        self.history = History()
        self.alone = self.beside = self.step_p99 = None
        half = args.size.tenants // 2
        self.honest = [service.key(f"honest{i}") for i in range(half)]
        self.hostile = [service.key(f"hostile{i}") for i in range(half)]
        count = max(2, half // 16)
        # The objects that it leaves behind end with its session, a minute later.
        num_vanishing = 1 if args.scale == "full" else 0
        kinds = [(Paced, self.honest, count), (Returning, self.honest[count:], 1),
                 (Vanishing, self.hostile, num_vanishing)]
        self.clients = [
            kind(f"{kind.__name__.lower()}-{i}", service, keys[i], self.history, table, args.seed)
            for kind, keys, number in kinds for i in range(number)]
        for client in self.clients:
            client.strangers = [one for one in self.clients if one.api.key != client.api.key]
        self.load = Driver(BIN / "lathe_service_load")
        self.load.run(op="connect", port=service.port, api_keys=self.honest, base_model="null")

    def steps(self, seconds):
        """Figures of the honest load, or None after a violation."""
        with concurrent.futures.ThreadPoolExecutor(1) as pool:
            run = pool.submit(self.load.run, op="steps", clients=len(self.honest), seconds=seconds,
                              pause_ms=1e3 * STEP_PAUSE, tokens=STEP_TOKENS)
            while not run.done():
                concurrent.futures.wait([run], timeout=1)
                self.check_processes()
                if self.history.violations:
                    self.load.process.kill()
                    return None
            try:
                return run.result()
            except RuntimeError as error:
                self.history.violate("I1", f"an honest client was refused: {error}")
                return None

    def check_processes(self):
        for name, process in self.service.processes.items():
            if process.poll() is not None:
                self.history.violate("I7", f"{name} ended with {process.returncode}:\n"
                                           f"{self.service.log(name)[-3000:]}")

    def go(self):
        seconds = 60 * self.args.minutes
        threads = start_threads(self.clients)
        self.steps(min(5, seconds / 4))  # makes models, fills caches
        self.alone = self.steps(min(300, seconds / 3))
        half = HostileHalf(self.service, self.hostile, self.args.size.hostile_bodies)
        memory = MemoryOverTime(self.service)
        try:
            self.beside = self.steps(seconds)
        finally:
            self.memory, self.answers = memory.end(), half.end()
            self.history.stopping.set()
        with contextlib.suppress(OSError):  # the engine has ended
            self.step_p99 = histogram_quantile(self.service.metrics(),
                                               "lathe_engine_core_step_seconds", 0.99)
        self.load.close()
        for thread in threads:
            thread.join(5 if self.history.violations else LIVENESS_SECONDS + 20)
            if thread.is_alive() and not self.history.violations:
                self.history.violate("I7", f"{thread.name} waits for an answer that never comes")
        if not self.history.violations:
            self.finish()

    def finish(self):
        """What must hold when the hostile half has gone."""
        try:
            for client in self.clients:
                client.finish()
        except Wrong as wrong:
            self.history.violate(*wrong.args)
        wait_until(lambda: int(self.service.status().get("pending_requests", 0)) == 0,
                   self.history, "requests are not finished")
        self.check_processes()
        self.service.stop()
        if self.service.store == "sqlite":
            with contextlib.closing(sqlite3.connect(f"{self.service.data_dir}/lathe.db")) as database:
                outcome = database.execute("PRAGMA quick_check").fetchall()
            if outcome != [("ok",)]:
                self.history.violate("I6", f"quick_check: {outcome}")

    def rows(self):
        if self.alone and self.beside:
            ratio = self.beside["p99_ms"] / self.alone["p99_ms"]
            yield Row(f"{len(self.honest)} honest tenants beside as many hostile ones, "
                      f"{self.args.minutes:g} minutes: p99 of a step over alone", "2",
                      f"{ratio:.2f} ({ms(self.beside['p99_ms'])} to {ms(self.alone['p99_ms'])})",
                      ratio <= 2)
            yield Row("p50 of a step; longest submission", "",
                      f"{ms(self.beside['p50_ms'])} (alone {ms(self.alone['p50_ms'])}); "
                      f"{ms(self.beside['submit_max_ms'])} (alone "
                      f"{ms(self.alone['submit_max_ms'])})", None)
            yield Row("steps of the honest load; results that the oracle checked", "",
                      f"{self.beside['requests']:,}; {self.history.total():,}", None)
        if self.step_p99:
            yield Row("Steps of the engine's core, p99", "5 ms",
                      f"at most {ms(1e3 * self.step_p99)}", self.step_p99 <= 5e-3)
        for name, (early, late, most) in self.memory.items():
            yield Row(f"memory of the {name}, second to last quarter", "flat",
                      f"{early / MIB:.0f} to {late / MIB:.0f} MiB, at most {most / MIB:.0f} MiB",
                      late <= FLAT_FACTOR * early + FLAT_BYTES)
        repeats = sum(client.api.repeats for client in self.clients)
        repeats += self.beside["repeats"] if self.beside else 0
        yield Row("requests of honest clients that had to be repeated", "0", str(repeats),
                  repeats == 0)
        yield Row("failed with a reason", "", str(dict(self.history.failed) or "none"), None)
        for kind, counts in self.answers.items():
            shown = ", ".join(f"{count} x {name}" for name, count in sorted(counts.items()))
            yield Row(f"answers to {kind}", "", shown.replace("|", "/") or "none", None)
        yield Row("violations", "0", str(len(self.history.violations)),
                  not self.history.violations)


def soak(store, args):
    with SoakService("sqlite") as calm:
        table = undisturbed(calm, with_sdk=False)
    with SoakService(store) as service:
        run = Soak(service, table, args)
        run.go()
        yield from run.rows()
    if run.history.violations:
        raise Broken("; ".join(run.history.violations)[:2000])
