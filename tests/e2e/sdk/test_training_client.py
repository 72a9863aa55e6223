"""TrainingClient, method by method."""

import math

import pytest
from support.sdk_matrix import sdk_method
from tinker import types

from .conftest import ADAM, DATA, new_model

PROMPT = types.ModelInput.from_ints([30, 31, 32])
GREEDY = types.SamplingParams(max_tokens=4, temperature=0, stop=[])


def loss_of(client):
    return client.forward(DATA, "cross_entropy").result().metrics["loss:sum"]


@sdk_method("TrainingClient.get_info")
def test_get_info(answer, trained, lathe):
    """returns the name, LoRA rank and tokenizer of the model"""
    with answer(trained) as info:
        assert info.model_data.model_name == lathe.model_name and info.lora_rank == 4


@sdk_method("TrainingClient.get_tokenizer")
def test_get_tokenizer(answer, service, lathe):
    """the SDK loads the tokenizer from the name or folder that `get_info` returns"""
    with answer(new_model(service, lathe, steps=0)) as tokenizer:
        assert tokenizer.decode(tokenizer.encode("a b")) == "a b"


@sdk_method("TrainingClient.forward")
def test_forward(answer, trained):
    """returns logprobs and metrics; adds nothing to the gradient"""
    with answer(trained, DATA, "cross_entropy") as result:
        logprobs = result.loss_fn_outputs[0]["logprobs"].data
        assert result.metrics["loss:sum"] == pytest.approx(-sum(logprobs))


@sdk_method("TrainingClient.forward_backward")
def test_forward_backward(answer, service, lathe):
    """accepts the losses `cross_entropy` (also with (N, K) targets), `importance_sampling`, `ppo`,
    `cispo`, `dro`, `gspo`, `stable_reinforce` (a substitute, see
    [numerics.md](numerics.md#losses))"""
    model = new_model(service, lathe, steps=0)
    with answer(model, DATA, "cross_entropy") as result:
        model.optim_step(ADAM).result()
        assert loss_of(model) < result.metrics["loss:sum"]


@sdk_method("TrainingClient.forward_backward_custom")
def test_forward_backward_custom(answer, service, lathe):
    """the SDK runs the loss in the user's process"""
    model = new_model(service, lathe, steps=0)

    def loss(data, logprobs):
        value = -sum(values.sum() for values in logprobs)
        return value, {"mine": value.item()}

    with answer(model, DATA, loss) as result:
        model.optim_step(ADAM).result()
        assert loss_of(model) < result.metrics["mine"]


@sdk_method("TrainingClient.optim_step")
def test_optim_step(answer, service, lathe):
    """takes an AdamW step; each step may have other values"""
    model = new_model(service, lathe, steps=0)
    before = model.forward_backward(DATA, "cross_entropy").result().metrics["loss:sum"]
    with answer(model, ADAM) as step:
        assert all(math.isfinite(value) for value in (step.metrics or {}).values())
        assert loss_of(model) < before


@sdk_method("TrainingClient.save_state")
def test_save_state(answer, trained, run_id, fresh_name):
    """saves weights and optimizer; accepts `ttl_seconds`, `overwrite`, `user_metadata`"""
    with answer(trained, fresh_name) as saved:
        assert saved.path == f"tinker://{run_id}/weights/{fresh_name}"


@sdk_method("TrainingClient.load_state")
def test_load_state(answer, service, lathe, trained, saved):
    """loads the checkpoint's weights and begins with a new optimizer"""
    model = new_model(service, lathe, steps=3)
    with answer(model, saved) as loaded:
        assert loaded.path == saved and loss_of(model) == loss_of(trained)


@sdk_method("TrainingClient.load_state_with_optimizer")
def test_load_state_with_optimizer(answer, service, lathe, trained, saved):
    """loads the checkpoint's weights, moments and step count"""
    model = new_model(service, lathe, steps=3)
    with answer(model, saved) as loaded:
        assert loaded.path == saved and loss_of(model) == loss_of(trained)


@sdk_method("TrainingClient.save_weights_for_sampler")
def test_save_weights_for_sampler(answer, trained, run_id, fresh_name):
    """saves an immutable sampler version under a path; accepts `ttl_seconds`, `user_metadata`"""
    with answer(trained, fresh_name) as saved:
        assert saved.path == f"tinker://{run_id}/sampler_weights/{fresh_name}"


@sdk_method("TrainingClient.save_weights_and_get_sampling_client")
def test_save_weights_and_get_sampling_client(answer, trained):
    """makes a client that samples from a copy of the current weights; with `kind="inflight"` the
    model's next inflight save replaces these weights"""
    datum = types.Datum(model_input=types.ModelInput.from_ints([30]),
                        loss_fn_inputs={"target_tokens": [50], "weights": [1.0]})
    loss = trained.forward([datum], "cross_entropy").result().metrics["loss:sum"]
    pair = types.ModelInput.from_ints([30, 50])
    with answer(trained) as sampler:
        assert sampler.compute_logprobs(pair).result()[1] == pytest.approx(-loss, rel=1e-4)


@sdk_method("TrainingClient.create_sampling_client")
def test_create_sampling_client(answer, trained, fresh_name):
    """makes a client that samples from a `tinker://` path"""
    path = trained.save_weights_for_sampler(fresh_name).result().path
    with answer(trained, path) as sampler:
        assert len(sampler.sample(PROMPT, 1, GREEDY).result().sequences[0].tokens) == 4


@sdk_method("TrainingClient.save_weights_external")
def test_save_weights_external(answer, trained, run_id, fresh_name):
    """saves a PEFT folder for download; encrypts it if up to 10 `age_encryption_recipients` are
    named"""
    with answer(trained, fresh_name) as saved:
        assert saved.path == f"tinker://{run_id}/external_weights/{fresh_name}"
