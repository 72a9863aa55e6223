"""`lathe up` with a worker of several ranks: it starts them, and starts all of them again when one dies."""

import pytest
from support.lathe_server import LatheServer, tiny_model
from support.stubborn_api import Program, StubbornApi


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
