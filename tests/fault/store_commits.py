"""Commits to a store while it, or its database, is killed again and again; then counts.

Everything acknowledged must be there, and everything once: a request, its result and one
entry of the audit log for each number.
Run: .venv/bin/python tests/fault/store_commits.py --store sqlite --commits 10000 --kills 100
     .venv/bin/python tests/fault/store_commits.py --store postgres --commits 10000 --kills 50
"""

import argparse
import os
import pathlib
import random
import sqlite3
import subprocess
import sys
import tempfile
import threading
import time

sys.path.insert(0, os.path.join(os.path.dirname(__file__), ".."))
from support.lathe_server import BIN  # noqa: E402
from support.postgres_cluster import PostgresCluster  # noqa: E402

PROGRAM = BIN.parent / "tests" / "store_commits"
COUNTS = """SELECT count(*), count(DISTINCT object), coalesce(max(at), -1),
  (SELECT count(*) FROM requests WHERE state = 3),
  (SELECT count(*) FROM results) FROM audit"""


class Writer:
    """A running store_commits that remembers the last number it has acknowledged."""

    def __init__(self, store, data_dir, count, seed):
        self.acknowledged = -1
        self.process = subprocess.Popen(
            [str(PROGRAM), store, str(data_dir), str(count), str(seed)],
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        # Read at once: a full pipe would stop it.
        self.errors = []
        self.threads = [threading.Thread(target=self._read), threading.Thread(
            target=lambda: self.errors.extend(self.process.stderr))]
        for thread in self.threads:
            thread.start()

    def _read(self):
        for line in self.process.stdout:
            if line.endswith("\n"):
                self.acknowledged = int(line)

    def kill(self):
        self.process.kill()
        return self.wait()

    def wait(self, timeout=None):
        code = self.process.wait(timeout)
        for thread in self.threads:
            thread.join()
        return code


def check_counts(counts, acknowledged):
    entries, distinct, newest, requests, results = counts
    assert newest >= acknowledged, f"{acknowledged} was acknowledged, the newest stored is {newest}"
    expected = newest + 1
    assert [entries, distinct, requests, results] == [expected] * 4, (
        f"of {expected}: {entries} entries of {distinct} objects, {requests} requests, "
        f"{results} results")
    return newest


def counts_of_sqlite(database):
    with sqlite3.connect(database) as connection:
        assert connection.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
        return connection.execute(COUNTS).fetchone()


def check_sqlite(commits, kills, seed=0):
    """Kills the process that commits; returns how many kills hit it at work."""
    rng = random.Random(seed)
    hits = 0
    with tempfile.TemporaryDirectory() as folder:
        database = pathlib.Path(folder, "lathe.db")
        for number in range(kills):
            # What is left is spread over the kills that are left, by numbers and not by time.
            stored = counts_of_sqlite(database)[2] + 1 if database.exists() and number else 0
            target = stored + (commits - stored) // (kills - number + 1)
            writer = Writer(f"sqlite:{database}", folder, commits, seed + number)
            while writer.acknowledged < target and writer.process.poll() is None:
                time.sleep(rng.uniform(0.0002, 0.002))
            hits += writer.kill() != 0
            check_counts(counts_of_sqlite(database), writer.acknowledged)
        last = Writer(f"sqlite:{database}", folder, commits, seed)
        assert last.wait() == 0, last.errors
        assert check_counts(counts_of_sqlite(database), commits - 1) == commits - 1
    return hits


def check_postgres(commits, kills, seed=0):
    """Crashes the server, and every fifth time the process that commits too."""
    rng = random.Random(seed)
    with PostgresCluster() as cluster, tempfile.TemporaryDirectory() as folder:
        url = cluster.create_database("lathe")

        def counts():
            return [int(one) for one in cluster.psql("lathe", COUNTS).split("|")]

        writer = Writer(url, folder, commits, seed)
        for number in range(kills):
            target = writer.acknowledged + (commits - writer.acknowledged) // (kills - number + 1)
            while writer.acknowledged < target and writer.process.poll() is None:
                time.sleep(rng.uniform(0.0002, 0.002))
            cluster.kill() if number % 2 else cluster.stop()
            if number % 5 == 4:
                writer.kill()
            cluster.start()
            if number % 5 == 4:
                check_counts(counts(), writer.acknowledged)
                writer = Writer(url, folder, commits, seed + number)
        assert writer.wait() == 0, writer.errors
        assert check_counts(counts(), writer.acknowledged) == commits - 1


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--store", choices=["sqlite", "postgres"], default="sqlite")
    parser.add_argument("--commits", type=int, default=10000, help="numbers; 1 to 4 in a commit")
    parser.add_argument("--kills", type=int, default=100)
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()
    begin = time.monotonic()
    check = check_sqlite if args.store == "sqlite" else check_postgres
    check(args.commits, args.kills, args.seed)
    print(f"ok: {args.commits} numbers on {args.store}, {args.kills} kills, all there, each once, "
          f"{time.monotonic() - begin:.0f} s")
