"""A Lathe whose worker group has several ranks, each process started by hand on this machine.

    with RankService(tiny_model(), tp=2) as service:
        service.kill(1)             # kill -9 of rank 1
        service.wait_formed()       # the group, of other processes

What ends is started again, as a supervisor does. As LatheServer for clients of the API.
"""

import contextlib
import json
import os
import pathlib
import re
import shutil
import signal
import subprocess
import tempfile
import threading
import time

from support import plain_http
from support.lathe_server import BIN, free_port


class RankService:
    """Models are snapshotted `snapshot_interval` after they changed, or as soon as it goes. `options`:
    more arguments of each rank; `engine_options`: of the engine; `cpus`: the processor of each
    rank, none: any."""

    def __init__(self, model, dp=1, fsdp=1, tp=1, options=(), snapshot_interval="100ms",
                 engine_options=(), memory_fraction=0.2, cpus=None):
        self.model, self.model_name = model, "tiny"
        self.mesh = ["--dp", str(dp), "--fsdp", str(fsdp), "--tp", str(tp)]
        self.world = dp * fsdp * tp
        self.options = list(options)
        self.engine_options = list(engine_options)
        # Effective from a rank's next start: model folders by rank, and ranks that are not started.
        self.folders, self.held = {}, set()
        self.snapshot_interval = snapshot_interval
        self.memory_fraction = str(memory_fraction)
        self.cpus = cpus
        self.page = f"127.0.0.1:{free_port()}"
        self.rank_pages = [f"127.0.0.1:{free_port()}" for _ in range(self.world)]
        self.env = {**os.environ, "OMP_NUM_THREADS": "1", "OMP_WAIT_POLICY": "passive"}
        self.port = free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        self.data_dir = tempfile.mkdtemp(prefix="ranks-", dir="/tmp")  # paths of sockets are short
        self.ranks = {}
        self.exit_codes = []  # (rank, code), in the order they ended
        self._others = []
        self._stopping = threading.Event()
        self._supervisor = threading.Thread(target=self._supervise)

    def __enter__(self):
        try:
            self._spawn_other("lathe-engine", "--metrics-listen", self.page,
                              "--snapshot-interval", self.snapshot_interval, "--snapshot-share", "1",
                              *self.engine_options)
            self._await(lambda: os.path.exists(os.path.join(self.data_dir, "run", "secret")),
                        "the engine's secret")
            for rank in range(self.world):
                self._start_rank(rank)
            self._spawn_other("lathe-gateway", "--listen", f"127.0.0.1:{self.port}", "--engine",
                              f"unix:{self.data_dir}/run/engine.sock")
            self._supervisor.start()
            self.wait_formed()
            self.api_key = self._create_key()
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_):
        self._stopping.set()
        if self._supervisor.ident is not None:
            self._supervisor.join()
        for process in [*self.ranks.values(), *self._others]:
            with contextlib.suppress(ProcessLookupError):
                process.kill()
            process.wait(30)
        shutil.rmtree(self.data_dir, ignore_errors=True)

    def _spawn(self, name, arguments):
        return self._start([*arguments, "--data-dir", self.data_dir], name)

    def _start(self, arguments, name):
        os.makedirs(os.path.join(self.data_dir, "logs"), exist_ok=True)
        with open(self._log_path(name), "ab") as log:
            return subprocess.Popen([str(BIN / arguments[0]), *arguments[1:]],
                                    stdout=log, stderr=log, env=self.env)

    def _spawn_other(self, *arguments):
        self._others.append(self._spawn(arguments[0], arguments))

    def _start_rank(self, rank):
        self.ranks[rank] = self._spawn(f"rank{rank}", [
            "lathe-worker", *self.place(rank), "--model",
            f"tiny={self.folders.get(rank, self.model)}", "--device", "cpu", "--threads", "1",
            "--memory-fraction", self.memory_fraction, "--metrics-listen", self.rank_pages[rank],
            *self.options])
        if self.cpus is not None:
            os.sched_setaffinity(self.ranks[rank].pid, {self.cpus[rank]})

    def place(self, rank):
        """Arguments that say which process of which group it is."""
        return ["--rank", str(rank), *self.mesh]

    @contextlib.contextmanager
    def stray(self, *options):
        """Another worker of the group, that nobody starts again."""
        process = self._spawn("stray", ["lathe-worker", "--device", "cpu", "--threads", "1", *options])
        try:
            yield process
        finally:
            process.kill()
            process.wait(30)

    def _supervise(self):
        while not self._stopping.wait(0.05):
            for rank, process in list(self.ranks.items()):
                code = process.poll()
                if code is None or rank in self.held:
                    continue
                self.exit_codes.append((rank, code))
                self._start_rank(rank)

    def _create_key(self):
        answer = subprocess.run(
            [str(BIN / "lathe"), "keys", "create", "--tenant", "ranks", "--data-dir",
             self.data_dir, *(word for scope in ("train", "sample", "read", "checkpoints:write")
                              for word in ("--scope", scope))],
            check=True, capture_output=True, text=True, env=self.env)
        return next(word for word in answer.stdout.split() if word.startswith("tml-"))

    def _log_path(self, name):
        return os.path.join(self.data_dir, "logs", f"{name}.log")

    def log(self, name):
        return pathlib.Path(self._log_path(name)).read_text(errors="replace")

    def _await(self, condition, what, timeout=120):
        deadline = time.monotonic() + timeout
        while not condition():
            if time.monotonic() > deadline:
                names = ["lathe-engine", *(f"rank{rank}" for rank in range(self.world))]
                logs = "\n".join(f"--- {name}\n{self.log(name)[-3000:]}" for name in names)
                raise RuntimeError(f"waited {timeout} s for {what}\n{logs}")
            time.sleep(0.02)

    def status(self):
        answer = subprocess.run([str(BIN / "lathe"), "status", "--format", "json", "--data-dir",
                                 self.data_dir], capture_output=True, text=True, env=self.env,
                                check=False)
        return answer.stdout if answer.returncode == 0 else ""

    def group(self):
        """What `lathe status` says of the one there is; {} before."""
        status = self.status()
        groups = json.loads(status).get("groups", []) if status else []
        return groups[0] if groups else {}

    def wait_formed(self):
        self._await(lambda: self.group().get("state") == "ready", "the group to be ready")

    def wait_reason(self, text):
        """Until the group is not used for this reason, or one with it; returns all of it."""
        self._await(lambda: text in self.group().get("reason", ""), f"the reason '{text}'")
        return self.group()["reason"]

    def wait_log(self, name, text):
        self._await(lambda: text in self.log(name), f"'{text}' in the log of {name}")

    def wait_lost(self, pattern):
        """Until the engine has lost a rank for a reason with this regular expression in it."""
        lost = re.compile(r'"msg":"worker lost".*"how":"[^"\n]*' + pattern)
        self._await(lambda: lost.search(self.log("lathe-engine")), f"a loss like '{pattern}'")

    def wait_snapshot(self):
        """Until the engine knows of one."""
        pattern = re.compile(r'^lathe_engine_snapshots_total\{.*"ok".*\} [1-9]', re.MULTILINE)
        self._await(lambda: pattern.search(plain_http.get(f"http://{self.page}/metrics").text),
                    "a snapshot")

    def num_replayed(self):
        """Of each model that was brought back, how many operations ran again."""
        lines = map(json.loads, self.log("lathe-engine").splitlines())
        return [line["replayed"] for line in lines if line["msg"] == "model recovered"]

    def traffic(self, rank, what="received_bytes"):
        """What collectives brought this rank, or took (`wait_seconds`): {axis: {call: number}}."""
        pattern = re.compile(rf'^lathe_worker_collective_{what}_total'
                             r'\{axis="([^"]*)",call="([^"]*)"\} (\S+)$', re.MULTILINE)
        traffic = {}
        page = plain_http.get(f"http://{self.rank_pages[rank]}/metrics").text
        for axis, call, number in pattern.findall(page):
            traffic.setdefault(axis, {})[call] = float(number)
        return traffic

    def signal(self, rank, number):
        self.ranks[rank].send_signal(number)

    def kill(self, rank):
        """`kill -9`; returns the pid it had."""
        process = self.ranks[rank]
        process.send_signal(signal.SIGKILL)
        process.wait(30)
        return process.pid
