"""Runs the command of a container as a container: its own file system, which is read-only but for its mounts, its own
processes, and user 10001 without rights. The network is that of the host on which it is started.

    with hosts.on("pod3"):
        sandbox = Sandbox(words, environment, mounts, "lathe-engine-0", log)
    sandbox.signal(signal.SIGTERM); sandbox.wait(30)

The programs are those of LATHE_BIN. This machine's /usr stands in for an image, with the entry point and the
environment of deploy/images. Needs bubblewrap and tini.
"""

import functools
import json
import os
import re
import shutil
import subprocess

from support.lathe_server import BIN, ROOT

USER = "10001"
PROGRAMS = "/opt/lathe/bin"
IMAGES = ROOT / "deploy" / "images"


def why_not():
    """Why there can be no sandboxes here; None: there can."""
    for program in ("bwrap", "tini", "nsenter"):
        if shutil.which(program) is None:
            return f"{program} is not installed"
    tried = subprocess.run(["bwrap", "--unshare-user", "--unshare-pid", "--ro-bind", "/", "/", "true"],
                           check=False, capture_output=True, text=True)
    return None if tried.returncode == 0 else f"bwrap: {tried.stderr.strip()}"


@functools.lru_cache(maxsize=None)
def image_environment():
    """What the Dockerfile sets."""
    text = (IMAGES / "Dockerfile").read_text().replace("\\\n", " ")
    pairs = [pair for line in re.findall(r"^ENV (.*)$", text, re.MULTILINE) for pair in line.split()]
    found = dict(pair.split("=", 1) for pair in pairs if pair.startswith("LATHE_"))
    assert found, "the Dockerfile sets no option of Lathe"
    return found


def entry_point(words):
    """The image's own script runs the program that the first word says."""
    script = (IMAGES / "entry").read_text().replace("/usr/bin/lathe", f"{PROGRAMS}/lathe")
    return ["/bin/sh", "-c", script, "lathe-entry", *words]


def _root(name, hosts_file):
    """Arguments for what an image has."""
    words = ["--unshare-user", "--uid", USER, "--gid", USER, "--unshare-pid", "--unshare-ipc", "--unshare-uts",
             "--hostname", name, "--as-pid-1", "--die-with-parent", "--new-session", "--cap-drop", "ALL",
             "--ro-bind", "/usr", "/usr", "--proc", "/proc", "--dev", "/dev", "--dir", "/etc",
             "--ro-bind", str(BIN), PROGRAMS, "--ro-bind", str(ROOT / ".venv"), str(ROOT / ".venv"),
             "--ro-bind", hosts_file, "/etc/hosts"]
    for folder in ("bin", "sbin", "lib", "lib64"):
        words += ["--symlink", f"usr/{folder}", f"/{folder}"]
    for path in ("/etc/ld.so.cache", "/etc/ssl", "/etc/nsswitch.conf", "/etc/passwd", "/etc/group", "/etc/alternatives"):
        words += ["--ro-bind-try", path, path]
    return words


class Sandbox:
    """`mounts`: (folder here, path there, whether it is read-only)."""

    def __init__(self, words, environment, mounts, name, hosts_file, log):
        self.environment = {"PATH": f"{PROGRAMS}:/usr/bin:/bin", "HOME": "/var/lib/lathe",
                            **image_environment(), **environment}
        bind = []
        for source, target, is_read_only in mounts:
            bind += ["--ro-bind" if is_read_only else "--bind", str(source), target]
        reading, writing = os.pipe()
        self.process = subprocess.Popen(
            ["bwrap", *_root(name, str(hosts_file)), *bind, "--remount-ro", "/", "--chdir", "/",
             "--info-fd", str(writing), "--", "/usr/bin/tini", "-g", "--", *words],
            env=self.environment, stdin=subprocess.DEVNULL, stdout=log, stderr=log, pass_fds=[writing])
        os.close(writing)
        with os.fdopen(reading) as info:
            text = info.read()
        self._pid = json.loads(text)["child-pid"] if text else None

    def signal(self, number):
        """To the container's first process."""
        if self._pid is not None and self.exit_code is None:
            os.kill(self._pid, number)

    @property
    def exit_code(self):
        """None: it runs."""
        return self.process.poll()

    def wait(self, timeout):
        return self.process.wait(timeout)

    def run(self, words, timeout=60):
        """Another command in the container, as `kubectl exec` does."""
        settings = [f"{name}={value}" for name, value in self.environment.items()]
        return subprocess.run(
            ["nsenter", "--target", str(self._pid), "--user", "--mount", "--pid", "--net", "--uts", "--ipc",
             "--preserve-credentials", "--", "/usr/bin/env", "-i", *settings, *words],
            check=False, capture_output=True, text=True, timeout=timeout)
