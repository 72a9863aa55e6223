"""A folder that would give wrong numbers is refused, by the name of what is wrong."""

import json
import re
import shutil
import subprocess

import pytest
from families import FAMILIES
from parity_setup import BIN
from safetensors import safe_open
from safetensors.torch import save_file

UP = "model.layers.1.mlp.up_proj.weight"


def rope_type(config, name):
    """Of all layers, or of those without a window."""
    rope = config["rope_parameters"]
    rope.get("full_attention", rope)["rope_type"] = name


CONFIGS = {
    "rope_type": lambda config: rope_type(config, "longrope"),
    "quantization_config": lambda config: config.update(quantization_config={"bits": 4}),
    "num_experts": lambda config: config.update(num_experts=8),
    "hidden_act": lambda config: config.update(hidden_act="relu", hidden_activation="relu"),
    "num_key_value_heads": lambda config: config.update(num_key_value_heads=3),
}
TENSORS = {
    f"{UP} is missing": lambda tensors: tensors.pop(UP),
    f"{UP} has shape [191, 64], the config says [192, 64]":
        lambda tensors: tensors.update({UP: tensors[UP][1:]}),
    "model.layers.1.mlp.router.weight is not understood":
        lambda tensors: tensors.update({"model.layers.1.mlp.router.weight": tensors[UP].clone()}),
}


@pytest.fixture
def refusal(tmp_path):
    """Copies a folder, changes it, and returns why the worker's library does not load it."""

    def refuse(folder, change_config=None, change_tensors=None):
        bad = tmp_path / "bad"
        shutil.copytree(folder, bad)
        if change_config:
            config = json.loads((bad / "config.json").read_text())
            change_config(config)
            (bad / "config.json").write_text(json.dumps(config))
        if change_tensors:
            with safe_open(folder / "model.safetensors", "pt") as file:
                tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
            change_tensors(tensors)
            save_file({name: t.contiguous() for name, t in tensors.items()},
                      bad / "model.safetensors")
        script = tmp_path / "script.json"
        script.write_text(json.dumps({"folder": str(bad), "ops": []}))
        done = subprocess.run([BIN / "lathe_parity_driver", script, tmp_path / "out"],
                              capture_output=True, text=True)
        assert done.returncode == 1, done.stderr
        return done.stderr

    return refuse


@pytest.mark.parametrize("variant", ["tiny", *FAMILIES])
@pytest.mark.parametrize("named", CONFIGS)
def test_a_config_that_is_not_served_is_named(folders, refusal, variant, named):
    assert named in refusal(folders(variant), CONFIGS[named])


@pytest.mark.parametrize("variant", ["tiny", *FAMILIES])
@pytest.mark.parametrize("named", TENSORS)
def test_a_tensor_that_does_not_fit_is_named(folders, refusal, variant, named):
    assert named in refusal(folders(variant), change_tensors=TENSORS[named])


def test_a_family_that_is_not_served_is_named_with_those_that_are(folders, refusal):
    message = refusal(folders("tiny"), lambda config: config.update(model_type="gpt_neox"))
    assert 'model_type is "gpt_neox"' in message
    served = set(re.findall(r'"(\w+)"', message.partition("supported is")[2]))
    assert served >= {"qwen3", "llama", "qwen2", "mistral", "gemma3_text"}
