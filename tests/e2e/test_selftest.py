"""`lathe selftest`: the check of a whole service that an installation runs."""

import os
import pathlib
import subprocess

import pytest
from support.lathe_server import BIN, LatheServer, tiny_model

WORKS, FAILS, USAGE, CONFIGURATION = 0, 1, 2, 78


def selftest(*words, **environment):
    return subprocess.run([str(BIN / "lathe"), "selftest", *map(str, words)], capture_output=True,
                          text=True, timeout=300, env={**os.environ, **environment})


@pytest.fixture(scope="module")
def tls(tmp_path_factory):
    folder = tmp_path_factory.mktemp("tls")
    subprocess.run([str(BIN / "lathe"), "certs", "init", "--out", str(folder), "--name",
                    "api=127.0.0.1"], check=True, capture_output=True)
    return folder


@pytest.fixture(scope="module")
def lathe(tls):
    args = ["--tls-cert", str(tls / "api.crt"), "--tls-key", str(tls / "api.key")]
    with LatheServer(tiny_model(), args=args) as server:
        server.url = server.url.replace("http:", "https:")
        yield server


def key_file(lathe):
    return pathlib.Path(lathe.data_dir, "admin.key")


def test_a_service_that_works_says_so_step_by_step(lathe, tls):
    answer = selftest("--url", lathe.url, "--ca", tls / "ca.crt", "--api-key-file", key_file(lathe))
    assert answer.returncode == WORKS, answer.stdout + answer.stderr
    lines = answer.stdout.splitlines()
    assert [line.split()[0] for line in lines] == [
        "capabilities", "create_session", "create_model", "forward_backward", "optim_step",
        "forward", "save_weights", "asample", "finish", "the"]
    losses = [float(line.split()[2].rstrip(",")) for line in lines
              if line.startswith("forward")]
    assert losses[1] < losses[0]
    assert lines[-1] == "the service trains and samples"
    assert key_file(lathe).read_text().strip() not in answer.stdout
    # Its session is over.
    models = subprocess.run([str(BIN / "lathe"), "status", "--data-dir", lathe.data_dir],
                            capture_output=True, text=True).stdout
    session = lines[1].split()[1].rstrip(",")
    assert session not in models


def test_the_plain_protocol_and_the_environment_work_too():
    with LatheServer(tiny_model()) as server:
        answer = selftest(LATHE_SELFTEST__URL=server.url, LATHE_SELFTEST__API_KEY=server.api_key,
                          LATHE_SELFTEST__MODEL="tiny")
        assert answer.returncode == WORKS, answer.stdout + answer.stderr
    answer = selftest("--url", server.url, LATHE_SELFTEST__API_KEY="tml-x")
    assert answer.returncode == FAILS and "capabilities: cannot connect" in answer.stderr


def test_what_does_not_work_is_named(lathe, tls):
    url = ("--url", lathe.url, "--ca", tls / "ca.crt")
    answer = selftest(*url, LATHE_SELFTEST__API_KEY="tml-wrong")
    assert answer.returncode == FAILS and "capabilities: answered 401" in answer.stderr
    answer = selftest(*url, "--model", "absent", "--api-key-file", key_file(lathe))
    assert answer.returncode == FAILS and "create_model: " in answer.stderr
    assert "absent" in answer.stderr
    answer = selftest("--url", lathe.url, "--api-key-file", key_file(lathe))
    assert answer.returncode == FAILS and "certificate verify failed" in answer.stderr


def test_what_it_needs_is_named(lathe):
    assert selftest("--url", lathe.url).returncode == USAGE
    assert selftest("--url", "gateway", LATHE_SELFTEST__API_KEY="x").returncode == USAGE
    answer = selftest("--url", lathe.url, "--ca", "/no/such/ca", LATHE_SELFTEST__API_KEY="x")
    assert answer.returncode == CONFIGURATION and "/no/such/ca" in answer.stderr
