"""Samplers that follow their model, and copies of sampling clients."""

import pickle

import httpx
import pytest
import tinker
from tinker import types

from support.sdk import needs_argument, resolved

ROW = [30, 31, 32, 33, 34, 35, 36, 37]
ADAM = types.AdamParams(learning_rate=1e-2)


@pytest.fixture(scope="module")
def service(lathe):
    return tinker.ServiceClient(base_url=lathe.url, api_key=lathe.api_key)


@pytest.fixture(scope="module")
def http(lathe):
    with httpx.Client(base_url=lathe.url + "/api/v1/", headers={"X-API-Key": lathe.api_key},
                      timeout=60) as client:
        yield client


@pytest.fixture
def client(service, lathe):
    return resolved(service.create_lora_training_client(lathe.model_name, rank=4, seed=7))


def step(client):
    datum = types.Datum(model_input=types.ModelInput.from_ints(ROW[:-1]),
                        loss_fn_inputs={"target_tokens": ROW[1:], "weights": [1.0] * 7})
    client.forward_backward([datum], "cross_entropy")
    client.optim_step(ADAM).result()


def scores(sampler):
    return sampler.compute_logprobs(types.ModelInput.from_ints(ROW)).result()[1:]


needs_inflight = needs_argument(tinker.TrainingClient.save_weights_and_get_sampling_client, "kind")


@pytest.mark.each_sdk
@needs_inflight
def test_inflight_samplers_move_on_with_the_next_inflight_save_and_snapshots_stay(client):
    snapshot = resolved(client.save_weights_and_get_sampling_client())
    first = resolved(client.save_weights_and_get_sampling_client(kind="inflight"))
    before = scores(first)
    assert before == pytest.approx(scores(snapshot), abs=1e-5)
    step(client)
    # A step alone moves nothing: weights are published by saves.
    assert scores(first) == pytest.approx(before, abs=1e-5)
    assert scores(resolved(client.save_weights_and_get_sampling_client())) != pytest.approx(
        before, abs=1e-3)
    assert scores(first) == pytest.approx(before, abs=1e-5)

    second = resolved(client.save_weights_and_get_sampling_client(kind="inflight"))
    after = scores(second)
    assert after != pytest.approx(before, abs=1e-3)
    assert scores(first) == pytest.approx(after, abs=1e-5)
    assert scores(snapshot) == pytest.approx(before, abs=1e-5)


@needs_inflight
def test_inflight_samplers_of_two_models_are_apart(service, lathe):
    models = [resolved(service.create_lora_training_client(lathe.model_name, rank=4, seed=seed))
              for seed in (1, 2)]
    samplers = [resolved(model.save_weights_and_get_sampling_client(kind="inflight"))
                for model in models]
    before = scores(samplers[1])
    step(models[0])
    resolved(models[0].save_weights_and_get_sampling_client(kind="inflight"))
    assert scores(samplers[1]) == pytest.approx(before, abs=1e-5)
    assert scores(samplers[0]) != pytest.approx(before, abs=1e-3)


@needs_inflight
def test_long_generations_span_an_inflight_save(client):
    sampler = resolved(client.save_weights_and_get_sampling_client(kind="inflight"))
    params = types.SamplingParams(max_tokens=600, seed=1, stop=[])
    running = [sampler.sample(types.ModelInput.from_ints(ROW[:4]), 1, params) for _ in range(4)]
    step(client)
    resolved(client.save_weights_and_get_sampling_client(kind="inflight"))
    for future in running:
        sequence = future.result().sequences[0]
        assert len(sequence.tokens) == len(sequence.logprobs) == 600


def test_an_unknown_kind_is_refused_and_a_named_save_takes_snapshots_only(http, client):
    model_id = client.get_info().model_id
    for body, word in (({"sampling_session_seq_id": 900, "kind": "latest"}, "latest"),
                       ({"path": "x", "kind": "inflight"}, "snapshot only")):
        answer = http.post("save_weights_for_sampler",
                           json={"model_id": model_id, "seq_id": 0, **body})
        assert answer.status_code == 400 and word in answer.json()["detail"]


def new_sampler(http, lathe):
    session = http.post("create_session", json={
        "tags": [], "user_metadata": {}, "sdk_version": "raw"}).json()["session_id"]
    return http.post("create_sampling_session", json={
        "session_id": session, "sampling_session_seq_id": 0,
        "base_model": lathe.model_name}).json()["sampling_session_id"]


def test_copies_of_a_sampling_client_are_numbered(http, lathe):
    sampler = new_sampler(http, lathe)
    join = lambda **headers: http.post("join_sampling_session", headers=headers, json={
        "sampling_session_id": sampler, "type": "join_sampling_session"})
    assert [join().json() for _ in range(3)] == [{"client_counter": n} for n in (1, 2, 3)]
    assert join(**{"X-API-Key": lathe.create_key("stranger")}).status_code == 404
    assert http.post("join_sampling_session", json={}).status_code == 400
    config = http.post("client/config", json={"sdk_version": "0.38.0"}).json()
    assert config["sample_join_sampling_session"] is True


@pytest.mark.each_sdk
def test_a_pickled_sampling_client_samples_for_itself(service, lathe, monkeypatch):
    monkeypatch.setenv("TINKER_API_KEY", lathe.api_key)
    monkeypatch.setenv("TINKER_BASE_URL", lathe.url)
    sampler = service.create_sampling_client(base_model=lathe.model_name)
    copies = [pickle.loads(pickle.dumps(sampler)) for _ in range(2)]
    params = types.SamplingParams(max_tokens=3, seed=1, stop=[])
    sequences = [one.sample(types.ModelInput.from_ints(ROW), 1, params).result().sequences[0]
                 for one in (sampler, *copies)]
    assert len({tuple(sequence.tokens) for sequence in sequences}) == 1
    if hasattr(sequences[0], "sequence_id"):
        assert len({sequence.sequence_id for sequence in sequences}) == 3


def sample_body(sampler, seq_id, **changes):
    # Without a seed it may draw the token that ends a sequence.
    params = {"max_tokens": 2, "temperature": 1.0, "top_k": -1, "top_p": 1.0, "seed": 1,
              **changes.pop("sampling_params", {})}
    return {"num_samples": 1, "sampling_session_id": sampler, "seq_id": seq_id,
            "prompt": {"chunks": [{"type": "encoded_text", "tokens": ROW}]},
            "sampling_params": params, **changes}


def num_tokens(result):
    return [len(sequence["tokens"]) for sequence in result["sequences"]]


# Every field of asample: honoured here, or refused below.
HONOURED = [
    ({"num_samples": 3}, lambda r: num_tokens(r) == [2, 2, 2]),
    ({"prompt_logprobs": True},
     lambda r: len(r["prompt_logprobs"]) == len(ROW) and r["prompt_logprobs"][0] is None),
    ({"topk_prompt_logprobs": 4}, lambda r: [len(row or []) for row in r["topk_prompt_logprobs"]]
     == [0] + [4] * (len(ROW) - 1)),
    ({"record_stability_info": True}, lambda r: num_tokens(r) == [2]),
    ({"sampling_params": {"max_tokens": 1}}, lambda r: num_tokens(r) == [1]),
    ({"sampling_params": {"seed": 2**63 - 1}}, lambda r: num_tokens(r) == [2]),
    ({"sampling_params": {"stop": []}}, lambda r: num_tokens(r) == [2]),
    (lambda: {"sampling_params": {"temperature": 0.0, "stop": [767] * 63 + GREEDY[:1]}},
     lambda r: num_tokens(r) == [1] and r["sequences"][0]["stop_reason"] == "stop"),
    ({"sampling_params": {"stop": "no such text"}}, lambda r: num_tokens(r) == [2]),
    ({"sampling_params": {"stop": ["no", "such"], "max_tokens": 1}}, lambda r: num_tokens(r) == [1]),
    ({"num_samples": 2, "topk_sample_logprobs": 3}, lambda r: all(
        [len(row) for row in s["topk_logprobs"]] == [3, 3] for s in r["sequences"])),
    # At temperature 0 the sampled token is the first of its row, with its logprob.
    ({"topk_sample_logprobs": 1, "sampling_params": {"temperature": 0.0}}, lambda r: [
        row[0] for row in r["sequences"][0]["topk_logprobs"]] == [list(pair) for pair in zip(
            r["sequences"][0]["tokens"], r["sequences"][0]["logprobs"])]),
    ({"prompt_logprobs": True, "topk_prompt_logprobs": 2, "prompt_logprobs_last_n": 3},
     lambda r: [x is None for x in r["prompt_logprobs"]] == [True] * (len(ROW) - 3) + [False] * 3
     and [row is None for row in r["topk_prompt_logprobs"]] ==
     [True] * (len(ROW) - 3) + [False] * 3),
    ({"prompt_alt_tokens_k": 5}, lambda r: [
        (r["prompt_alt_tokens"][name]["shape"], r["prompt_alt_tokens"][name]["dtype"])
        for name in ("tokens", "logprobs")] == [([len(ROW) - 1, 5], "int64"),
                                                ([len(ROW) - 1, 5], "float32")]),
    # The prompt's own tokens as targets, beside cells that ask for nothing.
    ({"prompt_logprobs": True, "target_prompt_logprobs": {
        "data": [cell for token in ROW[1:] for cell in (token, -1)], "dtype": "int64",
        "shape": [len(ROW) - 1, 2]}},
     lambda r: r["target_prompt_logprobs"] == {
         "dtype": "float32", "shape": [len(ROW) - 1, 2],
         "data": [cell for value in r["prompt_logprobs"][1:] for cell in (value, 0.0)]}),
    ({"prompt_logprobs": True, "target_prompt_logprobs": {
        "data": ROW[-1:], "dtype": "int64", "shape": [len(ROW) - 1, 9],
        "sparse_crow_indices": [0] * (len(ROW) - 1) + [1], "sparse_col_indices": [4]}},
     lambda r: r["target_prompt_logprobs"] == {
         "dtype": "float32", "shape": [len(ROW) - 1, 9], "data": r["prompt_logprobs"][-1:],
         "sparse_crow_indices": [0] * (len(ROW) - 1) + [1], "sparse_col_indices": [4]}),
    # Greedy, by four ways.
    ({"sampling_params": {"temperature": 0.0}}, lambda r: r["sequences"][0]["tokens"] == GREEDY),
    ({"sampling_params": {"top_k": 1}}, lambda r: r["sequences"][0]["tokens"] == GREEDY),
    ({"sampling_params": {"min_p": 1}}, lambda r: r["sequences"][0]["tokens"] == GREEDY),
    ({"sampling_params": {"top_p": 1e-6}}, lambda r: r["sequences"][0]["tokens"] == GREEDY),
    # At their defaults, as SDK 0.38 always sends them.
    ({"topk_sample_logprobs": 0, "prompt_alt_tokens_k": 0, "record_stability_info": False,
      "target_prompt_logprobs": None, "prompt_logprobs_last_n": None, "base_model": None,
      "model_path": None, "type": "sample"}, lambda r: num_tokens(r) == [2]),
]
GREEDY = []  # filled by the fixture
REFUSED = [
    ({"topk_sample_logprobs": 129}, "topk_sample_logprobs is 129, expected 0 to 128"),
    ({"prompt_alt_tokens_k": -1}, "prompt_alt_tokens_k is -1, expected 0 to 128"),
    ({"target_prompt_logprobs": {"data": [-1] * 7, "dtype": "int64", "shape": [7, 1]}},
     "target_prompt_logprobs names no token id in 7 cells"),
    ({"prompt_logprobs": True, "prompt_logprobs_last_n": 8},
     "prompt_logprobs_last_n is 8, expected 1 to 7"),
    ({"base_model": "tiny"}, "base_model"), ({"model_path": "tinker://a/weights/b"}, "model_path"),
    ({"record_stability_info": "yes"}, "record_stability_info"),
    ({"num_samples": 0}, "num_samples is 0, expected 1 to 1024"),
    ({"topk_prompt_logprobs": 129}, "topk_prompt_logprobs is 129, expected 0 to 128"),
    ({"sampling_params": {"max_tokens": 0}}, "max_tokens is 0"),
    ({"sampling_params": {"max_tokens": 2048}}, "exceeds the model's context window"),
    ({"sampling_params": {"temperature": -0.5}}, "temperature is -0.5"),
    ({"sampling_params": {"top_k": 0}}, "top_k is 0"),
    ({"sampling_params": {"top_p": 0.0}}, "top_p is 0"),
    ({"sampling_params": {"stop": [768]}}, "768"), ({"sampling_params": {"stop": [""]}}, "stop"),
]


def sampled(http, body):
    answer = http.post("asample", json=body)
    assert answer.status_code == 200, answer.text
    assert len(answer.json()["sample_sequence_ids"]) == body["num_samples"]
    while True:
        result = http.post("retrieve_future", json={"request_id": answer.json()["request_id"],
                                                    "allow_metadata_only": False}).json()
        if result.get("type") != "try_again":
            return result


@pytest.fixture(scope="module")
def sampler(http, lathe):
    """A sampler whose most likely tokens are in GREEDY, found by scores and not by sampling."""
    sampler = new_sampler(http, lathe)
    for seq_id in range(2):
        prompt = {"chunks": [{"type": "encoded_text", "tokens": ROW + GREEDY + [0]}]}
        result = sampled(http, sample_body(sampler, seq_id, prompt=prompt, topk_prompt_logprobs=1))
        GREEDY.append(result["topk_prompt_logprobs"][-1][0][0])
    return sampler


@pytest.mark.parametrize("index", range(len(HONOURED)))
def test_a_sampling_option_is_honoured(http, sampler, index):
    changes, check = HONOURED[index]
    changes = changes() if callable(changes) else changes
    result = sampled(http, sample_body(sampler, 100 + index, **changes))
    assert check(result), result


@pytest.mark.parametrize("index", range(len(REFUSED)))
def test_a_sampling_option_is_refused_by_name(http, sampler, index):
    changes, words = REFUSED[index]
    answer = http.post("asample", json=sample_body(sampler, 200 + index, **changes))
    assert answer.status_code == 400, answer.text
    assert words in answer.json()["detail"]
