"""Kills a service again and again under load and checks that nothing accepted was lost or doubled.

One SDK program trains (forward_backward and optim_step pipelined) and samples while `kill -9` hits
the target at random instants. Every future must be answered, and the losses must equal those of an
undisturbed run of the same program to 1e-5: a lost, doubled or reordered step would show.
Run: .venv/bin/python tests/fault/kill_loop.py --target engine --kills 100
"""

import argparse
import os
import random
import signal
import sys
import threading
import time

sys.path.insert(0, os.path.join(os.path.dirname(__file__), ".."))
from support.lathe_server import LatheServer, tiny_model  # noqa: E402


def datum(types, rng):
    tokens = [rng.randrange(20, 700) for _ in range(12)]
    return types.Datum(
        model_input=types.ModelInput.from_ints(tokens[:-1]),
        loss_fn_inputs={"target_tokens": tokens[1:], "weights": [1.0] * (len(tokens) - 1)})


class Program:
    """A deterministic training loop over the stock SDK, a step at a time, pipelined."""

    def __init__(self, server):
        import tinker
        from tinker import types
        self.types = types
        self.service = tinker.ServiceClient(base_url=server.url, api_key=server.api_key)
        self.training = self.service.create_lora_training_client(
            server.model_name, rank=4, seed=11)
        self.sampler = self.training.save_weights_and_get_sampling_client()
        self.rng = random.Random(5)
        self.losses = []
        self.samples = []

    def step(self):
        """Two forward_backwards, a step and a sample, all in flight together."""
        types = self.types
        data = [[datum(types, self.rng) for _ in range(2)] for _ in range(2)]
        passes = [self.training.forward_backward(part, "cross_entropy") for part in data]
        update = self.training.optim_step(types.AdamParams(learning_rate=3e-3))
        sample = self.sampler.sample(
            types.ModelInput.from_ints([30, 31, 32]), num_samples=2,
            sampling_params=types.SamplingParams(max_tokens=8, seed=len(self.losses), stop=[]))
        self.losses.append(sum(done.result(timeout=180).metrics["loss:sum"] for done in passes))
        update.result(timeout=180)
        self.samples.append([seq.tokens for seq in sample.result(timeout=180).sequences])

    def close(self):
        self.service.close() if hasattr(self.service, "close") else None


def run(steps=None, kills=0, target=None, seed=0):
    """Runs `steps` steps, or as many as `kills` kills take; returns (losses, samples, kills)."""
    done_kills = 0
    with LatheServer(tiny_model()) as server:
        program = Program(server)
        program.step()
        stop = threading.Event()
        failure = []

        def killer():
            nonlocal done_kills
            rng = random.Random(seed)
            try:
                while done_kills < kills and not stop.is_set():
                    time.sleep(rng.uniform(0.02, 0.4))
                    pid = server.pids()[target]
                    os.kill(pid, signal.SIGKILL)
                    done_kills += 1
                    server.wait_restarted(target, pid)
            except Exception as error:  # the main thread reports it
                failure.append(error)

        thread = threading.Thread(target=killer)
        if kills:
            thread.start()
        begin = time.time()
        while (len(program.losses) < steps) if not kills else thread.is_alive():
            program.step()
        if kills:
            program.step()
            thread.join()
        if failure:
            raise failure[0]
        print(f"{len(program.losses)} steps, {done_kills} kills of {target}, "
              f"{time.time() - begin:.1f} s", flush=True)
        result = program.losses, program.samples
        program.close()
    return (*result, done_kills)


def check(target, kills, seed=0):
    """Raises AssertionError unless the disturbed run equals an undisturbed one."""
    losses, samples, done = run(kills=kills, target=target, seed=seed)
    assert done == kills, f"only {done} of {kills} kills happened"
    calm_losses, calm_samples, _ = run(steps=len(losses))
    worst = max(abs(a - b) for a, b in zip(losses, calm_losses))
    assert len(losses) == len(calm_losses)
    assert worst <= 1e-5 * max(1.0, max(map(abs, calm_losses))), f"losses differ by {worst}"
    assert samples == calm_samples, "samples differ from the undisturbed run"
    assert calm_losses[0] != calm_losses[-1], "the run did not train"
    return len(losses), worst


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--target", choices=["engine", "gateway"], default="engine")
    parser.add_argument("--kills", type=int, default=100)
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()
    steps, worst = check(args.target, args.kills, args.seed)
    print(f"ok: {args.kills} kills of {args.target}, {steps} steps, worst loss difference {worst:g}")
