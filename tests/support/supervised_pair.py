"""An EnginePair whose processes are started again whenever they end, as by supervisors of several
machines, with what chaos.py wants of a LatheServer.

    with SupervisedPair(tiny_model(), store=url, data_dir=folder) as pair:
        os.kill(pair.pids()["engine"], signal.SIGKILL)  # the standby leads, and has a standby soon
"""

import signal
import subprocess
import threading
import time

from support.engine_pair import ENGINES, EnginePair

# Exit codes of an orderly end. 75: the engine was replaced by another. SIGTERM: the engine had just
# started and did not handle signals yet.
ORDERLY = (0, 75, -signal.SIGTERM)


class SupervisedPair(EnginePair):
    """`sockets`: {(engine, listener): path} of proxies that worker and gateway dial instead."""

    def __init__(self, model, sockets=None, **options):
        super().__init__(model, **options)
        self._proxied = sockets or {}
        self._led = "a"  # the last known leader
        self._lock = threading.Lock()  # of `processes`, while the thread runs
        self._ending = threading.Event()
        self._thread = None

    def __exit__(self, *_):
        self._stop_supervising()
        super().__exit__()

    def socket(self, name, listener):
        return self._proxied.get((name, listener)) or super().socket(name, listener)

    def start(self, timeout=60):
        """As LatheServer."""
        super().start()
        self._ending.clear()
        self._thread = threading.Thread(target=self._supervise, daemon=True)
        self._thread.start()

    def stop(self, timeout=60):
        """SIGTERM to all of them; the exit code: 0 when all have ended as they should."""
        self._stop_supervising()
        for names in (("gateway",), ("worker",), ENGINES):
            for name in names:
                self.signal(name, signal.SIGTERM)
            codes = [self.wait_end(name, timeout) for name in names]
            if wrong := [code for code in codes if code not in ORDERLY]:
                return wrong[0]
        return 0

    def kill_everything(self):
        self._stop_supervising()
        super().kill_everything()

    def _supervise(self):
        starts = {"worker": self.start_worker, "gateway": self.start_gateway,
                  **{name: lambda name=name: self.start_engine(name) for name in ENGINES}}
        while not self._ending.wait(0.02):
            with self._lock:
                for name, start in starts.items():
                    if self.processes[name].poll() is not None:
                        start()
            # Delay between attempts to start an engine that fails to start.
            self._ending.wait(0.05)

    def _stop_supervising(self):
        self._ending.set()
        if self._thread is not None:
            self._thread.join()
            self._thread = None

    def leader(self):
        leader = super().leader()
        self._led = leader or self._led
        return leader

    def pids(self):
        """{"engine": pid, "standby": pid, "worker": pid, "gateway": pid} as of now. The engine is
        the one that leads, or the last that did."""
        self.leader()
        other = next(name for name in ENGINES if name != self._led)
        with self._lock:
            return {"engine": self.processes[self._led].pid, "standby": self.processes[other].pid,
                    "worker": self.processes["worker"].pid,
                    "gateway": self.processes["gateway"].pid}

    def switch(self, process, folders):
        """The next start of the process takes the programs of the other one of two folders. Returns
        this folder."""
        self.leader()
        name = {"engine": self._led,
                "standby": next(name for name in ENGINES if name != self._led)}.get(process, process)
        with self._lock:
            folder = next(one for one in folders if one != self.programs.get(name, folders[0]))
            self.programs[name] = folder
        return folder

    def wait_restarted(self, name, old_pid, timeout=30):
        """Also until somebody leads."""
        deadline = time.monotonic() + timeout
        while not self._has_restarted(name, old_pid):
            if time.monotonic() > deadline:
                raise RuntimeError(f"{name} (pid {old_pid}) was not restarted in {timeout} s")
            time.sleep(0.01)

    def _has_restarted(self, name, old_pid):
        with self._lock:
            if old_pid in [process.pid for process in self.processes.values()]:
                return False
        return name != "engine" or self.leader() is not None
