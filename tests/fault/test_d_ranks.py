"""Row D4 of the fault table: any rank of several dies at any time."""

import os
import random
import signal
import threading

import pytest
from support.lathe_server import tiny_model
from support.rank_service import RankService
from support.stubborn_api import Program, StubbornApi

KILLS = 4 * int(os.environ.get("LATHE_FAULT_ROUNDS", "1"))


@pytest.mark.parametrize("mesh", [{"tp": 2}, {"dp": 2, "tp": 2}, {"fsdp": 2}])
def test_d4_any_rank_killed_at_any_time_applies_each_step_once(mesh):
    chance = random.Random(seed := random.SystemRandom().randrange(1 << 32))
    print(f"seed {seed}")
    with RankService(tiny_model(), **mesh, options=["--numerics", "exact"]) as service:
        api = StubbornApi(service)
        program = Program(api)
        program.step()
        for _ in range(KILLS):
            killer = threading.Timer(0.3 * chance.random(), service.kill,
                                     [chance.randrange(service.world)])
            killer.start()
            while killer.is_alive():
                program.step()
            program.step()
        program.check()
        api.close()
        codes = [code for _, code in service.exit_codes]
        assert codes.count(-9) == KILLS
        # Nobody but the killed ones ended for a reason of its own.
        assert set(codes) <= {-9, 75, 76}


def test_a_rank_that_is_asked_to_stop_leaves_one_that_hangs():
    with RankService(tiny_model(), tp=2) as service:
        service.held.update(range(2))
        service.ranks[1].send_signal(signal.SIGSTOP)
        service.ranks[0].send_signal(signal.SIGTERM)
        assert service.ranks[0].wait(60) == 0
        # The engine gives the other one up later.
        assert "silent for" not in service.log("lathe-engine")
