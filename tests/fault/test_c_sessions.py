"""Rows C10 and C11 of the fault table: what others do between an engine and its Postgres."""

import contextlib
import os
import re
import subprocess
import tempfile
import time

import pytest
from support.lathe_server import BIN, LatheServer, tiny_model
from support.metrics_page import MetricsPages
from support.postgres_cluster import PostgresCluster, find_program, unprivileged_user
from support.stubborn_api import Program, StubbornApi

ENV = {"LATHE_WORKER__NUMERICS": "exact"}
AGE = "lathe_engine_oldest_transaction_seconds"
WARNING = "a transaction stays open in the database"


@pytest.fixture(scope="module")
def cluster():
    with PostgresCluster() as running:
        yield running


def wait_until(is_so, what, timeout=60):
    deadline = time.monotonic() + timeout
    while not is_so():
        assert time.monotonic() < deadline, what
        time.sleep(0.2)


def test_c10_a_transaction_left_open_is_shown_and_steps_go_on(cluster, tmp_path):
    data_dir = tmp_path / "data"
    with LatheServer(tiny_model(), store=cluster.create_database("open"), env=ENV,
                     data_dir=str(data_dir), args=["--metrics-listen", "127.0.0.1:0"]) as server:
        pages = MetricsPages(server)
        api = StubbornApi(server)
        program = Program(api)

        def age():
            return pages.value("engine", AGE)

        def warnings():
            return re.findall(f".*{WARNING}.*", (data_dir / "logs" / "engine.log").read_text())

        program.step()
        with cluster.session("open") as idle:
            idle.run("BEGIN ISOLATION LEVEL REPEATABLE READ")
            idle.run("SELECT count(*) FROM requests")
            wait_until(lambda: age() > 10, "the age of the transaction is not shown")
            wait_until(lambda: warnings(), "no warning")
            assert "of psql (idle in transaction)" in warnings()[0]
            for _ in range(20):
                program.step()
        wait_until(lambda: age() < 10, "the age of a transaction that has ended is still shown")
        program.check()
        assert len(warnings()) == 1
        api.close()


@contextlib.contextmanager
def pgbouncer(cluster, mode):
    """URL of a database of that name, by a pooler in that mode."""
    cluster.create_database(mode)
    with tempfile.TemporaryDirectory(prefix="lathe-pool-") as folder:
        user = unprivileged_user()
        if user:
            os.chown(folder, user.pw_uid, user.pw_gid)
        config = os.path.join(folder, "pgbouncer.ini")
        with open(config, "w", encoding="utf-8") as file:
            file.write(f"[databases]\n* = user=lathe host={cluster.dir}\n[pgbouncer]\n"
                       f"pool_mode = {mode}\nunix_socket_dir = {folder}\nlisten_port = 6432\n"
                       "auth_type = any\n")
        process = subprocess.Popen(
            [find_program("pgbouncer"), "-q", config], stderr=subprocess.DEVNULL,
            **({"user": user.pw_uid, "group": user.pw_gid, "extra_groups": []} if user else {}))
        try:
            wait_until(lambda: os.path.exists(os.path.join(folder, ".s.PGSQL.6432")),
                       "pgbouncer did not start")
            yield f"postgres:///{mode}?host={folder}&port=6432&user=lathe"
        finally:
            process.terminate()
            process.wait(30)


@pytest.mark.parametrize("mode", ["transaction", "statement"])
def test_c11_a_pooler_that_shares_sessions_is_refused_by_name(cluster, tmp_path, mode):
    with pgbouncer(cluster, mode) as url:
        ended = subprocess.run([BIN / "lathe-engine", "--data-dir", tmp_path / "data", "--store", url],
                               capture_output=True, text=True, timeout=60, check=False)
    assert ended.returncode == 78
    assert "a pooler like PgBouncer in transaction or statement mode" in ended.stderr
    assert "pool_mode = session" in ended.stderr


def test_c11_a_pooler_in_session_mode_serves(cluster):
    with pgbouncer(cluster, "session") as url, LatheServer(tiny_model(), store=url, env=ENV) as server:
        api = StubbornApi(server)
        program = Program(api)
        for _ in range(3):
            program.step()
        program.check()
        api.close()
