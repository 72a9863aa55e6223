"""Cleans up after a DockerEngine whatever ends the process that uses it.

    docker_guard.py FOLDER HAD_SWARM_BRIDGE      waits for the end of its input, then cleans up

The kernel ends the input when the other process is gone, also after SIGTERM or SIGKILL.
"""

import contextlib
import os
import pathlib
import shutil
import signal
import subprocess
import sys
import time

STOP_SECONDS = 60
# Bridge of a swarm, which Docker leaves to the machine.
SWARM_BRIDGE = pathlib.Path("/sys/class/net/docker_gwbridge")


def docker(*words):
    client = "/usr/bin/docker" if os.path.exists("/usr/bin/docker") else "docker"
    with contextlib.suppress(OSError, subprocess.TimeoutExpired):
        return subprocess.run([client, *words], check=False, capture_output=True, text=True,
                              timeout=STOP_SECONDS).stdout.split()
    return []


def is_running(pid):
    try:
        return pathlib.Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False


def end(pid):
    """Ends a process that may be nobody's child here."""
    for number in (signal.SIGTERM, signal.SIGKILL):
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, number)
        deadline = time.monotonic() + STOP_SECONDS
        while is_running(pid):
            if time.monotonic() > deadline:
                break
            time.sleep(0.05)
        else:
            return


def processes_of(folder):
    """Shims and proxies that name the folder."""
    found = []
    for entry in pathlib.Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            words = (entry / "cmdline").read_bytes().split(b"\0")
            own = int(entry.name) in (os.getpid(), os.getppid())
            if not own and any(f"{folder}/".encode() in word for word in words):
                found.append(int(entry.name))
    return found


def clean_up(folder, had_swarm_bridge):
    if containers := docker("ps", "-aq"):
        docker("rm", "-f", "-v", *containers)
    docker("swarm", "leave", "--force")
    # Bridges would outlive the engine.
    if networks := docker("network", "ls", "-q", "--filter", "type=custom"):
        docker("network", "rm", *networks)
    for name in ("dockerd.pid", "containerd.pid"):
        with contextlib.suppress(FileNotFoundError, ValueError):
            end(int((folder / name).read_text()))
    for pid in processes_of(folder):
        end(pid)
    mounts = [line.split()[1] for line in pathlib.Path("/proc/mounts").read_text().splitlines()]
    for mount in reversed(mounts):  # the innermost first
        if mount.startswith(f"{folder}/"):
            subprocess.run(["umount", "--lazy", mount], check=False, capture_output=True)
    if not had_swarm_bridge and SWARM_BRIDGE.exists():
        subprocess.run(["ip", "link", "del", SWARM_BRIDGE.name], check=False, capture_output=True)
    shutil.rmtree(folder, ignore_errors=True)


def main():
    sys.stdin.buffer.read()
    clean_up(pathlib.Path(sys.argv[1]), sys.argv[2] == "True")


if __name__ == "__main__":
    main()
