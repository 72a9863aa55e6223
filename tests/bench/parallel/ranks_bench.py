"""Two ranks on two cores beside one rank on one, through the service: the table of docs/measurements/ranks.md.

Every rank has one thread and one core. All meshes of a case run from its begin to its end and take
turns, so that each round compares them within seconds; idle ones use no time to speak of. Prints
medians, the ratio to one rank (median over rounds), and for each axis what collectives brought a rank
and how long each rank was in them, which with equal shares is waiting for the other. Of axis control
only rank 0's: the other waits in it for work too.
Run: .venv/bin/python tests/bench/parallel/ranks_bench.py [--cases training,decode,...] [--rounds N]
"""

import argparse
import contextlib
import json
import os
import pathlib
import statistics
import sys
import time

ROOT = pathlib.Path(__file__).resolve().parents[3]
sys.path.insert(0, str(ROOT / "tests"))
sys.path.insert(0, str(ROOT / "tests/bench"))
from service.machine import machine_line  # noqa: E402
from support.bench import alternate, ratio  # noqa: E402
from support.lathe_server import free_port, tiny_model  # noqa: E402
from support.rank_service import RankService  # noqa: E402
from support.sdk import resolved  # noqa: E402
from training.training_bench import random_rows, shallow  # noqa: E402

ONE = "one rank"
MESHES = {ONE: {}, "dp 2": {"dp": 2}, "fsdp 2": {"fsdp": 2}, "tp 2": {"tp": 2}}
GOALS = {("training", "dp 2"): 1.85, ("training", "fsdp 2"): 1.5, ("training", "tp 2"): 1.6,
         ("decode", "tp 2"): 1.5,
         ("groups", "two groups"): 1.85}
LAYERS, LORA_RANK = 8, 8
# Each plans as if it were alone: only one of them works at a time.
OPTIONS = {"memory_fraction": 0.7, "snapshot_interval": "1h"}


class TwoGroups(RankService):
    """Two groups of one rank each, for the same base model."""

    def __init__(self, model, **options):
        super().__init__(model, **options)
        self.world = 2
        self.rank_pages.append(f"127.0.0.1:{free_port()}")

    def place(self, rank):
        return ["--group", f"group{rank}"]

    def wait_formed(self):
        self._await(lambda: self.status().count('"ready"') == 2, "both groups to be ready")


class Client:
    """What runs on one service."""

    def __init__(self, service):
        import tinker
        self.service = service
        self.api = tinker.ServiceClient(base_url=service.url, api_key=service.api_key)
        self.models = []

    def collectives(self):
        """So far: {axis: [bytes of rank 0, seconds of rank 0, of rank 1]}."""
        read = [self.service.traffic(0)] + [self.service.traffic(rank, "wait_seconds")
                                            for rank in range(self.service.world)]
        return {axis: [sum(by_axis[axis].values()) for by_axis in read] for axis in read[0]}

    def weight_bytes(self):
        """Of the base model, of rank 0."""
        plans = [json.loads(line) for line in self.service.log("rank0").splitlines()
                 if '"memory planned"' in line]
        return plans[-1]["weight_bytes"]

    def add_models(self, count):
        self.models += [resolved(self.api.create_lora_training_client(
            "tiny", rank=LORA_RANK, train_unembed=False, seed=i)) for i in range(count)]

    def train(self, rows):
        """A step: `rows` through each model, all at once."""
        from tinker import types
        data = [types.Datum(model_input=types.ModelInput.from_ints(row[:-1]),
                            loss_fn_inputs={"target_tokens": row[1:],
                                            "weights": [1.0] * (len(row) - 1)}) for row in rows]
        futures = []
        for model in self.models:
            futures.append(model.forward_backward(data, "cross_entropy"))
            futures.append(model.optim_step(types.AdamParams(learning_rate=1e-4)))
        for future in futures:
            future.result()

    def sampler(self):
        return resolved(self.api.create_sampling_client(base_model="tiny"))

    @staticmethod
    def sample(sampler, prompts, num_tokens):
        from tinker import types
        params = types.SamplingParams(max_tokens=num_tokens, temperature=1, seed=1, stop=[])
        futures = [sampler.sample(types.ModelInput.from_ints(prompt), 1, params)
                   for prompt in prompts]
        for future in futures:
            assert len(future.result().sequences[0].tokens) == num_tokens


class Table:
    def __init__(self, args):
        self.args = args
        self.folder = args.model or shallow(tiny_model("--size", "0.6b"), LAYERS)

    @contextlib.contextmanager
    def clients(self, services):
        """{name: client}; each rank has a core of its own."""
        with contextlib.ExitStack() as stack:
            yield {name: Client(stack.enter_context(service)) for name, service in services.items()}

    def meshes(self, *names):
        return {name: RankService(self.folder, cpus=[0, 1], **MESHES[name], **OPTIONS)
                for name in names}

    def compare(self, case, what, work, functions, clients):
        """`work`: tokens of a turn."""
        before = {name: client.collectives() for name, client in clients.items()}
        times = dict(zip(functions, alternate(self.args.rounds, *functions.values())))
        for name, seconds in times.items():
            line = f"{what}, {name}: {work / statistics.median(seconds):.1f} tokens/s"
            if name != ONE:
                goal = GOALS.get((case, name))
                line += f", {ratio(seconds, times[ONE]):.2f} x one rank"
                line += f" (goal {goal})" if goal else ""
            turns = self.args.rounds + 1
            for axis, now in clients[name].collectives().items():
                past = before[name].get(axis, [0] * len(now))
                num_bytes, *waited = ((a - b) / turns for a, b in zip(now, past))
                waited = waited[:1] if axis == "control" else waited
                line += (f"; {axis}: {num_bytes / 1e6:.2f} MB, "
                         f"{' and '.join(f'{1e3 * one:.0f}' for one in waited)} ms a turn")
            print(line, flush=True)

    def training(self):
        rows = random_rows([self.args.length] * self.args.rows, seed=1)
        with self.clients(self.meshes(*MESHES)) as clients:
            for client in clients.values():
                client.add_models(1)
            for name, client in clients.items():
                share = client.weight_bytes() / clients[ONE].weight_bytes()
                print(f"base model, {name}: {client.weight_bytes() / 1e6:.0f} MB, {100 * share:.0f} %")
            self.compare("training", f"training step of {len(rows)} x {self.args.length} tokens",
                         self.args.length * len(rows),
                         {name: lambda client=client: client.train(rows)
                          for name, client in clients.items()}, clients)

    def decode(self):
        prompts, tokens = random_rows([31] * 8, seed=2), 48
        with self.clients(self.meshes(ONE, "tp 2")) as clients:
            samplers = {name: client.sampler() for name, client in clients.items()}
            self.compare("decode", f"decode of 8 x {tokens} tokens", 8 * tokens,
                         {name: lambda name=name, sampler=sampler: clients[name].sample(
                             sampler, prompts, tokens) for name, sampler in samplers.items()},
                         clients)

    def groups(self):
        rows = random_rows([128], seed=3)
        services = {ONE: RankService(self.folder, cpus=[0], **OPTIONS),
                    "two groups": TwoGroups(self.folder, cpus=[0, 1], **OPTIONS)}
        with self.clients(services) as clients:
            for client in clients.values():
                client.add_models(8)
            self.compare("groups", "a step of 128 tokens of each of 8 tenants", 8 * 128,
                         {name: lambda client=client: client.train(rows)
                          for name, client in clients.items()}, clients)

    def rebuild(self):
        """From a kill -9 to the next result."""
        rows = random_rows([16] * 4, seed=4)
        for mesh in ({"dp": 2}, {"tp": 2}):
            seconds = []
            with RankService(tiny_model(), **mesh) as service:
                client = Client(service)
                client.add_models(1)
                client.train(rows)
                for turn in range(self.args.rounds):
                    begin = time.perf_counter()
                    service.kill(turn % 2)
                    client.train(rows)
                    seconds.append(time.perf_counter() - begin)
            print(f"next result after a killed rank, {mesh}: median {statistics.median(seconds):.1f} s, "
                  f"longest {max(seconds):.1f} s of {len(seconds)} (goal 10)", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--cases", default="training,decode,groups,rebuild")
    parser.add_argument("--model", help="folder; none: random, 0.6B shape with 8 layers")
    parser.add_argument("--rows", type=int, default=8, help="sequences of a training step")
    parser.add_argument("--length", type=int, default=128, help="of each, in tokens")
    args = parser.parse_args()
    table = Table(args)
    print(machine_line(), flush=True)
    for case in args.cases.split(","):
        getattr(table, case)()
    print(f"load {os.getloadavg()[0]:.1f} at the end", flush=True)


if __name__ == "__main__":
    main()
