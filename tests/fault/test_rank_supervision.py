"""Rows B6, D3 and D8 of the fault table for two ranks under one parent, `lathe up`: one is stopped, both
die of their work or whenever they start."""

import concurrent.futures
import os
import signal
import time

import pytest
from support.metrics_page import MetricsPages
from support.stubborn_api import Program, StubbornApi

ARGUMENTS = ["--tp", "2", "--threads", "1"]
NAMES = ("worker0", "worker1")
# Requests with so many datums kill their worker.
POISON = 13


@pytest.fixture
def program(server):
    api = StubbornApi(server, patience=120)
    yield Program(api)
    api.close()


def group(server):
    return server.status()["groups"][0]


def wait_for_state(server, state, timeout=90):
    deadline = time.monotonic() + timeout
    while (seen := group(server))["state"] != state:
        assert time.monotonic() < deadline, f"{seen}, expected {state}"
        time.sleep(0.1)
    return seen


def restarts(server, reason):
    return MetricsPages(server).value("engine", "lathe_engine_worker_restarts_total", reason=reason)


@pytest.mark.parametrize("name", NAMES)
def test_d3_a_stopped_rank_is_killed_by_its_parent_and_its_peer_comes_back_with_it(
        server, program, name):
    program.step()
    old, epoch = server.pids(), int(group(server)["epoch"])
    silent = restarts(server, "silent")
    os.kill(old[name], signal.SIGSTOP)
    program.step()
    assert not {server.pids()[each] for each in NAMES} & {old[each] for each in NAMES}
    assert f"{name}  is killed for the engine: " in server.output()
    assert int(group(server)["epoch"]) == epoch + 1
    assert restarts(server, "silent") == silent + 1
    program.check()


def test_d8_ranks_in_a_crash_loop_are_one_death_each_time_and_heal(server, fail_points, program):
    program.step()
    fail_points.set("worker.load.base=segv")
    server.kill("worker1")
    future = program.forward_backward((20, 31, 32))
    reason = wait_for_state(server, "degraded")["reason"]
    assert "worker died 5 times in 10 minutes, last: rank " in reason
    assert "signal 11" in reason
    fail_points.clear()
    assert "error" not in program.api.result(future)
    wait_for_state(server, "ready")


def test_b6_a_request_that_crashes_its_ranks_fails_alone(server, fail_points, program):
    api = program.api
    poisoned = Program(api)
    for one in (program, poisoned):
        one.step()
    passes = fail_points.fired("worker.train.pass")
    fail_points.set("worker.train.pass=sleep:700@1", f"worker.train.begin=segv?{POISON}")
    with concurrent.futures.ThreadPoolExecutor(1) as pool:
        calm = pool.submit(program.step)
        fail_points.wait_fired("worker.train.pass", more_than=passes)
        bad = poisoned.forward_backward((50, 51, 52), POISON)
        error = api.result(bad)
        calm.result()
    assert "died 2 times while it ran this request alone" in error.get("error", ""), error
    assert "signal 11" in error["error"]
    fail_points.clear()
    program.step()
    program.check()
