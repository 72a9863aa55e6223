"""Starts a whole Lathe (`lathe up`) for tests and benches, on a free port and a temporary directory.

Binaries come from LATHE_BIN (default build/release/bin). Processes are ended by their pid only.
With LATHE_TEST_DEVICE=cuda:0 the worker computes on a GPU.
With LATHE_TEST_STORAGE=s3 every Lathe keeps its checkpoints in an object store of this process.
"""

import atexit
import contextlib
import functools
import json
import os
import pathlib
import random
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
BIN = pathlib.Path(os.environ.get("LATHE_BIN", ROOT / "build" / "release" / "bin"))
DEVICE = os.environ.get("LATHE_TEST_DEVICE", "cpu").partition(":")[0]


@functools.lru_cache(maxsize=None)
def tiny_model(*options):
    """Folder of a tiny random Qwen3, made once per process; `options` go to make_tiny_model.py."""
    # A parent process (the SDK matrix) may provide a model.
    given = os.environ.get("LATHE_TINY_MODEL")
    if given and not options:
        return given
    folder = tempfile.mkdtemp(prefix="lathe-model-")
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    # The Python of some suites has no torch. A machine without tools/setup has one Python.
    python = ROOT / ".venv" / "bin" / "python"
    subprocess.run([str(python if python.exists() else sys.executable), str(ROOT / "tools/make_tiny_model.py"),
                    "--out", folder, *options], check=True, stdout=subprocess.DEVNULL)
    return folder


# Sockets that reserve the ports of this process, so that no other test process gets them.
_reservations = []


def free_port():
    """None of those that outgoing connections get: one might take it while its server is down."""
    first_of_these = int(pathlib.Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split()[0])
    while True:
        port = random.SystemRandom().randrange(10000, first_of_these)
        reservation = socket.socket(socket.AF_UNIX)
        with contextlib.suppress(OSError), socket.socket() as probe:
            # An abstract name: the kernel forgets it when this process ends.
            reservation.bind(f"\0lathe-test-port-{port}")
            probe.bind(("127.0.0.1", port))
            _reservations.append(reservation)
            return port
        reservation.close()


@functools.lru_cache(maxsize=None)
def object_store():
    from support.object_store import ObjectStoreServer
    server = ObjectStoreServer().__enter__()
    atexit.register(server.__exit__)
    return server


def storage_env(data_dir):
    """The environment that LATHE_TEST_STORAGE asks for. A data directory keeps its prefix."""
    storage = os.environ.get("LATHE_TEST_STORAGE", "directory")
    if storage == "directory":
        return {}
    assert storage == "s3", f"LATHE_TEST_STORAGE is {storage}, expected directory or s3"
    return object_store().options(prefix=pathlib.Path(data_dir).resolve().as_posix().strip("/"))


class LatheServer:
    """A running Lathe. `with LatheServer(tiny_model()) as server:` or start() / stop().

    `store`: URL of the engine's database (PostgresCluster.create_database); None: SQLite.
    `programs`: their folder, to compare two builds."""

    def __init__(self, model, name="tiny", data_dir=None, args=(), env=None, store=None,
                 programs=BIN):
        self.model = model
        self.model_name = name
        self.args = [*args, *(["--store", store] if store else [])]
        self.programs = pathlib.Path(programs)
        self._own_dir = data_dir is None
        self.data_dir = data_dir or tempfile.mkdtemp(prefix="lathe-")
        self.env = {**os.environ, **storage_env(self.data_dir), **(env or {})}
        self.port = free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        self.process = None

    def __enter__(self):
        self.start()
        return self

    def __exit__(self, *_):
        self.stop()
        if self._own_dir:
            shutil.rmtree(self.data_dir, ignore_errors=True)

    @property
    def api_key(self):
        return pathlib.Path(self.data_dir, "admin.key").read_text().strip()

    @property
    def checkpoints(self):
        """Folder of the checkpoints, or of the worker's copies of them."""
        is_stored = bool(self.env.get("LATHE_STORAGE__FILES"))
        return pathlib.Path(self.data_dir, "cache" if is_stored else "checkpoints")

    def stored_dirs(self):
        """Names of the directories of checkpoints that exist, copies apart."""
        if not (files := self.env.get("LATHE_STORAGE__FILES")):
            return {entry.name for entry in self.checkpoints.iterdir()}
        prefix = files.removeprefix(f"s3://{object_store().bucket}/")
        return object_store().list_names(f"{prefix}/checkpoints/")

    def start(self, timeout=60):
        """Returns once `lathe up` says it is ready; its output is kept in DATA_DIR/up.log."""
        os.makedirs(self.data_dir, exist_ok=True)
        self._log = open(os.path.join(self.data_dir, "up.log"), "ab")
        begin = self._log.tell()
        self.process = subprocess.Popen(
            [str(self.programs / "lathe"), "up", "--model", f"{self.model_name}={self.model}",
             "--listen", f"127.0.0.1:{self.port}", "--data-dir", self.data_dir,
             "--device", DEVICE, *self.args],
            stdout=self._log, stderr=subprocess.STDOUT, env=self.env)
        deadline = time.monotonic() + timeout
        while True:
            text = self.output()[begin:]
            if "\nready " in text or text.startswith("ready "):
                return
            if self.process.poll() is not None:
                raise RuntimeError(f"lathe up ended with {self.process.returncode}:\n{text}")
            if time.monotonic() > deadline:
                raise RuntimeError(f"lathe up is not ready after {timeout} s:\n{text}")
            time.sleep(0.02)

    def output(self):
        return pathlib.Path(self.data_dir, "up.log").read_text(errors="replace")

    def stop(self, timeout=60):
        """Drains with SIGTERM; returns the exit code. One that does not end is killed, with its
        children."""
        if self.process is None:
            return None
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
        try:
            code = self.process.wait(timeout)
        except BaseException:
            self.kill_everything()
            raise
        self._log.close()
        self.process = None
        return code

    def pids(self):
        """{"up": pid, "engine": pid, "worker": pid, "gateway": pid} as of now."""
        return json.loads(pathlib.Path(self.data_dir, "run", "pids.json").read_text())

    def kill(self, name):
        """`kill -9` of one child; returns the pid it had."""
        pid = self.pids()[name]
        os.kill(pid, signal.SIGKILL)
        return pid

    def kill_everything(self):
        """`kill -9` of `lathe up` and its children, as when the machine loses its power."""
        if self.process is None:
            return
        self.process.kill()  # first, so that it does not restart the others
        self.process.wait()
        # The file does not exist if the process ended by itself.
        with contextlib.suppress(FileNotFoundError):
            pids = self.pids()
            for name in set(pids) - {"up"}:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pids[name], signal.SIGKILL)
        self._log.close()
        self.process = None

    def wait_restarted(self, name, old_pid, timeout=30):
        deadline = time.monotonic() + timeout
        while self.pids().get(name) in (old_pid, None):
            if time.monotonic() > deadline:
                raise RuntimeError(f"{name} (pid {old_pid}) was not restarted in {timeout} s")
            time.sleep(0.005)

    def status(self):
        """What `lathe status` says, as parsed JSON."""
        answer = subprocess.run(
            [str(self.programs / "lathe"), "status", "--format", "json", "--data-dir", self.data_dir],
            check=True, capture_output=True, text=True, env=self.env)
        return json.loads(answer.stdout)

    def wait_for_pending(self, count):
        """Until the engine has accepted `count` requests that have not ended."""
        while (pending := int(self.status().get("pending_requests", 0))) < count:
            print(f"{pending} of {count} requests are pending")
            time.sleep(0.05)

    def create_key(self, tenant, scopes=()):
        """A key with all scopes but admin, or with `scopes`."""
        answer = subprocess.run(
            [str(self.programs / "lathe"), "keys", "create", "--tenant", tenant, "--data-dir", self.data_dir,
             *(word for scope in scopes for word in ("--scope", scope))],
            check=True, capture_output=True, text=True, env=self.env)
        return next(word for word in answer.stdout.split() if word.startswith("tml-"))


if __name__ == "__main__":
    with LatheServer(sys.argv[1] if len(sys.argv) > 1 else tiny_model()) as running:
        print(running.url, running.api_key, running.pids())
