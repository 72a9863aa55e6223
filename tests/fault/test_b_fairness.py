"""Row B7 of the fault table: one tenant floods."""

import pytest
from support.raw_api import RawModel, datum
from support.stubborn_api import Program, StubbornApi

NUM_FLOOD = 400
# A batch has 16,384 tokens: the flood is some twenty of them.
TOKENS = [20 + i % 400 for i in range(800)]


@pytest.fixture
def apis(server):
    made = [StubbornApi(server), StubbornApi(server, server.create_key("other"))]
    yield made
    for api in made:
        api.close()


def test_b7_a_flood_of_one_tenant_does_not_hold_up_another(server, told, apis):
    flood, other = apis
    program = Program(other)
    program.step()
    model = RawModel(flood)
    told.set("worker.train.pass=sleep:200")
    for _ in range(NUM_FLOOD):
        flood.made("forward_backward", model.body(data=[datum(TOKENS)]))
    before = int(server.status()["pending_requests"])
    assert before > NUM_FLOOD / 2, "the worker is too fast for this test"
    program.step()
    # In turn with the flood, not behind it: two batches of it were at the worker already.
    after = int(server.status()["pending_requests"])
    assert before - after < before / 2, f"{before} requests were waiting, {after} are left"
    told.clear()
    program.step()
    program.check()
