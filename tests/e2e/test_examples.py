"""The examples run as users run them; each ends with 0 only when what it shows was reached."""

import os
import re
import subprocess
import sys

import pytest
from support.lathe_server import ROOT


# A tiny random model learns only what it is trained on, at high learning rates.
SFT = ["--words", "14", "--held-out-words", "0", "--batch-size", "14", "--steps", "40",
       "--learning-rate", "3e-3"]
RL = ["--numbers", "5", "--held-out-problems", "0", "--prompts-per-step", "25",
      "--samples-per-prompt", "16", "--supervised-steps", "10", "--supervised-learning-rate", "4e-3",
      "--steps", "60", "--learning-rate", "2e-3"]


def run_example(lathe, name, *args):
    env = {**os.environ, "TINKER_BASE_URL": lathe.url, "TINKER_API_KEY": lathe.api_key}
    result = subprocess.run([sys.executable, str(ROOT / "examples" / name), *args], env=env,
                            capture_output=True, text=True, timeout=600)
    assert result.returncode == 0, result.stdout + result.stderr
    return result.stdout


@pytest.mark.each_sdk
def test_sft_learns_pig_latin(lathe):
    output = run_example(lathe, "sft.py", *SFT)
    losses = [float(value) for value in re.findall(r"^step .* loss +([\d.]+)", output, re.M)]
    assert len(losses) == 40
    assert losses[-1] < losses[0] / 10
    assert "14 of 14 answers right" in output


def test_rl_learns_sums_by_reward(lathe):
    output = run_example(lathe, "rl_arithmetic.py", *RL)
    rates = [float(value) for value in re.findall(r"exact-match rate ([\d.]+)$", output, re.M)]
    assert len(rates) == 60
    assert sum(rates[-5:]) / 5 >= 0.6
    assert sum(rates[-5:]) / 5 > rates[0] + 0.2


def test_rl_that_learns_nothing_ends_with_an_error(lathe):
    with pytest.raises(AssertionError, match="exact-match rate"):
        run_example(lathe, "rl_arithmetic.py", *RL, "--steps", "2", "--supervised-steps", "0")
