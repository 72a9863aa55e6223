"""The tests' own Docker engine: it says why it cannot run, and leaves nothing behind."""

import pathlib
import subprocess

import pytest
from support import docker_engine
from support.docker_engine import CannotRun, DockerEngine


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
    processes = subprocess.run(["ps", "-eo", "args"], check=True, capture_output=True, text=True).stdout
    assert str(folder) not in processes
