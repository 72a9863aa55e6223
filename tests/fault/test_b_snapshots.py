"""Rows B1 and D1 of the fault table around snapshots, sampler versions on disk and recoveries."""

import os
import time

import pytest
from support.fail_points import listed
from support.raw_api import RawModel, datum
from support.stubborn_api import Program, StubbornApi

ROUNDS = int(os.environ.get("LATHE_FAULT_ROUNDS", "1"))
OPTIONS = """
engine:
  snapshot_interval: 100ms
  snapshot_share: 1
worker:
  numerics: exact
"""
# Passed when a model is rebuilt: its worker is killed for that.
IN_RECOVERY = listed("engine.recovery.") + listed("worker.restore.")
OF_ENGINE = [name for prefix in ("snapshot", "version", "recovery")
             for name in listed(f"engine.{prefix}.")]
# Files of snapshots and versions are written as those of saves are. worker.version.chunk needs a
# second group: tests/e2e/test_groups.py kills there.
OF_WORKER = [name for prefix in ("snapshot", "version", "save", "restore")
             for name in listed(f"worker.{prefix}.")
             if name not in ("worker.save.staged", "worker.save.committed",
                             "worker.version.chunk")]


class SampledProgram(Program):
    """Its steps are compared at the end; what its unnamed versions sample, all the time."""

    def __init__(self, api):
        super().__init__(api)
        self.versions = []  # (sampling session, its sample)
        self.num_samples = 0

    def publish(self):
        session = self.api.result(self.api.made("save_weights_for_sampler", {
            "model_id": self.model.model_id, "seq_id": self.model.next_seq_id(),
            "sampling_session_seq_id": len(self.versions)}))["sampling_session_id"]
        self.versions.append((session, self.sample(session)))

    def sample(self, session):
        self.num_samples += 1
        result = self.api.result(self.api.made("asample", {
            "sampling_session_id": session, "seq_id": self.num_samples, "num_samples": 2,
            "prompt": {"chunks": [{"type": "encoded_text", "tokens": [30, 31, 32]}]},
            "sampling_params": {"max_tokens": 16, "seed": 5, "stop": [], "temperature": 1.0,
                                "top_k": -1, "top_p": 1.0}}))
        return [one["tokens"] for one in result["sequences"]]

    def check_versions(self):
        for session, tokens in self.versions[-4:]:
            assert self.sample(session) == tokens, "a sampler version is another than it was"


@pytest.fixture(scope="module")
def program(server):
    api = StubbornApi(server)
    yield SampledProgram(api)
    api.close()


def kill_worker_with_snapshot(server, fail_points, program):
    """So that the recovery restores one."""
    before = fail_points.counts()["engine.snapshot.committed"][0]
    deadline = time.monotonic() + 60
    while fail_points.counts()["engine.snapshot.committed"][0] == before:
        assert time.monotonic() < deadline, "no snapshot was written"
        program.step()
    server.kill("worker")


def work_until_fired(fail_points, program, name, before):
    deadline = time.monotonic() + 60
    while fail_points.fired(name) <= before:
        assert time.monotonic() < deadline, f"{name} was not passed"
        program.step()
        if "version" in name:
            program.publish()


@pytest.mark.parametrize("name", OF_ENGINE * ROUNDS)
def test_b1_engine_killed_around_a_snapshot_loses_and_doubles_nothing(
        server, fail_points, program, name):
    program.step()
    before = fail_points.fired(name)
    pids = server.pids()
    fail_points.set(f"{name}=kill#{pids['engine']}")
    if name in IN_RECOVERY:
        kill_worker_with_snapshot(server, fail_points, program)
    work_until_fired(fail_points, program, name, before)
    server.wait_restarted("engine", pids["engine"])
    if name not in IN_RECOVERY:
        assert server.pids()["worker"] == pids["worker"], "the living worker was not adopted"
    program.step()
    program.publish()
    program.check_versions()


@pytest.mark.parametrize("name", OF_WORKER * ROUNDS)
def test_d1_worker_killed_around_a_snapshot_loses_and_doubles_nothing(
        server, fail_points, program, name):
    program.step()
    before = fail_points.fired(name)
    old = server.pids()["worker"]
    if name in IN_RECOVERY:
        # The next worker is the one that restores; no step ends before one may.
        fail_points.set(f"{name}=kill@1")
        kill_worker_with_snapshot(server, fail_points, program)
        fail_points.wait_fired(name, more_than=before)
    else:
        fail_points.set(f"{name}=kill#{old}")
        work_until_fired(fail_points, program, name, before)
    fail_points.clear()
    server.wait_restarted("worker", old)
    program.step()
    program.publish()
    program.check_versions()


def test_b1_d1_the_steps_of_this_file_were_applied_once_and_in_order(fail_points, program):
    """Last: of all that the tests above did to one model."""
    assert len(program.sizes) > len(OF_ENGINE + OF_WORKER)
    passed = fail_points.counts()["worker.restore.done"][0]
    assert passed > 0, "no recovery began at a snapshot"
    program.check()


def test_a1_a_repetition_gets_its_id_when_nothing_of_it_is_read_at_the_start_any_more(
        server, fail_points):
    api = StubbornApi(server)
    model = RawModel(api)
    body = model.body()
    first = api.made("forward_backward", body)
    loss = api.result(first)["metrics"]["loss:sum"]
    model.step()
    abandoned = model.body()
    # Two snapshots of the model are newer, and the ledger has closed what is missing.
    for _ in range(4):
        before = fail_points.counts()["engine.snapshot.committed"][0]
        deadline = time.monotonic() + 60
        while fail_points.counts()["engine.snapshot.committed"][0] == before:
            assert time.monotonic() < deadline, "no snapshot was written"
            model.accumulate()
            model.step()
    server.wait_restarted("engine", server.kill("engine"))
    for _ in range(2):
        assert api.made("forward_backward", body)["request_id"] == first["request_id"]
    assert api.result(first)["metrics"]["loss:sum"] == loss
    other = {**abandoned, "seq_id": body["seq_id"],
             "forward_backward_input": {"data": [datum((40, 41))], "loss_fn": "cross_entropy"}}
    for wrong, code in [(other, "seq_id_reused"), (abandoned, "seq_id_abandoned")]:
        refused = api.post("forward_backward", wrong)
        assert refused.status_code == 400
        assert refused.json()["error"]["code"] == code
    api.close()
