"""Rows C12 and C13 of the fault table: engines that migrate at once, rows of other versions."""

import contextlib
import os
import re
import sqlite3
import subprocess
import time

import pytest
from support.fail_points import SCHEMA_VERSION, FailPoints
from support.lathe_server import BIN
from support.postgres_cluster import PostgresCluster

EXIT_CONFIGURATION = 78
KILLED = -9


@pytest.fixture(scope="module")
def cluster():
    with PostgresCluster() as running:
        yield running


@contextlib.contextmanager
def engine(data_dir, store=None, env=None):
    """A lathe-engine alone; (process, path of its log)."""
    log = data_dir.with_suffix(".log")
    arguments = [str(BIN / "lathe-engine"), "--data-dir", str(data_dir)]
    with open(log, "wb") as output, subprocess.Popen(
            arguments + (["--store", store] if store else []), stdout=output, stderr=output,
            env={**os.environ, **(env or {})}) as process:
        try:
            yield process, log
        finally:
            process.kill()


def wait_for(condition, what, timeout=60):
    deadline = time.monotonic() + timeout
    while not condition():
        assert time.monotonic() < deadline, what()
        time.sleep(0.02)


def migrations(logs):
    return [line for log in logs for line in log.read_text().splitlines()
            if "database migrated" in line]


def test_c12_of_three_engines_that_migrate_at_once_one_is_killed_midway(tmp_path, cluster):
    url = cluster.create_database("together")
    points = FailPoints(tmp_path / "points")
    # Whoever comes first is killed with more than half done; what is left is less, so nobody else.
    points.set("engine.migration.step=sleep:10000@1",
               f"engine.migration.step=kill@{SCHEMA_VERSION // 2 + 1}")

    def num_waiting():
        return int(cluster.psql("together", "SELECT count(*) FROM pg_locks "
                                            "WHERE locktype = 'advisory' AND NOT granted"))

    def version():
        return cluster.psql("together", "SELECT version FROM schema_version")

    with contextlib.ExitStack() as stack:
        started = [stack.enter_context(engine(tmp_path / f"data{number}", url, points.env))
                   for number in range(3)]
        logs = [log for _, log in started]

        def texts():
            return "\n".join(log.read_text() for log in logs)

        wait_for(lambda: num_waiting() == 2, texts)
        wait_for(lambda: version() == "1", texts)
        assert num_waiting() == 2, "they do not wait for the one that migrates"
        wait_for(lambda: [process.poll() for process, _ in started].count(KILLED) == 1, texts)
        wait_for(lambda: len(migrations(logs)) == 1, texts)
        points.clear()
        assert f'"from_version":{SCHEMA_VERSION // 2 + 1},' in migrations(logs)[0]
        assert version() == str(SCHEMA_VERSION)
        wait_for(lambda: re.search(r"\bserving\b", texts()), texts)
        # The one that was killed comes back as to any other database.
        with engine(tmp_path / "again", url) as (again, log):
            wait_for(lambda: re.search(r"serving|standby", log.read_text()), log.read_text)
            assert again.poll() is None
    assert len(migrations([*logs, log])) == 1


@pytest.mark.parametrize("store", ["sqlite", "postgres"])
def test_c13_a_newer_schema_serves_until_a_contract_step_needs_newer_engines(tmp_path, cluster, store):
    url = cluster.create_database("newer") if store == "postgres" else None
    data_dir = tmp_path / "data"

    def change(sql):
        if url:
            cluster.psql("newer", sql)
            return
        with contextlib.closing(sqlite3.connect(data_dir / "lathe.db")) as database:
            database.execute(sql)
            database.commit()

    def serve():
        with engine(data_dir, url) as (process, log):
            wait_for(lambda: "serving" in log.read_text(), log.read_text)
            process.terminate()
            assert process.wait(60) == 0

    serve()
    # The next release adds a column; this one is started again after it.
    change("ALTER TABLE sessions ADD COLUMN color TEXT NOT NULL DEFAULT ''")
    change(f"UPDATE schema_version SET version = {SCHEMA_VERSION + 1}")
    serve()
    change("UPDATE schema_version SET min_protocol = 1000")
    with engine(data_dir, url) as (process, log):
        assert process.wait(60) == EXIT_CONFIGURATION, log.read_text()
        assert re.search(rf"version {SCHEMA_VERSION + 1}\b.*needs protocol 1000\b"
                         rf".*version {SCHEMA_VERSION}\b.*start the newer", log.read_text())


def test_c13_a_plan_from_before_messages_is_refused_with_its_format(tmp_path):
    data_dir = tmp_path / "data"
    with engine(data_dir) as (process, log):
        wait_for(lambda: "serving" in log.read_text(), log.read_text)
        process.terminate()
        assert process.wait(60) == 0
    with contextlib.closing(sqlite3.connect(data_dir / "lathe.db")) as database:
        columns = {row[1]: 1 if row[2] == "INTEGER" else "x"
                   for row in database.execute("PRAGMA table_info(requests)")}
        columns.update(plan=b"\x03\x01", done_at=0)
        database.execute(f"INSERT INTO requests ({', '.join(columns)}) "
                         f"VALUES ({', '.join('?' * len(columns))})", list(columns.values()))
        database.commit()
    with engine(data_dir) as (process, log):
        assert process.wait(60) == EXIT_CONFIGURATION, log.read_text()
        assert "has format 3 of an engine before" in log.read_text()
