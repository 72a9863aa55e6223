"""Several hosts on one machine: network namespaces with an address each, joined by a bridge.

    with Hosts("client", "engine", "worker") as hosts:
        with hosts.on("engine"):          # what this thread starts runs there
            process = subprocess.Popen(...)
        hosts.address("engine")           # "10.213.7.3"
        hosts.cut("worker")               # packets to and from it are lost, and nobody is told
        hosts.heal("worker")
        with hosts.apart("engine", "worker"):   # these two lose each other, and nobody else
            ...

Processes share the file system, as hosts with a shared one do; ones that must not see each other's
/proc are started by `OWN_PROCESSES`. Needs root and iproute2.
"""

import contextlib
import ctypes
import os
import random
import shutil
import subprocess

import pytest

CLONE_NEWNET = 0x40000000
# Prefix of a command: runs it as process 1 of a PID namespace. Killing `unshare` kills the command.
OWN_PROCESSES = ("unshare", "--pid", "--fork", "--mount-proc", "--kill-child=SIGKILL")
NOBODY = "02:00:00:00:00:01"  # an Ethernet address that no host has


def _ip(*arguments):
    subprocess.run(["ip", *arguments], check=True, capture_output=True, text=True)


def why_not():
    """Why there can be no hosts here; None: there can."""
    if os.geteuid() != 0:
        return "network namespaces need root"
    if shutil.which("ip") is None:
        return "iproute2 is not installed"
    made = subprocess.run(["ip", "netns", "add", probe := f"lathe-probe-{os.getpid()}"], check=False,
                          capture_output=True, text=True)
    if made.returncode != 0:
        return f"network namespaces are not allowed: {made.stderr.strip()}"
    _ip("netns", "del", probe)
    return None


def _enter(namespace):
    libc = ctypes.CDLL(None, use_errno=True)
    with open(namespace, "rb") as file:
        if libc.setns(file.fileno(), CLONE_NEWNET) != 0:
            raise OSError(ctypes.get_errno(), f"setns {namespace}")


@contextlib.contextmanager
def in_namespace(path):
    """This thread, and what it starts, is in that network meanwhile."""
    with open("/proc/thread-self/ns/net", "rb") as before:
        _enter(path)
        try:
            yield
        finally:
            _enter(f"/proc/self/fd/{before.fileno()}")


class Home:
    """The network in which this object was made, for threads that are elsewhere by then."""

    def __init__(self):
        self._file = open("/proc/thread-self/ns/net", "rb")
        self._name = os.readlink("/proc/thread-self/ns/net")

    def close(self):
        self._file.close()

    def enter(self):
        # A thread that is at home needs no rights to stay.
        if os.readlink("/proc/thread-self/ns/net") == self._name:
            return contextlib.nullcontext()
        return in_namespace(f"/proc/self/fd/{self._file.fileno()}")


class Hosts:
    def __init__(self, *names):
        if reason := why_not():
            pytest.skip(reason)
        self.names = names
        self._prefix = f"lathe-{os.getpid()}-{random.SystemRandom().randrange(10000)}"
        self._subnet = f"10.213.{random.SystemRandom().randrange(256)}"

    def __enter__(self):
        try:
            self._make()
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_):
        for name in ("switch", *self.names):
            subprocess.run(["ip", "netns", "del", self._namespace(name)], check=False,
                           capture_output=True)

    def _namespace(self, name):
        return f"{self._prefix}-{name}"

    def _port(self, name):
        return f"port{self.names.index(name)}"

    def _make(self):
        switch = self._namespace("switch")
        _ip("netns", "add", switch)
        _ip("-n", switch, "link", "add", "bridge", "type", "bridge")
        _ip("-n", switch, "link", "set", "bridge", "up")
        for name in self.names:
            host = self._namespace(name)
            _ip("netns", "add", host)
            _ip("-n", host, "link", "add", "eth0", "type", "veth", "peer", "name",
                self._port(name), "netns", switch)
            _ip("-n", host, "addr", "add", f"{self.address(name)}/24", "dev", "eth0")
            _ip("-n", host, "link", "set", "lo", "up")
            _ip("-n", host, "link", "set", "eth0", "up")
            _ip("-n", switch, "link", "set", self._port(name), "up")
            self.heal(name)

    def address(self, name):
        return f"{self._subnet}.{self.names.index(name) + 1}"

    def on(self, name):
        """This thread, and what it starts, is on that host meanwhile."""
        return in_namespace(f"/run/netns/{self._namespace(name)}")

    def cut(self, *names):
        for name in names:
            _ip("-n", self._namespace("switch"), "link", "set", self._port(name), "nomaster")

    def heal(self, *names):
        for name in names or self.names:
            _ip("-n", self._namespace("switch"), "link", "set", self._port(name), "master", "bridge")

    @contextlib.contextmanager
    def apart(self, one, other):
        """Packets between the two are lost meanwhile."""
        pairs = [(self._namespace(one), self.address(other)),
                 (self._namespace(other), self.address(one))]
        for host, address in pairs:
            _ip("-n", host, "neigh", "replace", address, "lladdr", NOBODY, "nud", "permanent",
                "dev", "eth0")
        try:
            yield
        finally:
            for host, address in pairs:
                _ip("-n", host, "neigh", "del", address, "dev", "eth0")

    @contextlib.contextmanager
    def without(self, *names):
        self.cut(*names)
        try:
            yield
        finally:
            self.heal(*names)
