"""Ranks that a launcher starts: each takes the place that its environment says, unless --rank does."""

import os
import subprocess

import pytest
from support.lathe_server import BIN, tiny_model
from support.rank_service import RankService
from support.stubborn_api import Program, StubbornApi

LAUNCHERS = {
    "deployment": lambda rank: {"LATHE_POD_INDEX": rank, "LATHE_POD_COUNT": "2"},
    "torchrun": lambda rank: {"RANK": rank, "WORLD_SIZE": "2", "LOCAL_RANK": rank},
    "LeaderWorkerSet": lambda rank: {"LWS_WORKER_INDEX": rank, "LWS_GROUP_SIZE": "2"},
    "indexed job": lambda rank: {"JOB_COMPLETION_INDEX": rank},
}


class LaunchedService(RankService):
    def __init__(self, launcher, **options):
        self.launcher = launcher
        super().__init__(tiny_model(), options=["--numerics", "exact"], **options)

    def _start_rank(self, rank):
        calm = self.env
        self.env = {**calm, **self.launcher(str(rank))}
        super()._start_rank(rank)
        self.env = calm

    def place(self, rank):
        return self.mesh


@pytest.mark.parametrize("launcher", LAUNCHERS)
def test_ranks_take_the_places_that_a_launcher_gives_them(launcher):
    with LaunchedService(LAUNCHERS[launcher], tp=2) as service:
        api = StubbornApi(service)
        program = Program(api)
        program.step()
        program.step()
        program.check()
        api.close()
        assert [int(rank["rank"]) for rank in service.group()["ranks"]] == [0, 1]


@pytest.mark.parametrize("env, arguments, complaint", [
    ({}, ["--tp", "2"], "rank is missing, and no launcher says it"),
    ({"RANK": "1"}, ["--tp", "2"], "RANK is 1, and WORLD_SIZE is missing"),
    ({"RANK": "1", "WORLD_SIZE": "4"}, ["--tp", "2"], "has 4 processes, dp 1 x fsdp 1 x tp 2 has 2"),
    ({"RANK": "1"}, ["--tp", "2", "--rank", "2"], "rank is 2"),
    ({"JOB_COMPLETION_INDEX": "2"}, ["--tp", "2"], "rank is 2"),
    ({"RANK": "1", "WORLD_SIZE": "2", "LOCAL_RANK": "1", "CUDA_VISIBLE_DEVICES": "0"}, ["--tp", "2"],
     "device is auto: 2 ranks on this machine need a GPU each, 1 are available"),
])
def test_a_place_that_is_none_is_named(env, arguments, complaint, tmp_path):
    answer = subprocess.run(
        [str(BIN / "lathe-worker"), *arguments, "--model", tiny_model(), "--data-dir", tmp_path],
        capture_output=True, text=True, check=False, timeout=30, env={**os.environ, **env})
    assert answer.returncode == 78
    assert complaint in answer.stdout + answer.stderr
