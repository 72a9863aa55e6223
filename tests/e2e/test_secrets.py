"""Secrets that come from files: `lathe secrets`, the first admin key, and what an engine refuses."""

import os
import shutil
import stat
import subprocess

from support.lathe_server import BIN


def lathe(*words):
    return subprocess.run([str(BIN / "lathe"), *map(str, words)], capture_output=True, text=True,
                          timeout=60)


def test_secrets_are_made_once(tmp_path):
    first = lathe("secrets", "init", "--out", tmp_path / "s")
    assert first.stdout.split() == ["admin.key", "made", "worker.secret", "made", "gateway.secret",
                                    "made"]
    before = {path.name: path.read_text() for path in (tmp_path / "s").iterdir()}
    assert all(stat.S_IMODE(path.stat().st_mode) == 0o600 for path in (tmp_path / "s").iterdir())
    assert lathe("secrets", "init", "--out", tmp_path / "s").stdout.count("kept") == 3
    assert {path.name: path.read_text() for path in (tmp_path / "s").iterdir()} == before
    (tmp_path / "s" / "worker.secret").write_text("")
    refused = lathe("secrets", "init", "--out", tmp_path / "s")
    assert refused.returncode == 78 and "worker.secret' is empty" in refused.stderr


def engine(tmp_path, **environment):
    """Output of an engine that refuses its configuration."""
    answer = subprocess.run([str(BIN / "lathe-engine"), "--data-dir", str(tmp_path / "data")],
                            capture_output=True, text=True, timeout=60,
                            env={**os.environ, **environment})
    assert answer.returncode == 78, answer.stdout + answer.stderr
    return answer.stdout + answer.stderr


def test_secrets_that_an_engine_cannot_use_are_named(tmp_path):
    (tmp_path / "bad").write_text("hush-hush\n")
    bad = str(tmp_path / "bad")
    assert f"'{bad}' holds no API key" in engine(tmp_path, LATHE_ENGINE__ADMIN_KEY_FILE=bad)
    output = engine(tmp_path, LATHE_ENGINE__WORKER_SECRET_FILE=bad)
    assert "worker_secret has 9 characters, minimum is 32" in output and "hush" not in output
    output = engine(tmp_path, LATHE_ENGINE__STORE_FILE="/no/such/file")
    assert "engine.store_file: '/no/such/file' cannot be read" in output
    output = engine(tmp_path, LATHE_ENGINE__STORE_FILE=bad, LATHE_ENGINE__STORE="sqlite:x")
    assert "engine.store (from LATHE_ENGINE__STORE) and engine.store_file" in output


def test_an_engine_makes_its_first_admin_key_once(tmp_path):
    key_file = tmp_path / "admin.key"
    for _ in range(2):
        process = subprocess.Popen(
            [str(BIN / "lathe-engine"), "--data-dir", str(tmp_path / "data")],
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
            env={**os.environ, "LATHE_ENGINE__ADMIN_KEY_FILE": str(key_file)})
        try:
            lines = []
            for line in process.stdout:
                lines.append(line)
                if '"serving"' in line:
                    break
            made = key_file.read_text()
            assert stat.S_IMODE(key_file.stat().st_mode) == 0o600
            listed = lathe("keys", "list", "--data-dir", tmp_path / "data").stdout
            assert listed.count("admin_key_file") == 1, listed
            assert made.split("_")[1] not in "".join(lines)
        finally:
            process.terminate()
            process.wait(30)
            process.stdout.close()
    assert key_file.read_text() == made


def test_an_engine_keeps_its_secrets_when_its_folder_of_sockets_is_emptied(tmp_path):
    """As systemd does with RUNTIME_DIRECTORY at each stop. Other machines have copies of them."""
    seen = []
    for _ in range(2):
        run_dir = tmp_path / "run"
        shutil.rmtree(run_dir, ignore_errors=True)
        with subprocess.Popen(
                [str(BIN / "lathe-engine"), "--data-dir", str(tmp_path / "data"), "--run-dir",
                 str(run_dir)], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as process:
            try:
                assert any('"serving"' in line for line in process.stdout)
                seen.append([(run_dir / name).read_text() for name in ("secret", "gateway.secret")])
            finally:
                process.terminate()
                process.stdout.read()
    assert seen[0] == seen[1]
