"""`lathe runs`, `lathe logs` and `lathe top` with a server that is slow, refuses or dies within an answer."""

import os
import subprocess
import termios
import time

import pytest
from support.fake_api import FakeApi, answer_of
from support.lathe_server import BIN
from support.terminal import Terminal

UNAVAILABLE, NO_PERMISSION = 69, 77
HEBREW = "\u05e9\u05dc\u05d5\u05dd"
ENVIRONMENT = {"LANG": "C.UTF-8", "TINKER_API_KEY": "tml-test"}


def run_id(index):
    return f"session{index}:train:0"


def request(seq_id, outcome="ok"):
    return {"request_id": f"r{seq_id}", "operation": "optim_step", "seq_id": seq_id, "outcome": outcome,
            "tokens": 0, "group": "default", "seconds": 0.1, "stages": [],
            "accepted_at": f"2027-01-15T{seq_id // 3600:02}:{seq_id // 60 % 60:02}:{seq_id % 60:02}Z"}


class Runs:
    """Answers about active runs. `faults` maps the last word of a path to what is sent instead."""

    def __init__(self, count=2, name="a run"):
        self.ids = [run_id(index) for index in range(count)]
        self.name = name
        self.requests = [request(2), request(1)]
        self.faults = {}
        self.delay = 0

    def __call__(self, path):
        time.sleep(self.delay)
        plain, _, query = path.partition("?")
        for end, fault in self.faults.items():
            if plain.endswith(end):
                return fault() if callable(fault) else fault
        if plain == "get_server_capabilities":
            return answer_of({"supported_models": [{"model_name": "tiny", "ready": True}]})
        if plain == "training_runs":
            return answer_of({"training_runs": [{"training_run_id": run, "base_model": "tiny",
                                                   "model_owner": self.name} for run in self.ids],
                              "cursor": {"total_count": len(self.ids)}})
        if plain == "sessions/search":
            return answer_of({"sessions": [{"session_id": run.split(":")[0], "display_name": self.name,
                                            "status": {"type": "active"}} for run in self.ids]})
        if plain.endswith("/checkpoints"):
            return answer_of({"checkpoints": []})
        assert plain.endswith("/requests"), path
        return answer_of({"requests": self.requests[:int(query.removeprefix("limit="))], "complete_since": None})


def words(verb, api, *more):
    return [str(BIN / "lathe"), verb, *more, "--url", api.url]


def command(verb, api, *more):
    return subprocess.run(words(verb, api, *more), capture_output=True, text=True, timeout=60,
                          env={**os.environ, **ENVIRONMENT})


@pytest.fixture
def runs():
    return Runs()


@pytest.fixture
def api(runs):
    with FakeApi(runs) as api:
        yield api


def wait_until(is_true, timeout=30):
    deadline = time.monotonic() + timeout
    while not is_true():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def top_on_terminal(api, **env):
    return Terminal(words("top", api), 24, 100, env={**ENVIRONMENT, **env})


@pytest.mark.parametrize("how", ["key", "signal"])
def test_top_ends_within_a_call_of_a_slow_read(runs, api, how):
    runs.ids = [run_id(index) for index in range(10)]
    with top_on_terminal(api) as terminal:
        terminal.wait_for("q quit")
        asked = len(api.asked)
        runs.delay = 2
        wait_until(lambda: len(api.asked) > asked)
        asked = len(api.asked)
        terminal.type("q") if how == "key" else terminal.interrupt()
        assert terminal.wait_ended() == 0
        assert len(api.asked) <= asked + 1


def test_a_person_can_end_a_first_read_that_hangs(runs, api):
    runs.faults["get_server_capabilities"] = runs.faults["/requests"] = None
    for verb, more in (("top", []), ("logs", [run_id(0), "-f"])):
        asked = len(api.asked)
        with Terminal(words(verb, api, *more), 24, 80, env=ENVIRONMENT) as terminal:
            wait_until(lambda: len(api.asked) > asked)
            terminal.interrupt()
            assert terminal.wait_ended() == 0, (verb, terminal.text)
    asked = len(api.asked)
    with Terminal(words("top", api, "--once"), 24, 80, env=ENVIRONMENT) as terminal:
        wait_until(lambda: len(api.asked) > asked)
        terminal.type("\x03")
        assert terminal.wait_ended() == -2


@pytest.mark.parametrize("answer", [
    b"", b"HTTP/1.", b"HTTP/1.1", b"HTTP/1.1 200 OK\r\nContent-Le", answer_of({"requests": []})[:-3]])
def test_a_follower_goes_on_after_an_answer_that_was_cut(runs, api, answer):
    process = subprocess.Popen(words("logs", api, run_id(0), "-f"), stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                               text=True, env={**os.environ, **ENVIRONMENT})
    assert "optim_step seq 1: ok" in process.stdout.readline()
    assert "optim_step seq 2: ok" in process.stdout.readline()
    runs.faults["/requests"] = answer
    assert "no answer since" in process.stderr.readline()
    runs.requests.insert(0, request(3))
    runs.faults.clear()
    assert "answers again" in process.stderr.readline()
    assert "optim_step seq 3: ok" in process.stdout.readline()
    process.send_signal(2)
    assert process.wait(30) == 0


@pytest.mark.parametrize("how", ["\x1c", 6])
def test_a_terminal_is_given_back_whatever_ends_top(api, how):
    with top_on_terminal(api, TERM="xterm") as terminal:
        before = termios.tcgetattr(terminal.master)
        terminal.wait_for("q quit")
        assert termios.tcgetattr(terminal.master) != before
        terminal.type(how) if isinstance(how, str) else terminal.process.send_signal(how)
        assert terminal.wait_ended() == (-3 if how == "\x1c" else -6)
        assert termios.tcgetattr(terminal.master) == before
        # Leaves the alternate screen, and shows the cursor.
        assert b"\x1b[?1049l" in terminal.received and b"\x1b[?25h" in terminal.received


def test_a_run_that_was_deleted_meanwhile_fails_no_other(runs, api):
    runs.faults[f"{run_id(0)}/requests"] = answer_of({"error": {"message": "gone"}}, 404)
    listed = command("runs", api)
    assert listed.returncode == 0, listed.stderr
    deleted, other = listed.stdout.splitlines()[1:]
    assert " - " in deleted and " seq 2 " in other
    frame = command("top", api, "--once")
    assert frame.returncode == 0 and run_id(1) in frame.stdout, frame.stderr


def test_a_list_is_printed_without_the_steps_that_the_server_refuses(runs, api):
    runs.faults["/requests"] = answer_of({"error": {"message": "slower"}}, 429, "Retry-After: 7\r\n")
    listed = command("runs", api)
    assert listed.returncode == UNAVAILABLE and "answered 429: slower" in listed.stderr
    assert run_id(0) in listed.stdout and run_id(1) in listed.stdout
    assert sum(path.endswith("/requests?limit=50") for path in api.asked) == 1
    frame = command("top", api, "--once")
    assert frame.returncode == 0 and run_id(1) in frame.stdout, frame.stderr
    assert sum(path.endswith("/requests?limit=100") for path in api.asked) == 1


def test_the_exit_code_says_that_a_key_may_not_read(runs, api):
    runs.faults["training_runs"] = answer_of({"error": {"message": "scope"}}, 403)
    assert command("runs", api).returncode == NO_PERMISSION


def test_a_follower_asks_for_little_and_misses_nothing(runs, api):
    process = subprocess.Popen(words("logs", api, run_id(0), "-f"), stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                               text=True, env={**os.environ, **ENVIRONMENT})
    seen = [process.stdout.readline() for _ in range(2)]

    def questions():
        return [path.partition("limit=")[2] for path in api.asked if "/requests" in path]
    wait_until(lambda: len(questions()) > 2)
    assert questions()[:3] == ["1000", "50", "50"]
    runs.requests = [request(seq_id) for seq_id in range(202, 0, -1)]
    seen += [process.stdout.readline() for _ in range(200)]
    assert [int(line.split(" seq ")[1].split(":")[0]) for line in seen] == list(range(1, 203))
    assert questions().count("1000") == 2
    process.send_signal(2)
    assert process.communicate(timeout=30)[0] == "" and process.returncode == 0


def test_a_follower_ends_when_nobody_reads_any_more(runs, api):
    process = subprocess.Popen(words("logs", api, run_id(0), "-f"), stdout=subprocess.PIPE,
                               env={**os.environ, **ENVIRONMENT})
    assert process.stdout.readline()
    process.stdout.close()
    assert process.wait(30) == 0


def test_letters_are_shown_in_a_locale_that_is_not_installed(runs, api):
    runs.name = HEBREW
    with top_on_terminal(api, LANG="xx_YY.UTF-8", LC_ALL="", LC_CTYPE="") as terminal:
        terminal.wait_for(lambda text: "q quit" in text and run_id(1) in text)
        # pyte keeps the order in which the letters came.
        assert HEBREW in terminal.text, terminal.text
        terminal.type("q")
        assert terminal.wait_ended() == 0
