"""Runs lathe_sampling_driver."""

import json
import os
import subprocess

import parity_setup


def run(tmp_path, folder, **script):
    """Outputs of a script (see sampling_driver.cc)."""
    path = tmp_path / "sampling.json"
    defaults = {"folder": str(folder), "device": parity_setup.DEVICE, "store": str(tmp_path)}
    path.write_text(json.dumps({**defaults, **script}))
    done = subprocess.run(
        [parity_setup.BIN / "lathe_sampling_driver", path],
        capture_output=True,
        text=True,
        env={**os.environ, "OMP_WAIT_POLICY": "passive"},
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)
