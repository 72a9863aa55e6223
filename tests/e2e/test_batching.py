"""Work that is queued together runs together: read off the worker's own counters."""

import contextlib
import os
import signal
import time

import pytest
import tinker
from support.fail_points import FailPoints
from support.lathe_server import LatheServer, tiny_model
from support.metrics_page import MetricsPages
from tinker import types


def datum(tokens, loss):
    inputs = {"target_tokens": tokens[1:]}
    if loss == "cross_entropy":
        inputs["weights"] = [1.0] * (len(tokens) - 1)
    else:
        inputs["logprobs"] = [-1.0] * (len(tokens) - 1)
        inputs["advantages"] = [0.5] * (len(tokens) - 1)
    return types.Datum(model_input=types.ModelInput.from_ints(tokens[:-1]), loss_fn_inputs=inputs)


SHORT = datum([30, 40, 50, 60], "cross_entropy")


@pytest.fixture(scope="module")
def points(tmp_path_factory):
    return FailPoints(tmp_path_factory.mktemp("fail_points"))


@pytest.fixture(scope="module")
def lathe(points):
    with LatheServer(tiny_model(), env=points.env,
                     args=["--metrics-listen", "127.0.0.1:0"]) as server:
        yield server


@pytest.fixture
def blocked(lathe, points):
    """What is submitted inside reaches the worker while it is busy with one pass, so it begins
    together."""

    @contextlib.contextmanager
    def block(blocker):
        worker = lathe.pids()["worker"]
        # The worker reads its stream during this pause.
        points.set(f"worker.train.pass=sleep:3000@1#{worker}")
        os.kill(worker, signal.SIGSTOP)
        try:
            running = blocker.forward([SHORT], "cross_entropy")
            lathe.wait_for_pending(1)  # the SDK submits in the background; the blocker goes first
            yield
        finally:
            os.kill(worker, signal.SIGCONT)
        running.result()

    yield block
    points.clear()


def new_client(service, lathe, **options):
    """A client whose model the worker has made."""
    client = service.create_lora_training_client(lathe.model_name, **options)
    client.forward([SHORT], "cross_entropy").result()
    return client


def worker_counter(lathe, name):
    return MetricsPages(lathe).value("worker", f"lathe_worker_{name}_total")


def wait_for_counter(lathe, name, value):
    """The page may lag behind the results by a turn of the worker."""
    deadline = time.monotonic() + 60
    while (seen := worker_counter(lathe, name)) < value:
        assert time.monotonic() < deadline, f"{name} is {seen}, expected {value}"
        time.sleep(0.05)
    assert seen == value


def test_eight_tenants_with_three_losses_share_two_passes(lathe, blocked):
    losses = ["cross_entropy", "importance_sampling", "ppo"]
    clients = []
    for number in range(8):
        key = lathe.create_key(f"batching-{number}")
        service = tinker.ServiceClient(base_url=lathe.url, api_key=key)
        clients.append(new_client(service, lathe, rank=1 + number, seed=number))
    passes = worker_counter(lathe, "train_passes")
    tokens = worker_counter(lathe, "train_tokens")
    with blocked(clients[0]):
        queued = [client.forward_backward([datum([30 + i, 40, 50, 60], loss)], loss)
                  for client in clients for i, loss in enumerate(losses)]
        lathe.wait_for_pending(1 + len(queued))
    for future in queued:
        future.result()
    wait_for_counter(lathe, "train_tokens", tokens + 3 * (1 + len(queued)))
    # One is the blocker's.
    assert worker_counter(lathe, "train_passes") - passes <= 1 + 2


def test_sixty_four_samples_of_thirty_two_tokens_take_at_most_forty_decode_passes(lathe, blocked):
    service = tinker.ServiceClient(base_url=lathe.url, api_key=lathe.api_key)
    client = service.create_sampling_client(base_model=lathe.model_name)
    blocker = new_client(service, lathe, rank=1)
    generated = worker_counter(lathe, "generated_tokens")
    passes = worker_counter(lathe, "decode_passes")
    with blocked(blocker):
        futures = [client.sample(
            types.ModelInput.from_ints([30 + i, 31, 32]), num_samples=1,
            sampling_params=types.SamplingParams(max_tokens=32, seed=i, stop=[]))
            for i in range(64)]
        lathe.wait_for_pending(1 + 64)
    assert all(len(future.result().sequences[0].tokens) == 32 for future in futures)
    wait_for_counter(lathe, "generated_tokens", generated + 64 * 32)
    assert worker_counter(lathe, "decode_passes") - passes <= 40
