"""Training through the stock SDK."""

import asyncio
import math

import pytest
import tinker
import torch
from tinker import types

from support.sdk import resolved


def text_datum(tokens, weights=None):
    return types.Datum(
        model_input=types.ModelInput.from_ints(tokens[:-1]),
        loss_fn_inputs={"target_tokens": tokens[1:],
                        "weights": weights or [1.0] * (len(tokens) - 1)})


def rl_datum(tokens, logprobs, advantages):
    return types.Datum(
        model_input=types.ModelInput.from_ints(tokens[:-1]),
        loss_fn_inputs={"target_tokens": tokens[1:], "logprobs": logprobs,
                        "advantages": advantages})


ROW = [30, 31, 32, 33, 34, 35, 36, 37]
ADAM = types.AdamParams(learning_rate=1e-2)


@pytest.fixture(scope="module")
def service(lathe):
    return tinker.ServiceClient(base_url=lathe.url, api_key=lathe.api_key,
                                user_metadata={"suite": "e2e"})


def new_client(service, lathe, **options):
    options = {"rank": 4, "seed": 7, **options}
    return resolved(service.create_lora_training_client(lathe.model_name, **options))


def logprobs_of(result):
    return [list(out["logprobs"].data) for out in result.loss_fn_outputs]


def test_capabilities_name_the_model_and_its_context(service, lathe):
    models = service.get_server_capabilities().supported_models
    assert [model.model_name for model in models] == [lathe.model_name]
    if hasattr(models[0], "max_context_length"):
        assert models[0].max_context_length == 2048


def test_get_info_tells_rank_and_tokenizer(service, lathe):
    client = new_client(service, lathe, rank=5)
    info = client.get_info()
    assert info.model_data.model_name == lathe.model_name
    assert info.lora_rank == 5 and info.is_lora
    tokenizer = client.get_tokenizer()
    assert tokenizer.decode(tokenizer.encode("hello there")) == "hello there"


@pytest.mark.each_sdk
def test_supervised_loss_falls_and_is_the_sum_of_negative_logprobs(service, lathe):
    client = new_client(service, lathe)
    losses = []
    for _ in range(8):
        forward = client.forward_backward([text_datum(ROW)], "cross_entropy")
        update = client.optim_step(ADAM)
        result = forward.result()
        losses.append(result.metrics["loss:sum"])
        assert losses[-1] == pytest.approx(-sum(logprobs_of(result)[0]), rel=1e-5)
        update.result()
    assert losses[-1] < 0.5 * losses[0]


def test_forward_changes_nothing(service, lathe):
    client = new_client(service, lathe)
    first = client.forward([text_datum(ROW)], "cross_entropy").result()
    client.optim_step(ADAM).result()
    again = client.forward([text_datum(ROW)], "cross_entropy").result()
    assert logprobs_of(first) == logprobs_of(again)


def test_gradients_accumulate_over_calls(service, lathe):
    data = [text_datum([40 + i, 50, 60 + i, 70]) for i in range(4)]
    whole, split = new_client(service, lathe), new_client(service, lathe)
    whole.forward_backward(data, "cross_entropy")
    for datum in data:
        split.forward_backward([datum], "cross_entropy")
    for client in (whole, split):
        client.optim_step(ADAM).result()
    after = [client.forward(data, "cross_entropy").result().metrics["loss:sum"]
             for client in (whole, split)]
    assert after[0] == pytest.approx(after[1], rel=1e-5)


def test_equal_seeds_give_equal_models_and_others_differ(service, lathe):
    def trained(seed):
        client = new_client(service, lathe, seed=seed)
        client.forward_backward([text_datum(ROW)], "cross_entropy")
        client.optim_step(ADAM)
        return client.forward([text_datum(ROW)], "cross_entropy").result().metrics["loss:sum"]

    assert trained(1) == trained(1)
    assert trained(1) != trained(2)


@pytest.mark.each_sdk
@pytest.mark.parametrize("loss", ["importance_sampling", "ppo", "cispo", "dro"])
def test_policy_losses_follow_their_definition(service, lathe, loss):
    client = new_client(service, lathe)
    p = logprobs_of(client.forward([text_datum(ROW)], "cross_entropy").result())[0]
    q = [value - 0.3 if i % 2 else value + 0.4 for i, value in enumerate(p)]
    advantages = [1.0, -1.0, 0.5, 0.0, 2.0, -0.5, 1.0]
    config = {"dro": {"beta": 0.1}, "ppo": {"clip_low_threshold": 0.9, "clip_high_threshold": 1.1},
              "cispo": {"clip_low_threshold": 0.5, "clip_high_threshold": 1.2}}.get(loss)
    kwargs = {"loss_fn_config": config} if config else {}
    result = client.forward_backward([rl_datum(ROW, q, advantages)], loss, **kwargs).result()

    def term(p_i, q_i, a):
        ratio = math.exp(p_i - q_i)
        if loss == "importance_sampling":
            return -ratio * a
        if loss == "ppo":
            return -min(ratio * a, min(max(ratio, 0.9), 1.1) * a)
        if loss == "cispo":
            return -min(max(ratio, 0.5), 1.2) * p_i * a
        return -(p_i * a - 0.5 * 0.1 * (p_i - q_i) ** 2)

    expected = sum(term(*values) for values in zip(p, q, advantages))
    assert result.metrics["loss:sum"] == pytest.approx(expected, rel=1e-3, abs=1e-4)
    assert logprobs_of(result)[0] == pytest.approx(p, abs=1e-4)


@pytest.mark.each_sdk
def test_soft_targets_dense_and_sparse_agree(service, lathe):
    client = new_client(service, lathe)
    targets = torch.zeros(4, 6, dtype=torch.int64)
    weights = torch.zeros(4, 6)
    for i in range(4):
        targets[i, 0], weights[i, 0] = 40 + i, 0.7
    targets[1, 1], weights[1, 1] = 99, 0.3

    def loss(target, weight):
        datum = types.Datum(model_input=types.ModelInput.from_ints([30, 31, 32, 33]),
                            loss_fn_inputs={"target_tokens": target, "weights": weight})
        result = client.forward([datum], "cross_entropy").result()
        out = result.loss_fn_outputs[0]["logprobs"]
        assert list(out.shape) == [4, 6]
        return result.metrics["loss:sum"]

    sparse = loss(targets, weights)
    dense = loss(types.TensorData(data=targets.flatten().tolist(), dtype="int64", shape=[4, 6]),
                 types.TensorData(data=weights.flatten().tolist(), dtype="float32", shape=[4, 6]))
    assert sparse == pytest.approx(dense, rel=1e-6)
    assert sparse > 0


@pytest.mark.each_sdk
def test_a_custom_loss_trains(service, lathe):
    client = new_client(service, lathe)
    values = []

    def squared(data, logprobs):
        loss = sum((lp ** 2).sum() for lp in logprobs)
        values.append(float(loss))
        return loss, {"squared": float(loss)}

    for _ in range(4):
        result = client.forward_backward_custom([text_datum(ROW)], squared).result()
        client.optim_step(ADAM).result()
    assert result.metrics["squared"] == pytest.approx(values[-1])
    assert values[-1] < values[0]


@pytest.mark.each_sdk
def test_more_than_a_thousand_datums_arrive_in_chunks_and_add_up(service, lathe):
    data = [text_datum([30 + i % 500, 31, 32]) for i in range(1100)]
    client = new_client(service, lathe)
    result = client.forward_backward(data, "cross_entropy").result()
    assert len(result.loss_fn_outputs) == 1100
    total = -sum(sum(row) for row in logprobs_of(result))
    assert result.metrics["loss:sum"] == pytest.approx(total, rel=1e-4)
    client.optim_step(ADAM).result()


@pytest.mark.each_sdk
def test_steps_submitted_ahead_are_applied_in_order(service, lathe):
    ahead, waiting = new_client(service, lathe), new_client(service, lathe)
    futures = []
    for i in range(12):
        futures.append(ahead.forward_backward([text_datum([30 + i, 31, 32])], "cross_entropy"))
        futures.append(ahead.optim_step(ADAM))
    piped = [future.result().metrics["loss:sum"] for future in futures[::2]]
    one_by_one = []
    for i in range(12):
        one_by_one.append(waiting.forward_backward(
            [text_datum([30 + i, 31, 32])], "cross_entropy").result().metrics["loss:sum"])
        waiting.optim_step(ADAM).result()
    assert piped == pytest.approx(one_by_one, rel=1e-6)


def test_clipping_and_decay_are_honoured(service, lathe):
    def loss_after(**params):
        client = new_client(service, lathe)
        client.forward_backward([text_datum(ROW)], "cross_entropy")
        metrics = client.optim_step(types.AdamParams(learning_rate=1e-2, **params)).result().metrics
        return metrics, client.forward(
            [text_datum(ROW)], "cross_entropy").result().metrics["loss:sum"]

    plain_metrics, plain = loss_after(eps=1e-3)
    _, clipped = loss_after(eps=1e-3, grad_clip_norm=1e-4)
    _, decayed = loss_after(eps=1e-3, weight_decay=50.0)
    assert plain_metrics["grad_norm"] > 0
    assert clipped > plain
    assert decayed != plain


def test_a_step_without_a_gradient_is_a_step(service, lathe):
    client = new_client(service, lathe)
    client.optim_step(ADAM).result()
    client.forward_backward([text_datum(ROW)], "cross_entropy").result()
    client.optim_step(ADAM).result()


def test_module_groups_can_be_left_out(service, lathe):
    for flags in ({"train_mlp": False}, {"train_attn": False}, {"train_unembed": False}):
        client = new_client(service, lathe, **flags)
        client.forward_backward([text_datum(ROW)], "cross_entropy")
        client.optim_step(ADAM).result()


@pytest.mark.each_sdk
def test_two_tenants_interleaved_do_not_touch_each_other(lathe):
    def client_of(tenant):
        service = tinker.ServiceClient(base_url=lathe.url, api_key=lathe.create_key(tenant))
        return new_client(service, lathe, rank=3 if tenant == "ann" else 6)

    async def losses(client, rows, count):
        out = []
        for _ in range(count):
            forward = await client.forward_backward_async([text_datum(rows)], "cross_entropy")
            update = await client.optim_step_async(ADAM)
            out.append((await forward.result_async()).metrics["loss:sum"])
            await update.result_async()
        return out

    async def together(ann, bob):
        return await asyncio.gather(losses(ann, ROW, 10), losses(bob, ROW[::-1], 10))

    ann, bob = asyncio.run(together(client_of("ann"), client_of("bob")))
    assert ann == pytest.approx(asyncio.run(losses(client_of("ann"), ROW, 10)), rel=1e-5)
    assert bob == pytest.approx(asyncio.run(losses(client_of("bob"), ROW[::-1], 10)), rel=1e-5)


@pytest.mark.each_sdk
@pytest.mark.parametrize("datum, word", [
    (types.Datum(model_input=types.ModelInput.from_ints([1, 2, 3]),
                 loss_fn_inputs={"target_tokens": [2, 3, 100000], "weights": [1.0] * 3}), "100000"),
    (types.Datum(model_input=types.ModelInput.from_ints([1, 2, 3]),
                 loss_fn_inputs={"target_tokens": [2, 3], "weights": [1.0] * 2}), "target_tokens"),
    (types.Datum(model_input=types.ModelInput.from_ints([1, 2, 3]),
                 loss_fn_inputs={"target_tokens": [2, 3, 4], "weights": [1.0, math.nan, 1.0]}),
     "weights"),
    (types.Datum(model_input=types.ModelInput.from_ints([5] * 2049),
                 loss_fn_inputs={"target_tokens": [5] * 2049, "weights": [1.0] * 2049}), "2049"),
])
def test_bad_data_fails_alone_and_names_the_field(service, lathe, datum, word):
    client = new_client(service, lathe)
    good = client.forward_backward([text_datum(ROW)], "cross_entropy").result()
    with pytest.raises(tinker.RequestFailedError) as failure:
        client.forward_backward([text_datum(ROW), datum], "cross_entropy").result()
    assert word in str(failure.value) and "1" in str(failure.value)
    # The gradient lacks that request, so it is dropped.
    with pytest.raises(tinker.RequestFailedError, match="seq 2 failed"):
        client.optim_step(ADAM).result()
    client.forward_backward([text_datum(ROW)], "cross_entropy").result()
    client.optim_step(ADAM).result()
    after = client.forward_backward([text_datum(ROW)], "cross_entropy").result()
    assert after.metrics["loss:sum"] < good.metrics["loss:sum"]


@pytest.mark.each_sdk
def test_a_step_behind_an_undelivered_failure_is_refused_and_the_model_goes_on(service, lathe):
    client = new_client(service, lathe)
    bad = types.Datum(model_input=types.ModelInput.from_ints([1, 2]),
                      loss_fn_inputs={"target_tokens": [2, 100000], "weights": [1.0, 1.0]})
    client.forward([text_datum(ROW)], "cross_entropy").result()
    failing = client.forward_backward([bad], "cross_entropy")
    step = client.optim_step(ADAM)
    with pytest.raises(tinker.RequestFailedError):
        failing.result()
    try:
        step.result()
    except tinker.RequestFailedError as error:
        assert "incomplete" in str(error)
    client.forward_backward([text_datum(ROW)], "cross_entropy").result()
    client.optim_step(ADAM).result()


@pytest.mark.each_sdk
def test_unknown_losses_and_inputs_are_named(service, lathe):
    client = new_client(service, lathe)
    with pytest.raises(tinker.RequestFailedError, match="no_such_loss"):
        client.forward_backward([text_datum(ROW)], "no_such_loss").result()
    odd = types.Datum(model_input=types.ModelInput.from_ints([1, 2]),
                      loss_fn_inputs={"target_tokens": [2, 3], "weights": [1.0, 1.0],
                                      "mask": types.TensorData(data=[1.0, 1.0], dtype="float32",
                                                               shape=[2])})
    with pytest.raises(tinker.RequestFailedError, match="mask"):
        client.forward_backward([odd], "cross_entropy").result()


@pytest.mark.each_sdk
def test_bad_lora_and_base_model_are_refused(service, lathe):
    with pytest.raises(tinker.APIStatusError, match="513"):
        new_client(service, lathe, rank=513)
    with pytest.raises(tinker.APIStatusError, match="no/such-model"):
        resolved(service.create_lora_training_client("no/such-model", rank=4))
