"""Fixtures of the parity tests: model folders, and the driver that runs the compute library."""

import json
import os
import subprocess
import sys

import pytest
import torch
from parity_setup import BIN, DEVICE, ROOT, VARIANTS
from safetensors.torch import load_file

sys.path.insert(0, str(ROOT / "tests"))
sys.path.insert(0, str(ROOT / "tools"))
import make_tiny_model  # noqa: E402
from support.smollm2 import smollm2  # noqa: E402, F401

torch.set_num_threads(1)


@pytest.fixture(scope="session")
def folders(tmp_path_factory, request):
    """Makes each variant's folder at its first use: folders("tiny") -> path. "smollm2" has trained
    weights and is fetched."""
    made = {}

    def folder(variant):
        if variant == "smollm2":
            return request.getfixturevalue("smollm2")
        if variant not in made:
            made[variant] = tmp_path_factory.mktemp("models") / variant
            make_tiny_model.main(["--out", str(made[variant]), *VARIANTS[variant]])
        return made[variant]

    return folder


@pytest.fixture
def run_driver(tmp_path):
    """Runs a list of operations; returns (tensors by name, summary)."""

    def run(folder, ops, **options):
        script, out = tmp_path / "script.json", tmp_path / "out.safetensors"
        out.unlink(missing_ok=True)  # the driver never writes over a file
        script.write_text(json.dumps({"folder": str(folder), "device": DEVICE, "ops": ops, **options}))
        done = subprocess.run(
            [BIN / "lathe_parity_driver", script, out],
            capture_output=True,
            text=True,
            env={**os.environ, "OMP_WAIT_POLICY": "passive"},
        )
        assert done.returncode == 0, done.stderr
        summary = json.loads(done.stdout)
        assert not summary["errors"]
        return load_file(out), summary

    return run
