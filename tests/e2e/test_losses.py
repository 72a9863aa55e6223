"""The newer losses through the stock SDK: gspo, stable_reinforce with provenance, custom."""

import math

import pytest
import tinker
from tinker import types

from support.sdk import resolved

ROW = [30, 31, 32, 33, 34, 35, 36, 37]
ADAM = types.AdamParams(learning_rate=1e-2)
has_provenance = pytest.mark.skipif(not hasattr(types.Datum, "with_provenance"),
                                    reason="this SDK has no provenance spans")
has_traced_losses = pytest.mark.skipif(not hasattr(tinker.ServiceClient, "create_custom_loss"),
                                       reason="this SDK has no create_custom_loss")


@pytest.fixture(scope="module")
def service(lathe):
    return tinker.ServiceClient(base_url=lathe.url, api_key=lathe.api_key)


@pytest.fixture
def client(service, lathe):
    return resolved(service.create_lora_training_client(lathe.model_name, rank=4, seed=7))


def floats(values):
    return types.TensorData(data=values, dtype="float32", shape=[len(values)])


def rl_datum(tokens, logprobs, advantages, **inputs):
    return types.Datum(
        model_input=types.ModelInput.from_ints(tokens[:-1]),
        loss_fn_inputs={"target_tokens": tokens[1:], "logprobs": logprobs,
                        "advantages": advantages,
                        **{name: floats(values) for name, values in inputs.items()}})


def current_logprobs(client, tokens=ROW):
    n = len(tokens) - 1
    datum = types.Datum(model_input=types.ModelInput.from_ints(tokens[:-1]),
                        loss_fn_inputs={"target_tokens": tokens[1:], "weights": [1.0] * n})
    return list(client.forward([datum], "cross_entropy").result().loss_fn_outputs[0][
        "logprobs"].data)


@pytest.mark.each_sdk
@pytest.mark.parametrize("bounds", [None, (0.5, 2.0), (0.99, 1.01)])
def test_gspo_has_one_clipped_ratio_a_datum(client, bounds):
    p = current_logprobs(client)
    q = [0.0, 0.0] + [value - 0.1 * (i + 1) for i, value in enumerate(p[2:])]
    advantages = [0.0, 0.0, 1.0, -1.0, 0.5, 2.0, -0.5]
    mask = [0.0, 0.0] + [1.0] * 5
    config = {} if bounds is None else {"clip_low_threshold": bounds[0],
                                        "clip_high_threshold": bounds[1]}
    result = client.forward_backward(
        [rl_datum(ROW, q, advantages, sequence_ratio_mask=mask)], "gspo",
        loss_fn_config=config).result()
    ratio = math.exp(sum(p[i] - q[i] for i in range(2, 7)) / 5)
    low, high = bounds or (1 - 3e-4, 1 + 4e-4)
    clipped = min(max(ratio, low), high)
    expected = -sum(min(ratio * a, clipped * a) for a in advantages)
    assert result.metrics["loss:sum"] == pytest.approx(expected, rel=1e-3)
    assert list(result.loss_fn_outputs[0]["logprobs"].data) == pytest.approx(p, abs=1e-4)
    assert client.optim_step(ADAM).result().metrics["grad_norm"] > 0


def test_gspo_without_its_mask_names_datum_and_input(client):
    good = rl_datum(ROW, [0.0] * 7, [0.0] * 7, sequence_ratio_mask=[0.0] * 7)
    with pytest.raises(tinker.RequestFailedError,
                       match=r"data\[1\].loss_fn_inputs.sequence_ratio_mask is missing"):
        client.forward_backward([good, rl_datum(ROW, [0.0] * 7, [1.0] * 7)], "gspo").result()


@pytest.fixture
def rollout(client):
    """A prompt of three tokens and five sampled ones, of a sampler that records."""
    sampler = resolved(client.save_weights_and_get_sampling_client(record_stability_info=True))
    params = types.SamplingParams(max_tokens=5, seed=1, stop=[], temperature=1.0)
    return ROW[:3], sampler.sample(types.ModelInput.from_ints(ROW[:3]), 1,
                                   params).result().sequences[0]


def provenance_datum(prompt, sequence, logprobs, advantage):
    """As the cookbook builds it: inputs without the last token, targets without the first."""
    tokens = prompt + list(sequence.tokens)
    num_prompt, num_sampled = len(prompt), len(sequence.tokens)
    datum = rl_datum(tokens, [0.0] * (num_prompt - 1) + logprobs,
                     [0.0] * (num_prompt - 1) + [advantage] * num_sampled)
    of_prompt = lambda offset, length: types.PromptProvenanceSpan(
        sequence_id=sequence.sequence_id, offset=offset, length=length)
    sampled = lambda length: types.SampledProvenanceSpan(
        sequence_id=sequence.sequence_id, length=length)
    return datum.with_provenance([of_prompt(0, num_prompt), sampled(num_sampled - 1)],
                                 [of_prompt(1, num_prompt - 1), sampled(num_sampled)])


@pytest.mark.each_sdk
@has_provenance
@pytest.mark.parametrize("kl_coeff", [None, 0.05])
def test_stable_reinforce_follows_its_definition(client, rollout, kl_coeff):
    prompt, sequence = rollout
    p = current_logprobs(client, prompt + list(sequence.tokens))[2:]
    assert p == pytest.approx(list(sequence.logprobs), abs=1e-3)
    q = [p[0] - 2.0, p[1] + 0.3, p[2] - 0.2, p[3], p[4] + 0.1]
    config = {} if kl_coeff is None else {"kl_coeff": kl_coeff}
    result = client.forward_backward([provenance_datum(prompt, sequence, q, 1.5)],
                                     "stable_reinforce", loss_fn_config=config).result()
    expected = sum(-min(math.exp(a - b), 4.0) * a * 1.5 + 0.5 * (kl_coeff or 0.0) * (a - b) ** 2
                   for a, b in zip(p, q))
    assert result.metrics["loss:sum"] == pytest.approx(expected, rel=1e-3)


@has_provenance
def test_stable_reinforce_makes_rewarded_tokens_likelier(client, rollout):
    prompt, sequence = rollout
    tokens = prompt + list(sequence.tokens)
    before = sum(current_logprobs(client, tokens)[2:])
    for _ in range(4):
        client.forward_backward(
            [provenance_datum(prompt, sequence, list(sequence.logprobs), 1.0)],
            "stable_reinforce")
        client.optim_step(ADAM).result()
    assert sum(current_logprobs(client, tokens)[2:]) > before + 0.5


@pytest.mark.each_sdk
@has_provenance
def test_stable_reinforce_needs_provenance_and_no_advantage_on_the_prompt(client, rollout):
    prompt, sequence = rollout
    bare = rl_datum(ROW, [0.0] * 7, [1.0] * 7)
    with pytest.raises(tinker.RequestFailedError, match=r"data\[0\].model_input_spans is missing"):
        client.forward_backward([bare], "stable_reinforce").result()
    datum = provenance_datum(prompt, sequence, list(sequence.logprobs), 1.0)
    datum.loss_fn_inputs["advantages"] = floats([0.5] * 7)
    with pytest.raises(tinker.RequestFailedError, match="advantages: value at position 0 is 0.5"):
        client.forward_backward([datum], "stable_reinforce").result()


@pytest.mark.each_sdk
@has_provenance
def test_other_losses_take_datums_with_provenance(client, rollout):
    prompt, sequence = rollout
    datum = provenance_datum(prompt, sequence, list(sequence.logprobs), 1.0)
    result = client.forward_backward([datum], "importance_sampling").result()
    assert result.metrics["loss:sum"] == pytest.approx(-5.0, rel=1e-2)


@pytest.mark.each_sdk
def test_the_loss_named_custom_is_refused_with_advice(client):
    with pytest.raises(tinker.RequestFailedError, match="forward_backward_custom"):
        client.forward_backward([rl_datum(ROW, [0.0] * 7, [0.0] * 7)], "custom").result()


@pytest.mark.each_sdk
@has_traced_losses
def test_a_traced_loss_runs_in_the_program(service, client):
    def squared(logprobs, weights):
        loss = (logprobs * weights).sum().pow(2)
        return loss, {"custom/squared:sum": loss}

    handle = service.create_custom_loss(
        squared, input_ranks={"logprobs": 1, "weights": 1}).result()
    datum = types.Datum(model_input=types.ModelInput.from_ints(ROW[:-1]),
                        loss_fn_inputs={"target_tokens": ROW[1:], "weights": [0.5] * 7})
    p = current_logprobs(client)
    values = []
    for _ in range(3):
        result = client.forward_backward_custom([datum], handle).result()
        client.optim_step(ADAM).result()
        values.append(result.metrics["custom/squared:sum"])
    assert values[0] == pytest.approx((0.5 * sum(p)) ** 2, rel=1e-3)
    assert values[-1] < values[0]
