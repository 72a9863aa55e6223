"""Rows 13 to 20 and 26 to 31 of the bad-input table: JSON, protobuf, tensors and datums.

A forward_backward that can be read but not run is accepted and fails through its future, because a
refused chunk would leave the client's sequence with a hole (docs/api.md)."""

import pytest

from conftest import refused
from support.raw_api import ADAM, RawModel, datum, tensor

JSON = {"Content-Type": "application/json"}
PROTO = {"Content-Type": "application/x-protobuf"}


@pytest.mark.parametrize("path", ["optim_step", "asample", "forward_backward", "create_session"])
@pytest.mark.parametrize("body, code, words", [
    (b"", "bad_json", ["line 1, column 1"]),
    (b"{", "bad_json", ["line 1"]),
    (b'{"a": 1,\n "b": }', "bad_json", ["line 2, column 7", "byte 15"]),
    (b'{"a": tru', "bad_json", ["line 1"]),
    (b"{} trailing", "bad_json", ["line 1"]),
    (b'{"a": "\xff\xfe"}', "bad_json", ["line 1"]),
    (b'{"a": "\xed\xa0\x80"}', "bad_json", ["line 1"]),
    (b"\xef\xbb\xbf\xef\xbb\xbf{}", "bad_json", ["line 1"]),
    (b"[" * 65 + b"]" * 65, "too_deep", ["64"]),
    (b"[" * 5_000, "too_deep", ["64"]),
    (b'{"a":' * 65 + b"1" + b"}" * 65, "too_deep", ["64"]),
    (b'{"seq_id": 1, "seq_id": 1}', "duplicate_key", ["/seq_id"]),
    (b'{"model_id": "m", "seq_id": 1e999}', "bad_number", ["/seq_id"]),
    (b'{"model_id": "m", "seq_id": 18446744073709551616}', "bad_number", ["/seq_id"]),
    (b'{"model_id": "m", "seq_id": NaN}', "bad_number", ["NaN", "line 1, column 29"]),
    (b'{"a": -Infinity}', "bad_number", ["Infinity"]),
    (b"[]", "invalid_field", ["object"]), (b"null", "invalid_field", ["object"]),
    (b"1", "invalid_field", ["object"])])
def test_json_that_is_none(api, path, body, code, words):
    answer = api.post(path, content=body, headers=JSON)
    refused(answer, 400, code, *words)


def test_nothing_of_a_body_is_quoted(api):
    answer = api.post("optim_step", content=b'{"secret": "s3cr3t" !}', headers=JSON)
    refused(answer, 400, "bad_json")
    assert "s3cr3t" not in answer.text


@pytest.mark.parametrize("path, body, field, expected", [
    ("create_session", {"tags": "x"}, "/tags", "list of strings"),
    ("create_session", {"tags": [1]}, "/tags", "list of strings"),
    ("create_session", {"sdk_version": 5}, "/sdk_version", "got number"),
    ("create_model", {"model_seq_id": 0, "base_model": "tiny"}, "/session_id", "missing"),
    ("create_model", {"session_id": "s", "base_model": "tiny"}, "/model_seq_id", "missing"),
    ("create_model", {"session_id": "s", "model_seq_id": 0}, "/base_model", "missing"),
    ("create_model", {"session_id": "s", "model_seq_id": 0, "base_model": "tiny",
                      "lora_config": {"rank": "8"}}, "/lora_config/rank", "got string"),
    ("create_model", {"session_id": "s", "model_seq_id": 0, "base_model": "tiny",
                      "lora_config": []}, "/lora_config", "got array"),
    ("create_model", {"session_id": "s", "model_seq_id": 0, "base_model": "tiny",
                      "lora_config": {"train_mlp": 1}}, "/lora_config/train_mlp", "got number"),
    ("get_info", {}, "/model_id", "missing"), ("get_info", {"model_id": 5}, "/model_id", "number"),
    ("optim_step", {"model_id": "m", "seq_id": 1}, "/adam_params", "missing"),
    ("optim_step", {"model_id": "m", "seq_id": 1.5, "adam_params": {}}, "/seq_id", "integer"),
    ("optim_step", {"model_id": "m", "seq_id": 1, "adam_params": {"learning_rate": 0, "eps": "x"}},
     "/adam_params/eps", "got string"),
    ("save_weights", {"model_id": "m", "seq_id": 1}, "/path", "missing"),
    ("save_weights", {"model_id": "m", "seq_id": 1, "path": "a", "overwrite": "yes"}, "/overwrite",
     "got string"),
    ("load_weights", {"model_id": "m", "seq_id": 1}, "/path", "missing"),
    ("weights_info", {}, "/tinker_path", "missing"),
    ("retrieve_future", {}, "/request_id", "missing"),
    ("session_heartbeat", {}, "/session_id", "missing"),
    ("create_sampling_session", {"session_id": "s"}, "/sampling_session_seq_id", "missing"),
    ("asample", {"seq_id": 0, "prompt": {"chunks": []}, "sampling_params": {}},
     "/sampling_session_id", "missing"),
    ("asample", {"sampling_session_id": "s", "seq_id": 0, "sampling_params": {}}, "/prompt",
     "missing"),
    ("asample", {"sampling_session_id": "s", "seq_id": 0, "prompt": {"chunks": [
        {"type": "encoded_text", "tokens": [1, "2"]}]}, "sampling_params": {}},
     "/prompt/chunks/0/tokens/1", "integer"),
    ("asample", {"sampling_session_id": "s", "seq_id": 0, "prompt": {"chunks": [
        {"type": "encoded_text", "tokens": [2**31]}]}, "sampling_params": {}},
     "/prompt/chunks/0/tokens/0", "32-bit"),
    ("asample", {"sampling_session_id": "s", "seq_id": 0, "prompt": {"chunks": []},
                 "sampling_params": {"stop": ["a", 1]}}, "/sampling_params/stop", "only strings"),
    ("forward_backward", {"model_id": "m", "seq_id": 1}, "/forward_backward_input", "missing"),
    ("forward_backward", {"model_id": "m", "seq_id": 1, "forward_backward_input": {
        "loss_fn": "cross_entropy", "data": {}}}, "/forward_backward_input/data", "list")])
def test_wrong_types_and_missing_fields(api, path, body, field, expected):
    refused(api.post(path, body), 400, "invalid_field", expected, field, field=field)


def test_unknown_fields_are_skipped(api):
    assert api.post("create_session", {"tags": [], "brand_new": {"a": [1]}}).status_code == 200


@pytest.mark.parametrize("body, words", [
    (b"\xff\xff\xff\xff", ["byte"]), (b"\x0a\x05ab", ["model_id", "length 5", "2 bytes"]),
    (b"\x1a\x04\x0a\x7f\x0a\x00", ["data"]), (b"\x00\x00", ["field number 0"]),
    (b"\x0e", ["wire type 6"]), (b"\x0a\x02\xff\xfe", ["UTF-8"])])
def test_protobuf_that_is_none(api, body, words):
    refused(api.post("forward_backward", content=body, headers=PROTO), 400, "bad_proto", *words)


def test_the_refusal_of_a_damaged_body_uses_up_its_seq_id(api):
    """And a step must not apply a gradient that lacks a part."""
    model = RawModel(api)
    body = (b"\x0a" + bytes([len(model.model_id)]) + model.model_id.encode() + b"\x10" +
            bytes([model.next_seq_id()]) + b"\x1a\x7f")
    refused(api.post("forward_backward", content=body, headers=PROTO), 400, "bad_proto", "data")
    step = {"model_id": model.model_id, "seq_id": 2, "adam_params": ADAM}
    result = api.result(api.made("optim_step", step))
    assert result["category"] == "user" and "seq 1 failed" in result["error"]
    assert api.result(api.made("optim_step", {**step, "seq_id": 3}))["metrics"]["no_gradient"] == 1


def pieces(*pairs):
    return [{"model_input": {"chunks": chunks}, "loss_fn_inputs": datum()["loss_fn_inputs"]}
            for chunks in pairs]


TEXT = {"type": "encoded_text", "tokens": [30, 31, 32]}
RL = {"target_tokens": tensor([31, 32, 33], "int64"), "logprobs": tensor([-1.0] * 3),
      "advantages": tensor([1.0] * 3)}


def sparse(rows, cols, crow, col, values=None, dtype="int64"):
    return {"data": [1] * len(col) if values is None else values, "dtype": dtype,
            "shape": [rows, cols], "sparse_crow_indices": crow, "sparse_col_indices": col}


@pytest.mark.parametrize("changes, words", [
    ({"data": []}, ["data is empty"]),
    ({"data": pieces([])}, ["data[0].model_input", "no tokens"]),
    ({"data": [datum(), datum([])]}, ["data[1].model_input", "no tokens"]),
    ({"data": [datum([30, -1, 32])]}, ["data[0].model_input", "position 1", "-1", "vocabulary"]),
    ({"data": [datum([30, 10**6, 32])]}, ["data[0].model_input", "1000000", "vocabulary"]),
    ({"data": [datum(target_tokens=tensor([1, 2, 10**12], "int64"))]},
     ["target_tokens", "1000000000000"]),
    ({"data": [datum([30] * 100_000)]}, ["data[0].model_input", "100000 tokens", "limit is"]),
    ({"data": pieces([{"type": "image", "data": "aGk=", "format": "png"}])}, ["chunk 0", "'image'"]),
    ({"data": pieces([TEXT, {"type": "image_asset_pointer", "location": "file:///etc/passwd"}])},
     ["chunk 1", "'image_asset_pointer'"]),
    ({"loss_fn": "no_such_loss"}, ["'no_such_loss'", "cross_entropy"]),
    ({"loss_fn": ""}, ["loss_fn", "cross_entropy"]),
    ({"data": [datum(target_tokens=None)]}, ["target_tokens", "missing"]),
    ({"data": [datum(surplus=tensor([1.0] * 3))]}, ["surplus", "weights"]),
    ({"data": [datum(weights=tensor([1.0] * 2))]}, ["weights", "2", "3"]),
    ({"data": [datum(target_tokens=tensor([1, 2], "int64"))]}, ["target_tokens", "2", "3"]),
    ({"data": [datum(target_tokens=tensor([1.0, 2.0, 3.0]))]}, ["dtype", "float32", "int64"]),
    ({"data": [datum(weights=tensor([1, 1, 2**24 + 1], "int64"))]}, ["dtype", "int64", "float32"]),
    ({"data": [datum(weights=tensor([1.0] * 3, shape=[4]))]}, ["weights", "[4]", "bytes"]),
    ({"data": [datum(weights=tensor([1.0] * 3, shape=[-3]))]}, ["weights", "[-3]"]),
    ({"data": [datum(weights=tensor([1.0] * 3, shape=[2**32, 2**32]))]}, ["weights", "range"]),
    ({"data": [datum(weights=tensor([1.0] * 3, shape=[2**31, 2**31]))]}, ["weights"]),
    ({"data": [datum(weights=tensor([1.0] * 3, shape=[1, 1, 3]))]}, ["3 dimensions", "limit is 2"]),
    ({"data": [datum(weights=tensor([1.0, 1e39, 1.0]))]}, ["weights", "position 1"]),
    ({"data": [datum(target_tokens=sparse(3, 4, [0, 1, 2, 3], [0, 1, 4]), weights=None)]},
     ["target_tokens", "4"]),
    ({"data": [datum(target_tokens=sparse(3, 4, [0, 1, 2, 3], [0, 1, -1]), weights=None)]},
     ["target_tokens", "-1"]),
    ({"data": [datum(target_tokens=sparse(3, 4, [0, 2, 1, 3], [0, 1, 2]), weights=None)]},
     ["target_tokens"]),
    ({"data": [datum(target_tokens=sparse(3, 4, [0, 2, 2, 2], [1, 0]), weights=None)]},
     ["target_tokens"]),
    ({"data": [datum(target_tokens=sparse(3, 4, [0, 1, 2, 10**9], [0, 1, 2]), weights=None)]},
     ["target_tokens"]),
    ({"data": [datum(target_tokens=sparse(3, 2**31, [0, 1, 2, 3], [0, 1, 2]), weights=None)]},
     ["target_tokens"]),
    ({"loss_fn": "ppo", "data": [datum(inputs={**RL, "logprobs": None})]}, ["logprobs", "missing"]),
    ({"loss_fn": "ppo", "data": [datum(inputs={**RL, "advantages": tensor([1e39, 0.0, 0.0])})]},
     ["advantages", "position 0"]),
    ({"loss_fn": "ppo", "data": [datum(inputs=RL)],
      "loss_fn_config": {"clip_low_threshold": -0.5}}, ["clip_low_threshold", "-0.5"]),
    ({"loss_fn": "ppo", "data": [datum(inputs=RL)],
      "loss_fn_config": {"clip_low_threshold": 1.5, "clip_high_threshold": 1.2}},
     ["clip_low_threshold", "1.5", "1.2"]),
    ({"loss_fn": "ppo", "data": [datum(inputs=RL)], "loss_fn_config": {"nonsense": 1}},
     ["nonsense", "clip_high_threshold"])])
def test_batches_that_cannot_run(witness, changes, words):
    answer = witness.model.forward_backward(**changes)
    assert answer.status_code == 200, answer.text
    result = witness.api.result(answer.json())
    assert result["category"] == "user", result
    for word in words:
        assert word in result["error"], (word, result["error"])


def test_a_step_sent_before_a_failure_was_delivered_is_refused(api):
    model = RawModel(api)
    model.accumulate()
    failing = model.forward_backward(data=[])
    step = api.made("optim_step", {"model_id": model.model_id, "seq_id": 3, "adam_params": ADAM})
    assert "error" in api.result(failing.json())
    result = api.result(step)
    assert result["category"] == "user" and "seq 2 failed" in result["error"]


def test_a_step_without_gradients_says_so(api):
    metrics = api.result(api.made("optim_step", {
        "model_id": RawModel(api).model_id, "seq_id": 1, "adam_params": ADAM}))["metrics"]
    assert metrics["no_gradient"] == 1.0 and metrics["grad_norm"] == 0.0
