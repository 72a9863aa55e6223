"""Samples that nobody awaits any more: cancel_future, and what the SDK makes of a cancelled await."""

import asyncio

import pytest
import tinker
from tinker import types

from support.lathe_server import LatheServer, tiny_model
from support.metrics_page import MetricsPages
from support.raw_api import RawApi
from support.waiting import wait_until

PROMPT = [30, 31, 32, 33]
LONG = 2000  # tokens: far from done when it is cancelled
COPIES = 256


@pytest.fixture(scope="module")
def lathe():
    with LatheServer(tiny_model(), args=["--metrics-listen", "127.0.0.1:0"]) as server:
        yield server


@pytest.fixture
def api(lathe):
    api = RawApi(lathe)
    yield api
    api.close()


def new_sampler(api, lathe):
    return api.made("create_sampling_session", {
        "session_id": api.new_session(), "sampling_session_seq_id": 0,
        "base_model": lathe.model_name})["sampling_session_id"]


def sample(sampler, seq_id, **changes):
    return {"sampling_session_id": sampler, "seq_id": seq_id, "num_samples": COPIES,
            "prompt": {"chunks": [{"type": "encoded_text", "tokens": PROMPT}]},
            "sampling_params": {"max_tokens": LONG, "seed": 1, "stop": [], "temperature": 1.0,
                                "top_k": -1, "top_p": 1.0}, **changes}


def test_a_cancelled_sample_fails_and_makes_room(lathe, api):
    pages = MetricsPages(lathe)
    running = lambda: pages.value("engine", "lathe_engine_requests_running")
    sampler = new_sampler(api, lathe)
    future = api.made("asample", sample(sampler, 0))
    wait_until(lambda: running() == 1)
    assert api.made("cancel_future", {"request_id": future["request_id"]}) == {}
    result = api.result(future)
    assert "cancelled" in result["error"] and result["category"] == "user"
    wait_until(lambda: running() == 0)
    # The same request again is the same, and is not computed again.
    again = api.made("asample", sample(sampler, 0))
    assert again["request_id"] == future["request_id"] and api.result(again) == result
    # Its neighbours go on.
    assert "sequences" in api.result(api.made("asample", sample(
        sampler, 1, num_samples=1, sampling_params={"max_tokens": 4, "temperature": 0})))


def test_unknown_complete_and_foreign_ids_are_answered_alike(lathe, api):
    done = api.made("asample", sample(new_sampler(api, lathe), 0, num_samples=1,
                                      sampling_params={"max_tokens": 4, "seed": 1, "stop": []}))
    result = api.result(done)
    stranger = RawApi(lathe, lathe.create_key("stranger"))
    foreign = stranger.made("asample", sample(new_sampler(stranger, lathe), 0, num_samples=1,
                                              sampling_params={"max_tokens": 500, "stop": []}))
    for request_id in ("req-unknown", done["request_id"], foreign["request_id"]):
        assert api.made("cancel_future", {"request_id": request_id}) == {}
    assert api.result(done) == result
    assert len(stranger.result(foreign)["sequences"][0]["tokens"]) == 500
    assert api.post("cancel_future", {}).status_code == 400
    stranger.close()


def sdk_cancels():
    from tinker.types import client_dynamic_config_response
    return "sample_cancel_enabled" in open(client_dynamic_config_response.__file__).read()


@pytest.mark.each_sdk
@pytest.mark.skipif(not sdk_cancels(), reason="this SDK does not know cancel_future")
def test_the_sdk_cancels_samples_that_are_no_longer_awaited(lathe):
    pages = MetricsPages(lathe)
    service = tinker.ServiceClient(base_url=lathe.url, api_key=lathe.api_key)
    sampler = service.create_sampling_client(base_model=lathe.model_name)
    cancelled = lambda: pages.value("engine", "lathe_engine_requests_total", operation="sample",
                                    outcome="cancelled")
    before = cancelled()

    async def give_up():
        with pytest.raises(asyncio.TimeoutError):
            await asyncio.wait_for(sampler.sample_async(
                types.ModelInput.from_ints(PROMPT), num_samples=COPIES,
                sampling_params=types.SamplingParams(max_tokens=LONG, stop=[])), timeout=2)

    asyncio.run(give_up())
    wait_until(lambda: cancelled() == before + 1)
