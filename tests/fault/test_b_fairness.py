"""Row B7 of the fault table: one tenant floods."""

import contextlib
import os
import signal

import pytest
from support.raw_api import RawModel, datum
from support.stubborn_api import Program, StubbornApi

NUM_FLOOD = 40
# A batch has 16,384 tokens: two of these requests, so the flood is twenty of them.
DATA = [datum([20 + i % 400 for i in range(800)])] * 10


@pytest.fixture
def apis(server):
    made = [StubbornApi(server), StubbornApi(server, server.create_key("other"))]
    yield made
    for api in made:
        api.close()


@contextlib.contextmanager
def standing_still(server):
    """The worker does nothing meanwhile; for less than the 12 s after which it counts as dead."""
    worker = server.pids()["worker"]
    os.kill(worker, signal.SIGSTOP)
    try:
        yield
    finally:
        os.kill(worker, signal.SIGCONT)


def pending(server):
    return int(server.status().get("pending_requests", 0))


def test_b7_a_flood_of_one_tenant_does_not_hold_up_another(server, fail_points, apis):
    flood, other = apis
    program = Program(other)
    program.step()
    model = RawModel(flood)
    fail_points.set("worker.train.pass=sleep:200")
    with standing_still(server):
        for _ in range(NUM_FLOOD):
            flood.made("forward_backward", model.body(data=DATA))
        assert pending(server) == NUM_FLOOD
    program.step()
    with standing_still(server):
        left = pending(server)
    # In turn with the flood, not behind it: two batches of it were at the worker already.
    assert left > NUM_FLOOD / 2, f"{NUM_FLOOD} requests were waiting, {left} are left"
    fail_points.clear()
    program.step()
    program.check()
