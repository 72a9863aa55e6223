"""Chaos: a whole Lathe under load while everything that can fail does, one fault after the other,
drawn from a seed. All that clients were told must stay true.

Real gateway, engine (on Postgres two: one leads), worker and database; clients of three tenants
over plain HTTP and over the stock SDK, serial and concurrent sessions: steps, samples from unnamed
versions, saves by name, loads, deletions; clients that go away and come back, or never do. Faults:
kill -9, SIGSTOP, SIGTERM of one, several, all processes; a leader that is stopped until the standby
leads, and goes on; every fail point by name; connections cut, held and swallowed between each pair;
Postgres killed; a full disk; with --next, upgrades of each process by one release and back.
Checked are I1 to I7: every acknowledged request ends, with its result or with the reason that was
done to it; every number is that of an undisturbed server, to the bit; results that were given never
change; complete checkpoints load and equal the live model of their moment; nobody sees another
tenant's objects; memory and disk stay bounded; everything goes on within 180 s and drains.

Run: .venv/bin/python tests/fault/chaos.py --store sqlite --minutes 30 --seed 1
"""

import argparse
import collections
import contextlib
import filecmp
import os
import pathlib
import random
import shutil
import signal
import sqlite3
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, os.path.join(os.path.dirname(__file__), ".."))
sys.path.insert(0, os.path.dirname(__file__))
from chaos_faults import (BETWEEN_GROUPS, OF_STORES, Faults, ProxiedPrograms,  # noqa: E402
                          is_stored)
from chaos_history import History, Wrong  # noqa: E402
from chaos_load import RawClient, SdkClient, start_threads, undisturbed  # noqa: E402
from chaos_strays import (GAP_TIMEOUT, SESSION_KEPT, SESSION_TIMEOUT, Returning,  # noqa: E402
                          Vanishing)
from support.engine_pair import ENGINES  # noqa: E402
from support.fail_points import FailPoints  # noqa: E402
from support.faulty_proxy import FaultyProxy  # noqa: E402
from support.faulty_store import FaultyStore, error  # noqa: E402
from support.lathe_server import BIN, LatheServer, object_store, tiny_model  # noqa: E402
from support.postgres_cluster import PostgresCluster, USER  # noqa: E402
from support.small_disk import small_disk  # noqa: E402
from support.supervised_pair import SupervisedPair  # noqa: E402

# Clients that are away for long are parked, those that are gone are forgotten.
ENV = {"LATHE_WORKER__NUMERICS": "exact", "LATHE_ENGINE__SNAPSHOT_INTERVAL": "500ms",
       "LATHE_ENGINE__SNAPSHOT_SHARE": "1",
       "LATHE_ENGINE__SESSION_TIMEOUT": f"{SESSION_TIMEOUT}s",
       "LATHE_ENGINE__SESSION_KEPT": f"{SESSION_KEPT}s",
       "LATHE_ENGINE__GAP_TIMEOUT": f"{GAP_TIMEOUT}s"}
# Short, so that the next engine need not wait long for the lease of one that hangs.
POSTGRES_ENV = {"LATHE_ENGINE__LEASE_RENEWAL": "500ms"}
LEASE = "2s"
LIVENESS_SECONDS = 180
DISK_MEBIBYTES = 512
MEMORY_MEBIBYTES = {"engine": 512, "standby": 512, "gateway": 512, "worker": 2048}
# Directories of checkpoints that may be left, of sessions that nobody ended: as many as begin within
# the SESSION_KEPT, with two snapshots and a version each.
MAX_DIRECTORIES = 200
# Defects that a short run has to find, as rules of fail points (chaos is tested with them).
PLANTED = {
    "commit-skipped": "engine.commit.before=skip%0.02",
    "step-skipped": "worker.step.before=skip%0.05",
    "write-skipped": "worker.save.write=skip%0.02",
}


class Memory:
    """The most that each process has had."""

    def __init__(self, server):
        self.server = server
        self.largest = collections.Counter()

    def look(self, history):
        pids = self.server.pids()
        for name in MEMORY_MEBIBYTES:
            with contextlib.suppress(OSError, KeyError, ValueError):
                pages = int(open(f"/proc/{pids[name]}/statm").read().split()[1])
                mebibytes = pages * os.sysconf("SC_PAGE_SIZE") >> 20
                self.largest[name] = max(self.largest[name], mebibytes)
        for name, limit in MEMORY_MEBIBYTES.items():
            if self.largest[name] > limit:
                history.violate("I6", f"{name} has {self.largest[name]} MiB, bound is {limit}")


def crash_migrations(data_dir, store, points, times=5):
    """An engine that is killed after every single migration; the next one goes on."""
    for _ in range(times):
        subprocess.run([str(BIN / "lathe-engine"), "--data-dir", str(data_dir),
                        *(["--store", store] if store else [])],
                       env={**os.environ, **points.env,
                            "LATHE_FAIL_POINTS": "engine.migration.step=kill"},
                       stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=False,
                       timeout=60)


def wait_until(condition, history, what):
    deadline = time.monotonic() + LIVENESS_SECONDS
    while not condition():
        if history.violations:
            return
        if time.monotonic() > deadline:
            history.violate("I7", f"{what} within {LIVENESS_SECONDS} s")
            return
        time.sleep(0.05)


def progress(history, clients, of_all):
    """Something (or something of each client that is there) ends after the last fault is healed."""
    healed = time.monotonic()

    def has_gone_on():
        gone_on = [history.progress.get(client.name, 0) > healed or of_all and client.is_away
                   for client in clients]
        return all(gone_on) if of_all else any(gone_on)

    wait_until(has_gone_on, history, "no progress of "
               + ("each client" if of_all else "any client"))


def moody(seed):
    """A store that refuses, stalls and lies now and then."""
    rng = random.Random(seed)

    def before(request):
        mood = rng.random()
        if mood < 0.02:
            return error(503, "SlowDown")
        if mood < 0.03:
            time.sleep(rng.uniform(0, 2))
        elif mood < 0.04 and request.is_object:
            return 200, {"ETag": '"0"'}, b""  # and has nothing
        return None
    return before


class Run:
    """One run: `go()`, then `report()`."""

    def __init__(self, options):
        self.options = options
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="lathe-chaos-"))
        self.random = random.Random(options.seed)
        self.history = History()
        self.began = time.monotonic()
        self.directories = self.bytes_left = 0

    def log(self, text):
        with open(self.folder / "faults.log", "a", encoding="utf-8") as file:
            file.write(f"{time.monotonic() - self.began:8.2f} {text}\n")

    def go(self):
        options = self.options
        with contextlib.ExitStack() as stack:
            with LatheServer(tiny_model(), env=ENV) as calm:
                table = undisturbed(calm, with_sdk=options.sdk_clients > 0)
            self.points = FailPoints(self.folder / "points")
            self.data_dir = self.folder / "data"
            disk = cluster = store = None
            proxies = {}
            if os.geteuid() == 0:
                disk = stack.enter_context(small_disk(self.data_dir, DISK_MEBIBYTES))
            if options.store == "postgres":
                cluster = stack.enter_context(PostgresCluster())
                cluster.create_database("lathe")
                sockets = self.folder / "pg"
                sockets.mkdir()
                proxies["engine and postgres"] = stack.enter_context(FaultyProxy(
                    cluster.dir / ".s.PGSQL.5432", listen=sockets / ".s.PGSQL.5432"))
                store = f"postgres:///lathe?host={sockets}&user={USER}"
            crash_migrations(self.data_dir, store, self.points)
            env = {**ENV, **self.points.env}
            if options.plant:
                env["LATHE_FAIL_POINTS"] = PLANTED[options.plant]
            start = self.start_pair if store else self.start_one
            self.server, switch = start(stack, env, store, proxies)
            front = stack.enter_context(FaultyProxy(self.server.port))
            proxies["client and gateway"] = front
            self.server.url = front.url
            releases = [BIN, pathlib.Path(options.next).resolve()] if options.next else []
            if releases and filecmp.cmp(*(one / "lathe-engine" for one in releases), shallow=False):
                raise RuntimeError("both releases have the same programs")
            self.faults = Faults(
                self.server, self.points, proxies, cluster, disk, self.random, self.log,
                (lambda process: switch(process, releases)) if releases else None)
            self.memory = Memory(self.server)
            try:
                self.disturb(self.new_clients(table))
                with contextlib.suppress(Exception) if self.history.violations else (
                        contextlib.nullcontext()):
                    self.finish()
            except BaseException:  # told to end: nobody waits for a server that may hang
                self.server.kill_everything()
                raise
            if self.history.violations:
                with contextlib.suppress(OSError):
                    shutil.copytree(self.data_dir / "logs", self.folder / "logs")
                    shutil.copy2(self.data_dir / "up.log", self.folder / "logs")
        return not self.history.violations

    def start_one(self, stack, env, _, proxies):
        """`lathe up` on SQLite."""
        programs = stack.enter_context(ProxiedPrograms(self.folder / "bin", self.data_dir / "run"))
        proxies.update(programs.proxies)
        env = {**env, **self.storage_env(stack, proxies)}
        server = stack.enter_context(LatheServer(tiny_model(), data_dir=str(self.data_dir), env=env,
                                                 programs=programs.folder))
        if idle := [pair for pair, proxy in programs.proxies.items() if not proxy.num_connections]:
            raise RuntimeError(f"nobody uses the proxy between {' or '.join(idle)}")
        return server, programs.switch

    def storage_env(self, stack, proxies):
        """With LATHE_TEST_STORAGE=s3, a proxy before the store that all processes use."""
        if not is_stored():
            return {}
        moods = moody(self.options.seed)
        store = stack.enter_context(FaultyStore(object_store().port, moods))
        proxy = stack.enter_context(FaultyProxy(store.server.server_address[1]))
        proxies["object store and the others"] = proxy
        return object_store().options(prefix="chaos", url=proxy.url)

    def start_pair(self, stack, env, store, proxies):
        """A leader and a standby on one Postgres, each with a proxy before each of its sockets."""
        assert not is_stored(), "LATHE_TEST_STORAGE=s3 goes with --store sqlite"
        sockets = {}
        for engine in ENGINES:
            for listener, peer in (("worker", "worker"), ("engine", "gateway")):
                path = sockets[engine, listener] = self.folder / f"{engine}-{listener}.sock"
                proxies[f"{peer} and engine {engine}"] = stack.enter_context(FaultyProxy(
                    self.data_dir / "run" / engine / f"{listener}.sock", listen=path))
        pair = stack.enter_context(SupervisedPair(
            tiny_model(), sockets, store=store, data_dir=self.data_dir, lease=LEASE,
            env={**env, **POSTGRES_ENV}))
        return pair, pair.switch

    def new_clients(self, table):
        keys = [self.server.api_key, self.server.create_key("red"), self.server.create_key("blue")]
        self.raw = [RawClient(f"raw-{number}", self.server, keys[number % 3], self.history, table,
                              self.options.seed) for number in range(self.options.clients)]
        self.raw += [kind(f"{kind.__name__.lower()}-{number}", self.server, keys[number % 3],
                          self.history, table, self.options.seed)
                     for kind in (Returning, Vanishing) for number in range(self.options.strays)]
        for client in self.raw:
            client.strangers = [other for other in self.raw if other.api.key != client.api.key]
        self.sdk = [SdkClient(f"sdk-{number}", self.server, keys[number % 3], self.history, table)
                    for number in range(self.options.sdk_clients)]
        return self.raw + self.sdk

    def disturb(self, clients):
        threads = start_threads(clients)
        end = time.monotonic() + self.options.minutes * 60
        number = 0
        try:
            while time.monotonic() < end and not self.history.stopping.is_set():
                time.sleep(self.random.uniform(0.1, 0.8))
                self.faults.one()
                number += 1
                self.memory.look(self.history)
                progress(self.history, clients, of_all=number % 25 == 0)
            self.points.clear()
            if not self.history.violations:
                progress(self.history, clients, of_all=True)
        except Wrong as wrong:
            self.history.violate(*wrong.args)
        except Exception as error:  # Lathe did not come back, say
            self.history.violate("I7", f"{type(error).__name__} {error}")
        self.history.stopping.set()
        # Whoever was lied to may wait for ever.
        deadline = time.monotonic() + (5 if self.history.violations else LIVENESS_SECONDS + 20)
        for thread in threads:
            thread.join(max(0.0, deadline - time.monotonic()))
            if thread.is_alive() and not self.history.violations:
                self.history.violate("I7", f"{thread.name} waits for an answer that never comes")

    def finish(self):
        """What must hold when nothing disturbs any more."""
        self.log("healed")
        try:
            for client in [] if self.history.violations else self.raw + self.sdk:
                client.finish()
        except Wrong as wrong:
            self.history.violate(*wrong.args)
        except Exception as error:
            self.history.violate("I1", f"at the end: {type(error).__name__} {error}")
        try:
            wait_until(lambda: int(self.server.status().get("pending_requests", 0)) == 0,
                       self.history, "requests are not finished")
            if self.options.minutes * 60 > SESSION_KEPT:
                # Leaders that were killed every few seconds have forgotten nobody: that takes one
                # that has heard nothing for the SESSION_TIMEOUT.
                wait_until(lambda: self.num_directories() <= MAX_DIRECTORIES, self.history,
                           "who is gone is not forgotten")
            if (code := self.server.stop(timeout=120)) != 0:
                self.history.violate("I7", f"lathe up ended with {code}")
            # The next start removes what nothing names.
            self.server.start()
            self.server.stop(timeout=120)
        except Exception as error:  # else the logs would go with it
            return self.history.violate("I7", f"at the end: {type(error).__name__} {error}")
        self.check_disk()

    def num_directories(self):
        """Those of the trash do not count: kills make many, and it has a time of its own."""
        if is_stored():
            marked = object_store().list_names("chaos/trash/")
            return len(object_store().list_names("chaos/checkpoints/") - marked)
        checkpoints = self.data_dir / "checkpoints"
        return len([one for one in checkpoints.iterdir() if one.name.startswith("c")])

    def check_disk(self):
        self.directories = self.num_directories()
        if self.directories > MAX_DIRECTORIES:
            self.history.violate("I6", f"{self.directories} directories of checkpoints are left, "
                                       f"bound is {MAX_DIRECTORIES}")
        self.bytes_left = sum(file.stat().st_size for file in self.data_dir.rglob("*")
                              if file.is_file())
        if self.options.store == "sqlite":
            with sqlite3.connect(self.data_dir / "lathe.db") as database:
                outcome = database.execute("PRAGMA integrity_check").fetchall()
            if outcome != [("ok",)]:
                self.history.violate("I6", f"integrity_check: {outcome}")

    def report(self):
        """Prints it; whether all was as it must be and as much as was asked for."""
        options, history = self.options, self.history
        counts = self.points.counts()
        fired = sorted((count, name) for name, (_, count) in counts.items())
        print(f"\nstore {options.store}, seed {options.seed}, "
              f"{time.monotonic() - self.began:.0f} s, {len(self.raw)} clients over HTTP, "
              f"{len(self.sdk)} over the SDK, all on the tiny model")
        print(f"kills {self.faults.kills.total()}: " + show(self.faults.kills))
        print("faults " + show(self.faults.done))
        print(f"fail points {len(fired)}, fired {sum(count for count, _ in fired)} times; least: "
              + ", ".join(f"{name} {count}" for count, name in fired[:5]))
        print(f"acknowledged and ended {history.total()}: " + show(history.acknowledged))
        print(f"failed with a reason {history.failed.total()}: " + show(history.failed))
        print("memory at most, MiB: " + show(self.memory.largest)
              + f"; left on disk: {self.bytes_left >> 20} MiB, {self.directories} directories of "
                "checkpoints")
        print(f"violations {len(history.violations)}")
        few = [name for count, name in fired
               if count < options.min_fired and name != BETWEEN_GROUPS
               and (is_stored() or not name.startswith(OF_STORES))]
        if few:
            print(f"fired less than {options.min_fired} times: {' '.join(few)}")
        if not history.violations:
            return not few
        print("again: " + " ".join(sys.argv) + f"\nlogs: {self.folder}")
        return False

    def clean(self):
        shutil.rmtree(self.folder, ignore_errors=True)


def show(counter):
    return ", ".join(f"{name} {count}" for name, count in counter.most_common()) or "none"


def parse(words):
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--store", choices=["sqlite", "postgres"], default="sqlite")
    parser.add_argument("--minutes", type=float, default=30)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--clients", type=int, default=6, help="over plain HTTP")
    parser.add_argument("--sdk-clients", type=int, default=2)
    parser.add_argument("--strays", type=int, default=1,
                        help="that come back, and as many that do not")
    parser.add_argument("--min-fired", type=int, default=0,
                        help="fails when a fail point has fired less often")
    parser.add_argument("--next", help="folder of the programs of the next release")
    parser.add_argument("--plant", choices=sorted(PLANTED), help="a defect that is to be found")
    return parser.parse_args(words)


def main(words=None):
    """The exit code."""
    run = Run(parse(words))
    # Whatever was started ends with this.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    try:
        run.go()
    except SystemExit as outcome:
        run.clean()
        return outcome.code
    is_good = run.report()
    if is_good or not run.history.violations:
        run.clean()
    return 0 if is_good else 1


if __name__ == "__main__":
    exit_code = main()
    sys.stdout.flush()
    # Threads of the SDK go on looking for a server that is no more.
    os._exit(exit_code)
