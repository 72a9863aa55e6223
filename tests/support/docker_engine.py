"""A Docker engine of a test's own: its images, containers and networks are in a temporary directory.

    with DockerEngine() as engine:
        engine.docker("import", tar, "lathe-base:bookworm")
        engine.compose("-f", file, "up", "-d")

Needs root, Debian's docker.io and runc, and a kernel with overlayfs and bridges. It changes no rule
of the firewall and no setting of the kernel, and uses no containerd of the machine. A process of its
own (docker_guard.py) cleans up, also when the tests are killed. The environment may set:
  LATHE_REQUIRE_DOCKER=1       a machine that cannot run containers fails the tests, and skips none
  LATHE_TEST_CGROUP_PARENT     cgroup of the containers, for machines that do other work too
"""

import json
import os
import pathlib
import random
import re
import resource
import shutil
import subprocess
import sys
import tempfile
import time

import pytest
from support import docker_guard
from support.lathe_server import ROOT

START_SECONDS = 60
STOP_SECONDS = 240
COMPOSE = ROOT / ".venv-deploy/bin/docker-compose"


class CannotRun(Exception):
    """Containers cannot run here; the text says why."""


def find_client():
    """Debian's client builds images by itself; others may want a plug-in for that."""
    debian = pathlib.Path("/usr/bin/docker")
    return str(debian) if debian.exists() else shutil.which("docker")


def why_not():
    """Why containers cannot run here, as far as that can be said without an engine; None: they may."""
    if os.geteuid() != 0:
        return "a Docker engine needs root"
    for program in ("dockerd", "containerd", "runc"):
        if shutil.which(program) is None:
            return f"{program} is not installed: run tools/setup --deploy"
    if find_client() is None:
        return "the client docker is not installed: run tools/setup --deploy"
    if not re.search(r"\toverlay$", pathlib.Path("/proc/filesystems").read_text(), re.MULTILINE):
        return "the kernel has no overlayfs"
    return None


def skip(reason):
    """Skips the test, or fails it where containers must run."""
    if os.environ.get("LATHE_REQUIRE_DOCKER") == "1":
        pytest.fail(f"containers cannot run here: {reason}")
    pytest.skip(f"containers cannot run here: {reason}")


def _free_networks():
    """A /16 for the networks of this engine that no route of this machine has."""
    routes = subprocess.run(["ip", "-4", "route"], check=True, capture_output=True, text=True).stdout
    free = [number for number in range(201, 250) if f"10.{number}." not in routes]
    return f"10.{random.SystemRandom().choice(free)}.0.0/16"


class DockerEngine:
    name = "Docker"

    def __init__(self):
        # A short path, because the length of socket paths is limited.
        self.dir = pathlib.Path(tempfile.mkdtemp(prefix="dkr-", dir="/tmp"))
        self.process = None
        self._containerd = None
        self._guard = None
        self.env = {**os.environ, "DOCKER_HOST": f"unix://{self.dir}/docker.sock",
                    "DOCKER_BUILDKIT": "1", "DOCKER_CONFIG": str(self.dir / "client")}

    def __enter__(self):
        if reason := why_not():
            shutil.rmtree(self.dir)
            raise CannotRun(reason)
        try:
            self._start()
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_):
        if self._guard is not None:
            self._guard.stdin.close()
            self._guard.wait(STOP_SECONDS)
        for process in (self.process, self._containerd):
            if process is not None:
                process.wait(STOP_SECONDS)
        shutil.rmtree(self.dir, ignore_errors=True)

    def _start(self):
        (self.dir / "client").mkdir()
        files = min(16384, resource.getrlimit(resource.RLIMIT_NOFILE)[1])
        settings = {
            "data-root": f"{self.dir}/data", "exec-root": f"{self.dir}/exec",
            "pidfile": f"{self.dir}/dockerd.pid", "containerd": f"{self.dir}/containerd.sock", "hosts": [f"unix://{self.dir}/docker.sock"],
            "storage-driver": "overlay2", "log-level": "warn", "bridge": "none",
            "default-ulimits": {"nofile": {"Name": "nofile", "Hard": files, "Soft": files}},
            "default-address-pools": [{"base": _free_networks(), "size": 24}],
            "iptables": False, "ip-forward": False, "ip-masq": False,
        }
        if parent := os.environ.get("LATHE_TEST_CGROUP_PARENT"):
            settings["cgroup-parent"] = parent
        (self.dir / "daemon.json").write_text(json.dumps(settings), encoding="utf-8")
        self._guard = subprocess.Popen(
            [sys.executable, ROOT / "tests/support/docker_guard.py", self.dir,
             str(docker_guard.SWARM_BRIDGE.exists())],
            stdin=subprocess.PIPE, env=self.env, start_new_session=True)
        self._start_containerd()
        self.process = self._start_daemon("dockerd", "--config-file", self.dir / "daemon.json")
        deadline = time.monotonic() + START_SECONDS
        while self.docker("version", check=False).returncode != 0:
            if self.process.poll() is not None or time.monotonic() > deadline:
                lines = (self.dir / "dockerd.log").read_text(errors="replace").splitlines()
                raise CannotRun(f"dockerd does not start: {lines[-1] if lines else 'no message'}")
            time.sleep(0.1)

    def _start_daemon(self, *command):
        """In a session of its own: a signal to the tests' group must not end it before the guard does."""
        with open(self.dir / f"{command[0]}.log", "wb") as log:
            return subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log,
                                    start_new_session=True)

    def _start_containerd(self):
        """dockerd would use the one of the machine, if there is one."""
        (self.dir / "containerd.toml").write_text(
            f'version = 2\nroot = "{self.dir}/containerd"\nstate = "{self.dir}/exec/containerd"\n'
            'disabled_plugins = ["io.containerd.grpc.v1.cri"]\n'
            f'[grpc]\naddress = "{self.dir}/containerd.sock"\n', encoding="utf-8")
        self._containerd = self._start_daemon("containerd", "--config", self.dir / "containerd.toml")
        (self.dir / "containerd.pid").write_text(str(self._containerd.pid), encoding="utf-8")

    def docker(self, *arguments, check=True, **options):
        return self._run([find_client(), *arguments], check, options)

    def compose(self, *arguments, check=True, **options):
        """docker compose of .venv-deploy."""
        return self._run([COMPOSE, *arguments], check, options)

    def _run(self, command, check, options):
        options = {"env": self.env, "capture_output": True, "text": True, **options}
        done = subprocess.run([str(word) for word in command], check=False, **options)
        if check and done.returncode != 0:
            raise RuntimeError(f"{' '.join(map(str, command))} ended with {done.returncode}:\n"
                               f"{(done.stdout or '')[-4000:]}\n{(done.stderr or '')[-4000:]}")
        return done

    def ids(self, *command):
        return self.docker(*command, check=False).stdout.split()
