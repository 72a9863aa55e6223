"""Short fault runs; `kill_loop.py` by hand for long ones."""

import os
import sys

import pytest

sys.path.insert(0, os.path.join(os.path.dirname(__file__), ".."))
sys.path.insert(0, os.path.dirname(__file__))
import kill_loop  # noqa: E402
from support.lathe_server import LatheServer, tiny_model  # noqa: E402


def small_data(types):
    import random
    rng = random.Random(3)
    return [kill_loop.datum(types, rng) for _ in range(3)]


def test_stop_and_start_keeps_keys_listings_and_the_next_losses(tmp_path):
    import tinker
    from tinker import types

    def losses(training, count):
        out = []
        for _ in range(count):
            out.append(training.forward_backward(
                small_data(types), "cross_entropy").result(timeout=60).metrics["loss:sum"])
            training.optim_step(types.AdamParams(learning_rate=1e-2)).result(timeout=60)
        return out

    server = LatheServer(tiny_model(), data_dir=str(tmp_path / "data"))
    with server:
        key = server.api_key
        tenant_key = server.create_key("other")
        service = tinker.ServiceClient(base_url=server.url, api_key=key)
        training = service.create_lora_training_client(server.model_name, rank=4, seed=1)
        losses(training, 3)
        path = training.save_state("kept").result(timeout=60).path
        expected = losses(training, 3)
        listed = [c.tinker_path for c in
                  service.create_rest_client().list_user_checkpoints().result().checkpoints]
        assert listed == [path]
        assert server.stop() == 0
        assert "not saved" in server.output()
        server.start()
        assert server.api_key == key
        service = tinker.ServiceClient(base_url=server.url, api_key=key)
        rest = service.create_rest_client()
        assert [c.tinker_path for c in
                rest.list_user_checkpoints().result().checkpoints] == listed
        resumed = service.create_training_client_from_state_with_optimizer(path)
        assert losses(resumed, 3) == pytest.approx(expected, rel=1e-6)
        other = tinker.ServiceClient(base_url=server.url, api_key=tenant_key)
        assert other.create_rest_client().list_user_checkpoints().result().checkpoints == []
