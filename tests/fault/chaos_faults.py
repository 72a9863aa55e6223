"""What chaos.py does to a running Lathe. Each fault is healed before its method returns."""

import collections
import contextlib
import os
import pathlib
import shutil
import signal
import stat
import time

from chaos_history import Wrong
from support.fail_points import listed
from support.faulty_proxy import FaultyProxy
from support.lathe_server import BIN

# Passed while a process starts: it is killed so that it does.
AT_START = {"engine.start.locked": "engine", "engine.start.loaded": "engine",
            "worker.load.base": "worker", "worker.start.ready": "worker"}
# Passed when a model is rebuilt, so its worker is killed too.
IN_RECOVERY = ("engine.recovery.", "worker.restore.")
# Passed between two groups only, and there is one.
BETWEEN_GROUPS = "worker.version.chunk"
# The first is passed at the first start on a database, which chaos.py does.
ELSEWHERE = ("engine.migration.step", BETWEEN_GROUPS)
# Passed only with an object store.
OF_STORES = "worker.publish."
# Errors that the service lives through, and what to name them.
ERRORS = {"engine.commit.before": 28, "engine.body.before_write": 28, "worker.save.file": 5,
          "worker.save.write": 28, "worker.save.fsync": 5, "worker.save.manifest": 5,
          "worker.save.before_rename": 5, "worker.save.renamed": 5}
LONGEST_START = 60
# Seconds in which a leader that was stopped finds out that another one leads.
LONGEST_ERROR = 30


def is_stored():
    """Whether checkpoints are objects in this run."""
    return os.environ.get("LATHE_TEST_STORAGE") == "s3"


class ProxiedPrograms:
    """A folder of the programs whose worker and gateway dial the engine through proxies. Links in
    it say which build each program is of."""

    def __init__(self, folder, run_dir):
        self.folder = pathlib.Path(folder)
        self.folder.mkdir()
        shutil.copy2(BIN / "lathe", self.folder / "lathe")
        (self.folder / "lathe-engine").symlink_to(BIN / "lathe-engine")
        self.links = {"engine": self.folder / "lathe-engine"}
        self.proxies = {}
        for program, name in (("lathe-worker", "worker"), ("lathe-gateway", "engine")):
            real, ours = pathlib.Path(run_dir, f"{name}.sock"), self.folder / f"{name}.sock"
            script, link = self.folder / program, self.folder / f"real-{program}"
            link.symlink_to(BIN / program)
            self.links[program.removeprefix("lathe-")] = link
            script.write_text(
                f'#!/bin/sh\nfor word; do shift; [ "$word" = "unix:{real}" ] && '
                f'word="unix:{ours}"; set -- "$@" "$word"; done\nexec {link} "$@"\n')
            script.chmod(script.stat().st_mode | stat.S_IXUSR)
            self.proxies[f"{program.removeprefix('lathe-')} and engine"] = FaultyProxy(
                real, listen=ours)

    def __enter__(self):
        for proxy in self.proxies.values():
            proxy.__enter__()
        return self

    def switch(self, process, folders):
        """As SupervisedPair."""
        link = self.links[process]
        program = os.path.basename(os.readlink(link))
        now = os.path.dirname(os.readlink(link))
        folder = next(one for one in folders if str(one) != now)
        fresh = link.with_suffix(".new")
        fresh.symlink_to(folder / program)
        fresh.replace(link)
        return folder

    def __exit__(self, *_):
        for proxy in self.proxies.values():
            proxy.__exit__()


class Faults:
    """`proxies`: {pair of processes: its proxy}; `cluster`, `disk`: None when there is none. With a
    cluster there is a standby. `switch(process)`: its next start is of the other release."""

    def __init__(self, server, points, proxies, cluster, disk, rng, log, switch=None):
        self.server, self.points, self.proxies = server, points, proxies
        self.cluster, self.disk, self.random, self.log = cluster, disk, rng, log
        self.kills = collections.Counter()
        self.done = collections.Counter()
        self.processes = [name for name in server.pids() if name != "up"]
        self.names = [name for name in listed() if name not in ELSEWHERE
                      and (is_stored() or not name.startswith(OF_STORES))]
        self.misses = collections.Counter()  # of fail points that were set and not passed
        self.actions = {self.fail_points: 90, self.kill_one: 10, self.kill_several: 4,
                        self.kill_everything: 4, self.pause: 5, self.terminate_one: 4,
                        self.terminate_everything: 1, self.cut: 6, self.hold: 3,
                        self.swallow: 2}
        if cluster:
            self.actions[self.restart_postgres] = 10
            self.actions[self.stop_leader] = 6
        if disk:
            self.actions[self.fill_disk] = 3
        self.switch = switch
        if switch:
            self.actions[self.change_release] = 12

    def one(self):
        """Does one of them, by chance."""
        action = self.random.choices(list(self.actions), list(self.actions.values()))[0]
        self.done[action.__name__] += 1
        action()

    # ---- processes

    def restarted(self, name, old):
        self.server.wait_restarted(name, old, timeout=LONGEST_START)

    def signal(self, name, number):
        """The pid that got it."""
        pid = self.server.pids()[name]
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, number)
        return pid

    def kill_one(self):
        name = self.random.choice(self.processes)
        self.log(f"kill {name}")
        self.kills[name] += 1
        self.restarted(name, self.signal(name, signal.SIGKILL))

    def kill_several(self):
        names = self.random.sample(self.processes, self.random.choice((2, 3)))
        self.log(f"kill {' and '.join(names)}")
        old = {name: self.signal(name, signal.SIGKILL) for name in names}
        for name, pid in old.items():
            self.kills[name] += 1
            self.restarted(name, pid)

    def kill_everything(self):
        self.log("kill everything")
        with_postgres = self.cluster is not None and self.random.random() < 0.5
        self.server.kill_everything()
        if with_postgres:
            self.cluster.kill()
            self.kills["postgres"] += 1
            self.cluster.start()
        for name in (*(["up"] if self.cluster is None else []), *self.processes):
            self.kills[name] += 1
        self.server.start()

    def terminate_one(self):
        name = self.random.choice(self.processes)
        self.log(f"terminate {name}")
        old = self.signal(name, signal.SIGTERM)
        self.restarted(name, old)

    def change_release(self):
        """An upgrade of one process, or its way back: it ends in order or by a crash."""
        name = self.random.choice(self.processes)
        number = self.random.choice((signal.SIGTERM, signal.SIGTERM, signal.SIGKILL))
        self.log(f"{name} is of {self.switch(name).parent.name} after {number.name}")
        self.restarted(name, self.signal(name, number))

    def terminate_everything(self):
        self.log("terminate everything")
        code = self.server.stop(timeout=120)
        if code != 0:
            raise RuntimeError(f"lathe up ended with {code} after SIGTERM")
        self.server.start()

    def pause(self):
        name = self.random.choice(self.processes)
        # Now and then so long that the others give it up.
        seconds = self.random.choices((0.3, 1.5, 4, 20), (8, 6, 4, 1))[0]
        self.log(f"stop {name} for {seconds} s")
        pid = self.signal(name, signal.SIGSTOP)
        time.sleep(seconds)
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGCONT)

    def stop_leader(self):
        """Until another one leads, and longer now and then; what it goes on with counts nothing."""
        longer = self.random.choice((0, 0.5, 8))
        self.log(f"stop the leader until another one leads and {longer} s more")
        old = self.signal("engine", signal.SIGSTOP)
        try:
            self.wait(lambda: self.server.pids()["engine"] != old, LONGEST_START,
                      "no standby has taken over from a leader that was stopped")
            time.sleep(longer)
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.kill(old, signal.SIGCONT)
        self.wait(lambda: old not in self.server.pids().values(), LONGEST_ERROR,
                  "a leader that was stopped and replaced goes on")

    def wait(self, condition, seconds, what):
        deadline = time.monotonic() + seconds
        while not condition():
            if time.monotonic() > deadline:
                raise Wrong("I7", f"{what} within {seconds} s")
            time.sleep(0.05)

    # ---- between them

    def proxy(self):
        pair = self.random.choice(list(self.proxies))
        return pair, self.proxies[pair]

    def cut(self):
        pair, proxy = self.proxy()
        self.log(f"cut {pair}")
        for _ in range(self.random.choice((1, 1, 3))):
            proxy.cut_all()
            time.sleep(0.1)

    def hold(self):
        pair, proxy = self.proxy()
        seconds = self.random.choice((0.5, 2, 5))
        self.log(f"hold {pair} for {seconds} s")
        proxy.hold.set()
        time.sleep(seconds)
        proxy.hold.clear()

    def swallow(self):
        """A partition; its end is told by resets, as hosts that come back do."""
        pair, proxy = self.proxy()
        seconds = self.random.choice((0.5, 2, 5))
        self.log(f"partition {pair} for {seconds} s")
        proxy.swallow.set()
        time.sleep(seconds)
        proxy.swallow.clear()
        proxy.cut_all()

    # ---- storage

    def restart_postgres(self):
        with_kill = self.random.random() < 0.5
        self.log(f"{'kill' if with_kill else 'restart'} postgres")
        self.kills["postgres"] += 1
        self.cluster.kill() if with_kill else self.cluster.stop()
        time.sleep(self.random.uniform(0, 2))
        self.cluster.start()

    def fill_disk(self):
        seconds = self.random.choice((0.5, 1, 3))
        self.log(f"fill the disk for {seconds} s")
        self.disk.fill(keep_bytes=self.random.choice((0, 16 << 10)))
        time.sleep(seconds)
        self.disk.free()

    # ---- fail points

    def fail_points(self):
        """Those that have fired least, one of each process at once. A try that missed counts half,
        so that a point which is passed seldom does not take the time of all others."""
        fired = {name: count for name, (_, count) in self.points.counts().items()}
        behind = {name: fired[name] + self.misses[name] / 2 for name in self.names}
        self.random.shuffle(self.names)
        chosen = {}
        for name in sorted(self.names, key=behind.get):
            chosen.setdefault(name.split(".")[0], name)
        many = self.random.random() < 0.5
        names = list(chosen.values()) if many else [min(chosen.values(), key=behind.get)]
        self.fire(names, fired)

    def rule(self, name):
        """(rule, whether it ends its process)"""
        if name in AT_START:
            return f"{name}=kill@1", True
        # The next worker is the one that restores.
        pid = 0 if name.startswith("worker.restore.") else self.server.pids()[name.split(".")[0]]
        chance = self.random.random()
        if name in ERRORS and chance < 0.4:
            return f"{name}=error:{ERRORS[name]}@1#{pid}", False
        if chance < 0.5:
            return f"{name}=sleep:{self.random.choice((20, 200, 1000))}@1#{pid}", False
        action = "kill" if chance < 0.9 else self.random.choice(("abort", "segv"))
        return f"{name}={action}@{self.random.choice((1, 1, 2))}#{pid}", True

    def fire(self, names, fired):
        rules = {name: self.rule(name) for name in names}
        self.log("fail point " + " ".join(rule for rule, _ in rules.values()))
        old = self.server.pids()
        self.points.set(*(rule for rule, _ in rules.values()))
        for name in names:
            if name in AT_START:
                self.signal(AT_START[name], signal.SIGKILL)
            elif name.startswith(IN_RECOVERY) and name not in AT_START:
                self.kills["worker"] += 1
                self.signal("worker", signal.SIGKILL)
        self.wait_fired(rules, fired)
        # At a start each process that comes passes the point: until here.
        self.points.clear()
        for name, (_, ends) in rules.items():
            process = name.split(".")[0]
            if self.points.fired(name) == fired[name]:
                self.misses[name] += 1
            elif ends:
                self.kills[process] += 1
                self.restarted(process, old[process])

    def wait_fired(self, rules, fired):
        """Until all have fired, or a process they are of has gone, or they were not passed."""
        deadline = time.monotonic() + 8
        waits = set(rules)
        while waits and time.monotonic() < deadline:
            time.sleep(0.05)
            counts = self.points.counts()
            waits = {name for name in waits if counts[name][1] <= fired[name]}
