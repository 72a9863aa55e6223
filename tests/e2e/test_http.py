"""Raw HTTP: what a broken or foreign client sees. The server keeps serving after each."""

import httpx
import pytest
import zstandard


@pytest.fixture(scope="module")
def http(lathe):
    with httpx.Client(base_url=lathe.url + "/api/v1/", headers={"X-API-Key": lathe.api_key},
                      timeout=30) as client:
        yield client


@pytest.fixture(autouse=True)
def still_serving(http):
    yield
    assert http.get("healthz").json() == {"status": "ok"}
    assert http.get("get_server_capabilities").status_code == 200


def checked(answer, status):
    """Every error has a body and a length (the SDK takes a bare 400 for a broken connection)."""
    assert answer.status_code == status, answer.text
    assert int(answer.headers["content-length"]) == len(answer.content) > 0
    assert answer.json()["detail"]
    return answer.json()["detail"]


def test_keys_are_required_and_checked(lathe):
    for headers in ({}, {"X-API-Key": "tml-wrong"}, {"X-API-Key": "tml-" + "a" * 60}):
        answer = httpx.post(f"{lathe.url}/api/v1/create_session", headers=headers, json={})
        checked(answer, 401)
        assert "www-authenticate" in answer.headers


def test_health_needs_no_key(lathe):
    assert httpx.get(f"{lathe.url}/api/v1/healthz").json() == {"status": "ok"}


def test_a_revoked_key_stops_working(lathe):
    import subprocess
    import time
    from support.lathe_server import BIN
    key = lathe.create_key("leaver")
    headers = {"X-API-Key": key}
    assert httpx.get(f"{lathe.url}/api/v1/sessions", headers=headers).status_code == 200
    listed = subprocess.run([str(BIN / "lathe"), "keys", "list", "--data-dir", lathe.data_dir],
                            check=True, capture_output=True, text=True).stdout
    key_id = next(line.split()[0] for line in listed.splitlines() if "leaver" in line)
    subprocess.run([str(BIN / "lathe"), "keys", "revoke", key_id, "--data-dir", lathe.data_dir],
                   check=True, capture_output=True)
    deadline = time.monotonic() + 6
    while httpx.get(f"{lathe.url}/api/v1/sessions", headers=headers).status_code != 401:
        assert time.monotonic() < deadline, "the key still works after 6 s"
        time.sleep(0.2)


@pytest.mark.parametrize("path, body", [
    ("forward_backward", b"\xff\xff\xff\xff"),
    ("forward_backward", b"\x0a\x05ab")])
def test_malformed_protobuf_is_400(http, path, body):
    checked(http.post(path, content=body, headers={"Content-Type": "application/x-protobuf"}), 400)


def test_malformed_json_is_400_with_its_position(http):
    detail = checked(http.post("optim_step", content=b'{"model_id": "a",, }',
                               headers={"Content-Type": "application/json"}), 400)
    assert any(character.isdigit() for character in detail)
    checked(http.post("asample", content=b'{"prompt": [1, 2',
                      headers={"Content-Type": "application/json"}), 400)


def test_bad_zstd_and_bombs_are_refused(http):
    headers = {"Content-Type": "application/x-protobuf", "Content-Encoding": "zstd"}
    checked(http.post("forward_backward", content=b"not zstd at all", headers=headers), 400)
    frame = zstandard.compress(b"abc" * 1000)
    checked(http.post("forward_backward", content=frame[:-5], headers=headers), 400)
    bomb = zstandard.compress(b"\0" * (600 << 20))
    checked(http.post("forward_backward", content=bomb, headers=headers), 413)


def test_a_body_over_the_limit_is_413(http):
    answer = http.post("forward_backward", content=b"\0" * (129 << 20),
                       headers={"Content-Type": "application/x-protobuf"})
    checked(answer, 413)


def test_unknown_routes_methods_and_objects(http):
    checked(http.get("no_such_route"), 404)
    assert "allow" in http.get("optim_step").headers
    checked(http.get("optim_step"), 405)
    checked(http.post("get_info", json={"model_id": "nobody:train:0"}), 404)
    checked(http.get("training_runs/nobody:train:0"), 404)
    checked(http.get("samplers/nobody:sample:0"), 404)
    checked(http.post("retrieve_future", json={"request_id": "nope"}), 404)
    checked(http.post("optim_step", json={
        "model_id": "nobody:train:0", "seq_id": 1, "adam_params": {
            "learning_rate": 1e-4, "beta1": 0.9, "beta2": 0.95, "eps": 1e-12,
            "weight_decay": 0.0, "grad_clip_norm": 0.0}}), 404)


def session_and_model(http, lathe, rank=2):
    session = http.post("create_session", json={
        "tags": [], "user_metadata": {}, "sdk_version": "raw", "type": "create_session"}).json()
    future = http.post("create_model", json={
        "session_id": session["session_id"], "model_seq_id": 0, "base_model": lathe.model_name,
        "lora_config": {"rank": rank, "train_unembed": True, "train_mlp": True,
                        "train_attn": True}}).json()
    model_id = result_of(http, future)["model_id"]
    assert model_id == session["session_id"] + ":train:0"
    return session["session_id"], model_id


def result_of(http, future):
    while True:
        answer = http.post("retrieve_future", json={"request_id": future["request_id"],
                                                    "allow_metadata_only": True}).json()
        if answer.get("type") != "try_again":
            return answer


def adam(**changes):
    return {"learning_rate": 1e-4, "beta1": 0.9, "beta2": 0.95, "eps": 1e-12, "weight_decay": 0.0,
            "grad_clip_norm": 0.0, **changes}


def test_a_repeated_step_is_the_same_step(http, lathe):
    _, model_id = session_and_model(http, lathe)
    body = {"model_id": model_id, "seq_id": 1, "adam_params": adam()}
    first, again = (http.post("optim_step", json=body).json() for _ in range(2))
    assert first["request_id"] == again["request_id"]
    detail = checked(http.post("optim_step", json={**body, "adam_params": adam(beta1=0.5)}), 400)
    assert "1" in detail and "seq" in detail
    assert "error" not in result_of(http, first)


@pytest.mark.parametrize("changes, word", [
    ({"learning_rate": -1.0}, "learning_rate"), ({"beta1": 1.0}, "beta1"), ({"eps": 0.0}, "eps"),
    ({"grad_clip_norm": -1.0}, "grad_clip_norm")])
def test_bad_adam_values_are_named(http, lathe, changes, word):
    _, model_id = session_and_model(http, lathe)
    detail = checked(http.post("optim_step", json={
        "model_id": model_id, "seq_id": 1, "adam_params": adam(**changes)}), 400)
    assert word in detail


@pytest.mark.parametrize("rank", [0, -3, 513])
def test_bad_ranks_are_named(http, lathe, rank):
    session = http.post("create_session", json={
        "tags": [], "user_metadata": {}, "sdk_version": "raw"}).json()
    detail = checked(http.post("create_model", json={
        "session_id": session["session_id"], "model_seq_id": 0, "base_model": lathe.model_name,
        "lora_config": {"rank": rank, "train_unembed": True, "train_mlp": True,
                        "train_attn": True}}), 400)
    assert str(rank) in detail


def json_batch(model_id, seq_id, data=None, **changes):
    tensor = lambda values, dtype: {"data": values, "dtype": dtype, "shape": [len(values)]}
    data = data if data is not None else [{
        "model_input": {"chunks": [{"type": "encoded_text", "tokens": [30, 31, 32]}]},
        "loss_fn_inputs": {"target_tokens": tensor([31, 32, 33], "int64"),
                           "weights": tensor([0.0, 1.0, 1.0], "float32")}}]
    return {"forward_backward_input": {"data": data, "loss_fn": "cross_entropy", **changes},
            "model_id": model_id, "seq_id": seq_id}


def test_plain_json_trains(http, lathe):
    _, model_id = session_and_model(http, lathe)
    result = result_of(http, http.post("forward_backward", json=json_batch(model_id, 1)).json())
    logprobs = result["loss_fn_outputs"][0]["logprobs"]
    assert logprobs["dtype"] == "float32" and len(logprobs["data"]) == 3
    assert result["metrics"]["loss:sum"] == pytest.approx(-sum(logprobs["data"][1:]), rel=1e-5)
    step = http.post("optim_step", json={"model_id": model_id, "seq_id": 2,
                                         "adam_params": adam()}).json()
    assert result_of(http, step)["metrics"]["grad_norm"] > 0


def test_empty_data_fails_through_the_future(http, lathe):
    _, model_id = session_and_model(http, lathe)
    future = http.post("forward_backward", json=json_batch(model_id, 1, data=[]))
    assert future.status_code == 200
    result = result_of(http, future.json())
    assert result["category"] == "user" and "data" in result["error"]


def test_unsupported_behaviour_is_refused_by_name(http, lathe):
    session_id, model_id = session_and_model(http, lathe)
    sampler = http.post("create_sampling_session", json={
        "session_id": session_id, "sampling_session_seq_id": 0,
        "base_model": lathe.model_name}).json()["sampling_session_id"]
    sample = {"num_samples": 1, "sampling_session_id": sampler, "seq_id": 0,
              "prompt": {"chunks": [{"type": "encoded_text", "tokens": [30]}]},
              "sampling_params": {"max_tokens": 1, "temperature": 1.0, "top_k": -1, "top_p": 1.0},
              "prompt_logprobs": False, "topk_prompt_logprobs": 0}
    assert "model_path" in checked(
        http.post("asample", json={**sample, "model_path": "tinker://a/weights/b"}), 400)
    assert "dimuon" in checked(http.post("create_model", json={
        "session_id": session_id, "model_seq_id": 1, "base_model": lathe.model_name,
        "lora_config": {"rank": 2, "train_unembed": True, "train_mlp": True, "train_attn": True},
        "optimizer_config": {"type": "dimuon", "version": 1}}), 400)
    answer = http.post("asample", json={**sample, "seq_id": 1, "record_stability_info": True,
                                        "some_future_field": 1}).json()
    assert answer["sample_sequence_ids"] == [f"{sampler}:1:0"]


def test_foreign_objects_look_absent(http, lathe):
    _, model_id = session_and_model(http, lathe)
    headers = {"X-API-Key": lathe.create_key("foreigner")}
    own = checked(http.post("get_info", json={"model_id": "absent:train:0"}), 404)
    foreign = checked(httpx.post(f"{lathe.url}/api/v1/get_info", headers=headers,
                                 json={"model_id": model_id}), 404)
    assert foreign.replace(model_id, "absent:train:0") == own
    checked(httpx.post(f"{lathe.url}/api/v1/optim_step", headers=headers, json={
        "model_id": model_id, "seq_id": 1, "adam_params": adam()}), 404)
    future = http.post("optim_step", json={"model_id": model_id, "seq_id": 1,
                                           "adam_params": adam()}).json()
    checked(httpx.post(f"{lathe.url}/api/v1/retrieve_future", headers=headers,
                       json={"request_id": future["request_id"]}), 404)


def test_unload_frees_the_model(http, lathe):
    _, model_id = session_and_model(http, lathe)
    result = result_of(http, http.post("unload_model", json={"model_id": model_id}).json())
    assert result["model_id"] == model_id
    answer = http.post("optim_step", json={"model_id": model_id, "seq_id": 1,
                                           "adam_params": adam()})
    assert answer.status_code in (400, 404)


def test_service_endpoints_answer_as_the_contract_says(http):
    config = http.post("client/config", json={"sdk_version": "0.38.0"}).json()
    assert config["parallel_fwdbwd_chunks"] is False
    assert http.post("client/dynamic_config", json={"sdk_version": "0.38.0"}).status_code == 200
    assert http.post("telemetry", json={"events": [], "platform": "Linux", "sdk_version": "0.25.0",
                                        "session_id": "s"}).json() == {"status": "accepted"}


def test_a_malformed_batch_uses_up_its_place_and_the_next_one_runs(http, lathe):
    _, model_id = session_and_model(http, lathe)
    name = model_id.encode()
    # model_id and seq_id 1 can be read; the datum after them is cut short.
    body = b"\x0a" + bytes([len(name)]) + name + b"\x10\x01" + b"\x1a\x7f\x0a"
    detail = checked(http.post("forward_backward", content=body,
                               headers={"Content-Type": "application/x-protobuf"}), 400)
    assert any(character.isdigit() for character in detail)
    result = result_of(http, http.post("forward_backward", json=json_batch(model_id, 2)).json())
    assert "loss:sum" in result["metrics"]
    # The gradient lacks the part that could not be read; a step says so once, then counts again.
    step = {"model_id": model_id, "adam_params": adam()}
    refused = result_of(http, http.post("optim_step", json={**step, "seq_id": 3}).json())
    assert refused["category"] == "user" and "seq 1" in refused["error"]
    assert "metrics" in result_of(http, http.post("optim_step", json={**step, "seq_id": 4}).json())


def test_create_custom_loss_is_refused_by_name(http):
    assert "create_custom_loss" in checked(http.post("create_custom_loss", json={
        "session_id": "s", "custom_loss_seq_id": 0, "name": "f", "inputs": [], "graph": {}}), 400)
    config = http.post("client/config", json={"sdk_version": "0.38.0"}).json()
    assert config["custom_loss_server_side"] is False
