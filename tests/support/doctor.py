"""`lathe doctor` and what it found."""

import json
import os
import subprocess

from support.lathe_server import BIN, tiny_model

LATHE = str(BIN / "lathe")


def doctor(*arguments, role="up", options=(), env=None, before=None):
    """(exit code, {check: [finding]}) of lathe doctor."""
    done = subprocess.run(
        [LATHE, "doctor", "--role", role, "--format", "json", *arguments, "--", *options],
        capture_output=True, text=True, timeout=60, env={**os.environ, **(env or {})}, preexec_fn=before)
    report = json.loads(done.stdout)
    found = {}
    for row in report["checks"]:
        found.setdefault(row["name"], []).append(row)
    return done.returncode, found


def errors(found):
    return {name for name, rows in found.items() if any(row["state"] == "error" for row in rows)}


def worst(found, name):
    order = ["skipped", "ok", "warning", "error"]
    return max(found[name], key=lambda row: order.index(row["state"]))


def good(data):
    return ["--data-dir", str(data), "--model", f"tiny={tiny_model()}", "--listen", "127.0.0.1:0"]


def named(found, name, *words, state="error"):
    """Checks that `name` found it, says these words and a remedy, and that no other check errs."""
    row = worst(found, name)
    assert row["state"] == state, row
    for word in words:
        assert word in row["found"] + row["expected"], row
    assert row["remedy"] and row["why"]
    assert errors(found) <= {name}
    return row
