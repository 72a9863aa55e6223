"""`lathe up` with a worker of several ranks: it starts them, and starts all of them again when one dies."""

import time

import pytest
from support.lathe_server import LatheServer, tiny_model
from support.stubborn_api import Program, StubbornApi

OWNERS = ["base", "adapters", "versions", "staging", "kv_cache", "activations", "other"]


def check_memory(server):
    """Each rank says what its memory is used for; both plan the same."""
    deadline = time.monotonic() + 10
    while not all(memory and int(memory["shares"][1]["used_bytes"]) for memory in memories(server)):
        assert time.monotonic() < deadline, server.status()
        time.sleep(0.1)
    of_ranks = memories(server)
    for memory in of_ranks:
        assert [share["owner"] for share in memory["shares"]] == OWNERS
        assert sum(int(share["used_bytes"]) for share in memory["shares"]) == int(memory["used_bytes"])
        base, adapters = memory["shares"][:2]
        assert 0 < int(base["used_bytes"]) < int(memory["limit_bytes"])
        assert int(adapters["used_bytes"]) < int(adapters["limit_bytes"])
    assert len({memory["limit_bytes"] for memory in of_ranks}) == 1


def memories(server):
    """By rank; None of one that has not told it yet."""
    return [rank.get("memory") for rank in server.status()["groups"][0]["ranks"]]


@pytest.mark.parametrize("mesh, world", [({"tp": 2}, 2), ({"dp": 2, "fsdp": 1}, 2), ({"fsdp": 2}, 2)])
def test_ranks_of_one_machine_are_one_worker(mesh, world):
    arguments = [word for axis, size in mesh.items() for word in (f"--{axis}", str(size))]
    server = LatheServer(tiny_model(), args=[*arguments, "--threads", "1"],
                         env={"LATHE_WORKER__NUMERICS": "exact"})
    with server:
        names = [f"worker{rank}" for rank in range(world)]
        pids = server.pids()
        assert sorted(pids) == ["engine", "gateway", "up", *names]
        group = server.status()["groups"][0]
        assert {axis: int(group[axis]) for axis in mesh} == mesh
        assert [int(rank["pid"]) for rank in group["ranks"]] == [pids[name] for name in names]
        api = StubbornApi(server)
        program = Program(api)
        program.step()
        check_memory(server)
        for name in reversed(names):
            old = server.pids()
            server.kill(name)
            program.step()
            for each in names:  # a group is formed of new processes
                server.wait_restarted(each, old[each])
            program.step()
        program.check()
        api.close()
        assert server.stop() == 0
