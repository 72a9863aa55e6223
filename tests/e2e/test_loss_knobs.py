"""What losses take beyond the contract, through the stock SDK: it passes on inputs and keys that it
does not know, and strings by loss_fn_config_v2."""

import math

import pytest
import tinker
from support.sdk import VERSION, resolved
from test_losses import ROW, current_logprobs, floats, rl_datum
from tinker import types

has_strings = pytest.mark.skipif(VERSION < (0, 26, 2), reason="this SDK sends numbers only")


@pytest.fixture(scope="module")
def client(lathe):
    service = tinker.ServiceClient(base_url=lathe.url, api_key=lathe.api_key)
    return resolved(service.create_lora_training_client(lathe.model_name, rank=4, seed=7))


def loss(client, data, name, **config):
    result = client.forward(data, name, loss_fn_config=config).result()
    return result.metrics["loss:sum"]


def weighted(tokens, weights, **inputs):
    return types.Datum(
        model_input=types.ModelInput.from_ints(tokens[:-1]),
        loss_fn_inputs={"target_tokens": tokens[1:], "weights": weights,
                        **{name: floats(values) for name, values in inputs.items()}})


@pytest.mark.each_sdk
@pytest.mark.parametrize("name", ["cross_entropy", "ppo"])
def test_a_reference_adds_its_divergence(client, name):
    p = current_logprobs(client)
    reference = [0.0] + [value + 0.3 * (-1) ** i for i, value in enumerate(p[1:])]

    def datum(**inputs):
        if name == "ppo":
            return rl_datum(ROW, [value - 0.1 for value in p], [1.0] * 7, **inputs)
        return weighted(ROW, [1.0] * 7, **inputs)

    plain = loss(client, [datum()], name)
    held = loss(client, [datum(reference_logprobs=reference)], name, kl_coef=0.5)
    k3 = sum(math.exp(r - q) - (r - q) - 1 for r, q in zip(reference[1:], p[1:]))
    assert held - plain == pytest.approx(0.5 * k3, rel=1e-3)
    with pytest.raises(tinker.RequestFailedError,
                       match=r"data\[0\].loss_fn_inputs.reference_logprobs is missing"):
        loss(client, [datum()], name, kl_coef=0.5)


def test_a_reference_out_of_reach_is_named(client):
    reference = [0.0, -3.0, 1e38] + [-3.0] * 4
    with pytest.raises(tinker.RequestFailedError,
                       match=r"position 2 of datum 0: reference_logprobs is 1e\+38"):
        loss(client, [weighted(ROW, [1.0] * 7, reference_logprobs=reference)], "cross_entropy",
             kl_coef=0.5)


@pytest.mark.each_sdk
@has_strings
def test_losses_are_divided_by_tokens_or_by_datum(client):
    p = current_logprobs(client)
    data = [weighted(ROW, [0.0] * 2 + [1.0] * 5), weighted(ROW, [0.0] * 4 + [1.0] * 3)]
    first, second = -sum(p[2:]), -sum(p[4:])
    for normalization, expected in (("none", first + second), ("tokens", (first + second) / 8),
                                    ("datums", first / 5 + second / 3)):
        actual = loss(client, data, "cross_entropy", normalization=normalization)
        assert actual == pytest.approx(expected, rel=1e-3), normalization
    with pytest.raises(tinker.RequestFailedError, match="'mean', expected none, tokens or datums"):
        loss(client, data, "cross_entropy", normalization="mean")


def test_a_second_clip_bounds_what_a_bad_token_costs(client):
    p = current_logprobs(client)
    datum = rl_datum(ROW, [value - 3.0 for value in p], [-1.0] * 7)
    assert loss(client, [datum], "ppo") == pytest.approx(7 * math.exp(3), rel=1e-3)
    assert loss(client, [datum], "ppo", dual_clip_threshold=3.0) == pytest.approx(21, rel=1e-3)


def test_bounds_of_the_ratio_by_token(client):
    p = current_logprobs(client)
    highs = [1.1, 1.2, 1.3, 1.4, 1.5, 1.6, 2.0]
    datum = rl_datum(ROW, [value - 0.5 for value in p], [1.0] * 7, clip_high_threshold=highs)
    expected = -sum(min(math.exp(0.5), high) for high in highs)
    assert loss(client, [datum], "ppo") == pytest.approx(expected, rel=1e-3)
