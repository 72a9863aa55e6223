"""What the stock SDK does, with the engine's state in Postgres."""

import os
import random
import sys

import pytest

sys.path.insert(0, os.path.join(os.path.dirname(__file__), ".."))
from support.lathe_server import LatheServer, tiny_model  # noqa: E402
from support.postgres_cluster import PostgresCluster  # noqa: E402


@pytest.fixture(scope="module")
def server():
    with PostgresCluster() as cluster, \
            LatheServer(tiny_model(), store=cluster.create_database("lathe")) as running:
        yield running


@pytest.fixture
def service(server):
    import tinker
    return tinker.ServiceClient(base_url=server.url, api_key=server.api_key)


def data(seed, count=3, tokens=12):
    from tinker import types
    rng = random.Random(seed)
    drawn = [[rng.randrange(20, 700) for _ in range(tokens)] for _ in range(count)]
    return [types.Datum(model_input=types.ModelInput.from_ints(one[:-1]),
                        loss_fn_inputs={"target_tokens": one[1:], "weights": [1.0] * (tokens - 1)})
            for one in drawn]


def losses(training, num_steps, **shape):
    from tinker import types
    passes = []
    for step in range(num_steps):
        passes.append(training.forward_backward(data(step % 2, **shape), "cross_entropy"))
        training.optim_step(types.AdamParams(learning_rate=1e-2))
    return [one.result(timeout=60).metrics["loss:sum"] for one in passes]


def test_a_model_trains(service, server):
    training = service.create_lora_training_client(server.model_name, rank=4, seed=1)
    seen = losses(training, 6)
    assert seen[4] < seen[0]


def test_a_body_larger_than_a_row_trains(service, server):
    training = service.create_lora_training_client(server.model_name, rank=4, seed=1)
    seen = losses(training, 2, count=8, tokens=1500)
    assert all(loss > 0 for loss in seen)


def test_checkpoints_are_listed_loaded_and_deleted(service, server):
    training = service.create_lora_training_client(server.model_name, rank=4, seed=1)
    losses(training, 2)
    path = training.save_state("kept").result(timeout=60).path
    expected = losses(training, 2)
    rest = service.create_rest_client()
    assert path in [one.tinker_path for one in rest.list_user_checkpoints().result().checkpoints]
    resumed = service.create_training_client_from_state_with_optimizer(path)
    assert losses(resumed, 2) == pytest.approx(expected, rel=1e-6)
    rest.delete_checkpoint_from_tinker_path(path).result()
    assert path not in [one.tinker_path
                        for one in rest.list_user_checkpoints().result().checkpoints]


def test_samples_and_what_was_accepted_survive_a_killed_engine(service, server):
    from tinker import types
    training = service.create_lora_training_client(server.model_name, rank=4, seed=1)
    sampler = training.save_weights_and_get_sampling_client()
    sampler = sampler.result() if hasattr(sampler, "result") else sampler

    def sample():
        return sampler.sample(types.ModelInput.from_ints([30, 31]), num_samples=2,
                              sampling_params=types.SamplingParams(max_tokens=16, seed=3, stop=[]))

    expected = [one.tokens for one in sample().result(timeout=60).sequences]
    pending = [training.forward_backward(data(0), "cross_entropy") for _ in range(4)]
    old = server.kill("engine")
    futures = [sample() for _ in range(3)]
    server.wait_restarted("engine", old)
    for future in futures:
        assert [one.tokens for one in future.result(timeout=120).sequences] == expected
    assert len({one.result(timeout=120).metrics["loss:sum"] for one in pending}) == 1
