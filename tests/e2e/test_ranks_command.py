"""`lathe ranks`, the parent of ranks where there is no `lathe up`: all of them are started again when one
dies, and none outlives it."""

import os
import signal
import socket
import subprocess

import httpx
import pytest
from support.lathe_server import BIN, free_port, tiny_model
from support.rank_service import RankService
from support.stubborn_api import Program, StubbornApi


def free_ports(count):
    """The first of so many that nobody has."""
    while True:
        first = free_port()
        try:
            for port in range(first, first + count):
                with socket.socket() as probe:
                    probe.bind(("127.0.0.1", port))
        except OSError:
            continue
        return first


class ParentService(RankService):
    """All ranks are children of one `lathe ranks`, which is `ranks[0]`."""

    first_page = None

    def _start_rank(self, rank):
        if rank > 0:
            return
        self.first_page = self.first_page or free_ports(self.world)
        with open(self._log_path("rank0"), "ab") as log:
            self.ranks[0] = subprocess.Popen(
                [str(BIN / "lathe"), "ranks", "--ranks", f"0-{self.world - 1}", "--threads", "1",
                 "--metrics-listen", f"127.0.0.1:{self.first_page}",
                 "--data-dir", self.data_dir, "--", *self.mesh, "--model", f"tiny={self.model}",
                 "--device", "cpu", "--memory-fraction", "0.2"],
                stdout=log, stderr=log, env={**self.env, "LATHE_WORKER__NUMERICS": "exact"})

    def pids(self):
        """Of the ranks that the engine knows."""
        return {int(rank["rank"]): int(rank["pid"]) for rank in self.group()["ranks"]}


def test_ranks_of_a_parent_come_back_and_end_with_it():
    with ParentService(tiny_model(), tp=2) as service:
        api = StubbornApi(service)
        program = Program(api)
        program.step()
        for rank in (1, 0):
            old = service.pids()
            os.kill(old[rank], signal.SIGKILL)
            program.step()
            assert not set(service.pids().values()) & set(old.values())
            service.wait_log("rank0", f"worker{rank}  died (signal 9), is started again")
        program.check()
        api.close()
        for rank in range(service.world):  # each has a page of its own
            page = httpx.get(f"http://127.0.0.1:{service.first_page + rank}/metrics").text
            assert 'lathe_worker_memory_bytes{owner="base"}' in page
            service.wait_log("rank0", f"worker{rank} http://127.0.0.1:{service.first_page + rank}/metrics")
        last = service.pids()
        service.held.add(0)
        service.ranks[0].send_signal(signal.SIGTERM)
        assert service.ranks[0].wait(30) == 0
        assert not any(os.path.exists(f"/proc/{pid}") for pid in last.values())


def test_options_that_a_worker_refuses_end_its_parent_with_its_words(tmp_path):
    answer = subprocess.run(
        [str(BIN / "lathe"), "ranks", "--ranks", "1-2", "--data-dir", tmp_path, "--", "--tp", "2",
         "--model", f"tiny={tiny_model()}"],
        capture_output=True, text=True, check=False, timeout=30)
    assert answer.returncode == 78
    assert "worker2 ended with exit code 78 before it was ready" in answer.stderr
    assert str(tmp_path / "logs" / "worker2.log") in answer.stderr
    assert "options are refused" in answer.stderr


@pytest.mark.parametrize("options, code", [([], 0), (["--stopped-exit-code", "143"], 143)])
def test_a_stop_ends_with_the_code_that_was_asked_for(options, code, tmp_path):
    """Its rank waits for an engine that is not there."""
    with subprocess.Popen(
            [str(BIN / "lathe"), "ranks", "--ranks", "0", "--data-dir", tmp_path, *options, "--",
             "--model", f"tiny={tiny_model()}", "--device", "cpu"],
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as parent:
        assert "worker0  started" in parent.stdout.readline()
        parent.send_signal(signal.SIGTERM)
        assert parent.wait(60) == code
        assert parent.stderr.read() == ""


def test_an_exit_code_that_is_none_is_named(tmp_path):
    answer = subprocess.run(
        [str(BIN / "lathe"), "ranks", "--ranks", "0", "--stopped-exit-code", "256", "--data-dir", tmp_path],
        capture_output=True, text=True, check=False, timeout=30)
    assert answer.returncode == 2
    assert "stopped_exit_code is 256, expected 0 to 255" in answer.stderr


class PodService(RankService):
    """Each pod of a LeaderWorkerSet has two ranks, and its `lathe ranks` finds out which."""

    RANKS_PER_POD = 2

    def _start_rank(self, rank):
        if rank % self.RANKS_PER_POD > 0:
            return
        pod = rank // self.RANKS_PER_POD
        environment = {"LWS_WORKER_INDEX": str(pod),
                       "LWS_GROUP_SIZE": str(self.world // self.RANKS_PER_POD)}
        with open(self._log_path(f"pod{pod}"), "ab") as log:
            self.ranks[rank] = subprocess.Popen(
                [str(BIN / "lathe"), "ranks", "--ranks-per-pod", str(self.RANKS_PER_POD),
                 "--threads", "1", "--data-dir", self.data_dir, "--", *self.mesh,
                 "--model", f"tiny={self.model}", "--device", "cpu", "--memory-fraction", "0.2"],
                stdout=log, stderr=log,
                env={**self.env, **environment, "LATHE_WORKER__NUMERICS": "exact"})


def test_pods_of_several_ranks_find_their_places():
    with PodService(tiny_model(), dp=2, tp=2) as service:
        api = StubbornApi(service)
        program = Program(api)
        program.step()
        program.step()
        program.check()
        api.close()
        assert [int(rank["rank"]) for rank in service.group()["ranks"]] == [0, 1, 2, 3]
        service.wait_log("pod1", "worker2  started")
        service.wait_log("pod1", "worker3  started")


@pytest.mark.parametrize("env, options, complaint", [
    ({}, [], "expected either --ranks or --ranks-per-pod"),
    ({}, ["--ranks", "0-1", "--ranks-per-pod", "2"], "expected either --ranks or --ranks-per-pod"),
    ({}, ["--ranks-per-pod", "2"], "no launcher says which pod this is"),
    ({}, ["--ranks-per-pod", "65"], "ranks_per_pod is 65, expected 1 to 64"),
    ({"LWS_WORKER_INDEX": "1"}, ["--ranks-per-pod", "2"], "and LWS_GROUP_SIZE is missing"),
    ({"RANK": "1", "WORLD_SIZE": "2", "LOCAL_RANK": "1"}, ["--ranks-per-pod", "2"],
     "LOCAL_RANK is 1: ranks_per_pod is for launchers of one process per pod"),
])
def test_a_pod_that_is_none_is_named(env, options, complaint, tmp_path):
    answer = subprocess.run(
        [str(BIN / "lathe"), "ranks", *options, "--data-dir", tmp_path, "--", "--tp", "2"],
        capture_output=True, text=True, check=False, timeout=30, env={**os.environ, **env})
    assert answer.returncode in (2, 78)
    assert complaint in answer.stderr


@pytest.mark.parametrize("ranks", ["", "a", "3-1", "-1", "0-64", "1-2-3", "0-2147483648"])
def test_ranks_that_are_none_are_named(ranks, tmp_path):
    answer = subprocess.run(
        [str(BIN / "lathe"), "ranks", f"--ranks={ranks}", "--data-dir", tmp_path, "--", "--tp", "2"],
        capture_output=True, text=True, check=False, timeout=30)
    assert answer.returncode == 2
    assert f"ranks is '{ranks}'" in answer.stderr or ranks == ""


@pytest.mark.parametrize("env, arguments, complaint", [
    ({}, ["--metrics-listen", "127.0.0.1:9000"],
     "--metrics-listen after -- is one port for all 2 ranks; given before --, --metrics-listen is"),
    ({"LATHE_METRICS__WORKER_LISTEN": "127.0.0.1:9000"}, [],
     "LATHE_METRICS__WORKER_LISTEN is one port for all 2 ranks"),
    ({"CUDA_VISIBLE_DEVICES": "3"}, [],
     "device is auto: 2 ranks on this machine need a GPU each, 1 are available"),
    ({"CUDA_VISIBLE_DEVICES": "3"}, ["--device", "cuda"], "device is cuda: 2 ranks on this"),
])
def test_what_several_ranks_cannot_share_is_named(env, arguments, complaint, tmp_path):
    answer = subprocess.run(
        [str(BIN / "lathe"), "ranks", "--ranks=0-1", "--data-dir", tmp_path, "--", "--tp", "2",
         *arguments], capture_output=True, text=True, check=False, timeout=30,
        env={**os.environ, **env})
    assert answer.returncode in (2, 78)
    assert complaint in answer.stderr
