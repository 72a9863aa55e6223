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
    """(norm of the gradients, loss) of each step."""
    parameters = list(reference.lora_parameters(model).values())
    optimizer = torch.optim.AdamW(
        parameters,
        lr=adam["learning_rate"],
        betas=(adam["beta1"], adam["beta2"]),
        eps=adam["eps"],
        weight_decay=adam.get("weight_decay", 0.0),
    )
    steps = []
    for data in batches:
        optimizer.zero_grad()
        total = reference.backward(model, loss, data)
        limit = adam.get("grad_clip_norm") or float("inf")
        steps.append((torch.nn.utils.clip_grad_norm_(parameters, limit).item(), total))
        optimizer.step()
    return steps


def model_with_weights(folder, tmp_path):
    """PEFT's model, with factors that lie in weights.safetensors too."""
    model = reference.load_peft(folder, RANK)
    # Small and away from zero: at exactly zero, Adam's first steps follow rounding alone.
    weights = reference.random_lora(model, seed=3, scale=0.02)
    reference.set_lora(model, weights)
    save_file(weights, tmp_path / "weights.safetensors")
    return model


def train_lathe(folder, run_driver, tmp_path, loss, batches, adam):
    """Trains from weights.safetensors; returns (final weights as w.NAME, summary)."""
    ops = [
        {"op": "create", "model": "m", "rank": RANK},
        {"op": "set_weights", "model": "m", "file": str(tmp_path / "weights.safetensors")},
    ]
    for step, data in enumerate(batches):
        request = {"id": "r", "model": "m", "seq_id": step, "loss": loss.spec, "data": data}
        ops.append({"op": "train", "name": f"t{step}", "requests": [request]})
        ops.append({"op": "step", "model": "m", **adam})
    ops.append({"op": "dump", "model": "m", "what": "weights", "name": "w"})
    return run_driver(folder, ops)


def check_trajectory(folder, run_driver, tmp_path, loss, adam):
    model = model_with_weights(folder, tmp_path)
    batches = [reference.make_data(model, loss, [9, 14, 20], seed=s) for s in range(NUM_STEPS)]
    results, summary = train_lathe(folder, run_driver, tmp_path, loss, batches, adam)
    norms = [norm for norm, _ in train_peft(model, loss, batches, adam)]
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


@pytest.mark.parametrize("variant", ["sharded_bf16", "smollm2"])
def test_losses_of_twenty_steps_on_a_text(folders, run_driver, tmp_path, variant):
    folder, loss, length = folders(variant), LOSSES["cross_entropy"], 25
    model = model_with_weights(folder, tmp_path)
    tokens = reference.text_tokens(folder, 8 * length + 1)
    data = [{"tokens": tokens[i : i + length], "targets": tokens[i + 1 : i + length + 1],
             "num_targets": 1, "weights": [1.0] * length} for i in range(0, 8 * length, length)]
    # Four batches of two, five times.
    batches = [data[2 * i : 2 * i + 2] for i in range(4)] * 5
    # At 1e-3 SmolLM2 learns the text by heart, and PEFT in fp32 ends 5e-4 away from PEFT in fp64.
    adam = {**ADAM["plain"], "learning_rate": 1e-4}
    _, summary = train_lathe(folder, run_driver, tmp_path, loss, batches, adam)
    ours = [summary["metrics"][f"t{step}.r"]["loss:sum"] / (2 * length) for step in range(20)]
    theirs = [total / (2 * length) for _, total in train_peft(model, loss, batches, adam)]
    assert ours == pytest.approx(theirs, abs=TOLERANCE)
    assert sum(ours[-4:]) < sum(ours[:4])
