"""Rows D1, D2, D6, D8, D11, D13 of the fault table: the worker dies, dies again, has trouble with
its device, or is cut off."""

import concurrent.futures
import os
import pathlib
import socket
import threading
import time

import pytest
from support.fail_points import listed
from support.lathe_server import LatheServer, tiny_model
from support.metrics_page import MetricsPages
from support.stubborn_api import Program, StubbornApi

ROUNDS = int(os.environ.get("LATHE_FAULT_ROUNDS", "1"))
# Passed by a step; those of saves are test_e_checkpoints.py's.
AT_WORK = [name for name in listed("worker.")
           if name.split(".")[1] in ("train", "step", "report", "ack")]
AT_START = ["worker.load.base", "worker.start.ready"]


@pytest.fixture(scope="module")
def api(server):
    yield (made := StubbornApi(server))
    made.close()


@pytest.mark.parametrize("name", AT_WORK * ROUNDS)
def test_d1_d2_worker_killed_at_a_fail_point_applies_each_step_once(server, fail_points, api, name):
    program = Program(api)
    program.step()
    before = fail_points.fired(name)
    old = server.pids()["worker"]
    fail_points.set(f"{name}=kill#{old}")
    deadline = time.monotonic() + 60
    while fail_points.fired(name) == before:
        assert time.monotonic() < deadline, f"{name} was not passed"
        program.step()
    server.wait_restarted("worker", old)
    program.step()
    program.check()


@pytest.mark.parametrize("name", AT_START)
def test_d8_a_worker_that_dies_while_it_loads_backs_off_and_heals(server, fail_points, api, name):
    before = fail_points.fired(name)
    fail_points.set(f"{name}=kill")
    engine = server.pids()["engine"]
    old = server.kill("worker")
    fail_points.wait_fired(name, more_than=before + 3)
    begin = time.monotonic()
    fail_points.wait_fired(name, more_than=before + 4)
    # 100, 200, 400, 800 ms: never a loop that eats the machine.
    assert time.monotonic() - begin > 0.3
    assert server.pids()["engine"] == engine
    fail_points.clear()
    server.wait_restarted("worker", old)
    program = Program(api)
    program.step()
    program.step()
    program.check()


# cudaErrorMemoryAllocation and cudaErrorIllegalAddress. A CPU raises neither by itself.
NO_MEMORY, ILLEGAL_ADDRESS = 2, 700


def test_d6_a_pass_without_device_memory_is_run_again_by_the_same_worker(server, fail_points, api):
    program = Program(api)
    program.step(num_datums=4)
    before = fail_points.fired("worker.train.pass")
    worker = server.pids()["worker"]
    fail_points.set(f"worker.train.pass=error:{NO_MEMORY}@1#{worker}")
    program.step(num_datums=4)
    assert fail_points.fired("worker.train.pass") == before + 1
    assert server.pids()["worker"] == worker
    program.check()


def test_d11_a_worker_whose_gpu_is_lost_ends_and_its_requests_run_in_another(
        server, fail_points, api):
    program = Program(api)
    program.step()
    pages = MetricsPages(server)
    crashed = pages.value("engine", "lathe_engine_worker_restarts_total", reason="crashed")
    old = server.pids()["worker"]
    fail_points.set(f"worker.train.pass=error:{ILLEGAL_ADDRESS}#{old}")
    program.step()
    server.wait_restarted("worker", old)
    program.step()
    program.check()
    assert "died (exit code 75), is started again" in server.output()
    log = pathlib.Path(server.data_dir, "logs", "worker.log").read_text()
    assert "the GPU is lost, and this process ends" in log
    # The engine attributes it like a signal: a request that ends each worker fails in the end.
    assert pages.value("engine", "lathe_engine_worker_restarts_total",
                       reason="crashed") == crashed + 1


class CutSocket:
    """Stands between the worker and the engine's socket, and may swallow what both say."""

    def __init__(self, path):
        self._path = pathlib.Path(path)
        self._real = self._path.with_suffix(".real")
        os.rename(self._path, self._real)
        self._listener = socket.socket(socket.AF_UNIX)
        self._listener.bind(str(self._path))
        self._listener.listen()
        self.is_cut = False
        self.num_connections = 0
        threading.Thread(target=self._accept, daemon=True).start()

    def close(self):
        self._listener.close()
        self._path.unlink()
        os.rename(self._real, self._path)

    def _accept(self):
        while True:
            try:
                near, _ = self._listener.accept()
            except OSError:
                return
            self.num_connections += 1
            far = socket.socket(socket.AF_UNIX)
            far.connect(str(self._real))
            for pair in ((near, far), (far, near)):
                threading.Thread(target=self._pump, args=pair, daemon=True).start()

    def _pump(self, source, sink):
        was_cut = False
        try:
            while piece := source.recv(65536):
                # A hole in the stream of bytes cannot be mended: what was cut stays cut.
                was_cut = was_cut or self.is_cut
                if not was_cut:
                    sink.sendall(piece)
        except OSError:
            pass
        for end in (source, sink):
            try:
                end.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass


def test_d13_a_partition_between_engine_and_worker_heals_by_itself(tmp_path):
    with LatheServer(tiny_model(), data_dir=str(tmp_path / "data"),
                     env={"LATHE_WORKER__NUMERICS": "exact"}) as server:
        api = StubbornApi(server, patience=120)
        cut = CutSocket(pathlib.Path(server.data_dir, "run", "worker.sock"))
        server.wait_restarted("worker", server.kill("worker"))
        program = Program(api)
        program.step()
        connections = cut.num_connections
        assert connections > 0, "the worker does not go through the proxy"
        cut.is_cut = True
        with concurrent.futures.ThreadPoolExecutor(1) as pool:
            step = pool.submit(program.step)
            deadline = time.monotonic() + 90
            while cut.num_connections == connections:
                assert time.monotonic() < deadline, "the worker did not notice that it is cut off"
                time.sleep(0.1)
            cut.is_cut = False
            step.result(timeout=120)
        program.step()
        program.check()
        cut.close()
