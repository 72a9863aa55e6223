"""Rows B1, B2, B5 of the fault table: the engine dies or hangs, anywhere."""

import os
import re
import time

import kill_loop
import pytest
from support.fail_points import SCHEMA_VERSION, FailPoints, listed
from support.lathe_server import LatheServer, tiny_model
from support.metrics_page import MetricsPages
from support.stubborn_api import Program, StubbornApi

# Longer runs: LATHE_FAULT_ROUNDS=20 kills that often at each point.
ROUNDS = int(os.environ.get("LATHE_FAULT_ROUNDS", "1"))
# Above 64 KiB, so that the body has a file of its own.
LARGE = 1200
# Passed while the engine starts, not while it works.
AT_START = ["engine.start.locked", "engine.start.loaded", "engine.migration.step"]
# Those around snapshots and recoveries are test_b_snapshots.py's.
AT_WORK = [name for name in listed("engine.") if name not in AT_START
           and name.split(".")[1] not in ("snapshot", "version", "recovery")]
OPTIONS = "engine:\n  stuck_after: 3s\nworker:\n  numerics: exact\n"


@pytest.fixture(scope="module")
def api(server):
    yield (made := StubbornApi(server))
    made.close()


@pytest.fixture(scope="module")
def program(api):
    """Its steps run through all tests here; the last one compares it with a calm one."""
    return Program(api)


def step_until_fired(fail_points, program, name, rule):
    """Steps until the rule has fired; with a body large enough for its own file where needed."""
    before = fail_points.fired(name)
    fail_points.set(rule)
    deadline = time.monotonic() + 60
    while fail_points.fired(name) == before:
        assert time.monotonic() < deadline, f"{name} was not passed"
        program.step(LARGE if "body" in name else 1)


@pytest.mark.parametrize("name", AT_WORK * ROUNDS)
def test_b1_engine_killed_at_a_fail_point_loses_and_doubles_nothing(
        server, fail_points, program, name):
    old = server.pids()["engine"]
    worker = server.pids()["worker"]
    step_until_fired(fail_points, program, name, f"{name}=kill#{old}")
    server.wait_restarted("engine", old)
    program.step()
    assert server.pids()["worker"] == worker, "the living worker was not adopted"


@pytest.mark.parametrize("name", ["engine.start.locked", "engine.start.loaded"])
def test_b1_engine_killed_again_and_again_while_it_starts(server, fail_points, program, name):
    before = fail_points.fired(name)
    fail_points.set(f"{name}=kill")
    old = server.kill("engine")
    fail_points.wait_fired(name, more_than=before + 1)
    fail_points.clear()
    server.wait_restarted("engine", old)
    program.step()


def test_b1_engine_killed_between_migrations(tmp_path):
    points = FailPoints(tmp_path / "points")
    # Two deaths at any number of migrations; a third would make `lathe up` give up.
    env = {**points.env, "LATHE_FAIL_POINTS": f"engine.migration.step=kill@{SCHEMA_VERSION // 3 + 1}"}
    with LatheServer(tiny_model(), env=env) as started:
        assert points.fired("engine.migration.step") >= 2
        api = StubbornApi(started)
        Program(api).step()
        api.close()


@pytest.mark.parametrize("name", ["engine.result.received", "engine.result.before_commit",
                                  "engine.commit.before", "engine.commit.applied",
                                  "engine.commit.after", "engine.ack.before"])
def test_b2_engine_dies_between_answer_and_commit_and_the_work_is_not_run_again(
        server, fail_points, program, name):
    pages = MetricsPages(server)
    program.step()
    tokens = pages.value("worker", "lathe_worker_train_tokens_total")
    updates = pages.value("worker", "lathe_worker_optim_steps_total")
    num_steps = len(program.sizes)
    old = server.pids()["engine"]
    step_until_fired(fail_points, program, name, f"{name}=kill#{old}")
    server.wait_restarted("engine", old)
    program.step()
    num_steps = len(program.sizes) - num_steps
    assert pages.value("worker", "lathe_worker_optim_steps_total") == updates + num_steps
    assert pages.value("worker", "lathe_worker_train_tokens_total") == tokens + 6 * num_steps


@pytest.mark.parametrize("name", ["engine.tick", "engine.commit.before"])
def test_b5_stuck_scheduler_is_dumped_and_restarted(server, fail_points, program, name):
    """Only the thread that decides counts: a slow store alone is not a reason to die."""
    old = server.pids()["engine"]
    log = os.path.join(server.data_dir, "logs", "engine.log")
    if name != "engine.tick":
        fail_points.set(f"{name}=sleep:5000@1#{old}")
        program.step()
        assert server.pids()["engine"] == old
        return
    fail_points.set(f"{name}=sleep:600000@1#{old}")
    server.wait_restarted("engine", old)
    program.step()
    with open(log) as file:
        text = file.read()
    assert re.search(r"the core has handled no event", text)
    assert re.search(r"thread \d+ engine-core\n(?:\S+\(.*\)\[0x[0-9a-f]+\]\n)+", text), text[-3000:]


def test_b1_the_steps_of_this_file_were_applied_once_and_in_order(program):
    """Last: of all that the tests above did to one model."""
    assert len(program.sizes) > len(AT_WORK)
    program.check()


def test_b1_engine_killed_at_random_instants():
    kill_loop.check("engine", kills=10 * ROUNDS, seed=1)
