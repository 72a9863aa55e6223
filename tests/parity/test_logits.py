"""Logits equal HF Transformers' on every kind of folder, with and without an adapter."""

import json
import shutil

import pytest
import torch
from safetensors.torch import save_file

import reference
from families import FAMILIES
from parity_setup import VARIANTS

# fp32 on both sides; the two sum in different orders.
TOLERANCE = 1e-4


def tokens_of(length, seed=0):
    generator = torch.Generator().manual_seed(seed)
    return torch.randint(768, (length,), generator=generator).tolist()


def hf_logits(model, tokens):
    with torch.no_grad():
        return model(torch.tensor([tokens])).logits[0]


@pytest.mark.parametrize("variant", VARIANTS)
def test_base_logits_equal_hf(folders, run_driver, variant):
    folder = folders(variant)
    prompts = [tokens_of(1), tokens_of(12, 1), tokens_of(700, 2)]
    ops = [{"op": "logits", "tokens": p, "name": f"l{i}"} for i, p in enumerate(prompts)]
    results, _ = run_driver(folder, ops)
    model = reference.load_base(folder)
    for i, prompt in enumerate(prompts):
        expected = hf_logits(model, prompt)
        assert (results[f"l{i}"] - expected).abs().max() <= TOLERANCE


@pytest.mark.parametrize("variant", ["sharded_bf16", "smollm2"])
def test_logprobs_of_a_text_equal_hf(folders, run_driver, variant):
    folder = folders(variant)
    tokens = reference.text_tokens(folder, 1001)
    datum = {"tokens": tokens[:-1], "targets": tokens[1:], "weights": [1.0] * 1000}
    request = {"id": "r", "model": "m", "forward_only": True, "data": [datum],
               "loss": {"name": "cross_entropy"}}
    results, _ = run_driver(folder, [{"op": "create", "model": "m", "rank": 8},
                                     {"op": "train", "name": "t", "requests": [request]}])
    # In fp64: for 49,152 tokens, torch's log_softmax in fp32 is 3e-5 away from it.
    expected = hf_logits(reference.load_base(folder), tokens)[:-1].double().log_softmax(-1)
    assert (results["t.r.0"] - expected[range(1000), tokens[1:]]).abs().max() <= TOLERANCE


@pytest.mark.parametrize(
    "variant,rank",
    [("tiny", 1), ("tiny", 8), ("tiny", 100), ("everything", 8), *((f, 8) for f in FAMILIES)],
)
def test_adapter_logits_equal_peft(folders, run_driver, tmp_path, variant, rank):
    folder, prompt = folders(variant), tokens_of(50)
    model = reference.load_peft(folder, rank)
    weights = reference.random_lora(model, seed=rank)
    reference.set_lora(model, weights)
    save_file(weights, tmp_path / "weights.safetensors")
    results, _ = run_driver(
        folder,
        [
            {"op": "create", "model": "m", "rank": rank},
            {"op": "set_weights", "model": "m", "file": str(tmp_path / "weights.safetensors")},
            {"op": "logits", "model": "m", "tokens": prompt, "name": "adapted"},
            {"op": "logits", "tokens": prompt, "name": "base"},
        ],
    )
    assert (results["adapted"] - hf_logits(model, prompt)).abs().max() <= TOLERANCE
    assert (results["adapted"] - results["base"]).abs().max() > 1e-2


OLDER_ROPE = {
    "llama": lambda rope: {
        "rope_theta": rope["rope_theta"],
        "rope_scaling": {key: value for key, value in rope.items() if key != "rope_theta"},
    },
    "mistral": lambda rope: {"rope_theta": rope["rope_theta"]},
    "gemma3_scaled": lambda rope: {
        "rope_theta": rope["full_attention"]["rope_theta"],
        "rope_local_base_freq": rope["sliding_attention"]["rope_theta"],
        "rope_scaling": {"rope_type": "linear", "factor": rope["full_attention"]["factor"]},
    },
}


@pytest.mark.parametrize("variant", OLDER_ROPE)
def test_the_older_spelling_of_rope_is_the_same_model(folders, run_driver, tmp_path, variant):
    """Published folders have it; transformers writes the newer one."""
    older = tmp_path / "older"
    shutil.copytree(folders(variant), older)
    config = json.loads((older / "config.json").read_text())
    config |= OLDER_ROPE[variant](config.pop("rope_parameters"))
    (older / "config.json").write_text(json.dumps(config))
    prompt = tokens_of(200)
    logits, hashes = [], []
    for folder in (folders(variant), older):
        results, summary = run_driver(folder, [{"op": "logits", "tokens": prompt, "name": "l"}])
        logits.append(results["l"])
        hashes.append(summary["content_hash"])
    assert torch.equal(*logits) and hashes[0] == hashes[1]
    assert (logits[0] - hf_logits(reference.load_base(older), prompt)).abs().max() <= TOLERANCE


def test_a_fresh_adapter_gives_the_base_bit_for_bit(folders, run_driver):
    prompt = tokens_of(60)
    results, _ = run_driver(
        folders("tiny"),
        [
            {"op": "create", "model": "m", "rank": 32, "seed": 5},
            {"op": "logits", "model": "m", "tokens": prompt, "name": "adapted"},
            {"op": "logits", "tokens": prompt, "name": "base"},
        ],
    )
    assert torch.equal(results["adapted"], results["base"])


def test_the_content_hash_tells_folders_apart(folders, run_driver):
    hashes = [run_driver(folders(v), [])[1]["content_hash"] for v in ("tiny", "tiny", "fp16")]
    assert hashes[0] == hashes[1] != hashes[2]
    assert len(hashes[0]) == 64
