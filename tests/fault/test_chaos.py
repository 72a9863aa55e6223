"""Short runs of chaos.py, and defects that they have to find."""

import os
import pathlib
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time

import pytest

sys.path.insert(0, os.path.dirname(__file__))
from chaos import PLANTED  # noqa: E402

PROGRAM = os.path.join(os.path.dirname(__file__), "chaos.py")


def started(*arguments, **options):
    """In a session of its own, by which whatever it starts is found."""
    return subprocess.Popen([sys.executable, PROGRAM, *arguments], stdout=subprocess.PIPE,
                            stderr=subprocess.PIPE, text=True, start_new_session=True, **options)


def end(run, timeout=90):
    """By SIGTERM, with all that it has started."""
    run.terminate()
    try:
        run.communicate(timeout=timeout)
    except subprocess.TimeoutExpired:
        os.killpg(run.pid, signal.SIGKILL)
        run.communicate()
        raise


def chaos(*arguments):
    """(exit code, what it printed)"""
    run = started(*arguments)
    try:
        printed, errors = run.communicate(timeout=900)
    except BaseException:
        end(run)
        raise
    return run.returncode, printed + errors[-2000:]


def processes_of(session):
    """The command lines of those that run."""
    found = []
    for folder in pathlib.Path("/proc").glob("[0-9]*"):
        try:
            state, _, _, its_session = (folder / "stat").read_text().rpartition(")")[2].split()[:4]
            if int(its_session) == session and state != "Z":
                found.append((folder / "cmdline").read_text().replace("\0", " "))
        except (FileNotFoundError, ProcessLookupError):
            continue
    return found


@pytest.mark.parametrize("store", ["sqlite", "postgres"])
def test_a_minute_of_chaos_leaves_every_invariant_intact(store):
    code, text = chaos("--store", store, "--minutes", "1", "--seed", "1")
    assert code == 0, text
    assert int(re.search(r"^kills (\d+)", text, re.MULTILINE).group(1)) >= 5, text
    assert int(re.search(r"^acknowledged and ended (\d+)", text, re.MULTILINE).group(1)) > 100, text
    assert "violations 0" in text


@pytest.mark.parametrize("store", ["sqlite", "postgres"])
def test_a_run_that_is_asked_to_end_leaves_nothing_behind(store):
    # Short: paths of sockets have little room.
    with tempfile.TemporaryDirectory(dir="/tmp", prefix="c-") as folder:
        os.chmod(folder, 0o711)  # Postgres may run as another user
        run = started("--store", store, "--minutes", "10", env={**os.environ, "TMPDIR": folder})
        try:
            deadline = time.monotonic() + 120
            while not any(pathlib.Path(folder).glob("lathe-chaos-*/faults.log")):
                assert time.monotonic() < deadline and run.poll() is None, "no fault was done"
                time.sleep(0.1)
            assert processes_of(run.pid)
        finally:
            end(run)
        assert run.returncode == 128 + signal.SIGTERM
        assert processes_of(run.pid) == []
        assert not any(pathlib.Path(folder).glob("lathe-chaos-*"))


@pytest.mark.parametrize("defect", sorted(PLANTED))
def test_chaos_finds_a_planted_defect(defect):
    code, text = chaos("--minutes", "3", "--clients", "4", "--sdk-clients", "0",
                       "--plant", defect)
    # Not I6 and I7, which a slow machine might break too.
    assert code == 1 and re.search("VIOLATION I[1-5]", text), text
    folder = re.search(r"^logs: (.*)$", text, re.MULTILINE).group(1)
    assert os.path.exists(os.path.join(folder, "logs", "engine.log")), text
    shutil.rmtree(folder)
