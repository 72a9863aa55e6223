"""Kills a service again and again under load and checks that nothing accepted was lost or doubled.

SDK programs train (forward_backward and optim_step submitted ahead) and sample while `kill -9` hits
the target at random instants. Every future must be answered, and the losses must be those of an
undisturbed run of the same program, bit for bit: a lost, doubled or reordered step would show. The
usage that the server counted must be that of the requests, each once.
Run: .venv/bin/python tests/fault/kill_loop.py --target engine --kills 100
"""

import argparse
import concurrent.futures
import datetime
import functools
import os
import random
import sys
import threading
import time

sys.path.insert(0, os.path.join(os.path.dirname(__file__), ".."))
from support.lathe_server import LatheServer, tiny_model  # noqa: E402
from support.sdk import resolved  # noqa: E402


def datum(types, rng):
    tokens = [rng.randrange(20, 700) for _ in range(12)]
    return types.Datum(
        model_input=types.ModelInput.from_ints(tokens[:-1]),
        loss_fn_inputs={"target_tokens": tokens[1:], "weights": [1.0] * (len(tokens) - 1)})


class Program:
    """A deterministic training loop over the stock SDK that submits several steps ahead."""

    STEPS_AHEAD = 4
    BURSTS_PER_MODEL = 6

    def __init__(self, server, number):
        import tinker
        from tinker import types
        self.types = types
        self.service = tinker.ServiceClient(base_url=server.url, api_key=server.api_key)
        self.base_model, self.number = server.model_name, number
        self.rng = random.Random(5 + number)
        self.bursts = 0
        self.losses = []
        self.samples = []
        self.used = {"training": 0, "sampling_prefill": 0, "sampling_sample": 0}

    def new_model(self):
        self.training = resolved(self.service.create_lora_training_client(
            self.base_model, rank=2 + self.number, seed=11 + self.number))
        self.sampler = resolved(self.training.save_weights_and_get_sampling_client())

    def burst(self):
        """Several steps of two forward_backwards and an update, and samples, all in flight."""
        if self.bursts % self.BURSTS_PER_MODEL == 0:
            self.new_model()
        self.bursts += 1
        types = self.types
        passes, others, samples = [], [], []
        for _ in range(self.STEPS_AHEAD):
            for _ in range(2):
                data = [datum(types, self.rng) for _ in range(2)]
                self.used["training"] += sum(len(one.model_input.to_ints()) for one in data)
                passes.append(self.training.forward_backward(data, "cross_entropy"))
            others.append(self.training.optim_step(types.AdamParams(learning_rate=3e-3)))
            samples.append(self.sampler.sample(
                types.ModelInput.from_ints([30, 31, 32]), num_samples=2,
                sampling_params=types.SamplingParams(
                    max_tokens=32, seed=len(self.samples) + len(samples), stop=[])))
        self.losses += [done.result(timeout=180).metrics["loss:sum"] for done in passes]
        for done in others:
            done.result(timeout=180)
        drawn = [[list(sequence.tokens) for sequence in done.result(timeout=180).sequences]
                 for done in samples]
        self.used["sampling_prefill"] += 3 * len(drawn)
        self.used["sampling_sample"] += sum(len(one) for sequences in drawn for one in sequences)
        self.samples += drawn

    def check_usage(self):
        """What the server counted of the session is what its requests were, each once."""
        session = self.training.model_id.split(":")[0]
        hour = datetime.datetime.now(datetime.timezone.utc).replace(
            minute=0, second=0, microsecond=0)
        usage = self.service.create_rest_client().get_billing_usage(
            hour - datetime.timedelta(hours=2), hour + datetime.timedelta(hours=1)).result()
        counted = dict.fromkeys(self.used, 0)
        for event in usage.data:
            if event.session_id == session:
                counted[event.event_info.type] += event.event_info.token_count
        assert counted == self.used, f"counted {counted}, used were {self.used}"

    def close(self):
        if hasattr(self.service, "close"):
            self.service.close("success")


# So that recoveries begin at snapshots too.
SNAPSHOTS_ALL_THE_TIME = {"LATHE_ENGINE__SNAPSHOT_INTERVAL": "200ms",
                          "LATHE_ENGINE__SNAPSHOT_SHARE": "1"}


def in_threads(functions):
    """Runs all at once; the first failure is raised here."""
    with concurrent.futures.ThreadPoolExecutor(len(functions)) as pool:
        for done in [pool.submit(function) for function in functions]:
            done.result()


def run(num_programs, bursts=None, kills=0, target=None, seed=0):
    """Runs the programs until `kills` kills happened, or `bursts[i]` bursts of program i.

    Returns (losses of each, samples of each, bursts of each).
    """
    with LatheServer(tiny_model(), env=SNAPSHOTS_ALL_THE_TIME) as server:
        programs = [Program(server, number) for number in range(num_programs)]
        done_kills = threading.Event()

        def kill():
            rng = random.Random(seed)
            try:
                for _ in range(kills):
                    # Long enough for the SDK to come back from its back-off, so that work is in
                    # flight when the next one hits.
                    time.sleep(rng.uniform(0.2, 1.4))
                    if target == "everything":
                        server.kill_everything()
                        server.start()
                    else:
                        server.wait_restarted(target, server.kill(target))
            finally:
                done_kills.set()

        counts = [0] * num_programs

        def work(number):
            while (counts[number] < bursts[number] if bursts else not done_kills.is_set()):
                programs[number].burst()
                counts[number] += 1

        begin = time.monotonic()
        workers = [functools.partial(work, number) for number in range(num_programs)]
        in_threads(workers + ([] if bursts else [kill]))
        print(f"{sum(counts) * Program.STEPS_AHEAD} steps of {num_programs} programs, {kills} kills"
              f" of {target}, {time.monotonic() - begin:.1f} s", flush=True)
        result = [p.losses for p in programs], [p.samples for p in programs], counts
        for program in programs:
            program.check_usage()
            program.close()
    return result


def check(target, kills, seed=0, num_programs=3):
    """Raises AssertionError unless the disturbed run equals an undisturbed one."""
    losses, samples, counts = run(num_programs, kills=kills, target=target, seed=seed)
    calm_losses, calm_samples, _ = run(num_programs, bursts=counts)
    for mine, calm in zip(losses, calm_losses):
        assert len(mine) == len(calm) > 0
        assert calm[0] != calm[-1], "the run did not train"
        assert mine == calm, f"losses differ by {max(abs(a - b) for a, b in zip(mine, calm))}"
    assert samples == calm_samples, "samples differ from the undisturbed run"
    return sum(counts) * Program.STEPS_AHEAD


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--target", choices=["engine", "gateway", "worker", "everything"],
                        default="engine")
    parser.add_argument("--kills", type=int, default=100)
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()
    steps = check(args.target, args.kills, args.seed)
    print(f"ok: {args.kills} kills of {args.target}, {steps} steps, losses and samples equal")
