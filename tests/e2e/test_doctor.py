"""`lathe doctor`: each planted mistake is named, and nothing else becomes an error."""

import contextlib
import json
import os
import pathlib
import resource
import shutil
import socket
import struct
import subprocess
import sys
import time

import pytest

sys.path.insert(0, os.path.join(os.path.dirname(__file__), ".."))
from support import certificates  # noqa: E402
from support.doctor import LATHE, doctor, errors, good, named, worst  # noqa: E402
from support.lathe_server import LatheServer, tiny_model  # noqa: E402


@pytest.fixture
def data(tmp_path):
    folder = tmp_path / "data"
    folder.mkdir(mode=0o700)
    return folder


def test_a_machine_in_good_order(data):
    code, found = doctor(options=good(data))
    assert errors(found) == set()
    assert code in (0, 1)
    for name in ("host.memory", "files.data_dir", "files.writes", "store", "network.listeners", "model.folder",
                 "model.weights", "model.tokenizer", "model.memory"):
        assert all(row["state"] == "ok" for row in found[name]), found[name]
    assert list(data.iterdir()) == [], "it leaves nothing behind"


def test_the_table_names_the_fix(data):
    done = subprocess.run([LATHE, "doctor", "--", *good(data)[:-2], "--listen", "0.0.0.0:0"],
                          capture_output=True, text=True, timeout=60)
    assert done.returncode == 2
    assert "error    network.exposure" in done.stdout
    assert "fix: lathe certs init" in done.stdout
    assert "lathe: doctor_errors: 1 error" in done.stderr


def test_a_running_lathe_is_in_good_order():
    with LatheServer(tiny_model()) as server:
        options = ["--data-dir", str(server.data_dir), "--listen", f"127.0.0.1:{server.port}"]
        code, found = doctor(options=options)
        assert errors(found) == set() and code in (0, 1)
        assert "in use by Lathe" in worst(found, "network.listeners")["found"]
        assert "is ready" in worst(found, "service.groups")["found"]
        assert "SQLite, schema" in worst(found, "store")["found"]
        subprocess.run([LATHE, "keys", "create", "--data-dir", str(server.data_dir), "--tenant", "a",
                        "--expires", "24h"], check=True, capture_output=True)
        _, found = doctor(options=options)
        named(found, "service.keys", "of a", state="warning")


def test_wrong_options(data):
    _, found = doctor(options=[*good(data), "--drain-timeout", "soon"])
    assert "drain" in worst(found, "options")["found"]
    assert errors(found) == {"options"}


def test_a_wrong_file_of_options(data, tmp_path):
    path = tmp_path / "lathe.yaml"
    path.write_text("engine:\n  sesion_timeout: 5s\n")
    _, found = doctor("--config", str(path), role="engine", options=["--data-dir", str(data)])
    named(found, "options", "sesion_timeout", "session_timeout")


def test_few_open_files(data):
    code, found = doctor(options=good(data), before=lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (256, 256)))
    named(found, "host.open_files", "256 open files")
    assert code == 2


def test_a_data_directory_that_is_a_file(data):
    path = data / "file"
    path.touch()
    options = ["--data-dir", str(path), *good(data)[2:]]
    named(doctor(options=options)[1], "files.data_dir", "not a folder")


@contextlib.contextmanager
def mounted(folder, *arguments):
    done = subprocess.run(["mount", *arguments, str(folder)], capture_output=True)
    if done.returncode != 0:
        pytest.skip("mounting needs rights that this user lacks")
    try:
        yield
    finally:
        subprocess.run(["umount", str(folder)], check=True)


def test_a_full_and_passing_file_system(data):
    with mounted(data, "-t", "tmpfs", "-o", "size=512k", "tmpfs"):
        code, found = doctor(options=good(data))
        named(found, "files.space", "0.0 GiB free")
        assert worst(found, "files.file_system")["state"] == "warning"
        assert "tmpfs" in worst(found, "files.file_system")["found"]


def test_little_room_that_is_enough_to_start(data):
    """SQLite starts in 1 MiB. Ranks start without room, and what they save waits."""
    with mounted(data, "-t", "tmpfs", "-o", "size=2m", "tmpfs"):
        named(doctor(options=good(data))[1], "files.space", "0.0 GiB free", state="warning")
        with contextlib.suppress(OSError), open(data / "more", "wb", buffering=0) as more:
            while True:
                more.write(b"x" * 4096)
        _, found = doctor(role="ranks", options=ranks_options(data))
        named(found, "files.space", state="warning")
        named(found, "files.writes", "No space", state="warning")


def test_files_of_other_doctors(data):
    """Containers that share a directory have the same process ids, and each doctor is process 1 of its own."""
    left = data / ".doctor-1"
    left.touch()
    command = ["unshare", "--pid", "--fork", LATHE, "doctor", "--format", "json", "--", *good(data)]
    running = [subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) for _ in range(3)]
    for process in running:
        output, complaint = process.communicate(timeout=60)
        if "unshare" in complaint:
            pytest.skip("namespaces need rights that this user lacks")
        [row] = [row for row in json.loads(output)["checks"] if row["name"] == "files.writes"]
        assert row["state"] == "ok", row
    assert list(data.iterdir()) == [left], "another doctor may still use it"
    os.utime(left, (time.time() - 2 * 3600,) * 2)
    doctor(options=good(data))
    assert list(data.iterdir()) == [], "nobody uses it"


def test_a_file_system_that_cannot_be_written(data):
    with mounted(data, "-t", "tmpfs", "-o", "ro", "tmpfs"):
        code, found = doctor(options=good(data))
        assert "files.data_dir" in errors(found) <= {"files.data_dir", "files.writes"}
        assert "Read-only" in worst(found, "files.data_dir")["found"]


def test_a_gateway_only_reads_its_data_directory(data):
    with mounted(data, "-t", "tmpfs", "-o", "ro", "tmpfs"):
        code, found = doctor(role="gateway", options=["--data-dir", str(data), "--listen", "127.0.0.1:0"])
        assert errors(found) == set()


def test_the_ports_of_a_running_gateway():
    with LatheServer(tiny_model()) as server:
        _, found = doctor(role="gateway", options=["--listen", f"127.0.0.1:{server.port}"])
        assert errors(found) == set()
        assert "in use by Lathe" in worst(found, "network.listeners")["found"]


def test_ranks_of_another_machine(data):
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        gone = f"127.0.0.1:{closed.getsockname()[1]}"
        _, found = doctor(role="ranks", options=["--data-dir", str(data), "--ranks", "0-0", "--engine", gone])
        named(found, "network.engines", gone, "refused")


def test_a_path_that_is_too_long_for_sockets(data):
    named(doctor(options=[*good(data), "--run-dir", str(data / ("x" * 100))])[1], "files.sockets", "at most 100")


def test_secrets_that_others_can_read(data):
    path = data / "admin.key"
    path.write_text("tml-x\n")
    path.chmod(0o644)
    row = named(doctor(options=good(data))[1], "files.secrets", "0644")
    assert row["remedy"] == f"chmod 600 {path}"


def test_a_secret_that_was_mounted(data):
    """Only its owner could change its rights."""
    path = data / "admin.key"
    path.write_text("tml-x\n")
    path.chmod(0o644)
    os.chown(path, 1, 1)
    named(doctor(options=good(data))[1], "files.secrets", "0644", state="warning")


def test_attempts_that_were_left(data):
    old = data / "checkpoints" / "tmp" / "a"
    old.mkdir(parents=True)
    os.utime(old, (time.time() - 2 * 86400,) * 2)
    named(doctor(options=good(data))[1], "files.attempts", "1 in", state="warning")


def test_a_port_that_is_taken(data):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        options = [*good(data)[:-2], "--listen", f"127.0.0.1:{port}"]
        named(doctor(options=options)[1], "network.listeners", str(port), "in use")


def test_keys_in_clear_text(data):
    named(doctor(options=[*good(data)[:-2], "--listen", "0.0.0.0:0"])[1], "network.exposure", "0.0.0.0")
    _, found = doctor(options=[*good(data)[:-2], "--listen", "0.0.0.0:0", "--insecure-i-know"])
    named(found, "network.exposure", "clear text", state="warning")


def test_certificates(data, tmp_path):
    def found_with(days):
        authority = certificates.Authority(tmp_path / f"{days}")
        authority.issue("server", days=days)
        return doctor(options=[*good(data), "--tls-cert", authority.cert("server"),
                               "--tls-key", authority.key("server")])[1]

    assert errors(found_with(60)) == set()
    named(found_with(5), "network.certificates", "ends at", state="warning")
    named(found_with(-1), "network.certificates", "ended at")


def test_a_key_that_does_not_fit(data, tmp_path):
    authority = certificates.Authority(tmp_path)
    authority.issue("first")
    authority.issue("second")
    options = [*good(data), "--tls-cert", authority.cert("first"), "--tls-key", authority.key("second")]
    named(doctor(options=options)[1], "network.certificates")


def gateway_options(data):
    secret = data / "gateway.secret"
    secret.write_text("0" * 64)
    secret.chmod(0o600)
    return ["--listen", "127.0.0.1:0", "--secret-file", str(secret)]


def test_an_engine_that_cannot_be_reached(data):
    with socket.create_server(("127.0.0.1", 0)) as listening, socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        there = f"127.0.0.1:{listening.getsockname()[1]}"
        gone = f"127.0.0.1:{closed.getsockname()[1]}"
        common = [*gateway_options(data), "--engine", gone]
        _, found = doctor(role="gateway", options=common)
        named(found, "network.engines", gone, "refused")
        _, found = doctor(role="gateway", options=[*common, "--engine", there])
        assert errors(found) == set() and worst(found, "network.engines")["state"] == "warning"
        _, found = doctor("--offline", role="gateway", options=common)
        assert "network.engines" not in found


def copy_of_model(tmp_path):
    return pathlib.Path(shutil.copytree(tiny_model(), tmp_path / "model"))


def with_model(data, folder):
    return ["--data-dir", str(data), "--model", str(folder), "--listen", "127.0.0.1:0"]


def test_a_model_that_is_not_there(data):
    named(doctor(options=with_model(data, "/no/such/model"))[1], "model.folder", "/no/such/model")


def test_a_model_that_was_cut_off(data, tmp_path):
    folder = copy_of_model(tmp_path)
    weights = max(folder.glob("*.safetensors"), key=lambda path: path.stat().st_size)
    with weights.open("r+b") as file:
        file.truncate(weights.stat().st_size - 1000)
    named(doctor(options=with_model(data, folder))[1], "model.weights", weights.name, "promises")


def test_a_model_that_lacks_a_shard(data, tmp_path):
    folder = copy_of_model(tmp_path)
    (folder / "model.safetensors.index.json").write_text(
        json.dumps({"weight_map": {"lm_head.weight": "model-00002-of-00002.safetensors"}}))
    named(doctor(options=with_model(data, folder))[1], "model.weights", "00002-of-00002", "missing")


def test_a_model_without_tokenizer(data, tmp_path):
    folder = copy_of_model(tmp_path)
    (folder / "tokenizer.json").unlink()
    named(doctor(options=with_model(data, folder))[1], "model.tokenizer", "tokenizer.json", state="warning")
    (folder / "tokenizer.json").write_text("{")
    named(doctor(options=with_model(data, folder))[1], "model.tokenizer", "tokenizer.json")


def test_a_model_that_does_not_fit(data, tmp_path):
    folder = copy_of_model(tmp_path)
    for path in folder.glob("*.safetensors"):
        path.unlink()
    # A file with a hole takes no space.
    size = 4 << 40
    header = json.dumps({"w": {"dtype": "F32", "shape": [size // 4], "data_offsets": [0, size]}}).encode()
    with (folder / "model.safetensors").open("wb") as file:
        file.write(struct.pack("<Q", len(header)) + header)
        file.truncate(8 + len(header) + size)
    named(doctor(options=with_model(data, folder))[1], "model.memory", "4096.0 GiB")
    parts = ranks_options(data, "--", "--model", str(folder), "--tp", "2", "--device", "cpu")
    # Ranks do not refuse it, as `lathe up` does.
    named(doctor(role="ranks", options=parts)[1], "model.memory", "2048.0 GiB", state="warning")
    _, found = doctor(options=with_model(data, folder), env={"CUDA_VISIBLE_DEVICES": "0"})
    assert worst(found, "model.memory")["state"] == "skipped", "a GPU has the weights"
    # Matrices of bf16 stay bf16; those of fp16 become fp32.
    config = json.loads((folder / "config.json").read_text())
    for dtype, size in (("bfloat16", "4096.0 GiB"), ("float16", "8192.0 GiB")):
        config.pop("dtype", None)
        (folder / "config.json").write_text(json.dumps({**config, "torch_dtype": dtype}))
        named(doctor(options=with_model(data, folder))[1], "model.memory", f"({size} of weights)")


def test_no_gpu(data):
    if pathlib.Path("/dev/nvidia0").exists():
        pytest.skip("this machine has one")
    named(doctor(options=[*good(data), "--device", "cuda"])[1], "gpu.devices", "no GPU is visible")


def test_it_waits_until_the_engine_is_there(data):
    with socket.socket() as later:
        later.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{later.getsockname()[1]}"
        process = subprocess.Popen(
            [LATHE, "doctor", "--role", "gateway", "--wait", "30s", "--", *gateway_options(data), "--engine", address],
            stdout=subprocess.PIPE, text=True)
        time.sleep(1.5)
        assert process.poll() is None
        later.listen()
        output, _ = process.communicate(timeout=60)
        assert process.returncode in (0, 1) and "accepts connections" in output


def ranks_options(data, *more):
    return ["--data-dir", str(data), "--ranks", "0-0", *more]


def test_the_model_of_ranks(data):
    """Workers get what follows another "--"; it must not start them."""
    _, found = doctor(role="ranks", options=ranks_options(data, "--", "--model", f"tiny={tiny_model()}"))
    assert errors(found) == set()
    for name in ("model.folder", "model.weights", "model.tokenizer", "model.memory"):
        assert worst(found, name)["state"] == "ok"
    assert list(data.iterdir()) == [], "no rank was started"
    _, found = doctor(role="ranks", options=ranks_options(data, "--", "--model", "/no/such/model"))
    named(found, "model.folder", "/no/such/model")
    _, found = doctor(role="ranks", options=ranks_options(data, "--", "--modle", "x"))
    assert "--modle" in worst(found, "options")["found"]
