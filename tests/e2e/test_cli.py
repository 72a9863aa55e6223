"""The command line: what `lathe up` refuses, and what the other verbs print."""

import json
import os
import pathlib
import re
import shutil
import socket
import stat
import subprocess
import time

import pytest
from support.lathe_server import BIN, LatheServer, tiny_model

PORT_TAKEN, DATA_DIR_IN_USE, BAD_MODEL, USAGE, NOT_RUNNING = 69, 73, 78, 2, 69


def lathe_command(*args, timeout=60):
    return subprocess.run([str(BIN / "lathe"), *args], capture_output=True, text=True,
                          timeout=timeout)


def up(data_dir, model=None, listen="127.0.0.1:0"):
    return lathe_command("up", "--model", model or f"tiny={tiny_model()}", "--device", "cpu",
                         "--data-dir", str(data_dir), "--listen", listen)


def test_version_and_help():
    assert re.fullmatch(r"lathe \d+\.\d+\.\d+\n", lathe_command("version").stdout)
    assert "lathe up" in lathe_command("--help").stdout
    assert lathe_command("no-such-verb").returncode == USAGE


def test_the_first_key_is_private(lathe):
    key_file = pathlib.Path(lathe.data_dir, "admin.key")
    assert stat.S_IMODE(key_file.stat().st_mode) == 0o600
    assert lathe.api_key.startswith("tml-")


def test_up_prints_address_key_file_and_the_next_command(lathe):
    output = lathe.output()
    assert f"API {lathe.url}" in output
    assert str(pathlib.Path(lathe.data_dir, "admin.key")) in output
    assert lathe.api_key not in output


def test_status_shows_the_served_model(lathe):
    assert lathe.model_name in lathe_command("status", "--data-dir", lathe.data_dir).stdout
    answer = lathe_command("status", "--data-dir", lathe.data_dir, "--format", "json")
    assert json.loads(answer.stdout)["groups"][0]["state"] == "ready"


def test_status_shows_what_memory_is_used_for(lathe):
    deadline = time.monotonic() + 10
    pattern = r"^rank     default/0 on cpu, pid \d+, memory [\d.]+ of [\d.]+ GiB: base .*, other "
    while not re.search(pattern, lathe_command("status", "--data-dir", lathe.data_dir).stdout, re.M):
        assert time.monotonic() < deadline
        time.sleep(0.1)


def test_a_taken_port_is_named(tmp_path):
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        port = other.getsockname()[1]
        result = up(tmp_path / "data", listen=f"127.0.0.1:{port}")
    assert result.returncode == PORT_TAKEN
    assert str(port) in result.stderr


def test_a_data_dir_in_use_is_named_with_its_owner(lathe):
    result = up(lathe.data_dir)
    assert result.returncode == DATA_DIR_IN_USE
    assert lathe.data_dir in result.stderr
    assert str(lathe.pids()["up"]) in result.stderr


@pytest.mark.parametrize("content, word", [
    (None, "absent"),
    ({}, "config.json"),
    ({"config.json": '{"model_type": "qwen3"}'}, ".safetensors"),
])
def test_what_is_not_a_model_is_named(tmp_path, content, word):
    folder = tmp_path / "absent"
    if content is not None:
        folder.mkdir()
        for name, text in content.items():
            (folder / name).write_text(text)
    result = up(tmp_path / "data", model=f"broken={folder}")
    assert result.returncode == BAD_MODEL
    assert word in result.stderr


def test_a_family_that_is_not_supported_is_named(tmp_path):
    folder = tmp_path / "other"
    shutil.copytree(tiny_model(), folder)
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({**config, "model_type": "gpt9"}))
    result = up(tmp_path / "data", model=f"broken={folder}")
    assert result.returncode == BAD_MODEL
    assert "gpt9" in result.stderr


def test_verbs_need_a_running_lathe_and_say_so(tmp_path):
    result = lathe_command("status", "--data-dir", str(tmp_path))
    assert result.returncode == NOT_RUNNING
    assert str(tmp_path) in result.stderr


def test_stopping_drains_and_leaves_no_process():
    with LatheServer(tiny_model()) as server:
        pids = server.pids()
        assert server.stop() == 0
        assert not any(os.path.exists(f"/proc/{pid}") for pid in pids.values())


def test_a_name_with_one_slash_is_served_under_it():
    import httpx
    with LatheServer(tiny_model(), name="Qwen/Qwen3-tiny") as server:
        answer = httpx.get(f"{server.url}/api/v1/get_server_capabilities",
                           headers={"X-API-Key": server.api_key}).json()
    assert [model["model_name"] for model in answer["supported_models"]] == ["Qwen/Qwen3-tiny"]
