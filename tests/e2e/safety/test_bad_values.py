"""Rows 21 to 25, 32 and 35 to 51 of the bad-input table: sequences, models, sampling, names, keys."""

import httpx
import pytest

from conftest import refused
from support.raw_api import ADAM, RawApi, RawModel, datum

NOT_HERE = "00000000-0000-4000-8000-000000000000"


@pytest.fixture(scope="module")
def model(witness):
    return RawModel(witness.api)


@pytest.fixture(scope="module")
def sampler(witness, model):
    return witness.api.made("create_sampling_session", {
        "session_id": model.session_id, "sampling_session_seq_id": 0,
        "base_model": witness.api.server.model_name})["sampling_session_id"]


def step(model, seq_id, **changes):
    return {"model_id": model.model_id, "seq_id": seq_id, "adam_params": {**ADAM, **changes}}


@pytest.mark.parametrize("seq_id, words", [
    (-1, ["-1", "2147483647"]), (-2**63, ["-9223372036854775808"]),
    (2**31, ["2147483648", "expected 0 to 2147483647"]), (2**63 - 1, ["9223372036854775807"])])
@pytest.mark.parametrize("path", ["optim_step", "save_weights", "save_weights_for_sampler",
                                  "load_weights", "forward_backward"])
def test_seq_ids_out_of_range(api, model, path, seq_id, words):
    body = {"model_id": model.model_id, "seq_id": seq_id, "adam_params": ADAM, "path": "a",
            "forward_backward_input": {"data": [datum()], "loss_fn": "cross_entropy"}}
    if path == "load_weights":
        body["path"] = f"tinker://{model.model_id}/weights/a"
    refused(api.post(path, body), 400, "bad_seq_id", *words, field="seq_id")


@pytest.mark.parametrize("path, field", [("create_model", "model_seq_id"), (
    "create_sampling_session", "sampling_session_seq_id"), ("asample", "seq_id")])
def test_other_numbers_below_zero(api, model, sampler, path, field):
    body = {"session_id": model.session_id, "base_model": "tiny", **sample(sampler), field: -1}
    refused(api.post(path, body), 400, "bad_seq_id", "-1", "at least 0", field=field)


def test_a_seq_id_with_other_content(api):
    model = RawModel(api)
    first = api.made("optim_step", step(model, 1))
    assert api.made("optim_step", step(model, 1)) == first
    refused(api.post("optim_step", step(model, 1, beta1=0.5)), 400, "seq_id_reused", "1",
            "TrainingClient")
    api.result(first)


@pytest.mark.parametrize("changes, words", [
    ({"learning_rate": -1e-4}, ["learning_rate is -0.0001", "at least 0"]),
    ({"beta1": 1.0}, ["beta1 is 1", "[0, 1)"]), ({"beta1": -0.1}, ["beta1 is -0.1", "[0, 1)"]),
    ({"beta2": 1.5}, ["beta2 is 1.5", "[0, 1)"]), ({"eps": 0}, ["eps is 0", "above 0"]),
    ({"weight_decay": -1}, ["weight_decay is -1"]), ({"grad_clip_norm": -1}, ["grad_clip_norm"])])
def test_optimizer_values(api, model, changes, words):
    refused(api.post("optim_step", step(model, 1, **changes)), 400, "bad_optimizer", *words,
            field="adam_params." + next(iter(changes)))


@pytest.mark.parametrize("name", ADAM)
def test_what_nan_becomes_in_json_is_no_number(api, model, name):
    refused(api.post("optim_step", step(model, 1, **{name: None})), 400, "invalid_field",
            f"/adam_params/{name}: expected a finite number, got null")


@pytest.mark.parametrize("adam", [{}, {"lr": 0.1}])
def test_a_step_names_its_learning_rate(api, model, adam):
    body = {"model_id": model.model_id, "seq_id": 1, "adam_params": adam}
    refused(api.post("optim_step", body), 400, "invalid_field", "learning_rate", "missing")


@pytest.mark.parametrize("name", ["temperature", "top_p"])
def test_a_sampling_number_is_not_null(api, sampler, name):
    body = sample(sampler)
    body["sampling_params"][name] = None
    refused(api.post("asample", body), 400, "invalid_field", name, "a finite number")


def lora(api, model, **changes):
    return api.post("create_model", {
        "session_id": model.session_id, "model_seq_id": 1, "base_model": "tiny",
        "lora_config": {"rank": 4, "train_mlp": True, **changes.pop("lora_config", {})}, **changes})


@pytest.mark.parametrize("config, words", [
    ({"rank": 0}, ["rank is 0", "1 to 512"]), ({"rank": -8}, ["rank is -8"]),
    ({"rank": 513}, ["rank is 513"]), ({"rank": 2**62}, ["4611686018427387904"]),
    ({"train_mlp": False, "train_attn": False, "train_unembed": False}, ["trains nothing"])])
def test_lora_configs(api, model, config, words):
    refused(lora(api, model, lora_config=config), 400, "bad_lora", *words)


def test_unknown_base_models_and_optimizers(api, model):
    refused(lora(api, model, base_model="no/such"), 404, "unknown_base_model", "'no/such'", "tiny")
    refused(lora(api, model, optimizer_config={"type": "dimuon"}), 400, "bad_optimizer", "'dimuon'",
            "adamw")
    refused(api.post("create_sampling_session", {
        "session_id": model.session_id, "sampling_session_seq_id": 1, "base_model": "no/such"}),
        404, "unknown_base_model", "'no/such'")


def test_a_checkpoint_of_another_geometry(api):
    small, large = RawModel(api, rank=2), RawModel(api, rank=8)
    saved = api.result(api.made("save_weights", {
        "model_id": small.model_id, "seq_id": 1, "path": "geometry"}))
    load = api.result(api.made("load_weights", {
        "model_id": large.model_id, "seq_id": 1, "path": saved["path"], "optimizer": True}))
    assert load["category"] == "user"
    assert "rank 2" in load["error"] and "rank 8" in load["error"]


def sample(sampler, prompt=None, params=None, **changes):
    return {"sampling_session_id": sampler, "seq_id": 0, "num_samples": 1,
            "prompt": {"chunks": prompt or [{"type": "encoded_text", "tokens": [30, 31]}]},
            "sampling_params": {"max_tokens": 1, "temperature": 1.0, "top_k": -1, "top_p": 1.0,
                                **(params or {})}, **changes}


@pytest.mark.parametrize("changes, words", [
    ({"num_samples": 0}, ["num_samples is 0", "1 to 1024"]),
    ({"num_samples": 10**9}, ["num_samples is 1000000000"]),
    ({"params": {"temperature": -0.5}}, ["temperature is -0.5", "at least 0"]),
    ({"params": {"top_p": 0}}, ["top_p is 0", "(0, 1]"]),
    ({"params": {"top_p": 1.5}}, ["top_p is 1.5", "(0, 1]"]),
    ({"params": {"top_k": -2}}, ["top_k is -2"]), ({"params": {"top_k": 0}}, ["top_k is 0"]),
    ({"params": {"max_tokens": 0}}, ["max_tokens is 0", "at least 1"]),
    ({"params": {"max_tokens": -5}}, ["max_tokens is -5"]),
    ({"params": {"stop": ["x"] * 65}}, ["65 strings", "limit is 64"]),
    ({"params": {"stop": [""]}}, ["stop[0] has 0 bytes"]),
    ({"params": {"stop": ["x" * 1025]}}, ["1025 bytes", "1024"]),
    ({"params": {"stop": [0] * 65}}, ["65 tokens", "limit is 64"]),
    ({"params": {"min_p": -0.1}}, ["min_p is -0.1", "[0, 1]"]),
    ({"params": {"min_p": 1.1}}, ["min_p is 1.1", "[0, 1]"]),
    ({"topk_prompt_logprobs": 129}, ["topk_prompt_logprobs is 129", "0 to 128"]),
    ({"topk_prompt_logprobs": -1}, ["topk_prompt_logprobs is -1"]),
    ({"topk_sample_logprobs": 129}, ["topk_sample_logprobs is 129", "0 to 128"]),
    ({"topk_sample_logprobs": 128, "num_samples": 1024, "params": {"max_tokens": 100}},
     ["topk_sample_logprobs asks for 13107200 logprobs", "limit is 8388608"]),
    ({"prompt_alt_tokens_k": 129}, ["prompt_alt_tokens_k is 129", "0 to 128"]),
    ({"prompt_logprobs_last_n": 1}, ["prompt_logprobs_last_n is 1", "prompt_logprobs is false"]),
    ({"prompt_logprobs": True, "prompt_logprobs_last_n": 0}, ["last_n is 0", "expected 1 to 1"]),
    ({"prompt_logprobs": True, "prompt_logprobs_last_n": 2}, ["last_n is 2", "expected 1 to 1"]),
    ({"target_prompt_logprobs": {"data": [-1], "dtype": "int64", "shape": [1, 1]}},
     ["target_prompt_logprobs names no token id in 1 cells", "at least 1"])])
def test_sampling_values(api, sampler, changes, words):
    refused(api.post("asample", sample(sampler, **changes)), 400, "invalid_field", *words)


def targets(data, shape, dtype="int64", **sparse):
    return {"target_prompt_logprobs": {"data": data, "dtype": dtype, "shape": shape, **sparse}}


@pytest.mark.parametrize("changes, code, words", [
    (targets([5], [1]), "bad_tensor", ["has 1 rows in 1 dimensions", "expected 1 rows in 2"]),
    (targets([5, 6], [2, 1]), "bad_tensor", ["has 2 rows in 2 dimensions", "expected 1 rows"]),
    (targets([5, 6], [1, 1]), "bad_tensor", ["16 bytes", "shape [1, 1]"]),
    (targets([5.0], [1, 1], dtype="float32"), "bad_tensor", ["dtype is float32", "int64"]),
    (targets([10**6], [1, 1]), "bad_token", ["position 0 is 1000000", "vocabulary size"]),
    (targets([-2], [1, 1]), "bad_token", ["position 0 is -2", "-1"]),
    (targets([5], [1, 2], sparse_crow_indices=[0, 1], sparse_col_indices=[2]), "bad_sparse",
     ["col_indices[0] is 2", "0 to 1"]),
    (targets([5], [1, 2], sparse_crow_indices=[0, 2], sparse_col_indices=[1]), "bad_sparse",
     ["crow_indices"])])
def test_targets(api, sampler, changes, code, words):
    refused(api.post("asample", sample(sampler, **changes)), 400, code, "target_prompt_logprobs",
            *words)


@pytest.mark.parametrize("changes, code, words", [
    ({"params": {"max_tokens": 10**9}}, "too_long", [
        "Prompt length plus max_tokens exceeds the model's context window", "2 prompt tokens",
        "1000000000 max_tokens"]),
    ({"prompt": [{"type": "encoded_text", "tokens": [30] * 100_000}]}, "too_long",
     ["Prompt length plus max_tokens", "100000 prompt tokens"]),
    ({"prompt": [{"type": "encoded_text", "tokens": []}]}, "empty_prompt", ["no tokens"]),
    ({"prompt": [{"type": "encoded_text", "tokens": [30, -7]}]}, "bad_token", ["position 1", "-7"]),
    ({"prompt": [{"type": "encoded_text", "tokens": [10**6]}]}, "bad_token", ["1000000"]),
    ({"params": {"stop": [10**6]}}, "bad_token", ["stop[0] is 1000000"]),
    ({"prompt": [{"type": "image", "data": "!", "format": "png"}]}, "unsupported_chunk", ["image"]),
    ({"prompt": [{"type": "image_asset_pointer", "location": "http://169.254.169.254/",
                  "format": "png"}]}, "unsupported_chunk", ["image_asset_pointer"])])
def test_prompts_and_stops(api, sampler, changes, code, words):
    answer = api.post("asample", sample(sampler, **changes))
    refused(answer, 400, code, *words)
    assert "169.254" not in answer.text


BAD_NAMES = ["", "a/b", "..", ".hidden", "../../etc", "a\x00b", "a\nb", "a\u202eb", "caf\xe9",
             "x" * 129, "a b", "a\\b", "-\ud800"[:1] + "\u2028"]


@pytest.mark.parametrize("name", BAD_NAMES)
@pytest.mark.parametrize("path", ["save_weights", "save_weights_for_sampler"])
def test_checkpoint_names(api, model, path, name):
    answer = api.post(path, {"model_id": model.model_id, "seq_id": 1, "path": name})
    refused(answer, 400, "bad_name", "128", "leading", field="path")
    assert "\n" not in answer.json()["detail"] and "\x00" not in answer.json()["detail"]


@pytest.mark.parametrize("path", [
    "", "tinker://", "tinker://a/b", "tinker://a/weights/", "tinker:///weights/b", "/etc/passwd",
    "tinker://a/other/b", "tinker://a/weights/b/c", "tinker://a/weights/../b", "tinker://a/weights/.",
    "http://a/weights/b", "TINKER://a/weights/b", "tinker://a/weights/b\x00"])
def test_tinker_paths(api, model, path):
    refused(api.post("weights_info", {"tinker_path": path}), 400, "bad_path", "expected tinker://",
            field="tinker_path")
    refused(api.post("load_weights", {"model_id": model.model_id, "seq_id": 1, "path": path}), 400,
            "bad_path", "expected tinker://", field="path")
    if path:
        refused(api.post("create_sampling_session", {
            "session_id": model.session_id, "sampling_session_seq_id": 1, "model_path": path}),
            400, "bad_path", "expected tinker://", field="model_path")


@pytest.mark.parametrize("ttl", [0, -1, -2**63, 315619201, 2**63 - 1])
def test_lifetimes(api, model, ttl):
    for path in ("save_weights", "save_weights_for_sampler"):
        refused(api.post(path, {"model_id": model.model_id, "seq_id": 1, "path": "a",
                                "ttl_seconds": ttl}), 400, "bad_ttl", str(ttl), field="ttl_seconds")
    path = f"training_runs/{model.model_id}/checkpoints/weights/a/ttl"
    refused(api.request("PUT", path, json={"ttl_seconds": ttl}), 400, "bad_ttl", str(ttl))
    refused(api.request("PUT", path, json={}), 400, "invalid_field", "ttl_seconds")


@pytest.mark.parametrize("path", ["sessions", "training_runs", "checkpoints"])
def test_pages(api, path):
    for query, words in (("limit=-1", ["limit is -1", "1 to 1000"]),
                         ("limit=1000000000", ["limit is 1000000000"]),
                         ("offset=-1", ["offset is -1", "at least 0"])):
        refused(api.get(f"{path}?{query}"), 400, "bad_page", *words, field=query.split("=")[0])
    for query in ("limit=x", "offset=1e3", "limit=99999999999999999999", "limit="):
        refused(api.get(f"{path}?{query}"), 400, "invalid_field", "integer")


@pytest.mark.parametrize("metadata, words", [
    ({f"k{i}": "v" for i in range(65)}, ["65", "64"]), ({"k": "v" * 16385}, ["16386", "16384"])])
def test_user_metadata(api, model, metadata, words):
    for path, body in (("create_session", {"tags": []}),
                       ("save_weights", {"model_id": model.model_id, "seq_id": 1, "path": "a"})):
        refused(api.post(path, {**body, "user_metadata": metadata}), 400, "bad_metadata", *words)
    refused(lora(api, model, user_metadata=metadata), 400, "bad_metadata", *words)


def test_texts_are_bounded(api):
    for field in ("sdk_version", "display_name"):
        refused(api.post("create_session", {field: "x" * 1025}), 400, "invalid_field", "1025",
                "1024", field=field)
    refused(api.post("create_session", {"tags": ["x"] * 65}), 400, "invalid_field", "65", "64")


@pytest.mark.parametrize("project", ["a/b", ".a", "a b", "a\n", "caf\xe9", "x" * 257])
def test_project_ids(api, project):
    refused(api.post("create_session", {"project_id": project}), 400, "bad_project", "256",
            field="project_id")
    session = api.new_session()
    refused(api.request("PUT", f"sessions/{session}/project", json={"project_id": project}), 400,
            "bad_project", "256", field="project_id")
    refused(api.post("sessions/search", {"project_ids": ["ok", project]}), 400, "bad_project",
            field="project_ids")
    for path in ("training_runs", "billing/usage/checkpoints/current"):
        refused(api.get(path, params={"project_id": project}), 400, "bad_project",
                field="project_id")


def test_a_project_must_be_given(api):
    path = f"sessions/{api.new_session()}/project"
    refused(api.request("PUT", path, json={"project_id": ""}), 400, "bad_project",
            field="project_id")
    for body in ({}, {"project_id": None}, {"project_id": 7}):
        refused(api.request("PUT", path, json=body), 400, "invalid_field", field="/project_id")


@pytest.mark.parametrize("body, code, field, words", [
    ({"limit": 0}, "bad_page", "limit", ["0", "200"]),
    ({"limit": 201}, "bad_page", "limit", ["201", "200"]),
    ({"limit": "1"}, "invalid_field", "/limit", []),
    ({"owner": {"type": "team"}}, "invalid_field", "owner.type", ["team", "accessible"]),
    ({"owner": {"type": "user"}}, "invalid_field", "owner.owner_urns", ["0", "10"]),
    ({"owner": {"type": "user", "owner_urns": ["x"] * 11}}, "invalid_field", "owner.owner_urns",
     ["11", "10"]),
    ({"owner": {"type": "own", "owner_urns": ["x"]}}, "invalid_field", "owner.owner_urns", []),
    ({"statuses": []}, "invalid_field", "/statuses", []),
    ({"statuses": [{"type": "done"}]}, "invalid_field", "statuses.type", ["done", "active"]),
    ({"statuses": [{"type": "client_finished", "reasons": ["bored"]}]}, "invalid_field",
     "statuses.reasons", ["bored", "errored"]),
    ({"project_ids": []}, "invalid_field", "/project_ids", []),
    ({"project_ids": ["p"] * 101}, "invalid_field", "project_ids", ["101", "100"]),
    ({"display_name": ""}, "invalid_field", "display_name", []),
    ({"user_metadata": {str(i): "" for i in range(65)}}, "bad_metadata", "user_metadata", ["65"]),
    ({"cursor": {"last_created_at": "yesterday", "last_session_id": "s"}}, "invalid_field",
     "/cursor/last_created_at", ["yesterday", "RFC 3339"])])
def test_session_searches(api, body, code, field, words):
    refused(api.post("sessions/search", body), 400, code, *words, field=field)


@pytest.mark.parametrize("begin, end, code, field", [
    (None, "2026-01-02T00:00:00Z", "invalid_field", "starting_on"),
    ("2026-01-01T00:00:00Z", None, "invalid_field", "ending_before"),
    ("2026-01-01", "2026-01-02T00:00:00Z", "invalid_field", "starting_on"),
    ("2026-01-01T00:00:00", "2026-01-02T00:00:00Z", "invalid_field", "starting_on"),
    ("2026-01-01T00:30:00Z", "2026-01-02T00:00:00Z", "bad_window", "starting_on"),
    ("2026-01-01T00:00:00Z", "2026-01-01T00:00:00Z", "bad_window", "ending_before"),
    ("2026-01-02T00:00:00Z", "2026-01-01T00:00:00Z", "bad_window", "ending_before"),
    ("2026-01-01T00:00:00Z", "2026-01-15T01:00:00Z", "bad_window", "ending_before"),
    ("2200-01-01T00:00:00Z", "2200-01-02T00:00:00Z", "bad_window", "starting_on"),
    ("9999-01-01T00:00:00Z", "9999-01-02T00:00:00Z", "bad_window", "starting_on")])
def test_usage_windows(api, begin, end, code, field):
    window = {"starting_on": begin, "ending_before": end}
    answer = api.get("billing/usage/events",
                     params={name: value for name, value in window.items() if value})
    refused(answer, 400, code, field, field=field)


@pytest.mark.parametrize("path", ["sessions", "sessions/x", "training_runs", "training_runs/x"])
def test_access_scopes(api, path):
    refused(api.get(path, params={"access_scope": "all"}), 400, "invalid_field", "all",
            "accessible", field="access_scope")


@pytest.mark.parametrize("key", [
    None, "", "tml-", "nonsense", "tml-" + "a" * 5000, "tml-\x80\xff", "tml-a_b", "Bearer x"])
def test_keys_that_are_none(api, key):
    headers = {} if key is None else {"X-API-Key": key.encode("latin-1")}
    answer = httpx.get(api.server.url + "/api/v1/sessions", headers=headers)
    refused(answer, 401, "unauthenticated")
    assert answer.headers["www-authenticate"] and "TINKER_API_KEY" in answer.json()["error"]["hint"]


def test_one_changed_character_spoils_a_key(api):
    last = "a" if api.key[-1] != "a" else "b"
    wrong, absent = RawApi(api.server, api.key[:-1] + last), RawApi(api.server, "")
    assert wrong.get("sessions").json() == absent.get("sessions").json()
