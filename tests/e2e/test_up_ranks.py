"""`lathe up` with a worker of several ranks, or with several groups: it starts them, and starts again
those that die."""

import os
import time

import pytest
import tinker
from support.lathe_server import LatheServer, tiny_model
from support.sdk import resolved
from support.stubborn_api import Program, StubbornApi
from tinker import types

OWNERS = ["base", "adapters", "versions", "staging", "saves", "kv_cache", "activations", "other"]


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


def test_a_group_that_trains_and_one_that_samples_share_the_machine():
    server = LatheServer(tiny_model(), args=["--role", "train", "--role", "sample", "--threads", "1"])
    with server:
        assert sorted(server.pids()) == ["engine", "gateway", "up", "worker-default", "worker-group2"]
        groups = groups_of(server)
        assert {name: group["role"] for name, group in groups.items()} == {
            "default": "train", "group2": "sample"}
        epochs = {name: int(group["epoch"]) for name, group in groups.items()}
        api = tinker.ServiceClient(base_url=server.url, api_key=server.api_key)
        model = resolved(api.create_lora_training_client("tiny", rank=2, seed=1))
        sampler = resolved(train_and_publish(model))
        before = sampled(sampler)
        old = server.pids()["worker-group2"]
        server.kill("worker-group2")
        assert sampled(sampler) == before
        server.wait_restarted("worker-group2", old)
        sampler = resolved(train_and_publish(model))
        assert sampled(sampler)
        groups = groups_of(server)
        assert int(groups["default"]["epoch"]) == epochs["default"]
        assert int(groups["group2"]["epoch"]) > epochs["group2"]
        assert int(groups["default"]["counters"]["generated_tokens"]) == 0
        assert int(groups["group2"]["counters"]["train_passes"]) == 0
        assert int(groups["default"]["models"]) == 1
        total = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
        for name in groups:
            deadline = time.monotonic() + 10
            while not (memory := groups_of(server)[name]["ranks"][0].get("memory")):
                assert time.monotonic() < deadline  # the worker's first heartbeat
                time.sleep(0.1)
            assert 0 < int(memory["limit_bytes"]) <= 0.9 * total / 2
        assert server.stop() == 0


def groups_of(server):
    return {group["group"]: group for group in server.status()["groups"]}


def train_and_publish(model):
    datum = types.Datum(model_input=types.ModelInput.from_ints([5, 6, 7]),
                        loss_fn_inputs={"target_tokens": [6, 7, 8], "weights": [1.0] * 3})
    model.forward_backward([datum], "cross_entropy").result()
    model.optim_step(types.AdamParams(learning_rate=1e-3)).result()
    return model.save_weights_and_get_sampling_client()


def sampled(sampler):
    params = types.SamplingParams(max_tokens=4, seed=3, temperature=1.0)
    return sampler.sample(types.ModelInput.from_ints([1, 2, 3]), 1, params).result().sequences[0].tokens
