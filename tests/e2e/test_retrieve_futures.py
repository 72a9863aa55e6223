"""retrieve_futures: one poll that tells which samples of a client have ended."""

import concurrent.futures

import pytest
import tinker
from tinker import types

from support.lathe_server import LatheServer, tiny_model
from support.raw_api import RawApi
from support.sdk import resolved

PROMPT = [30, 31, 32, 33]
NO_CURSOR = 0


@pytest.fixture
def api(lathe):
    api = RawApi(lathe)
    yield api
    api.close()


def new_sampler(api):
    return api.made("create_sampling_session", {
        "session_id": api.new_session(), "sampling_session_seq_id": 0,
        "base_model": api.server.model_name})["sampling_session_id"]


def submit(api, sampler, seq_id, max_tokens=4, num_samples=1):
    return api.made("asample", {
        "sampling_session_id": sampler, "seq_id": seq_id, "num_samples": num_samples,
        "prompt": {"chunks": [{"type": "encoded_text", "tokens": PROMPT}]},
        "sampling_params": {"max_tokens": max_tokens, "seed": seq_id, "stop": [],
                            "temperature": 1.0, "top_k": -1, "top_p": 1.0}})["request_id"]


def poll(api, sampler, cursor=NO_CURSOR, clone=0, **fields):
    return api.made("retrieve_futures", {
        "target": {"type": "sampling_session", "sampling_session_id": sampler,
                   "cloned_sampler_id": clone}, "prev_cursor": cursor, **fields})


def await_all(api, sampler, expected, cursor=NO_CURSOR):
    """Polls until `expected` request ids were told; (completions by id, cursor)."""
    completed = {}
    while not expected <= completed.keys():
        answer = poll(api, sampler, cursor)
        assert answer["cursor"] > cursor or not answer["completions"]
        cursor = answer["cursor"]
        completed.update((one["request_id"], one) for one in answer["completions"])
    assert completed.keys() == expected
    return completed, cursor


def test_all_samples_are_reported_and_their_sizes_fit(api):
    sampler = new_sampler(api)
    requests = {submit(api, sampler, seq_id) for seq_id in range(20)}
    completed, cursor = await_all(api, sampler, requests)
    assert all(one["state"] == "finished" for one in completed.values())
    assert all(one["response_payload_uncompressed_size"] > 0 for one in completed.values())
    assert all("sequences" in api.result(one) for one in completed.values())
    assert poll(api, sampler, cursor, timeout=0.0) == {"completions": [], "cursor": cursor}


def test_a_lost_answer_is_repeated_and_an_acknowledged_one_is_not(api):
    sampler = new_sampler(api)
    first, second = submit(api, sampler, 0), submit(api, sampler, 1)
    # Each of these answers might be lost: none is acknowledged.
    while len((answer := poll(api, sampler))["completions"]) < 2:
        pass
    assert {one["request_id"] for one in answer["completions"]} == {first, second}
    assert poll(api, sampler) == answer
    poll(api, sampler, answer["cursor"], timeout=0, retrieved_request_ids=[first, second])
    assert poll(api, sampler, timeout=0)["completions"] == []


def test_a_poll_waits_for_the_next_sample(api):
    sampler = new_sampler(api)
    with concurrent.futures.ThreadPoolExecutor() as pool:
        waiting = pool.submit(poll, api, sampler)
        request = submit(RawApi(api.server), sampler, 0)
        assert [one["request_id"] for one in waiting.result()["completions"]] == [request]


def test_a_failed_sample_is_reported_as_failed(api):
    sampler = new_sampler(api)
    request = submit(api, sampler, 0, max_tokens=2000, num_samples=256)
    api.made("cancel_future", {"request_id": request})
    completed, _ = await_all(api, sampler, {request})
    assert completed[request] == {"state": "failed", "request_id": request}
    assert "cancelled" in api.result({"request_id": request})["error"]


def test_each_copy_of_a_client_has_its_own(api):
    sampler = new_sampler(api)
    original, copy = submit(api, sampler, 0), submit(api, sampler, 3_000_000_001)
    assert [one["request_id"] for one in poll(api, sampler)["completions"]] == [original]
    assert [one["request_id"] for one in poll(api, sampler, clone=3)["completions"]] == [copy]


def test_unknown_or_foreign_samples_report_nothing(lathe, api):
    sampler = new_sampler(api)
    await_all(api, sampler, {submit(api, sampler, 0)})
    stranger = RawApi(lathe, lathe.create_key("other"))
    for name in (sampler, "unknown:sample:0"):
        assert poll(stranger, name, 5, timeout=0) == {"completions": [], "cursor": 5}
    stranger.close()


@pytest.mark.parametrize("body, named", [
    ({}, "/target/sampling_session_id"),
    ({"target": {"type": "model", "sampling_session_id": "s"}}, "/target/type"),
    ({"target": {"sampling_session_id": "s"}, "prev_cursor": -1}, "cursor is -1"),
    ({"target": {"sampling_session_id": "s", "cloned_sampler_id": -1}}, "clone_number is -1"),
    ({"target": {"sampling_session_id": "s"}, "timeout": -1}, "/timeout"),
    ({"target": {"sampling_session_id": "s"}, "retrieved_request_ids": [3]},
     "/retrieved_request_ids"),
])
def test_bad_polls_are_named(api, body, named):
    answer = api.post("retrieve_futures", body)
    assert answer.status_code == 400 and named in answer.text


def test_the_engine_can_be_killed_between_polls():
    with LatheServer(tiny_model()) as server:
        api = RawApi(server)
        sampler = new_sampler(api)
        first = submit(api, sampler, 0)
        _, cursor = await_all(api, sampler, {first})
        kept, fetched = submit(api, sampler, 1), submit(api, sampler, 2)
        await_all(api, sampler, {kept, fetched}, cursor)  # answers that are lost
        result = api.result({"request_id": fetched})
        running = submit(api, sampler, 3, max_tokens=1000, num_samples=8)
        server.wait_restarted("engine", server.kill("engine"))
        while (answer := api.post("retrieve_futures", {
                "target": {"sampling_session_id": sampler}, "prev_cursor": cursor,
                "timeout": 0})).status_code != 200:
            assert answer.status_code == 503
        completed, later = set(), cursor
        while running not in completed:
            answer = poll(api, sampler, later)
            assert answer["cursor"] >= later
            later = answer["cursor"]
            completed |= {one["request_id"] for one in answer["completions"]}
        # What was delivered may be told again, what was not is.
        assert {kept, running} <= completed <= {kept, fetched, running}
        assert api.result({"request_id": fetched}) == result
        api.close()


@pytest.mark.each_sdk
@pytest.mark.parametrize("is_on", ["true", "false"])
def test_the_sdk_gets_every_sample_also_across_a_restart_of_the_engine(is_on):
    with LatheServer(tiny_model(), env={"LATHE_GATEWAY__RETRIEVE_FUTURES": is_on}) as server:
        service = tinker.ServiceClient(base_url=server.url, api_key=server.api_key)
        sampler = resolved(service.create_sampling_client(base_model=server.model_name))
        prompt = types.ModelInput.from_ints(PROMPT)

        def submit_many(count, max_tokens):
            return [sampler.sample(prompt, 1, types.SamplingParams(
                max_tokens=max_tokens, seed=seed, stop=[])) for seed in range(count)]

        expected = [future.result().sequences[0].tokens for future in submit_many(64, 300)]
        assert all(len(tokens) == 300 for tokens in expected)
        futures = submit_many(64, 300)
        server.wait_restarted("engine", server.kill("engine"))
        assert [future.result(timeout=120).sequences[0].tokens for future in futures] == expected
