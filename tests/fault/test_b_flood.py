"""Row B7 of the fault table: one tenant queues more than a worker does in a long time."""

import concurrent.futures

import pytest
from support.lathe_server import LatheServer, tiny_model
from support.metrics_page import MetricsPages
from support.raw_api import RawModel, datum
from support.stubborn_api import StubbornApi

# As many small steps as the table asks for would take a test's time to submit; tokens count.
MODELS, REQUESTS, DATUMS, TOKENS = 4, 400, 100, 3
FLOOD = MODELS * REQUESTS * DATUMS * TOKENS
BATCH_TOKENS = 16384  # services/engine/core/core_options.h


@pytest.fixture(scope="module")
def server():
    with LatheServer(tiny_model(), args=["--metrics-listen", "127.0.0.1:0"]) as running:
        yield running


def test_b7_a_step_of_another_tenant_does_not_wait_for_a_flood(server):
    pages = MetricsPages(server)
    flooding = [StubbornApi(server, server.create_key("flood")) for _ in range(MODELS)]
    models = [RawModel(api, seed=number) for number, api in enumerate(flooding)]
    other = RawModel(StubbornApi(server, server.create_key("other")), seed=9)
    other.accumulate()
    other.grad_norm()

    def trained():
        return pages.value("worker", "lathe_worker_train_tokens_total")

    def flood(model):
        body = model.body(data=[datum()] * DATUMS)
        futures = []
        for _ in range(REQUESTS):
            futures.append(model.api.made("forward_backward", body))
            body["seq_id"] = model.next_seq_id()
        return futures

    begin = trained()
    with concurrent.futures.ThreadPoolExecutor(MODELS) as pool:
        futures = list(pool.map(flood, models))
    waits = []
    for _ in range(3):
        before = trained()
        other.accumulate()
        other.grad_norm()
        waits.append(trained() - before)
    assert trained() - begin < FLOOD, "the flood was over before the step: it proves nothing"
    # A worker has a batch that runs and one that is ready; a third may begin around the step.
    assert min(waits) <= 3 * BATCH_TOKENS, waits
    assert all(wait <= 6 * BATCH_TOKENS for wait in waits), waits
    for api, mine in zip(flooding, futures):
        for future in mine:
            assert "error" not in api.result(future)
    assert trained() - begin >= FLOOD
