"""The bench of the service runs: what it counts is right. How fast it is, is not looked at."""

import pathlib
import re
import subprocess
import sys

BENCH = pathlib.Path(__file__).resolve().parents[1] / "bench" / "service" / "service_bench.py"
SMALL = ["--rounds", "1", "--seconds", "0.5", "--polls", "64", "--hold", "1", "--flood", "320",
         "--finished", "3200", "--waiting", "320"]


def rows_of(case):
    answer = subprocess.run([sys.executable, str(BENCH), "--cases", case, *SMALL],
                            capture_output=True, text=True, timeout=300)
    assert answer.returncode == 0, answer.stderr
    return dict(re.findall(r"^\| (.+?) \| (.+?) \|", answer.stdout, re.MULTILINE))


def test_clients_get_results():
    assert float(rows_of("many")["64 clients, requests/s"]) > 0


def test_polls_wait_beside_steps():
    assert "64 polls of 1 s: submit, p99" in rows_of("polls")


def test_bodies_are_taken_in():
    assert float(rows_of("bodies")["5 MB bodies a second, and their p50"].split(",")[0]) > 0


def test_a_ledger_is_multiplied_and_served():
    names = " ".join(rows_of("ledger"))
    # Those of the models' creation and the two steps that the ledger begins with are counted too.
    assert "3,232 finished and 320 waiting requests: start" in names
