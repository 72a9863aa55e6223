"""Rows 21 to 36 of the bad-input table: sequence, sessions and training."""

import sqlite3

import pytest

from bad_input_table import ROWS, row, rows_of
from conftest import refused
from support.lathe_server import LatheServer, tiny_model
from support.raw_api import ADAM, RawApi, RawModel, datum, tensor


@row(21)
def bad_seq_ids(w):
    for seq_id in (-1, 2**31):
        refused(w.post("optim_step", w.step(seq_id)), 400, "bad_seq_id", str(seq_id), "2147483647",
                field="seq_id")


@row(22)
def seq_ids_used_twice(w):
    model = RawModel(w.api)
    body = {"model_id": model.model_id, "seq_id": 1, "adam_params": ADAM}
    first = w.api.made("optim_step", body)
    refused(w.post("optim_step", {**body, "adam_params": {**ADAM, "beta1": 0.5}}), 400,
            "seq_id_reused", "1", "TrainingClient")
    w.api.result(first)


@row(23)
def seq_ids_far_ahead(w):
    model = RawModel(w.api)
    answer = w.post("optim_step", {"model_id": model.model_id, "seq_id": 70000, "adam_params": ADAM})
    refused(answer, 429, "too_far_ahead", "70000", "limit is 65536", field="seq_id")
    assert int(answer.headers["Retry-After"]) > 0


@row(24)
def what_is_not_there(w):
    stranger = RawApi(w.server, w.server.create_key("bad-input-stranger"))
    foreign = stranger.post("get_info", {"model_id": w.model.model_id})
    refused(foreign, 404, "not_found")
    absent = stranger.post("get_info", {"model_id": "absent"})
    assert foreign.text.replace(w.model.model_id, "absent") == absent.text
    stranger.close()


@row(25)
def results_past_their_time(w):
    """The SDK repeats such a sample and tells a training program that its promise is lost."""
    with LatheServer(tiny_model()) as server:
        api = RawApi(server)
        future = api.made("optim_step", {"model_id": RawModel(api).model_id, "seq_id": 1,
                                         "adam_params": ADAM})
        assert "error" not in api.result(future)
        server.stop()
        # What the purge does to it an hour after its delivery.
        with sqlite3.connect(f"{server.data_dir}/lathe.db") as database:
            database.execute("DELETE FROM results WHERE request_id = ?", (future["request_id"],))
        database.close()
        server.start()
        refused(api.post("retrieve_future", future), 410, "result_expired", "1 h after", "24 h", field="request_id")
        api.close()


@row(26)
def empty_batches(w):
    w.fails("data is empty", data=[])
    w.fails("data[1].model_input", "no tokens", data=[datum(), datum([])])


@row(27)
def bad_tokens(w):
    w.fails("data[0].model_input", "position 1", "-1", "vocabulary", data=[datum([30, -1, 32])])


@row(28)
def long_sequences(w):
    w.fails("100000 tokens", "limit is", data=[datum([30] * 100_000)])


@row(29)
def bad_losses(w):
    w.fails("'no_such_loss'", "cross_entropy", loss_fn="no_such_loss")
    w.fails("weights", "2", "3", data=[datum(weights=tensor([1.0] * 2))])


@row(30)
def numbers_that_are_not_finite(w):
    w.fails("weights", "position 1", data=[datum(weights=tensor([1.0, 1e39, 1.0]))])


@row(31)
def bad_loss_configs(w):
    inputs = {"target_tokens": tensor([31, 32, 33], "int64"), "logprobs": tensor([-1.0] * 3),
              "advantages": tensor([1.0] * 3)}
    w.fails("clip_low_threshold", "-0.5", data=[datum(inputs=inputs)], loss_fn="ppo",
            loss_fn_config={"clip_low_threshold": -0.5})
    w.fails("clip_low_threshold", "position 1", "-0.5", loss_fn="ppo", data=[datum(
        inputs={**inputs, "clip_low_threshold": tensor([0.5, -0.5, 0.5])})])
    for config, words in (({"kl_coef": -1}, ["kl_coef is -1", "at least 0"]),
                          ({"dual_clip_threshold": 1}, ["dual_clip_threshold is 1", "above 1"]),
                          ({"normalization": "mean"}, ["'mean'", "none, tokens or datums"]),
                          ({"kl": 0.1}, ["'kl'", "kl_coef, normalization"])):
        w.fails(*words, data=[datum(inputs=inputs)], loss_fn="ppo", loss_fn_config=config)
    for reference, config, words in (
            (None, {"kl_coef": 0.1}, ["data[0].loss_fn_inputs.reference_logprobs is missing"]),
            ([-1.0] * 3, {}, ["reference_logprobs is given", "kl_coef is not"]),
            ([-1.0] * 2, {"kl_coef": 0.1}, ["reference_logprobs", "length is 2", "target_tokens has 3"]),
            ([-1.0, 1e39, -1.0], {"kl_coef": 0.1}, ["reference_logprobs", "position 1"])):
        given = {} if reference is None else {"reference_logprobs": tensor(reference)}
        w.fails(*words, data=[datum(inputs={**inputs, **given})], loss_fn="ppo",
                loss_fn_config=config)


@row(32)
def bad_optimizers(w):
    refused(w.post("optim_step", w.step(1, beta1=1.0)), 400, "bad_optimizer", "beta1 is 1", "[0, 1)",
            field="adam_params.beta1")
    refused(w.post("optim_step", w.step(1, learning_rate=-1)), 400, "bad_optimizer", "-1")


@row(33)
def steps_without_gradient(w):
    metrics = w.api.result(w.api.made("optim_step", {
        "model_id": RawModel(w.api).model_id, "seq_id": 1, "adam_params": ADAM}))["metrics"]
    assert metrics["no_gradient"] == 1.0 and metrics["grad_norm"] == 0.0


@row(34)
def steps_over_a_failure(w):
    model = RawModel(w.api)
    failing = model.forward_backward(data=[])
    step = w.api.made("optim_step", {"model_id": model.model_id, "seq_id": 2, "adam_params": ADAM})
    assert "error" in w.api.result(failing.json())
    result = w.api.result(step)
    assert result["category"] == "user" and "seq 1 failed" in result["error"]


@row(35)
def bad_lora_configs(w):
    body = {"session_id": w.model.session_id, "model_seq_id": 1, "base_model": "tiny"}
    refused(w.post("create_model", {**body, "lora_config": {"rank": 0}}), 400, "bad_lora",
            "rank is 0", "1 to 512")
    for metadata, words in (
            ({"lathe_lora_alpha": "0"}, ["lathe_lora_alpha is '0'", "above 0"]),
            ({"lathe_lora_alpha": "inf"}, ["lathe_lora_alpha is 'inf'"]),
            ({"lathe_target_modules": "q_proj,qkv"},
             ["'qkv'", "base model 'tiny' has q_proj", "lm_head"])):
        shaped = {**body, "lora_config": {"rank": 2}, "user_metadata": metadata}
        refused(w.post("create_model", shaped), 400, "bad_lora", *words,
                field="user_metadata." + next(iter(metadata)))
    refused(w.post("create_model", {**body, "lora_config": {"rank": 2, "train_mlp": False},
                                    "user_metadata": {"lathe_target_modules": "q_proj,up_proj"}}),
            400, "bad_lora", "has up_proj, but lora_config.train_mlp is false")
    refused(w.post("create_model", {**body, "base_model": "no/such"}), 404, "unknown_base_model",
            "'no/such'", "tiny")


@row(36)
def checkpoints_of_another_geometry(w):
    small, large = RawModel(w.api, rank=2), RawModel(w.api, rank=8)
    path = w.api.result(w.api.made("save_weights", {"model_id": small.model_id, "seq_id": 1,
                                                    "path": "row36"}))["path"]
    # Known when its turn comes: an operation before it may still write the checkpoint.
    load = w.api.made("load_weights", {"model_id": large.model_id, "seq_id": 1, "path": path,
                                       "optimizer": True})
    failure = w.api.result(load)
    assert failure["category"] == "user"
    assert "rank 2" in failure["error"] and "rank 8" in failure["error"]


@pytest.mark.parametrize("number", rows_of(__name__))
def test_row(world, number):
    ROWS[number](world)
