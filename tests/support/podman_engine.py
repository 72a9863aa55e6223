"""Podman and Buildah with a storage of a test's own, for machines on which no Docker engine runs.

    with PodmanEngine() as engine:
        engine.docker("import", tar, "localhost/lathe-base:bookworm")
        engine.docker("run", "--rm", "localhost/lathe-base:bookworm", "true")

Podman understands the command line of the Docker client, so the tests of images are the same. It has
no Compose, no Swarm and no health checks here."""

import contextlib
import os
import pathlib
import shutil
import subprocess
import tempfile
import threading

from support.docker_engine import CannotRun

CONTAINERS_CONF = """[containers]
default_ulimits = ["nofile=16384:16384", "nproc=8192:8192"]
[engine]
runtime = "runc"
cgroup_manager = "cgroupfs"
events_logger = "file"
[network]
network_backend = "netavark"
"""
POLICY = '{"default": [{"type": "insecureAcceptAnything"}]}'


def why_not():
    """Why podman cannot run here; None: it may."""
    if os.geteuid() != 0:
        return "the tests use podman as root"
    for program in ("podman", "buildah", "runc"):
        if shutil.which(program) is None:
            return f"{program} is not installed: run tools/setup --deploy"
    return None


class PodmanEngine:
    name = "podman"

    def __init__(self):
        self.dir = pathlib.Path(tempfile.mkdtemp(prefix="podman-", dir="/tmp"))
        self._one_build = threading.Lock()  # in place of the locks of caches
        self.storage = ("--root", self.dir / "root", "--runroot", self.dir / "run")
        self.env = {**os.environ, "CONTAINERS_CONF": str(self.dir / "containers.conf"),
                    "HOME": str(self.dir), "BUILDAH_FORMAT": "docker"}

    def __enter__(self):
        try:
            if reason := why_not():
                raise CannotRun(reason)
            (self.dir / "containers.conf").write_text(CONTAINERS_CONF, encoding="utf-8")
            policy = self.dir / ".config/containers/policy.json"
            policy.parent.mkdir(parents=True)
            policy.write_text(POLICY, encoding="utf-8")
            if (told := self.docker("info", check=False)).returncode != 0:
                raise CannotRun(f"podman does not start: {told.stderr.strip()[-300:]}")
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_):
        if shutil.which("podman"):
            self.docker("system", "reset", "--force", check=False)
        shutil.rmtree(self.dir, ignore_errors=True)

    def docker(self, *arguments, check=True, **options):
        """The client's commands; `build` is Buildah's."""
        arguments = [str(word) for word in arguments]
        if arguments[0] == "build":
            command = ["buildah", *self.storage, "bud", "--isolation", "chroot", "--layers",
                       "--format", "docker", *self._without_locks(arguments[1:])]
        else:
            command = ["podman", *self.storage, *arguments]
        options = {"env": self.env, "capture_output": True, "text": True, **options}
        with self._one_build if arguments[0] == "build" else contextlib.nullcontext():
            done = subprocess.run([str(word) for word in command], check=False, **options)
        if check and done.returncode != 0:
            raise RuntimeError(f"{' '.join(map(str, command))} ended with {done.returncode}:\n"
                               f"{(done.stdout or '')[-4000:]}\n{(done.stderr or '')[-4000:]}")
        return done

    def _without_locks(self, arguments):
        """Buildah 1.28 keeps the lock of a cache until the build ends, and the next stage waits for it."""
        if "--file" not in arguments:
            return arguments
        place = arguments.index("--file") + 1
        file = self.dir / "Dockerfile"
        file.write_text(pathlib.Path(arguments[place]).read_text(encoding="utf-8")
                        .replace(",sharing=locked", ""), encoding="utf-8")
        return [*arguments[:place], str(file), *arguments[place + 1:]]

    def ids(self, *command):
        return self.docker(*command, check=False).stdout.split()
