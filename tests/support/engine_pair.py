"""Two engines on one Postgres, a worker and a gateway that know both; each started by hand, as a
supervisor of several machines would.

    with PostgresCluster() as cluster, EnginePair(tiny_model(), cluster) as pair:
        pair.leader()            # "a" or "b"
        pair.kill(pair.leader()) # the other one leads now
"""

import json
import os
import re
import shutil
import signal
import subprocess
import tempfile
import time

import httpx
from support import plain_http
from support.lathe_server import BIN, free_port

ENGINES = ("a", "b")


class EnginePair:
    """`options`: more arguments of both engines. `store`, `data_dir`: instead of a database in the
    cluster and a directory of its own. As LatheServer for RawApi and its like."""

    def __init__(self, model, cluster=None, options=(), env=None, lease="6s", store=None,
                 data_dir=None):
        self.model, self.model_name = model, "tiny"
        self.store = store or cluster.create_database("pair")
        self.options = ["--lease", lease, *options]
        self.env = {**os.environ, "OMP_NUM_THREADS": "1", "OMP_WAIT_POLICY": "passive",
                    "LATHE_ENGINE__STORE": self.store, **(env or {})}
        # A short path, because the length of socket paths is limited.
        self._own_dir = data_dir is None
        self.data_dir = str(data_dir or tempfile.mkdtemp(prefix="pair-", dir="/tmp"))
        self.port = free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        self.pages = {name: free_port() for name in ENGINES}
        self.processes = {}
        self.programs = {}  # by process: the folder of its programs, to mix two builds
        self.api_key = None

    def __enter__(self):
        try:
            self.start()
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_):
        self.kill_everything()
        if self._own_dir:
            shutil.rmtree(self.data_dir, ignore_errors=True)

    def start(self):
        """Returns once the gateway serves and a worker is ready."""
        self.start_engine("a")
        self.wait_leader()
        self.start_engine("b")
        self.start_worker()
        self.start_gateway()
        if self.api_key is None:
            self.api_key = self.create_key("pair", ("train", "sample", "read", "admin",
                                                    "checkpoints:write"))
        self._wait(self._is_ready, "the gateway and a worker", 60)

    def kill_everything(self):
        for process in self.processes.values():
            if process.poll() is None:
                process.kill()  # SIGKILL also ends a stopped process
        for process in self.processes.values():
            process.wait(30)

    def run_dir(self, name):
        return os.path.join(self.data_dir, "run", name)

    def socket(self, name, listener):
        """Where worker and gateway dial an engine's listener."""
        return os.path.join(self.run_dir(name), f"{listener}.sock")

    def _sockets(self, listener):
        return [word for name in ENGINES
                for word in ("--engine", f"unix:{self.socket(name, listener)}")]

    def _log_path(self, name):
        return os.path.join(self.data_dir, "logs", f"{name}.log")

    def _start(self, name, arguments):
        os.makedirs(os.path.dirname(self._log_path(name)), exist_ok=True)
        with open(self._log_path(name), "ab") as log:
            self.processes[name] = subprocess.Popen(
                [str(self.programs.get(name, BIN) / arguments[0]), *arguments[1:], "--data-dir",
                 self.data_dir],
                stdout=log, stderr=log, env=self.env)

    def _make_run_dirs(self):
        os.makedirs(os.path.join(self.data_dir, "run"), exist_ok=True)

    def start_engine(self, name):
        self._make_run_dirs()
        self._start(name, ["lathe-engine", "--run-dir", self.run_dir(name), "--metrics-listen",
                           f"127.0.0.1:{self.pages[name]}", *self.options])

    def start_worker(self):
        self._start("worker", ["lathe-worker", *self._sockets("worker"), "--run-dir",
                               self.run_dir("a"), "--model", f"tiny={self.model}", "--device",
                               "cpu", "--threads", "1", "--numerics", "exact"])

    def start_gateway(self):
        self._start("gateway", ["lathe-gateway", *self._sockets("engine"), "--listen",
                                f"127.0.0.1:{self.port}"])

    def _is_ready(self):
        try:
            groups = self.status().get("groups", [])
            return (any(group.get("state") == "ready" for group in groups) and
                    plain_http.get(self.url + "/readyz", timeout=5).status_code == 200)
        except (httpx.TransportError, subprocess.CalledProcessError):
            return False

    def status(self):
        """What `lathe status` says of the leader, as parsed JSON."""
        answer = subprocess.run(
            [str(BIN / "lathe"), "status", "--format", "json", "--data-dir", self.data_dir,
             "--run-dir", self.run_dir(self.wait_leader())], check=True, capture_output=True,
            text=True, env=self.env)
        return json.loads(answer.stdout)

    def _wait(self, condition, what, timeout):
        deadline = time.monotonic() + timeout
        while not (found := condition()):
            if time.monotonic() > deadline:
                logs = "\n".join(f"--- {name}\n{self.log(name)[-3000:]}" for name in self.processes)
                raise RuntimeError(f"waited {timeout} s for {what}\n{logs}")
            time.sleep(0.02)
        return found

    def page(self, name):
        return f"http://127.0.0.1:{self.pages[name]}"

    def probe(self, name, path):
        """(status, text) of a probe; (None, "") without an answer."""
        try:
            answer = plain_http.get(self.page(name) + path, timeout=1)
            return answer.status_code, answer.text
        except httpx.TransportError:
            return None, ""

    def metric(self, name, metric):
        status, text = self.probe(name, "/metrics")
        found = re.search(rf"^{metric} (\S+)$", text, re.MULTILINE) if status == 200 else None
        return float(found[1]) if found else None

    def leader(self):
        """The engine that leads and serves; None: neither."""
        return next((name for name in ENGINES if self.probe(name, "/readyz")[0] == 200), None)

    def wait_leader(self, other_than=None, timeout=60):
        def found():
            leader = self.leader()
            return leader if leader != other_than else None
        return self._wait(found, f"a leader other than {other_than}", timeout)

    def wait_standby(self, name, timeout=60):
        self._wait(lambda: "standby" in self.probe(name, "/readyz")[1], f"{name} to stand by",
                   timeout)

    def wait_end(self, name, timeout=60):
        """The exit code."""
        return self.processes[name].wait(timeout)

    def signal(self, name, number):
        self.processes[name].send_signal(number)

    def kill(self, name):
        self.signal(name, signal.SIGKILL)
        self.processes[name].wait(30)

    def log(self, name):
        try:
            with open(self._log_path(name), errors="replace") as log:
                return log.read()
        except FileNotFoundError:  # it has not been started yet
            return ""

    def wait_log(self, name, text, timeout=60):
        self._wait(lambda: text in self.log(name), f"'{text}' in the log of {name}", timeout)

    def create_key(self, tenant, scopes=()):
        """As LatheServer."""
        answer = subprocess.run(
            [str(BIN / "lathe"), "keys", "create", "--tenant", tenant, "--data-dir", self.data_dir,
             "--run-dir", self.run_dir(self.wait_leader()),
             *(word for scope in scopes for word in ("--scope", scope))],
            check=True, capture_output=True, text=True, env=self.env)
        return next(word for word in answer.stdout.split() if word.startswith("tml-"))
