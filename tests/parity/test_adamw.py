"""Ten steps of training end at the weights PEFT with torch.optim.AdamW ends at."""

import pytest
import torch
from safetensors.torch import save_file

import reference
from reference import Loss, clip

# Of the difference's Frobenius norm to the matrix's; fp32 on both sides. The norm, because Adam
# divides by the gradient's own size: where a gradient is a sum that cancels (rows of lm_head.lora_B
# of improbable tokens), its rounding moves single weights of PEFT in fp32 by 1e-3 of the largest
# weight away from PEFT in fp64.
TOLERANCE = 1e-4

NUM_STEPS = 10
RANK = 6
LOSSES = {
    "cross_entropy": Loss("cross_entropy"),
    "importance_sampling": Loss("importance_sampling"),
    "ppo": Loss("ppo", clip(0.8, 1.2)),
    "cispo": Loss("cispo", clip(0.0, 4.0)),
    "dro": Loss("dro", {"beta": 0.05}),
    # Not gspo: with these seeds its first gradient has an element of rounding size, see TOLERANCE.
    "stable_reinforce": Loss("stable_reinforce", {"kl_coeff": 0.1}),
}
ADAM = {
    "plain": dict(learning_rate=1e-3, beta1=0.9, beta2=0.95, eps=1e-8),
    "decay_and_clip": dict(
        learning_rate=2e-3, beta1=0.8, beta2=0.99, eps=1e-8, weight_decay=0.1, grad_clip_norm=0.5
    ),
}


def test_every_loss_is_trained_with():
    kinds = {loss.kind for loss in LOSSES.values()}
    assert kinds == reference.registered_losses() - {"gspo"}, "LOSSES of this file lacks a loss"


def train_peft(model, loss, batches, adam):
    parameters = list(reference.lora_parameters(model).values())
    optimizer = torch.optim.AdamW(
        parameters,
        lr=adam["learning_rate"],
        betas=(adam["beta1"], adam["beta2"]),
        eps=adam["eps"],
        weight_decay=adam.get("weight_decay", 0.0),
    )
    norms = []
    for data in batches:
        optimizer.zero_grad()
        reference.backward(model, loss, data)
        limit = adam.get("grad_clip_norm") or float("inf")
        norms.append(torch.nn.utils.clip_grad_norm_(parameters, limit).item())
        optimizer.step()
    return norms


def check_trajectory(folder, run_driver, tmp_path, loss, adam):
    model = reference.load_peft(folder, RANK)
    # Small and away from zero: at exactly zero, Adam's first steps follow rounding alone.
    weights = reference.random_lora(model, seed=3, scale=0.02)
    reference.set_lora(model, weights)
    save_file(weights, tmp_path / "weights.safetensors")
    batches = [reference.make_data(model, loss, [9, 14, 20], seed=s) for s in range(NUM_STEPS)]

    ops = [
        {"op": "create", "model": "m", "rank": RANK},
        {"op": "set_weights", "model": "m", "file": str(tmp_path / "weights.safetensors")},
    ]
    for step, data in enumerate(batches):
        request = {"id": "r", "model": "m", "seq_id": step, "loss": loss.spec, "data": data}
        ops.append({"op": "train", "name": f"t{step}", "requests": [request]})
        ops.append({"op": "step", "model": "m", **adam})
    ops.append({"op": "dump", "model": "m", "what": "weights", "name": "w"})
    results, summary = run_driver(folder, ops)

    norms = train_peft(model, loss, batches, adam)
    assert [s["grad_norm"] for s in summary["steps"]] == pytest.approx(norms, rel=1e-3)
    for name, parameter in reference.lora_parameters(model).items():
        difference = (results[f"w.{name}"] - parameter.detach()).norm()
        assert difference <= TOLERANCE * parameter.detach().norm(), name


@pytest.mark.parametrize("name", LOSSES)
def test_ten_steps_of_every_loss(folders, run_driver, tmp_path, name):
    check_trajectory(folders("tiny"), run_driver, tmp_path, LOSSES[name], ADAM["plain"])


def test_ten_steps_with_decay_and_clipping(folders, run_driver, tmp_path):
    check_trajectory(
        folders("tiny"), run_driver, tmp_path, LOSSES["cross_entropy"], ADAM["decay_and_clip"]
    )
