"""Adapters of all ranks, alphas and target sets share a pass; each has the gradients PEFT gives it
alone. On tied embeddings `lm_head` is trained apart from the embedding, which stays the base's."""

import pytest
from safetensors.torch import save_file

import reference
from families import FAMILIES
from reference import Loss

# Relative to a matrix's largest gradient; fp32 on both sides.
TOLERANCE = 1e-4
LENGTHS = [12, 30, 1, 90]
ALL = reference.ATTN + reference.MLP + reference.UNEMBED

# Rank, alpha, target modules, loss.
ADAPTERS = {
    "all": (4, 32, ALL, Loss("cross_entropy")),
    "unembed": (8, 16, reference.UNEMBED, Loss("importance_sampling")),
    "mixed": (3, 7.5, ["k_proj", "o_proj", "gate_proj"], Loss("ppo")),
    "one": (33, 64, ["down_proj"], Loss("cross_entropy", num_targets=3)),
    "attention": (1, 1, reference.ATTN, Loss("dro", {"beta": 0.05})),
}


@pytest.mark.parametrize("variant", ["tiny", "untied", "sharded_bf16", *FAMILIES])
def test_each_adapter_has_the_gradients_it_has_alone(folders, run_driver, tmp_path, variant):
    folder = folders(variant)
    ops, requests, expected = [], [], {}
    for seed, (name, (rank, alpha, targets, loss)) in enumerate(ADAPTERS.items()):
        model = reference.load_peft(folder, rank, alpha, targets)
        weights = reference.random_lora(model, seed=seed)
        reference.set_lora(model, weights)
        file = tmp_path / f"{name}.safetensors"
        save_file(weights, file)
        data = reference.make_data(model, loss, LENGTHS, seed=seed)
        total = reference.backward(model, loss, data)
        expected[name] = (total, reference.lora_parameters(model))
        ops.append({"op": "create", "model": name, "rank": rank, "alpha": alpha,
                    "target_modules": targets})
        ops.append({"op": "set_weights", "model": name, "file": str(file)})
        requests.append({"id": name, "model": name, "loss": loss.spec, "data": data})
    ops.append({"op": "train", "name": "t", "requests": requests})
    ops += [{"op": "dump", "model": n, "what": "gradient", "name": n} for n in ADAPTERS]

    results, summary = run_driver(folder, ops)
    for name, (total, parameters) in expected.items():
        assert summary["metrics"][f"t.{name}"]["loss:sum"] == pytest.approx(total, rel=1e-4)
        for factor, parameter in parameters.items():
            actual = results[f"{name}.{factor}"]
            assert reference.relative(actual, parameter.grad) <= TOLERANCE, (name, factor)
        dumped = {key for key in results if key.startswith(f"{name}.")}
        assert dumped == {f"{name}.{factor}" for factor in parameters}
