"""The tests' own Docker engine: it says why it cannot run, and leaves nothing behind."""

import pathlib
import signal
import subprocess
import sys

import pytest
from support import docker_engine
from support.docker_engine import CannotRun, DockerEngine
from support.lathe_server import ROOT
from support.waiting import wait_until


def test_a_machine_without_an_engine_is_told_what_to_install(monkeypatch):
    monkeypatch.setenv("PATH", "/nowhere")
    assert docker_engine.why_not() == "dockerd is not installed: run tools/setup --deploy"
    with pytest.raises(CannotRun, match="tools/setup --deploy"), DockerEngine():
        pass


def test_an_engine_that_does_not_start_says_why(monkeypatch, tmp_path):
    """One that ends at once, in place of a kernel that refuses it."""
    if reason := docker_engine.why_not():
        docker_engine.skip(reason)
    (tmp_path / "dockerd").write_text("#!/bin/sh\necho no such file system >&2\nexit 1\n")
    (tmp_path / "dockerd").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/sbin:/usr/bin:/sbin:/bin")
    with pytest.raises(CannotRun, match="no such file system"), DockerEngine():
        pass


def test_a_required_engine_fails_where_another_is_skipped(monkeypatch):
    with pytest.raises(pytest.skip.Exception, match="no kernel"):
        docker_engine.skip("no kernel")
    monkeypatch.setenv("LATHE_REQUIRE_DOCKER", "1")
    with pytest.raises(pytest.fail.Exception, match="no kernel"):
        docker_engine.skip("no kernel")


def bridges():
    told = subprocess.run(["ip", "-o", "link", "show", "type", "bridge"], check=True,
                          capture_output=True, text=True).stdout
    return {line.split(": ")[1] for line in told.splitlines()}


def test_an_engine_leaves_nothing_behind():
    try:
        with DockerEngine() as engine:
            name = f"lathe-test-{engine.process.pid}"
            network = engine.docker("network", "create", name).stdout.strip()
            bridge = f"br-{network[:12]}"
            assert bridge in bridges()
            folder, process = engine.dir, engine.process
    except CannotRun as reason:
        docker_engine.skip(str(reason))
    assert bridge not in bridges()
    assert not folder.exists() and process.returncode is not None
    assert str(folder) not in pathlib.Path("/proc/mounts").read_text()
    processes = subprocess.run(["ps", "-eww", "-o", "args"], check=True, capture_output=True, text=True).stdout
    assert str(folder) not in processes


KILLED = """
import subprocess, sys, time
from support.docker_engine import DockerEngine
with DockerEngine() as engine:
    engine.docker("import", sys.argv[1], "pause")
    engine.docker("run", "--detach", "--network", "none", "pause", "/pause")
    print(engine.dir, flush=True)
    time.sleep(600)
"""


def pause_image(folder):
    """An image of one program that sleeps, without a base."""
    (folder / "pause.c").write_text("#include <unistd.h>\nint main(void) { for (;;) pause(); }\n")
    subprocess.run(["cc", "-static", "-o", folder / "pause", folder / "pause.c"], check=True)
    subprocess.run(["tar", "-C", folder, "-cf", folder / "pause.tar", "pause"], check=True)
    return folder / "pause.tar"


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_tests_that_are_killed_leave_no_container_mount_or_process(number, tmp_path):
    if reason := docker_engine.why_not():
        docker_engine.skip(reason)
    tests = subprocess.Popen([sys.executable, "-c", KILLED, pause_image(tmp_path)],
                             cwd=ROOT / "tests", stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    folder = tests.stdout.readline().strip()
    if not folder:
        docker_engine.skip(tests.communicate()[1][-300:])
    assert f"{folder}/" in pathlib.Path("/proc/mounts").read_text()
    # No containerd of the machine has its containers.
    processes = subprocess.run(["ps", "-eww", "-o", "args"], check=True, capture_output=True, text=True).stdout
    assert [line for line in processes.splitlines() if "shim" in line and f"-address {folder}/containerd.sock" in line]
    tests.send_signal(number)
    tests.communicate()

    def is_clean():
        told = subprocess.run(["ps", "-eww", "-o", "args"], check=True, capture_output=True, text=True).stdout
        return not (folder in told or folder in pathlib.Path("/proc/mounts").read_text()
                    or pathlib.Path(folder).exists())

    wait_until(is_clean, "the engine's processes, mounts and files to go")
