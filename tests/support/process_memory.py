"""How much memory a process has."""

import pathlib


def status_bytes(process, name):
    """A field of /proc/PID/status that is a size."""
    text = pathlib.Path("/proc", str(process), "status").read_text()
    for line in text.splitlines():
        if line.startswith(f"{name}:"):
            return 1024 * int(line.split()[1])
    raise RuntimeError(f"process {process} has no {name}")


def resident_bytes(process):
    return status_bytes(process, "VmRSS")


class PeakMemory:
    """Growth of a process's largest resident size from here on."""

    def __init__(self, server, process="gateway"):
        self.pid = server.pids()[process]
        pathlib.Path("/proc", str(self.pid), "clear_refs").write_text("5")  # peak := present size
        self.begin = self.peak()

    def peak(self):
        return status_bytes(self.pid, "VmHWM")

    def growth(self):
        return self.peak() - self.begin
