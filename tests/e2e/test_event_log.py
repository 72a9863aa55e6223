"""The engine's core is a function of its events: a recorded run replays to the same actions."""

import subprocess

import pytest
import tinker
from tinker import types

from support.lathe_server import BIN, LatheServer, tiny_model


def replay(log):
    """(number of events, hash of all actions), from a process of its own."""
    answer = subprocess.run([str(BIN / "lathe-core-replay"), str(log)], check=True,
                            capture_output=True, text=True)
    return dict(part.split("=", 1) for part in answer.stdout.split() if "=" in part)


def busy_program(server):
    service = tinker.ServiceClient(base_url=server.url, api_key=server.api_key)
    good = types.Datum(model_input=types.ModelInput.from_ints([30, 31, 32]),
                       loss_fn_inputs={"target_tokens": [31, 32, 33], "weights": [1.0] * 3})
    bad = types.Datum(model_input=types.ModelInput.from_ints([30]),
                      loss_fn_inputs={"target_tokens": [99999], "weights": [1.0]})
    clients = [service.create_lora_training_client(server.model_name, rank=2) for _ in range(2)]
    for _ in range(5):
        for client in clients:
            client.forward_backward([good], "cross_entropy")
            client.optim_step(types.AdamParams(learning_rate=1e-3)).result()
    with pytest.raises(tinker.RequestFailedError):
        clients[0].forward_backward([bad], "cross_entropy").result()
    path = clients[0].save_state("recorded").result().path
    service.create_training_client_from_state(path)
    sampler = clients[1].save_weights_and_get_sampling_client()
    sampler.sample(types.ModelInput.from_ints([30]), 2,
                   types.SamplingParams(max_tokens=4)).result()


def test_a_recorded_run_replays_to_the_same_actions_in_two_processes(tmp_path):
    log = tmp_path / "events.log"
    with LatheServer(tiny_model(), env={"LATHE_ENGINE__EVENT_LOG": str(log)}) as server:
        busy_program(server)
        assert server.stop() == 0
    first, second = replay(log), replay(log)
    assert first == second
    assert int(first["events"]) > 50
    # One event less gives another hash: the hash is of what the core decided.
    shorter = tmp_path / "shorter.log"
    whole = log.read_bytes()
    shorter.write_bytes(whole[:len(whole) // 2])
    cut = subprocess.run([str(BIN / "lathe-core-replay"), str(shorter)], capture_output=True,
                         text=True)
    assert f"digest={first['digest']}" not in cut.stdout
