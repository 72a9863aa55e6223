"""Engine and gateway as `lathe up` starts them, with a worker that computes nothing."""

import json
import os
import pathlib
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import urllib.request

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2]))
from support.bench import Driver  # noqa: E402
from support.lathe_server import BIN, free_port  # noqa: E402
from support.postgres_cluster import PostgresCluster  # noqa: E402
from support.process_memory import resident_bytes  # noqa: E402


class NullService:
    """`store`: "sqlite" or "postgres", which gets a cluster of its own. `worker`, `engine` and
    `gateway`: further arguments. `programs`: their folder, to compare two builds. Usable as a
    context."""

    def __init__(self, store="sqlite", worker=(), engine=(), gateway=(), data_dir=None,
                 programs=BIN):
        self.store = store
        self.programs = pathlib.Path(programs)
        self._own_dir = data_dir is None
        self.data_dir = data_dir or tempfile.mkdtemp(prefix="lathe-bench-")
        self._arguments = {"engine": list(engine), "worker": list(worker), "gateway": list(gateway)}
        self.processes = {}
        self.port = free_port()
        self.metrics_port = free_port()
        self.cluster = None
        self.store_url = None

    def __enter__(self):
        try:
            self.start()
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_):
        self.stop()
        if self.cluster:
            self.cluster.__exit__()
        if self._own_dir:
            shutil.rmtree(self.data_dir, ignore_errors=True)

    def start(self):
        if self.store == "postgres" and self.cluster is None:
            # Larger than what tests take; still a machine's own default and no tuning.
            self.cluster = PostgresCluster({"shared_buffers": "'128MB'"})
            self.cluster.start()
            self.store_url = self.cluster.create_database("lathe")
        began = time.monotonic()
        self._spawn("engine", "lathe-engine", "--metrics-listen", f"127.0.0.1:{self.metrics_port}",
                    *(["--store", self.store_url] if self.store_url else []))
        self._spawn("worker", "lathe-null-worker")
        self._spawn_gateway("gateway", self.port)
        self._await(lambda: urllib.request.urlopen(
            f"http://127.0.0.1:{self.metrics_port}/readyz", timeout=60))
        self.start_seconds = time.monotonic() - began
        self._await(lambda: urllib.request.urlopen(
            f"http://127.0.0.1:{self.port}/api/v1/healthz", timeout=60))
        self._await(self._require_worker)

    def _spawn_gateway(self, name, port):
        self._spawn(name, "lathe-gateway", "--listen", f"127.0.0.1:{port}",
                    "--engine", f"unix:{self.data_dir}/run/engine.sock")

    def add_gateway(self, name):
        """The port of one more gateway."""
        port = free_port()
        self._spawn_gateway(name, port)
        self._await(lambda: urllib.request.urlopen(
            f"http://127.0.0.1:{port}/api/v1/healthz", timeout=60))
        return port

    def _spawn(self, name, program, *arguments):
        log = open(os.path.join(self.data_dir, f"{name}.log"), "ab")
        self.processes[name] = subprocess.Popen(
            [str(self.programs / program), "--data-dir", self.data_dir, *arguments,
             *self._arguments[program.rsplit("-", 1)[1]]],
            stdout=log, stderr=log)

    def _await(self, ask, timeout=120):
        deadline = time.monotonic() + timeout
        while True:
            try:
                return ask()
            except OSError as error:
                for name, process in self.processes.items():
                    if process.poll() is not None:
                        raise RuntimeError(f"{name} ended:\n{self.log(name)}") from error
                if time.monotonic() > deadline:
                    raise
            time.sleep(0.01)

    def _require_worker(self):
        if 'lathe_engine_workers{state="ready"} 1' not in self.metrics():
            raise OSError("no worker is ready")

    def log(self, name):
        return pathlib.Path(self.data_dir, f"{name}.log").read_text(errors="replace")

    def stop(self):
        for name in reversed(list(self.processes)):  # the engine was started first
            process = self.processes.pop(name)
            process.send_signal(signal.SIGTERM)
            try:
                process.wait(60)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()

    def key(self, tenant="bench"):
        answer = subprocess.run(
            [str(self.programs / "lathe"), "keys", "create", "--tenant", tenant, "--data-dir",
             self.data_dir], check=True, capture_output=True, text=True)
        return answer.stdout.strip()

    def load(self, tenant="bench", port=None):
        """A connected driver of clients."""
        driver = Driver(BIN / "lathe_service_load")
        driver.run(op="connect", port=port or self.port, api_key=self.key(tenant),
                   base_model="null")
        return driver

    def epoch(self):
        """Number of times that the worker has attached."""
        answer = subprocess.run(
            [str(self.programs / "lathe"), "status", "--format", "json", "--data-dir",
             self.data_dir], check=True, capture_output=True, text=True)
        return int(json.loads(answer.stdout)["groups"][0]["epoch"])

    def pids(self):
        return {name: process.pid for name, process in self.processes.items()}

    def cpu_seconds(self):
        """Of all processes, those of Postgres among them."""
        pids = list(self.pids().values())
        if self.cluster:
            pids += self.cluster.pids()
        return sum(cpu_seconds(pid) for pid in pids)

    def engine_memory(self):
        """Resident bytes."""
        return resident_bytes(self.pids()["engine"])

    def metrics(self):
        return urllib.request.urlopen(
            f"http://127.0.0.1:{self.metrics_port}/metrics", timeout=30).read().decode()


def cpu_seconds(pid):
    try:
        fields = pathlib.Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    except OSError:  # ended meanwhile
        return 0
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
