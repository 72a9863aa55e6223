"""Rows B6, D3, D8, D10, D12, D14 of the fault table: workers that die of their work, again and
again, hang, come with other files or another protocol."""

import concurrent.futures
import os
import pathlib
import re
import shutil
import signal
import sys
import time

import grpc
import pytest
from support.fail_points import FailPoints
from support.lathe_server import ROOT, LatheServer, tiny_model
from support.metrics_page import MetricsPages
from support.stubborn_api import Program, StubbornApi

OPTIONS = "engine:\n  worker_stuck_after: 8s\nworker:\n  numerics: exact\n"
# Requests with so many datums kill their worker.
POISON = 13


@pytest.fixture(scope="module")
def api(server):
    yield (made := StubbornApi(server))
    made.close()


def group(server):
    return server.status()["groups"][0]


def wait_for_state(server, state, reason="", timeout=90):
    """`reason`: what it says too, once the worker itself has come to say why."""
    deadline = time.monotonic() + timeout
    while (seen := group(server))["state"] != state or reason not in seen.get("reason", ""):
        assert time.monotonic() < deadline, f"{seen}, expected {state} {reason}"
        time.sleep(0.1)
    return seen


def poll(api, future):
    return api.post("retrieve_future", {"request_id": future["request_id"],
                                        "allow_metadata_only": False}).json()


def test_b6_request_that_crashes_its_worker_fails_alone(server, fail_points, api):
    other_api = StubbornApi(server, server.create_key("other"))
    program, other, poisoned = Program(api), Program(other_api), Program(api)
    for one in (program, other, poisoned):
        one.step()
    pages = MetricsPages(server)
    crashes = pages.value("engine", "lathe_engine_worker_restarts_total", reason="crashed")
    fired = fail_points.fired("worker.train.begin")
    passes = fail_points.fired("worker.train.pass")
    fail_points.set("worker.train.pass=sleep:700@1", f"worker.train.begin=segv?{POISON}")
    with concurrent.futures.ThreadPoolExecutor(3) as pool:
        calm = pool.submit(program.step)
        fail_points.wait_fired("worker.train.pass", more_than=passes)
        # These come while a pass runs, so they begin together.
        bad = poisoned.forward_backward((50, 51, 52), POISON)
        step = poisoned.optim_step()
        also_calm = pool.submit(other.step)
        error = api.result(bad)
        refused = api.result(step)
        calm.result()
        also_calm.result()
    assert "error" in error, error
    assert "died 2 times while it ran this request alone (signal 11)" in error["error"]
    assert error["category"] == "server"
    assert "incomplete" in refused["error"]
    # Once beside others, twice alone.
    assert fail_points.fired("worker.train.begin") - fired == 3
    assert pages.value("engine", "lathe_engine_worker_restarts_total",
                       reason="crashed") - crashes == 3
    fail_points.clear()
    for one in (program, other, poisoned):
        one.step()
        one.check()
    other_api.close()


def test_d3_worker_that_is_stopped_is_killed_and_its_work_goes_on(server, api):
    program = Program(api)
    program.step()
    old = server.pids()["worker"]
    os.kill(old, signal.SIGSTOP)
    program.step()
    # The next worker may work before its pid is in the file.
    server.wait_restarted("worker", old)
    assert "is killed for the engine: silent for" in server.output()
    program.check()


def test_d8_crash_loop_degrades_the_group_and_heals(server, fail_points, api):
    program = Program(api)
    program.step()
    pages = MetricsPages(server)
    fail_points.set("worker.load.base=segv")
    server.kill("worker")
    future = program.forward_backward((20, 31, 32))
    reason = wait_for_state(server, "degraded")["reason"]
    assert "times in 10 minutes, last: signal 11" in reason
    ready = pages.get("engine", "/readyz")
    assert ready.status_code == 503 and "degraded" in ready.text
    waiting = poll(api, future)
    assert waiting["type"] == "try_again"
    assert waiting["queue_state"] == "paused_capacity"
    assert "in 10 minutes" in waiting["queue_state_reason"]
    fail_points.clear()
    assert "error" not in api.result(future)
    wait_for_state(server, "ready")
    assert pages.get("engine", "/readyz").status_code == 200


def test_d14_slow_worker_lives_and_a_stuck_one_is_killed(server, fail_points, api):
    program = Program(api)
    program.step()
    slow = server.pids()["worker"]
    fail_points.set("worker.train.pass=sleep:3000")
    for _ in range(3):
        program.step()
    assert server.pids()["worker"] == slow
    fail_points.set(f"worker.train.pass=sleep:3600000#{slow}")
    program.step()
    server.wait_restarted("worker", slow)
    assert "is killed for the engine: no progress for" in server.output()
    fail_points.clear()
    program.check()


def test_d12_worker_of_another_protocol_is_refused_and_the_group_goes_on(server, api, tmp_path):
    program = Program(api)
    program.step()
    sys.path[:0] = [str(ROOT / "examples" / "grpc_python"), str(tmp_path)]
    try:
        from make_stubs import make_stubs
        make_stubs(tmp_path)
        from protos.lathe.v1 import worker_pb2, worker_pb2_grpc
    finally:
        del sys.path[:2]
    run = pathlib.Path(server.data_dir, "run")
    hello = worker_pb2.Hello(group=group(server)["group"], rank=0, world=1, process_id="foreign",
                             lathe_version="9.0.0", protocol=1000, oldest_protocol=999,
                             base_model=server.model_name,
                             secret=(run / "secret").read_text().strip())
    with grpc.insecure_channel(f"unix:{run}/worker.sock") as channel:
        stream = worker_pb2_grpc.WorkerPoolStub(channel).Attach(
            iter([worker_pb2.WorkerMessage(hello=hello)]), timeout=30)
        with pytest.raises(grpc.RpcError) as refused:
            list(stream)
    assert refused.value.code() == grpc.StatusCode.FAILED_PRECONDITION
    assert re.fullmatch(r"protocol \d+ of the engine \(version .*\) is outside 999\.\.1000 of the "
                        r"worker \(version 9\.0\.0\): upgrade the engine", refused.value.details())
    program.step()
    program.check()


def test_d10_other_files_of_the_base_model_are_refused_until_the_right_ones_are_back(tmp_path):
    model = tmp_path / "model"
    shutil.copytree(tiny_model(), model)
    weights = next(model.glob("*.safetensors"))
    right = weights.read_bytes()

    def replace(content):
        fresh = weights.with_suffix(".new")
        fresh.write_bytes(content)
        os.replace(fresh, weights)

    points = FailPoints(tmp_path / "points")
    config = tmp_path / "lathe.yaml"
    config.write_text(OPTIONS)
    with LatheServer(str(model), env=points.env, args=["--config", str(config)]) as server:
        api = StubbornApi(server)
        program = Program(api)
        program.step()

        replace(right[:-16] + bytes(16))
        server.kill("worker")
        reason = wait_for_state(server, "refused")["reason"]
        assert reason.count("content hash") == 1 and "were made with" in reason
        future = program.forward_backward((20, 31, 32))
        assert poll(api, future)["queue_state"] == "paused_capacity"

        replace(right[:len(right) // 2])
        server.kill("worker")
        reason = wait_for_state(server, "degraded", "base model cannot be loaded")["reason"]
        assert weights.name in reason

        replace(right)
        assert "error" not in api.result(future)
        assert "error" not in api.result(program.optim_step())
        other = Program(api)
        other.step()
        other.step()
        other.check()
        api.close()
