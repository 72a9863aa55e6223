"""What is one tenant's shows nowhere else: not in the logs, and not in buffers that others get."""

import pathlib

import httpx

from conftest import refused
from support.raw_api import RawApi

MARKS = ["s3cr3t-prompt", "s3cr3t-metadata", "s3cr3t-name", "s3cr3t-body"]


def logs(server):
    return "".join(path.read_text(errors="replace")
                   for path in sorted(pathlib.Path(server.data_dir, "logs").iterdir()))


def sample(api, sampler, seq_id, tokens, stop=None):
    params = {"max_tokens": 4, "temperature": 0.0, **({"stop": stop} if stop else {})}
    return api.result(api.made("asample", {
        "sampling_session_id": sampler, "seq_id": seq_id, "num_samples": 1,
        "prompt": {"chunks": [{"type": "encoded_text", "tokens": tokens}]},
        "sampling_params": params, "prompt_logprobs": True}))


def sampler_of(api, server):
    session_id = api.new_session()
    return api.made("create_sampling_session", {
        "session_id": session_id, "sampling_session_seq_id": 0,
        "base_model": server.model_name})["sampling_session_id"]


def test_logs_hold_no_keys_and_nothing_of_requests(api):
    server = api.server
    prompt, metadata, name, body = MARKS
    sampler = sampler_of(api, server)
    sample(api, sampler, 0, [30, 31], stop=[prompt])
    api.made("create_session", {"tags": [], "user_metadata": {metadata: metadata}})
    refused(api.post("save_weights", {"model_id": name, "seq_id": 1, "path": name}), 404, "not_found")
    refused(api.post("optim_step", content=f'{{"{body}": "{body}" !}}'.encode(),
                     headers={"Content-Type": "application/json"}), 400, "bad_json")
    wrong = "tml-0123456789abcdef_s3cr3t0key"
    for key in (wrong, api.key[:-1]):
        httpx.get(server.url + "/api/v1/sessions?key=" + api.key, headers={"X-API-Key": key})
    jwt = api.made("auth/token", {})["jwt"]
    assert RawApi(server, jwt).get("sessions").status_code == 200
    text = logs(server)
    secret = api.key.split("_", 1)[1]
    for mark in (*MARKS, secret, wrong.split("_")[1], jwt.split(".")[2]):
        assert mark not in text, mark


def test_tenants_that_follow_one_another_get_the_same_answers(api):
    """Blocks of the KV cache change owners here; what was in them must not be seen."""
    other = RawApi(api.server, api.server.create_key("follows"))
    first, second = sampler_of(api, api.server), sampler_of(other, api.server)
    short, long = [30, 31, 32], [40 + i % 50 for i in range(60)]
    alone = sample(api, first, 0, short)
    for round_number in range(3):
        sample(other, second, 2 * round_number, long)
        again = sample(api, first, round_number + 1, short)
        assert again["sequences"] == alone["sequences"]
        assert again["prompt_logprobs"] == alone["prompt_logprobs"]
        assert sample(other, second, 2 * round_number + 1, short)["sequences"] == alone["sequences"]
    other.close()


def test_the_prefix_cache_is_per_tenant(api):
    """A hit would tell one tenant what another one asked."""
    other = RawApi(api.server, api.server.create_key("guesses"))
    first, second = sampler_of(api, api.server), sampler_of(other, api.server)
    tokens = [30 + i % 7 for i in range(70)]

    def hits(caller, sampler, seq_id):
        result = caller.result(caller.made("asample", {
            "sampling_session_id": sampler, "seq_id": seq_id, "num_samples": 2,
            "prompt": {"chunks": [{"type": "encoded_text", "tokens": tokens}]},
            "sampling_params": {"max_tokens": 2, "seed": 1}}))
        return result["prompt_cache_hit_tokens"]

    assert hits(api, first, 0) == 0
    assert hits(other, second, 0) == 0
    assert hits(api, first, 1) == 64
    assert hits(api, sampler_of(api, api.server), 0) == 64
    assert hits(other, second, 1) == 64
