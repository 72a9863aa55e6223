"""Holds a process to a share of a core by a cgroup of its own, of version 1 or 2."""

import contextlib
import os
import pathlib
import time

ROOT = pathlib.Path("/sys/fs/cgroup")
REAL_TIME = (os.SCHED_FIFO, os.SCHED_RR)
PERIOD_US = 20_000  # short, so that a held process still answers within tens of milliseconds


def own_group():
    """Folder of our own cgroup for the CPU, of version 1."""
    for line in pathlib.Path("/proc/self/cgroup").read_text().splitlines():
        _, controllers, path = line.split(":", 2)
        if "cpu" in controllers.split(","):
            return ROOT / "cpu" / path.lstrip("/")
    return ROOT / "cpu"


class NoQuota(Exception):
    """This machine does not let us make cgroups with a quota."""


class CpuQuota:
    """`with CpuQuota(pid, 0.15):` The kernel holds only processes without a real-time priority, so
    the process loses its own."""

    def __init__(self, pid, cores):
        self.is_v2 = (ROOT / "cgroup.controllers").exists()
        # A group of version 2 that has processes can have no groups with controllers below it.
        parent = ROOT if self.is_v2 else own_group()
        self.home = parent / "cgroup.procs"
        self.folder = parent / f"lathe-bench-{os.getpid()}-{pid}"
        self.pid = pid
        quota = int(cores * PERIOD_US)
        try:
            for task in pathlib.Path(f"/proc/{pid}/task").iterdir():
                if os.sched_getscheduler(int(task.name)) in REAL_TIME:
                    os.sched_setscheduler(int(task.name), os.SCHED_OTHER, os.sched_param(0))
            if self.is_v2:
                (ROOT / "cgroup.subtree_control").write_text("+cpu")
            self.folder.mkdir()
            if self.is_v2:
                (self.folder / "cpu.max").write_text(f"{quota} {PERIOD_US}")
            else:
                (self.folder / "cpu.cfs_period_us").write_text(str(PERIOD_US))
                (self.folder / "cpu.cfs_quota_us").write_text(str(quota))
            (self.folder / "cgroup.procs").write_text(str(pid))
        except OSError as error:
            self.__exit__()
            raise NoQuota(str(error)) from error

    def __enter__(self):
        return self

    def __exit__(self, *_):
        with contextlib.suppress(OSError):
            self.home.write_text(str(self.pid))
        deadline = time.monotonic() + 5
        while self.folder.exists() and time.monotonic() < deadline:
            with contextlib.suppress(OSError):
                self.folder.rmdir()
            time.sleep(0.01)

    def throttled_seconds(self):
        """How long it has been held back so far. A quota that never holds measures nothing."""
        stat = dict(line.split() for line in (self.folder / "cpu.stat").read_text().splitlines())
        if "throttled_usec" in stat:
            return int(stat["throttled_usec"]) / 1e6
        return int(stat["throttled_time"]) / 1e9
