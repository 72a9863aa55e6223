"""The bench of size and hostility runs, and finds nothing broken. How fast anything is, is not looked
at."""

import pathlib
import re
import subprocess
import sys

BENCH = pathlib.Path(__file__).resolve().parents[1] / "bench" / "scale" / "scale_bench.py"


def rows_of(case, *arguments):
    answer = subprocess.run(
        [sys.executable, str(BENCH), "--cases", case, "--scale", "small", "--stores", "sqlite",
         *arguments], capture_output=True, text=True, timeout=900)
    assert answer.returncode == 0, answer.stdout + answer.stderr
    return dict(re.findall(rf"^\| {case}: (.+?) \| sqlite \| .*? \| (.+?) \|", answer.stdout,
                           re.MULTILINE))


def test_searches_are_answered_and_no_worker_leaves():
    answers = rows_of("searches")["answers to searches; workers that left"]
    assert re.fullmatch(r"\d+ of status 200.*; 0", answers), answers


def test_a_soak_with_hostile_clients_has_no_violations():
    found = rows_of("soak", "--minutes", "0.05")
    assert found["violations"] == "0"
    steps, checked = found["steps of the honest load; results that the oracle checked"].split("; ")
    assert int(steps.replace(",", "")) > 0 and int(checked.replace(",", "")) > 0
    assert sum(name.startswith("answers to ") for name in found) == 8
