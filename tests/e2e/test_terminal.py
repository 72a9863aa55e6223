"""`lathe runs` and `lathe logs`, as a person at a terminal uses them."""

import json
import os
import re
import subprocess

import pytest
from support.lathe_server import BIN
from support.raw_api import RawApi, RawModel

USAGE, NOT_RUNNING = 2, 69
# A title of a window, CSI as one character, new lines, right-to-left override, Hebrew.
HOSTILE = "a\x1b]0;owned\x07b\u009b31m\r\nc\u202egnp.exe \u05e9\u05dc\u05d5\u05dd"
HARMLESS = r"a\x1b]0;owned\x07b\x9b31m\x0d\x0ac\u202egnp.exe " + "\u05e9\u05dc\u05d5\u05dd"


def command(lathe, *words, **environment):
    inherited = {name: value for name, value in os.environ.items() if not name.startswith("TINKER_")}
    return subprocess.run([str(BIN / "lathe"), *map(str, words)], capture_output=True, text=True,
                          timeout=60, env={**inherited, "LANG": "C.UTF-8", **environment})


def asks(lathe, verb, *words, **environment):
    answer = command(lathe, verb, *words, "--url", lathe.url, "--data-dir", lathe.data_dir, **environment)
    assert answer.returncode == 0, answer.stderr
    return answer.stdout


@pytest.fixture(scope="module")
def api(lathe):
    client = RawApi(lathe)
    yield client
    client.close()


@pytest.fixture(scope="module")
def run(api):
    """A run that has made two steps and a checkpoint, with a hostile name."""
    answer = api.made("create_session", {"tags": [], "sdk_version": "raw", "display_name": HOSTILE,
                                         "project_id": "terminal-tests"})
    model = RawModel(api, session_id=answer["session_id"])
    for _ in range(2):
        model.accumulate()
        model.step()
    saved = api.result(api.made("save_weights", {"model_id": model.model_id,
                                                 "seq_id": model.next_seq_id(), "path": "first"}))
    assert "error" not in saved
    return model


def test_runs_lists_a_run_and_shows_a_hostile_name_harmlessly(lathe, run):
    listed = asks(lathe, "runs")
    lines = listed.splitlines()
    assert lines[0].split() == ["RUN", "STATE", "LAST", "STEP", "STARTED", "LAST", "HEARD", "BASE",
                                "MODEL", "NAME"]
    line = next(line for line in lines if line.startswith(run.model_id))
    assert line.endswith(HARMLESS) and " active " in line and " seq 4 " in line
    assert not re.search(r"[\x00-\x09\x0b-\x1f\x7f-\x9f\u202e]", listed)
    facts = asks(lathe, "runs", "show", run.model_id)
    assert f"\nname              {HARMLESS}\n" in facts and "/weights/first" in facts
    # A terminal that may not know UTF-8 gets ASCII.
    assert asks(lathe, "runs", LANG="C", LC_ALL="").isascii()


def test_runs_are_chosen_by_words_state_and_project(lathe, api, run):
    other = RawModel(api).model_id

    def chosen(*words):
        return {entry["training_run"]["training_run_id"]
                for entry in json.loads(asks(lathe, "runs", "--json", *words))["runs"]}
    assert chosen("--filter", "GNP.exe") == {run.model_id}
    assert chosen("--project", "terminal-tests") == {run.model_id}
    assert chosen("--limit", 1) == {other}
    assert chosen("--state", "failed") == set()
    assert {run.model_id, other} <= chosen("--state", "active")


def test_logs_show_a_training_loop_in_order(lathe, run):
    lines = asks(lathe, "logs", run.model_id).splitlines()
    words = [line.split("Z  ", 1)[1].split(":")[0] for line in lines if " seq " in line]
    assert words == ["forward_backward seq 1", "optim_step seq 2", "forward_backward seq 3",
                     "optim_step seq 4", "save_weights seq 5"]
    assert all(": ok in " in line for line in lines if " seq " in line)
    assert any("checkpoint tinker://" in line and "/weights/first" in line for line in lines)
    assert lines == sorted(lines)
    entries = [json.loads(line) for line in
               asks(lathe, "logs", run.model_id, "--json", "--lines", 2).splitlines()]
    assert len(entries) == 2 and {entry["type"] for entry in entries} <= {"request", "checkpoint"}


def test_a_failed_request_is_in_the_log(lathe, run):
    failed = run.api.result(run.forward_backward(loss_fn="no_such_loss").json())
    assert "error" in failed
    assert f"forward_backward seq {run.seq_id}: user_error in " in asks(lathe, "logs", run.model_id)


def test_what_is_wrong_is_named(lathe, run, tmp_path):
    place = ("--url", lathe.url, "--data-dir", lathe.data_dir)
    for words, message in [
            (("logs", "absent:train:0", *place), "answered 404"),
            (("logs", "../keys", *place), "RUN is '../keys'"),
            (("logs", run.model_id, "--lines", "0", *place), "lines is 0, expected 1 to 1000"),
            (("runs", "--limit", "1001", *place), "limit is 1001, expected 1 to 1000"),
            (("runs", "--state", "tired", *place), "tired"),
            (("runs", "--project", "a b", *place), "project is 'a b'"),
            (("runs", "--url", lathe.url, "--data-dir", tmp_path), "no API key")]:
        answer = command(lathe, *words)
        assert answer.returncode == USAGE and message in answer.stderr, (words, answer.stderr)
    for verb in ("runs",):
        answer = command(lathe, verb, "--url", "http://127.0.0.1:1", TINKER_API_KEY="tml-x")
        assert answer.returncode == NOT_RUNNING and "cannot connect" in answer.stderr
    # The admin key of this machine goes to no other one.
    answer = command(lathe, "runs", "--url", "http://lathe.example", "--data-dir", lathe.data_dir)
    assert answer.returncode == USAGE and "no API key" in answer.stderr
