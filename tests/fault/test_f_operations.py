"""Rows F1, F6 and F7 of the fault table: stops, full log disks, wrong configuration."""

import os
import re
import signal
import subprocess
import threading

import pytest
from support.lathe_server import BIN, LatheServer, tiny_model
from support.raw_api import RawApi, RawModel
from support.small_disk import small_disk
from support.stubborn_api import Program, StubbornApi


def test_f1_sigterm_under_load_exits_0_and_every_accepted_request_is_answered(tmp_path):
    server = LatheServer(tiny_model(), data_dir=str(tmp_path / "data"))
    with server:
        accepted, stopping = [], threading.Event()

        def load(number):
            api = RawApi(server)
            model = RawModel(api, seed=number)
            while not stopping.is_set():
                try:
                    answer = model.forward_backward()
                except Exception:
                    return
                if answer.status_code == 200:
                    accepted.append(answer.json())

        threads = [threading.Thread(target=load, args=(number,)) for number in range(4)]
        for thread in threads:
            thread.start()
        while len(accepted) < 50:
            threads[0].join(0.01)
        pids = server.pids()
        server.process.send_signal(signal.SIGTERM)
        assert server.process.wait(timeout=60) == 0
        stopping.set()
        for thread in threads:
            thread.join()
        for pid in pids.values():
            assert not os.path.exists(f"/proc/{pid}"), "a process was left behind"
        assert server.stop() == 0
        server.start()
        api = StubbornApi(server)
        num_done = 0
        for future in accepted:
            result = api.result(future)
            # Finished before the end; what was not got a reason.
            num_done += "error" not in result
            assert "error" not in result or result["category"] == "server", result
        assert num_done >= 50
        program = Program(api)
        program.step()


def test_f1_a_drained_gateway_takes_nothing_new_and_ends_what_it_has(tmp_path):
    with LatheServer(tiny_model(), data_dir=str(tmp_path / "data")) as server:
        api = RawApi(server)
        model = RawModel(api)
        future = model.forward_backward().json()
        assert "error" not in api.result(future)
        old = server.pids()["gateway"]
        os.kill(old, signal.SIGTERM)
        server.wait_restarted("gateway", old)
        assert re.search(r"gateway +died \(exit code 0\)", server.output()), server.output()
        assert "error" not in StubbornApi(server).result(future)


def test_f6_a_full_log_disk_does_not_stop_the_service(tmp_path):
    data_dir = tmp_path / "data"
    with small_disk(data_dir / "logs", 1) as disk:
        with LatheServer(tiny_model(), data_dir=str(data_dir),
                         env={"LATHE_WORKER__NUMERICS": "exact"}) as server:
            api = StubbornApi(server)
            program = Program(api)
            program.step()
            disk.fill()
            pids = server.pids()
            for _ in range(5):
                program.step()
            for name in ("gateway", "engine", "worker"):
                server.wait_restarted(name, server.kill(name))
                if name != "worker":
                    program.step()
            assert disk.free_bytes() == 0
            assert server.pids()["up"] == pids["up"]
            disk.free()
            api.result(api.made("forward_backward", RawModel(api).body()))


CONFIG = """up:
  listen: 127.0.0.1:0
  drain_timeout: soon
engine:
  gap_timeuot: 5s
  session_timeout: 10 bananas
gateway:
  max_connections: many
"""


@pytest.mark.parametrize("program, wrong", [
    ("lathe-engine", {5: "gap_timeuot", 6: "session_timeout"}),
    ("lathe-gateway", {8: "max_connections"})])
def test_f7_a_bad_configuration_exits_78_and_names_every_error_with_its_line(
        tmp_path, program, wrong):
    file = tmp_path / "lathe.yaml"
    file.write_text(CONFIG)
    ended = subprocess.run([str(BIN / program), "--config", str(file)], capture_output=True,
                           text=True, timeout=30)
    assert ended.returncode == 78, ended
    for line, key in wrong.items():
        assert re.search(rf"{key}.*lathe\.yaml:{line}\)", ended.stderr), ended.stderr
