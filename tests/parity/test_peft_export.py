"""Checkpoint folders are PEFT adapters as they are, and load back to the same weights."""

import itertools
import json

import pytest
import torch
from peft import PeftModel
from safetensors.torch import load_file, save_file

import reference
import sampling_driver
from families import FAMILIES

TOLERANCE = 1e-4
TOKENS = list(range(5, 60))
# Target modules and alpha.
GROUPS = {
    "all": (reference.ATTN + reference.MLP + reference.UNEMBED, 32),
    "attention": (reference.ATTN, 32),
    "unembed": (reference.UNEMBED, 32),
    "mixed": (["v_proj", "down_proj", "lm_head"], 7.5),
}


def logits(model):
    with torch.no_grad():
        return model(torch.tensor([TOKENS])).logits[0]


@pytest.mark.parametrize(
    "variant,group",
    [*itertools.product(["tiny", "untied"], GROUPS), *((family, "all") for family in FAMILIES)],
)
def test_both_kinds_load_in_peft_and_in_the_worker(folders, tmp_path, variant, group):
    folder = folders(variant)
    targets, alpha = GROUPS[group]
    model = reference.load_peft(folder, 6, alpha, targets)
    weights = reference.random_lora(model, seed=1)
    reference.set_lora(model, weights)
    save_file(weights, tmp_path / "weights.safetensors")
    expected = logits(model)

    adapter = {"rank": 6, "alpha": alpha, "target_modules": targets}
    adapter |= {"file": str(tmp_path / "weights.safetensors")}
    adapter |= {"save_training": "run/weights/1", "save_sampler": "run/sampler_weights/1"}
    request = {"prompt": TOKENS, "max_tokens": 20, "seed": 4}
    saved = sampling_driver.run(
        tmp_path,
        folder,
        adapters={"m": adapter},
        requests=[{**request, "id": "r", "model": "m"}],
    )
    for kind in ["weights", "sampler_weights"]:
        checkpoint = tmp_path / "run" / kind / "1"
        exported = PeftModel.from_pretrained(reference.load_base(folder), checkpoint).eval()
        assert (logits(exported) - expected).abs().max() <= TOLERANCE
        loaded = sampling_driver.run(
            tmp_path,
            folder,
            adapters={"m": {"load": f"run/{kind}/1"}},
            requests=[{**request, "id": "r", "model": "m"}],
        )
        assert loaded["outputs"] == saved["outputs"]


def test_files_are_those_of_the_contract(folders, tmp_path):
    folder = folders("tiny")
    model = reference.load_peft(folder, 4)
    save_file(reference.random_lora(model, seed=1), tmp_path / "weights.safetensors")
    adapter = {"rank": 4, "file": str(tmp_path / "weights.safetensors")}
    adapter |= {"save_training": "t", "save_sampler": "s"}
    sampling_driver.run(tmp_path, folder, adapters={"m": adapter})

    names = {"adapter_model.safetensors", "adapter_config.json", "checkpoint_complete"}
    names.add("manifest.json")
    assert {path.name for path in (tmp_path / "s").iterdir()} == names
    assert {p.name for p in (tmp_path / "t").iterdir()} == names | {"optimizer.safetensors"}
    config = json.loads((tmp_path / "s/adapter_config.json").read_text())
    assert config["r"] == 4 and config["lora_alpha"] == 32
    tensors = load_file(tmp_path / "s/adapter_model.safetensors")
    assert "base_model.model.lm_head.lora_A.weight" in tensors
    assert "base_model.model.model.layers.1.mlp.down_proj.lora_B.weight" in tensors
    assert len(tensors) == 2 * (2 * 7 + 1)
