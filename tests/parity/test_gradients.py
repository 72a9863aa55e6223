"""Gradients of every LoRA factor equal those of PEFT under torch's autograd."""

import pathlib
import re

import pytest
from safetensors.torch import save_file

import reference
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


def driver_ops(rank, weights_file, loss, data, name="g"):
    request = {"id": "r", "model": "m", "loss": loss.spec, "data": data}
    return [
        {"op": "create", "model": "m", "rank": rank},
        {"op": "set_weights", "model": "m", "file": str(weights_file)},
        {"op": "train", "name": "t", "requests": [request]},
        {"op": "dump", "model": "m", "what": "gradient", "name": name},
    ]


def check_against_peft(folder, run_driver, tmp_path, loss, rank, **options):
    model = reference.load_peft(folder, rank)
    weights = reference.random_lora(model, seed=rank)
    reference.set_lora(model, weights)
    save_file(weights, tmp_path / "weights.safetensors")
    data = reference.make_data(model, loss, LENGTHS, seed=1)
    total = reference.backward(model, loss, data)

    ops = driver_ops(rank, tmp_path / "weights.safetensors", loss, data)
    results, summary = run_driver(folder, ops, **options)
    assert summary["metrics"]["t.r"]["loss:sum"] == pytest.approx(total, rel=1e-4)
    for i, datum in enumerate(data):
        expected = reference.target_logprobs(model, datum).detach().flatten()
        assert (results[f"t.r.{i}"] - expected).abs().max() <= TOLERANCE
    for name, parameter in reference.lora_parameters(model).items():
        assert reference.relative(results[f"g.{name}"], parameter.grad) <= TOLERANCE, name
    return summary


@pytest.mark.parametrize("name", LOSSES)
def test_every_loss(folders, run_driver, tmp_path, name):
    check_against_peft(folders("tiny"), run_driver, tmp_path, LOSSES[name], rank=4)


@pytest.mark.parametrize("variant", ["untied", "sharded_bf16", "attention_bias", "wide_heads"])
def test_every_folder(folders, run_driver, tmp_path, variant):
    check_against_peft(folders(variant), run_driver, tmp_path, LOSSES["cross_entropy"], rank=3)


@pytest.mark.parametrize("rank", [1, 33])
def test_any_rank(folders, run_driver, tmp_path, rank):
    check_against_peft(folders("tiny"), run_driver, tmp_path, LOSSES["importance_sampling"], rank)


def test_gspo_over_micro_batches_and_head_chunks(folders, run_driver, tmp_path):
    check_against_peft(
        folders("tiny"), run_driver, tmp_path, LOSSES["gspo"], rank=4,
        token_budget=40, head_chunk_elements=16 * 768,
    )


def test_micro_batches_and_head_chunks(folders, run_driver, tmp_path):
    summary = check_against_peft(
        folders("tiny"), run_driver, tmp_path, LOSSES["ppo"], rank=4,
        token_budget=40, head_chunk_elements=16 * 768,
    )
    assert summary["counters"]["passes"] == 3
