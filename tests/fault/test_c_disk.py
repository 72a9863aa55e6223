"""Rows C6 and C9 of the fault table: the disk under SQLite is full, or does not keep what it took."""

import os
import re
import subprocess
import time

import pytest
from support.failing_calls import failing_calls
from support.lathe_server import LatheServer, tiny_model
from support.metrics_page import MetricsPages
from support.raw_api import RawApi, RawModel, datum
from support.small_disk import small_disk
from support.stubborn_api import Program, StubbornApi

ENV = {"LATHE_WORKER__NUMERICS": "exact"}


@pytest.fixture
def small(tmp_path):
    """A Lathe whose whole data directory is 24 MiB."""
    with small_disk(tmp_path / "data", 24) as disk:
        with LatheServer(tiny_model(), data_dir=str(disk.folder), env=ENV,
                         args=["--metrics-listen", "127.0.0.1:0"]) as server:
            yield server, disk


def test_c6_full_disk_refuses_with_the_path_and_goes_on_when_there_is_room(small):
    server, disk = small
    api = RawApi(server)
    stubborn = StubbornApi(server)
    program = Program(stubborn)
    program.step()
    engine = server.pids()["engine"]
    disk.fill()

    refused = None
    pending = []
    deadline = time.monotonic() + 60
    while refused is None:
        assert time.monotonic() < deadline, "the full disk was never reported"
        try:
            answer = api.post("forward_backward", program.model.body(data=[datum((21, 31, 32))]),
                              timeout=5)
        except Exception:  # accepted only when it is durable: such a call waits
            program.model.seq_id -= 1
            continue
        if answer.status_code == 200:
            pending.append(answer.json())
        elif answer.status_code == 503:  # it has waited long enough
            program.model.seq_id -= 1
        else:
            refused = answer
            program.model.seq_id -= 1
    assert refused.status_code == 507, refused.text
    error = refused.json()["error"]
    assert error["code"] == "disk_full"
    assert str(disk.folder) in error["message"]
    assert int(refused.headers["Retry-After"]) > 0
    pages = MetricsPages(server)
    ready = pages.get("engine", "/readyz")
    assert ready.status_code == 503 and str(disk.folder) in ready.text

    disk.free()
    for future in pending:
        assert "error" not in stubborn.result(future)
    repeated = stubborn.made("forward_backward", program.model.body(data=[datum((21, 31, 32))]))
    assert "error" not in stubborn.result(repeated)
    norm = stubborn.result(program.optim_step())["metrics"]["grad_norm"]
    assert server.pids()["engine"] == engine, "the engine did not live through it"
    assert pages.get("engine", "/readyz").status_code == 200

    calm = Program(stubborn)
    calm.step()
    for _ in range(len(pending) + 1):
        calm.forward_backward((21, 31, 32))
    assert stubborn.result(calm.optim_step())["metrics"]["grad_norm"] == norm
    integrity = subprocess.run(
        ["python3", "-c", "import sqlite3, sys; print(sqlite3.connect(sys.argv[1]).execute("
         "'PRAGMA integrity_check').fetchone()[0])", os.path.join(server.data_dir, "lathe.db")],
        check=True, capture_output=True, text=True)
    assert integrity.stdout.strip() == "ok"


def test_c6_full_disk_under_large_bodies(small):
    """Bodies above 64 KiB are files; the rows may still find room."""
    server, disk = small
    api = RawApi(server)
    stubborn = StubbornApi(server)
    model = RawModel(stubborn)
    body = model.body(data=[datum(range(20, 80))] * 200)
    disk.fill(keep_bytes=32 << 10)
    refused = api.post("forward_backward", body)
    assert refused.status_code == 507, refused.text
    assert os.path.join(str(disk.folder), "bodies") in refused.json()["error"]["message"]
    assert os.listdir(disk.folder / "bodies") == []
    disk.free()
    assert "error" not in stubborn.result(stubborn.made("forward_backward", body))


def test_c9_fsync_error_acknowledges_nothing_and_ends_the_engine(tmp_path):
    data_dir = str(tmp_path / "data")
    with LatheServer(tiny_model(), data_dir=data_dir, env=ENV) as server:
        stubborn = StubbornApi(server)
        program = Program(stubborn)
        program.step()
        old = server.pids()["engine"]
        with failing_calls(old, "fsync,fdatasync:error=EIO", tmp_path / "strace") as tracer:
            body = program.model.body(data=[datum((21, 31, 32))])
            answer = RawApi(server).post("forward_backward", body)
            assert answer.status_code >= 500, answer.text
            tracer.wait(timeout=60)
        server.wait_restarted("engine", old)
        assert re.search(r"engine +died \(exit code 74\)", server.output()), server.output()
        with open(os.path.join(data_dir, "logs", "engine.log")) as log:
            assert "the store failed; nothing more can be acknowledged" in log.read()
        # Whether it is in the store nobody knows, the engine included; a repetition finds out.
        assert "error" not in stubborn.result(stubborn.made("forward_backward", body))
        norm = stubborn.result(program.optim_step())["metrics"]["grad_norm"]
        calm = Program(stubborn)
        calm.step()
        calm.forward_backward((21, 31, 32))
        assert stubborn.result(calm.optim_step())["metrics"]["grad_norm"] == norm
