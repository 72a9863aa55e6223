#!/usr/bin/env python3
"""A Postgres server of a test's own: a cluster in a temporary directory, reached by a unix socket
there, without TCP, with fsync on.

    with PostgresCluster() as cluster:
        cluster.create_database("lathe"); cluster.url("lathe")

    postgres_cluster.py run -- COMMAND...   runs COMMAND with the server's URL in LATHE_TEST_POSTGRES

Postgres refuses to run as root; then the server runs as `postgres` or `nobody`.
"""

import contextlib
import os
import pathlib
import pwd
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import types

USER = "lathe"


def find_program(name):
    for folder in sorted(pathlib.Path("/usr/lib/postgresql").glob("*/bin"), reverse=True):
        if (folder / name).exists():
            return str(folder / name)
    found = shutil.which(name)
    if found is None:
        raise RuntimeError(f"{name} is not installed: run tools/setup")
    return found


def unprivileged_user():
    """None: the server may run as who we are."""
    if os.geteuid() != 0:
        return None
    for name in ("postgres", "nobody"):
        try:
            return pwd.getpwnam(name)
        except KeyError:
            continue
    raise RuntimeError("neither user postgres nor nobody exists, and Postgres refuses to run as root")


class PostgresCluster:
    """`settings`: lines of postgresql.conf, as a dict. `address`: where it listens besides, for
    everybody who comes there."""

    def __init__(self, settings=None, address=None):
        self.address = address
        self.dir = pathlib.Path(tempfile.mkdtemp(prefix="lathe-pg-"))
        self.data = self.dir / "data"
        self.user = unprivileged_user()
        self.process = None
        if self.user:
            os.chown(self.dir, self.user.pw_uid, self.user.pw_gid)
        self._run("initdb", "--pgdata", self.data, "--username", USER, "--auth", "trust",
                  "--encoding", "UTF8", "--locale", "C", "--no-instructions",
                  "--no-sync")
        lines = {
            "listen_addresses": f"'{address or ''}'",
            "unix_socket_directories": f"'{self.dir}'",
            "shared_buffers": "32MB",
            "fsync": "on",
            "log_min_messages": "warning",
            # After a crash, sync with one call instead of one call per file.
            "recovery_init_sync_method": "syncfs",
            **(settings or {}),
        }
        with open(self.data / "postgresql.conf", "a", encoding="utf-8") as file:
            file.writelines(f"{name} = {value}\n" for name, value in lines.items())
        if address:
            with open(self.data / "pg_hba.conf", "a", encoding="utf-8") as file:
                file.write("host all all all trust\n")

    def __enter__(self):
        self.start()
        return self

    def __exit__(self, *_):
        self.stop()
        shutil.rmtree(self.dir, ignore_errors=True)

    def _as_user(self):
        if not self.user:
            return {}
        return {"user": self.user.pw_uid, "group": self.user.pw_gid, "extra_groups": []}

    def _run(self, program, *arguments):
        subprocess.run([find_program(program), *map(str, arguments)], check=True, cwd=self.dir,
                       stdout=subprocess.DEVNULL, **self._as_user())

    @property
    def log(self):
        return (self.dir / "log").read_text(errors="replace")

    def url(self, database):
        return f"postgres:///{database}?host={self.dir}&user={USER}"

    def tcp_url(self, database):
        return f"postgres://{USER}@{self.address}/{database}"

    def start(self, timeout=30):
        """Returns when the server takes connections."""
        with open(self.dir / "log", "ab") as log:
            self.process = subprocess.Popen([find_program("postgres"), "-D", str(self.data)],
                                            cwd=self.dir, stdout=log, stderr=log,
                                            **self._as_user())
        deadline = time.monotonic() + timeout
        ready = [find_program("pg_isready"), "-q", "-h", str(self.dir), "-U", USER, "-d", "postgres"]
        while subprocess.run(ready, check=False).returncode != 0:
            if self.process.poll() is not None or time.monotonic() > deadline:
                raise RuntimeError(f"postgres did not start:\n{self.log}")
            time.sleep(0.02)

    def stop(self, how=signal.SIGQUIT, timeout=30):
        """SIGQUIT is an immediate stop: the next start recovers from the log, as after a crash."""
        if self.process is None:
            return
        self.process.send_signal(how)
        self.process.wait(timeout)
        self.process = None

    def kill(self, timeout=30):
        """`kill -9` of the postmaster; returns when its children, which notice, have ended too."""
        self.stop(signal.SIGKILL)
        deadline = time.monotonic() + timeout
        while self.pids():
            if time.monotonic() > deadline:
                raise RuntimeError("children of a killed postmaster do not end")
            time.sleep(0.01)

    def pids(self):
        """Of all processes that run in the data directory: all of a server's do."""
        found = []
        for folder in pathlib.Path("/proc").glob("[0-9]*"):
            try:
                if os.readlink(folder / "cwd") == str(self.data):
                    found.append(int(folder.name))
            except OSError:  # ended meanwhile
                continue
        return found

    def psql(self, database, sql):
        """What `sql` answers, as text."""
        answer = subprocess.run(
            [find_program("psql"), "-X", "-A", "-t", "-v", "ON_ERROR_STOP=1", "-c", sql,
             self.url(database)], check=True, capture_output=True, text=True)
        return answer.stdout.strip()

    @contextlib.contextmanager
    def session(self, database):
        """A session whose run() may leave a transaction open."""
        process = subprocess.Popen([find_program("psql"), "-X", "-q", "-A", "-t", self.url(database)],
                                   stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

        def run(sql):
            process.stdin.write(f"{sql};\n\\echo done\n")
            process.stdin.flush()
            while (line := process.stdout.readline()) != "done\n":
                if not line:
                    raise RuntimeError("psql ended")

        try:
            yield types.SimpleNamespace(run=run)
        finally:
            process.stdin.close()
            process.wait(30)

    def create_database(self, name):
        self.psql("postgres", f"CREATE DATABASE {name}")
        return self.url(name)


def main():
    if sys.argv[1:3] != ["run", "--"] or len(sys.argv) < 4:
        sys.exit(__doc__)
    with PostgresCluster() as cluster:
        environment = {**os.environ, "LATHE_TEST_POSTGRES": cluster.url("postgres")}
        sys.exit(subprocess.run(sys.argv[3:], env=environment, check=False).returncode)


if __name__ == "__main__":
    main()
