"""Gradients of every LoRA factor equal those of PEFT under torch's autograd."""

import pathlib
import re

import pytest
import torch
from safetensors.torch import save_file

import reference
from families import FAMILIES, SPECIAL
from reference import Loss, clip, registered_losses

ROOT = pathlib.Path(__file__).parents[2]

# Relative to a matrix's largest gradient; fp32 on both sides.
TOLERANCE = 1e-4

LOSSES = {
    "cross_entropy": Loss("cross_entropy"),
    "cross_entropy_soft_targets": Loss("cross_entropy", num_targets=3),
    "importance_sampling": Loss("importance_sampling"),
    "ppo": Loss("ppo", clip(0.8, 1.2)),
    "ppo_per_token_bounds": Loss("ppo", per_token_clip=True),
    "cispo": Loss("cispo", clip(0.0, 1.3)),
    "dro": Loss("dro", {"beta": 0.05}),
    "gspo": Loss("gspo", clip(0.95, 1.05)),
    "gspo_unclipped": Loss("gspo", clip(0.0, 100.0)),
    "stable_reinforce": Loss("stable_reinforce"),
    "ppo_dual_clip": Loss("ppo", clip(0.8, 1.2, dual_clip_threshold=1.3)),
    "ppo_kl_datums": Loss("ppo", {"kl_coef": 0.3, "normalization": "datums"}),
    "gspo_kl": Loss("gspo", clip(0.95, 1.05, kl_coef=0.3)),
    "cross_entropy_kl_tokens": Loss(
        "cross_entropy", {"kl_coef": 0.3, "normalization": "tokens"}, num_targets=2
    ),
    "stable_reinforce_kl": Loss("stable_reinforce", {"kl_coeff": 0.2}),
}
LENGTHS = [12, 30, 12, 1, 300]


def test_every_loss_is_compared_and_documented():
    kinds = {loss.kind for loss in LOSSES.values()}
    assert kinds == registered_losses(), "LOSSES of this file lacks a loss, or has one too many"
    table = (ROOT / "docs" / "numerics.md").read_text().partition("| Loss | Value |")[2]
    documented = set(re.findall(r"^\| `(\w+)` \|", table.partition("\n\n")[0], re.MULTILINE))
    assert documented == registered_losses(), "the table of losses in docs/numerics.md differs"


def model_with_weights(folder, rank, tmp_path):
    """PEFT's model, with factors that lie in weights.safetensors too."""
    model = reference.load_peft(folder, rank)
    weights = reference.random_lora(model, seed=rank)
    reference.set_lora(model, weights)
    save_file(weights, tmp_path / "weights.safetensors")
    return model


def create(name, rank, tmp_path):
    return [
        {"op": "create", "model": name, "rank": rank},
        {"op": "set_weights", "model": name, "file": str(tmp_path / "weights.safetensors")},
    ]


def check_against_peft(
    folder, run_driver, tmp_path, losses, rank, lengths=LENGTHS, **options
):
    """An adapter for each loss, all with the same weights, each in a pass of its own."""
    model = model_with_weights(folder, rank, tmp_path)
    data = {name: reference.make_data(model, LOSSES[name], lengths, seed=1) for name in losses}
    ops = []
    for name in losses:
        request = {"id": "r", "model": name, "loss": LOSSES[name].spec, "data": data[name]}
        ops += create(name, rank, tmp_path)
        ops.append({"op": "train", "name": name, "requests": [request]})
        ops.append({"op": "dump", "model": name, "what": "gradient", "name": name})
    results, summary = run_driver(folder, ops, **options)
    for name in losses:
        model.zero_grad()
        logprobs = []
        total = reference.backward(model, LOSSES[name], data[name], logprobs)
        assert summary["metrics"][f"{name}.r"]["loss:sum"] == pytest.approx(total, rel=1e-4), name
        for i, expected in enumerate(logprobs):
            assert (results[f"{name}.r.{i}"] - expected).abs().max() <= TOLERANCE, name
        for factor, parameter in reference.lora_parameters(model).items():
            key = f"{name}.{factor}"
            assert reference.relative(results[key], parameter.grad) <= TOLERANCE, key
    return summary


def test_every_loss(folders, run_driver, tmp_path):
    check_against_peft(folders("tiny"), run_driver, tmp_path, LOSSES, rank=4)


@pytest.mark.parametrize("variant", FAMILIES)
def test_every_loss_with_each_family(folders, run_driver, tmp_path, variant):
    lengths = [12, 1, 70]  # for the sake of the reference's time
    check_against_peft(folders(variant), run_driver, tmp_path, LOSSES, 4, lengths)


@pytest.mark.parametrize(
    "variant",
    ["untied", "sharded_bf16", "attention_bias", "wide_heads", *SPECIAL],
)
def test_every_folder(folders, run_driver, tmp_path, variant):
    check_against_peft(folders(variant), run_driver, tmp_path, ["cross_entropy"], rank=3)


@pytest.mark.parametrize("rank", [1, 33])
def test_any_rank(folders, run_driver, tmp_path, rank):
    check_against_peft(folders("tiny"), run_driver, tmp_path, ["importance_sampling"], rank)


@pytest.mark.parametrize("variant", ["tiny", *FAMILIES, *SPECIAL])
def test_the_gradient_of_each_layers_input(folders, run_driver, tmp_path, variant):
    folder, rank = folders(variant), 4
    model = model_with_weights(folder, rank, tmp_path)
    inputs = []

    def keep(_, arguments):
        x = arguments[0]
        if not x.requires_grad:  # the embedding's
            x.requires_grad_()
        x.retain_grad()
        inputs.append(x)

    for layer in model.base_model.model.model.layers:
        layer.register_forward_pre_hook(keep)
    generator = torch.Generator().manual_seed(5)
    tokens = torch.randint(768, (150,), generator=generator)
    logits = model(tokens[None]).logits[0]
    dlogits = torch.randn(logits.shape, generator=generator)
    logits.backward(dlogits)

    save_file({"dlogits": dlogits}, tmp_path / "dlogits.safetensors")
    operation = {"op": "input_gradients", "model": "m", "tokens": tokens.tolist(),
                 "file": str(tmp_path / "dlogits.safetensors"), "name": "dx"}
    results, _ = run_driver(folder, [*create("m", rank, tmp_path), operation])
    assert len(results) == len(inputs)
    for layer, x in enumerate(inputs):
        assert reference.relative(results[f"dx.{layer}"], x.grad[0]) <= 1e-5, layer


def test_gspo_over_micro_batches_and_head_chunks(folders, run_driver, tmp_path):
    check_against_peft(
        folders("tiny"), run_driver, tmp_path, ["gspo"], rank=4,
        token_budget=40, head_chunk_elements=16 * 768,
    )


def test_micro_batches_and_head_chunks(folders, run_driver, tmp_path):
    summary = check_against_peft(
        folders("tiny"), run_driver, tmp_path, ["ppo"], rank=4,
        token_budget=40, head_chunk_elements=16 * 768,
    )
    assert summary["counters"]["passes"] == 3
