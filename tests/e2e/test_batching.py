"""Work that is queued together runs together: read off the worker's own counters."""

import contextlib
import os
import signal
import time

import tinker
from tinker import types


def datum(tokens, loss):
    inputs = {"target_tokens": tokens[1:]}
    if loss == "cross_entropy":
        inputs["weights"] = [1.0] * (len(tokens) - 1)
    else:
        inputs["logprobs"] = [-1.0] * (len(tokens) - 1)
        inputs["advantages"] = [0.5] * (len(tokens) - 1)
    return types.Datum(model_input=types.ModelInput.from_ints(tokens[:-1]), loss_fn_inputs=inputs)


@contextlib.contextmanager
def paused(pid):
    """The worker sleeps while requests queue up, so that they begin together."""
    os.kill(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        os.kill(pid, signal.SIGCONT)


def settled(lathe):
    """The worker's counters once a heartbeat no longer changes them."""
    last = None
    while True:
        now = lathe.counters()
        if now == last:
            return now
        last = now
        time.sleep(2.5)


# A request that occupies the worker while others queue up behind it.
LONG_ROWS = [datum([20 + i % 600 for i in range(1025)], "cross_entropy") for _ in range(24)]


def test_eight_tenants_with_three_losses_share_two_passes(lathe):
    losses = ["cross_entropy", "importance_sampling", "ppo"]
    clients = []
    for number in range(8):
        key = lathe.create_key(f"batching-{number}")
        service = tinker.ServiceClient(base_url=lathe.url, api_key=key)
        clients.append(service.create_lora_training_client(
            lathe.model_name, rank=1 + number, seed=number))
    blocker = clients[0]
    start = settled(lathe)
    blocker.forward(LONG_ROWS, "cross_entropy").result()
    alone = settled(lathe)
    with paused(lathe.pids()["worker"]):
        running = blocker.forward(LONG_ROWS, "cross_entropy")
        lathe.wait_for_pending(1)  # the SDK submits in the background; the blocker goes first
        queued = [client.forward_backward([datum([30 + i, 40, 50, 60], loss)], loss)
                  for client in clients for i, loss in enumerate(losses)]
        lathe.wait_for_pending(1 + len(queued))
    for future in queued:
        future.result()
    running.result()
    together = settled(lathe)
    blocker_passes = alone["train_passes"] - start["train_passes"]
    assert together["train_passes"] - alone["train_passes"] - blocker_passes <= 2


def test_sixty_four_samples_of_thirty_two_tokens_take_at_most_forty_decode_passes(lathe):
    service = tinker.ServiceClient(base_url=lathe.url, api_key=lathe.api_key)
    client = service.create_sampling_client(base_model=lathe.model_name)
    blocker = service.create_lora_training_client(lathe.model_name, rank=1)
    before = settled(lathe)
    with paused(lathe.pids()["worker"]):
        # Without it the first samples run while the worker still reads the others off its stream.
        running = blocker.forward(LONG_ROWS, "cross_entropy")
        lathe.wait_for_pending(1)
        futures = [client.sample(
            types.ModelInput.from_ints([30 + i, 31, 32]), num_samples=1,
            sampling_params=types.SamplingParams(max_tokens=32, seed=i, stop=[]))
            for i in range(64)]
        lathe.wait_for_pending(1 + 64)
    assert all(len(future.result().sequences[0].tokens) == 32 for future in futures)
    running.result()
    after = settled(lathe)
    assert after["generated_tokens"] - before["generated_tokens"] == 64 * 32
    assert after["decode_passes"] - before["decode_passes"] <= 40
