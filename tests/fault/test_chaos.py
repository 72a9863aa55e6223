"""Short runs of chaos.py, and defects that they have to find."""

import os
import re
import shutil
import subprocess
import sys

import pytest

sys.path.insert(0, os.path.dirname(__file__))
from chaos import PLANTED  # noqa: E402

PROGRAM = os.path.join(os.path.dirname(__file__), "chaos.py")


def chaos(*arguments):
    """(exit code, what it printed)"""
    ended = subprocess.run([sys.executable, PROGRAM, *arguments], capture_output=True, text=True,
                           timeout=900)
    return ended.returncode, ended.stdout + ended.stderr[-2000:]


@pytest.mark.parametrize("store", ["sqlite", "postgres"])
def test_a_minute_of_chaos_leaves_every_invariant_intact(store):
    code, text = chaos("--store", store, "--minutes", "1", "--seed", "1")
    assert code == 0, text
    assert int(re.search(r"^kills (\d+)", text, re.MULTILINE).group(1)) >= 5, text
    assert int(re.search(r"^acknowledged and ended (\d+)", text, re.MULTILINE).group(1)) > 100, text
    assert "violations 0" in text


@pytest.mark.parametrize("defect", sorted(PLANTED))
def test_chaos_finds_a_planted_defect(defect):
    code, text = chaos("--minutes", "3", "--clients", "4", "--sdk-clients", "0",
                       "--plant", defect)
    # Not I6 and I7, which a slow machine might break too.
    assert code == 1 and re.search("VIOLATION I[1-5]", text), text
    folder = re.search(r"^logs: (.*)$", text, re.MULTILINE).group(1)
    assert os.path.exists(os.path.join(folder, "logs", "engine.log")), text
    shutil.rmtree(folder)
