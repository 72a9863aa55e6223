"""`lathe-export` writes folders that Transformers loads, equal to base and adapter together."""

import json
import shutil
import subprocess

import pytest
import torch
import transformers
from safetensors.torch import load_file, save_file

import parity_setup
import reference
import sampling_driver
from families import BF16, FAMILIES

TOKENS = list(range(5, 60))
ALL = reference.ATTN + reference.MLP + reference.UNEMBED
RANK, ALPHA = 6, 16
# Largest difference over the largest logit: two orders of summing in fp32; rounding of the merged
# weights to 8 or 11 bits.
TOLERANCE = {torch.float32: 1e-5, torch.bfloat16: 2e-2, torch.float16: 2e-3}


def save_checkpoint(tmp_path, folder, targets):
    """A PEFT model with random factors, and the directory of a checkpoint with the same."""
    model = reference.load_peft(folder, RANK, ALPHA, targets)
    weights = reference.random_lora(model, seed=1)
    reference.set_lora(model, weights)
    save_file(weights, tmp_path / "factors.safetensors")
    adapter = {"rank": RANK, "alpha": ALPHA, "target_modules": targets, "save_training": "saved"}
    adapter["file"] = str(tmp_path / "factors.safetensors")
    sampling_driver.run(tmp_path, folder, adapters={"m": adapter})
    return model, tmp_path / "saved"


def export(base, checkpoint, out):
    command = [parity_setup.BIN / "lathe-export", "--model", base, "--checkpoint", checkpoint]
    return subprocess.run([*command, "--out", out], capture_output=True, text=True, timeout=120)


def logits(model):
    with torch.no_grad():
        return model(torch.tensor([TOKENS])).logits[0].float()


def tensors_of(folder):
    tensors = {}
    for path in sorted(folder.glob("*.safetensors")):
        tensors |= load_file(path)
    return tensors


@pytest.mark.parametrize(
    "variant,targets",
    [
        ("tiny", ALL),
        ("tiny", ["v_proj", "down_proj"]),
        ("untied", ALL),
        ("sharded_bf16", ALL),
        ("fp16", ALL),
        ("everything", ALL),
        *((variant, ALL) for variant in [*FAMILIES, *BF16, "llama_biases"]),
    ],
)
def test_logits_are_those_of_base_and_adapter(folders, tmp_path, variant, targets):
    folder = folders(variant)
    model, checkpoint = save_checkpoint(tmp_path, folder, targets)
    done = export(folder, checkpoint, tmp_path / "merged")
    assert done.returncode == 0, done.stderr
    merged = transformers.AutoModelForCausalLM.from_pretrained(
        tmp_path / "merged", dtype=torch.float32
    ).eval()
    dtype = next(iter(tensors_of(folder).values())).dtype
    assert reference.relative(logits(merged), logits(model)) <= TOLERANCE[dtype]
    # The adapter matters.
    assert reference.relative(logits(reference.load_base(folder)), logits(model)) > 0.1


@pytest.mark.parametrize("variant", ["tiny", "sharded_bf16", "untied"])
def test_files_are_the_base_s_but_for_adapted_matrices(folders, tmp_path, variant):
    folder = folders(variant)
    targets = ["q_proj", "lm_head"]
    model, checkpoint = save_checkpoint(tmp_path, folder, targets)
    out = tmp_path / "merged"
    assert export(folder, checkpoint, out).returncode == 0
    assert {path.name for path in out.iterdir()} == {path.name for path in folder.iterdir()}
    assert not list(tmp_path.glob(".*"))  # what it was written in is gone

    base, merged = tensors_of(folder), tensors_of(out)
    assert {name: t.dtype for name, t in base.items()}.items() <= {
        name: t.dtype for name, t in merged.items()
    }.items()
    factors = reference.lora_parameters(model)
    tied = "lm_head.weight" not in base
    assert merged.keys() - base.keys() == ({"lm_head.weight"} if tied else set())
    for name, tensor in merged.items():
        module = name.removesuffix(".weight")
        stored = base["model.embed_tokens.weight"] if tied and module == "lm_head" else base[name]
        if f"{module}.lora_A" not in factors:
            assert torch.equal(tensor, stored), name
            continue
        a, b = (factors[f"{module}.lora_{factor}"].detach() for factor in "AB")
        wanted = stored.float() + ALPHA / RANK * (b @ a)
        # Half a step of the dtype, and the order of the sum.
        assert torch.allclose(tensor.float(), wanted, rtol=torch.finfo(tensor.dtype).eps, atol=1e-6)
        assert not torch.equal(tensor, stored), name

    config = json.loads((out / "config.json").read_text())
    was = json.loads((folder / "config.json").read_text())
    assert config == {**was, "tie_word_embeddings": False}
    for file in ("tokenizer.json", "tokenizer_config.json", "generation_config.json"):
        assert (out / file).read_bytes() == (folder / file).read_bytes()
    transformers.AutoTokenizer.from_pretrained(out)
    index = out / "model.safetensors.index.json"
    if index.exists():
        read = json.loads(index.read_text())
        assert read["weight_map"].keys() == merged.keys()
        assert read["metadata"]["total_size"] == sum(t.nbytes for t in merged.values())


def test_refusals_name_what_is_wrong_and_leave_nothing(folders, tmp_path):
    folder = folders("tiny")
    _, checkpoint = save_checkpoint(tmp_path, folder, ["q_proj"])
    out = tmp_path / "merged"

    def refused(code, *words, base=folder, saved=checkpoint, to=out):
        done = export(base, saved, to)
        assert done.returncode == code, done.stderr
        for word in words:
            assert word in done.stderr
        assert not out.exists() and not list(tmp_path.glob(".*"))

    refused(78, str(tmp_path / "none"), base=tmp_path / "none")
    refused(78, str(tmp_path / "none"), saved=tmp_path / "none")
    refused(78, "content hash", base=folders("untied"))
    refused(73, str(folder), "exists", to=folder)
    damaged = tmp_path / "damaged"
    shutil.copytree(checkpoint, damaged)
    with open(damaged / "adapter_model.safetensors", "r+b") as file:
        file.seek(-1, 2)
        byte = file.read(1)
        file.seek(-1, 2)
        file.write(bytes([byte[0] ^ 1]))
    refused(70, "adapter_model.safetensors", saved=damaged)
