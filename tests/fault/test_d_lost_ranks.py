"""Rows D3, D4, D8, D10 and D12 of the fault table for a group of several ranks: one is stopped, dies
before or while they meet, dies whenever it starts, or is not of the group's kind."""

import random
import shutil
import signal
import threading
import time

import pytest
from support.lathe_server import tiny_model
from support.rank_service import RankService
from support.stubborn_api import Program, StubbornApi, steps_while

EXACT = ["--numerics", "exact"]


@pytest.fixture(scope="module")
def service():
    with RankService(tiny_model(), tp=2, options=EXACT) as running:
        yield running


@pytest.fixture
def program(service):
    api = StubbornApi(service, patience=120)
    yield Program(api)
    api.close()


def codes_since(service, count):
    return {code for _, code in service.exit_codes[count:]}


@pytest.mark.parametrize("rank", [0, 1])
def test_d3_a_stopped_rank_is_declared_dead_and_changes_nothing_when_it_continues(
        service, program, rank):
    program.step()
    ended = len(service.exit_codes)

    def disturb():
        service.signal(rank, signal.SIGSTOP)
        # The engine misses its heartbeats, or its peer misses it in a collective. Either may be
        # first.
        service.wait_lost(rf"(rank {rank}: silent for|waiting for rank {rank}\b)")
        service.signal(rank, signal.SIGCONT)
        service.wait_formed()

    steps_while(program, disturb)
    # Each found that its group was no more, and ended in good order.
    assert codes_since(service, ended) <= {75, 76}
    program.check()


def test_d4_ranks_that_are_killed_during_rendezvous_or_at_once_cost_nothing(service, program):
    chance = random.Random(seed := random.SystemRandom().randrange(1 << 32))
    print(f"seed {seed}")
    program.step()

    def disturb():
        for _ in range(4):
            service.kill(chance.randrange(2))
            time.sleep(1.5 * chance.random())  # a start takes about a second
            service.kill(chance.randrange(2))
        both = [threading.Thread(target=service.kill, args=[rank]) for rank in (0, 1)]
        for one in both:
            one.start()
        for one in both:
            one.join()
        service.wait_formed()

    ended = len(service.exit_codes)
    steps_while(program, disturb)
    assert codes_since(service, ended) <= {-9, 75, 76}
    program.check()


@pytest.mark.parametrize("options, complaint", [
    (["--tp", "4", "--rank", "3", "--model", "tiny=MODEL"],
     "rank 3 of group default has mesh dp 1 x fsdp 1 x tp 4, but attached rank 0 has dp 1 x fsdp 1 "
     "x tp 2"),
    (["--tp", "2", "--rank", "1", "--model", "other=MODEL"],
     "rank 1 of group default has base model other, but attached rank 0 has tiny"),
    (["--tp", "2", "--rank", "1", "--model", "tiny=MODEL"],
     "group default has a living rank 1, process "),
])
def test_d12_a_rank_of_another_kind_is_refused_by_name(service, program, options, complaint):
    program.step()
    ended = len(service.exit_codes)
    with service.stray(*(option.replace("MODEL", str(tiny_model())) for option in options)):
        service.wait_log("lathe-engine", complaint)
        program.step()
    assert service.exit_codes[ended:] == []
    program.check()


def test_d8_d10_a_rank_that_cannot_start_degrades_its_group_by_name_until_it_can(
        service, program, tmp_path):
    model = tmp_path / "damaged"
    shutil.copytree(tiny_model(), model)
    weights = next(model.glob("*.safetensors"))
    weights.write_bytes(weights.read_bytes()[:-1000])
    program.step()
    service.folders[1] = model

    def disturb():
        service.kill(1)
        # Which rank says so first, and how often it has died when we look, is chance.
        reason = service.wait_reason(" times in 10 minutes, last: rank ")
        assert service.group()["state"] == "degraded"
        assert f"rank 1 of tp: {weights}" in reason
        service.folders.clear()
        service.wait_formed()

    steps_while(program, disturb)
    program.check()


def test_d14_a_rank_that_waits_for_its_peer_is_not_stuck():
    with RankService(tiny_model(), tp=2, options=EXACT,
                     engine_options=["--worker-stuck-after", "4s"]) as service:
        api = StubbornApi(service, patience=120)
        program = Program(api)
        program.step()
        service.held.add(1)
        service.kill(1)
        time.sleep(12)  # six beats of the engine, which allows two without progress
        assert "no progress for" not in service.log("lathe-engine")
        service.held.clear()
        program.step()
        program.check()
        api.close()
