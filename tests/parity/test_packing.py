"""Adapters of different rank and loss in one packed pass get what each gets alone."""

import pytest
import torch
from safetensors.torch import save_file

import reference
from families import FAMILIES
from reference import Loss, clip

# Relative to a matrix's largest gradient; packing changes the order of sums only.
TOLERANCE = 1e-4

TENANTS = {
    "a": (5, Loss("cross_entropy"), [12, 30, 7]),
    "b": (16, Loss("ppo", clip(0.8, 1.2)), [12, 25]),
    "c": (1, Loss("importance_sampling"), [40]),
}


@pytest.fixture
def tenants(folders, tmp_path):
    """Per tenant: driver operations that create it, its request, and its PEFT model."""
    made = {}
    for seed, (tenant, (rank, loss, lengths)) in enumerate(TENANTS.items()):
        model = reference.load_peft(folders("tiny"), rank)
        weights = reference.random_lora(model, seed=seed)
        reference.set_lora(model, weights)
        file = tmp_path / f"{tenant}.safetensors"
        save_file(weights, file)
        data = reference.make_data(model, loss, lengths, seed=seed + 10)
        create = [
            {"op": "create", "model": tenant, "rank": rank},
            {"op": "set_weights", "model": tenant, "file": str(file)},
        ]
        request = {"id": tenant, "model": tenant, "loss": loss.spec, "data": data}
        made[tenant] = (create, request, model, loss, data)
    return made


def dump(tenant):
    return {"op": "dump", "model": tenant, "what": "gradient", "name": tenant}


def test_packed_equals_alone_and_peft(folders, run_driver, tenants):
    ops = [op for create, *_ in tenants.values() for op in create]
    ops.append({"op": "train", "name": "t", "requests": [t[1] for t in tenants.values()]})
    packed, summary = run_driver(folders("tiny"), ops + [dump(t) for t in tenants])
    assert summary["counters"]["passes"] == 1

    for tenant, (create, request, model, loss, data) in tenants.items():
        train = {"op": "train", "name": "t", "requests": [request]}
        alone, _ = run_driver(folders("tiny"), [*create, train, dump(tenant)])
        reference.backward(model, loss, data)
        for name, parameter in reference.lora_parameters(model).items():
            key = f"{tenant}.{name}"
            assert reference.relative(packed[key], alone[key]) <= TOLERANCE, key
            assert reference.relative(packed[key], parameter.grad) <= TOLERANCE, key
        for i in range(len(data)):
            key = f"t.{tenant}.{i}"
            assert (packed[key] - alone[key]).abs().max() <= TOLERANCE


@pytest.mark.parametrize("variant", ["tiny", "llama_9_heads", *FAMILIES])
def test_a_packed_forward_pass_gives_the_bits_of_each_sequence_alone(folders, run_driver, variant):
    folder, lengths = folders(variant), [1, 12, 64, 65, 150]
    model = reference.load_base(folder)
    data = reference.make_data(model, Loss("cross_entropy"), lengths, seed=3)

    def forward(name, data):
        request = {"id": "r", "model": "m", "forward_only": True, "data": data,
                   "loss": {"name": "cross_entropy"}}
        return {"op": "train", "name": name, "requests": [request]}

    ops = [{"op": "create", "model": "m", "rank": 4}, forward("packed", data)]
    ops += [forward(f"alone{i}", [datum]) for i, datum in enumerate(data)]
    results, summary = run_driver(folder, ops)
    assert summary["counters"]["passes"] == 1 + len(data)
    for i, datum in enumerate(data):
        packed = results[f"packed.r.{i}"]
        assert torch.equal(packed, results[f"alone{i}.r.0"]), lengths[i]
        with torch.no_grad():
            expected = reference.target_logprobs(model, datum).flatten()
        assert (packed - expected).abs().max() <= TOLERANCE, lengths[i]
