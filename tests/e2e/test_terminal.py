"""`lathe runs`, `lathe logs` and `lathe top`, as a person at a terminal uses them."""

import json
import os
import re
import signal
import subprocess

import pytest
from support.lathe_server import BIN
from support.raw_api import RawApi, RawModel
from support.terminal import Terminal

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
            (("runs", "--url", lathe.url, "--data-dir", tmp_path), "no API key"),
            (("top", "--period", "1h", *place), "period is 1h")]:
        answer = command(lathe, *words)
        assert answer.returncode == USAGE and message in answer.stderr, (words, answer.stderr)
    for verb in (("runs",), ("top", "--once")):
        answer = command(lathe, *verb, "--url", "http://127.0.0.1:1", TINKER_API_KEY="tml-x")
        assert answer.returncode == NOT_RUNNING and "cannot connect" in answer.stderr
    # The admin key of this machine goes to no other one.
    for host in ("lathe.example", "127.example.org", "127.0.0.1.example.org", "unix"):
        answer = command(lathe, "runs", "--url", f"http://{host}", "--data-dir", lathe.data_dir)
        assert answer.returncode == USAGE and "no API key" in answer.stderr, host


def test_top_prints_one_frame_of_all_or_of_what_a_key_may_see(lathe, run):
    frame = command(lathe, "top", "--once", "--data-dir", lathe.data_dir).stdout
    assert re.search(r"^GROUP +STATE ", frame, re.M) and re.search(r"^default +ready ", frame, re.M)
    assert re.search(r"^default/0 ", frame, re.M) and run.model_id in frame and "\x1b" not in frame
    other = lathe.create_key("other", scopes=["read"])
    frame = command(lathe, "top", "--once", "--url", lathe.url, TINKER_API_KEY=other).stdout
    assert re.search(r"^tiny +ready$", frame, re.M) and run.model_id not in frame
    assert run.model_id in asks(lathe, "top", "--once")


def test_top_on_terminals_without_color_and_without_a_cursor(lathe):
    words = [str(BIN / "lathe"), "top", "--data-dir", lathe.data_dir]
    for no_color in ("", "1"):
        with Terminal(words, 24, 80, env={"NO_COLOR": no_color}) as terminal:
            terminal.wait_for("q quit")
            is_colored = re.search(rb"\x1b\[[0-9;]*3[0-7][;m]", terminal.received) is not None
            assert is_colored == (not no_color)
            terminal.type("q")
            assert terminal.wait_ended() == 0
    with Terminal(words, 24, 80, env={"TERM": "dumb"}) as terminal:
        terminal.wait_for("GROUP")
        assert b"\x1b" not in terminal.received
        terminal.interrupt()
        assert terminal.wait_ended() == 0


def test_the_keys_of_top(lathe, run):
    with Terminal([str(BIN / "lathe"), "top", "--data-dir", lathe.data_dir], 24, 80) as terminal:
        terminal.wait_for("default/0")
        terminal.type("?")
        terminal.wait_for("training passes a second")
        terminal.type("?/no such run\n")
        terminal.wait_for(lambda text: "filter:no such run" in text and "default" not in text)
        terminal.type("\x1b")
        terminal.wait_for("default/0")
        terminal.type("sp")
        terminal.wait_for("PAUSED  q quit  ? help  s sort:seq")
        # Typed text is made harmless, too.
        terminal.type("/\x9b31m\n")
        terminal.wait_for(lambda text: "filter" in text)
        terminal.type("\x1bq")
        assert terminal.wait_ended() == 0


@pytest.fixture
def follower(lathe, run):
    words = [str(BIN / "lathe"), "logs", run.model_id, "-f", "--lines", "1", "--url", lathe.url,
             "--data-dir", lathe.data_dir]
    process = subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    yield process
    process.kill()
    process.communicate()


def test_top_and_a_follower_live_through_a_restart_and_a_resize(lathe, run, follower):
    with Terminal([str(BIN / "lathe"), "top", "--data-dir", lathe.data_dir], 24, 80) as terminal:
        terminal.wait_for(lambda text: "default/0" in text and run.model_id[:12] in text)
        terminal.resize(12, 40)
        terminal.wait_for(lambda text: text.splitlines()[-1].startswith("q quit") and "GROUP" in text)
        assert follower.stdout.readline()
        lathe.stop()
        terminal.wait_for("no answer since")
        assert "no answer since" in follower.stderr.readline()
        lathe.start()
        terminal.wait_for(lambda text: "no answer" not in text.splitlines()[0] and "ready" in text)
        assert "answers again" in follower.stderr.readline()
        terminal.resize(24, 80)
        terminal.wait_for("another engine leads")
        terminal.type("q")
        assert terminal.wait_ended() == 0
    run.accumulate()
    wanted = f"forward_backward seq {run.seq_id}: ok"
    while wanted not in (line := follower.stdout.readline()):
        assert line, "the follower has ended"
    follower.send_signal(signal.SIGINT)
    assert follower.wait(30) == 0
