"""Rows C3 and C5 of the fault table, and ends beside a database that is away, on processes."""

import contextlib
import re
import subprocess
import time

import httpx
import pytest
from support.lathe_server import LatheServer, tiny_model
from support.postgres_cluster import PostgresCluster, find_program
from support.raw_api import RawApi, RawModel, datum
from support.stubborn_api import Program, StubbornApi

ENV = {"LATHE_WORKER__NUMERICS": "exact"}
MAX_CONNECTIONS = 20


@pytest.fixture(scope="module")
def cluster():
    with PostgresCluster({"max_connections": str(MAX_CONNECTIONS),
                          "superuser_reserved_connections": "3"}) as running:
        # Engines must not have the connections that are kept for superusers.
        running.psql("postgres", "CREATE ROLE engine LOGIN PASSWORD 'hush' CREATEDB")
        yield running


@pytest.fixture(scope="module")
def store(cluster):
    cluster.psql("postgres", "CREATE DATABASE lathe OWNER engine")
    return f"postgres://engine:hush@/lathe?host={cluster.dir}"


@pytest.fixture(scope="module")
def server(store):
    with LatheServer(tiny_model(), store=store, env=ENV) as running:
        yield running


@pytest.fixture(scope="module")
def program(server):
    """Its steps run through all tests here; the last one compares it with a calm one."""
    api = StubbornApi(server)
    yield Program(api)
    api.close()


def refused(server, model):
    """What a submission is answered that cannot be kept; the same is then made to succeed."""
    api = RawApi(server)
    body = model.body(data=[datum((21, 31, 32))])
    # The database is away for much longer.
    answer = api.post("forward_backward", body, timeout=30)
    api.close()
    return answer, body


@pytest.mark.parametrize("table", ["requests", "payloads", "sessions, models, leader"])
def test_c3_a_table_locked_for_long_refuses_submissions_and_recovers_alone(
        server, cluster, program, table):
    program.step()
    model = RawModel(program.api)
    engine = server.pids()["engine"]
    with cluster.session("lathe") as locker:
        locker.run("BEGIN")
        locker.run(f"LOCK TABLE {table} IN ACCESS EXCLUSIVE MODE")
        answer, body = refused(server, model)
        assert answer.status_code == 503, answer.text
        assert int(answer.headers["Retry-After"]) > 0
        assert httpx.get(server.url + "/livez", timeout=30).status_code == 200
    again = program.api.made("forward_backward", body)
    assert "error" not in program.api.result(again)
    program.step()
    assert server.pids()["engine"] == engine


def test_c3_a_body_that_must_be_read_again_waits_for_the_lock(cluster, store, server, program):
    """The engine has forgotten what a worker needs: its own start, and a lock in the way."""
    program.step()
    model = RawModel(program.api)
    large = model.body(data=[datum(range(20, 80))] * 200)
    worker = server.pids()["worker"]
    future = program.api.made("forward_backward", large)
    old = server.kill("engine")
    server.kill("worker")
    server.wait_restarted("engine", old)
    engine = server.pids()["engine"]
    with cluster.session("lathe") as locker:
        locker.run("BEGIN")
        locker.run("LOCK TABLE payloads IN ACCESS EXCLUSIVE MODE")
        server.wait_restarted("worker", worker)
        time.sleep(8)  # of attempts
        assert httpx.get(server.url + "/livez", timeout=30).status_code == 200
    assert "error" not in program.api.result(future)
    assert server.pids()["engine"] == engine


def test_c5_no_free_connection_refuses_at_once_and_recovers_alone(server, cluster, program):
    program.step()
    model = RawModel(program.api)
    engine = server.pids()["engine"]
    with contextlib.ExitStack() as idle:
        deadline = time.monotonic() + 60
        while cluster.psql("postgres", "SELECT count(*) FROM pg_stat_activity WHERE usename = "
                           "'idler'") != str(MAX_CONNECTIONS - 3):
            assert time.monotonic() < deadline, "connections are not used up"
            take_all_connections(cluster, idle)
        answer, body = refused(server, model)
        assert answer.status_code == 503, answer.text
        assert int(answer.headers["Retry-After"]) > 0
    again = program.api.made("forward_backward", body)
    assert "error" not in program.api.result(again)
    program.step()
    assert server.pids()["engine"] == engine


def take_all_connections(cluster, idle):
    """The engine's own are ended; `idle` sessions come first for each that is free."""
    cluster.psql("postgres", "DO $$ BEGIN CREATE ROLE idler LOGIN; "
                 "EXCEPTION WHEN duplicate_object THEN NULL; END $$")
    url = cluster.url("postgres").replace("user=lathe", "user=idler")
    for _ in range(MAX_CONNECTIONS):
        process = subprocess.Popen([find_program("psql"), "-X", "-q", url], stdin=subprocess.PIPE,
                                   stderr=subprocess.DEVNULL)
        idle.callback(process.wait, 30)
        idle.callback(process.stdin.close)
    cluster.psql("postgres", "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
                 "WHERE usename = 'engine'")


def test_c2_a_database_that_is_away_does_not_keep_an_engine_that_shall_end(cluster, tmp_path):
    cluster.psql("postgres", "CREATE DATABASE ending OWNER engine")
    server = LatheServer(tiny_model(), store=f"postgres://engine:hush@/ending?host={cluster.dir}",
                         data_dir=str(tmp_path / "data"), env=ENV, args=["--drain-timeout", "1s"])
    with server:
        stubborn = StubbornApi(server)
        program = Program(stubborn)
        program.step()
        model = RawModel(stubborn)
        with cluster.session("ending") as locker:
            locker.run("BEGIN")
            locker.run("LOCK TABLE requests IN ACCESS EXCLUSIVE MODE")
            refused(server, model)
            assert server.stop() == 0
            log = (tmp_path / "data" / "logs" / "engine.log").read_text()
            assert "stopped" in log.splitlines()[-1], log[-2000:]
        server.start()
        program.step()
        stubborn.close()


def test_c_no_command_line_of_an_engine_shows_the_password(server, store):
    commands = subprocess.run(["ps", "-eo", "args", "-ww"], check=True, capture_output=True,
                              text=True).stdout
    engines = re.findall(r".*lathe-engine.*" + re.escape(server.data_dir) + ".*", commands)
    assert engines and not any("hush" in line for line in engines)


def test_c_steps_beside_a_troubled_database_are_those_of_a_calm_run(program):
    """Last: of all that the tests above did to one model."""
    program.check()
