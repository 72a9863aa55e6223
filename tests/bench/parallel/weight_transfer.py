"""From save_weights_for_sampler to the first sample on another group, by both transports.

Two services, each with a group that trains and one that samples: in one of them versions go from
memory to memory, in the other as files. They take turns. Prints medians, and the same while the group
that trains is busy with another model.
Run: .venv/bin/python tests/bench/parallel/weight_transfer.py [--rounds N] [--rank R] [--model FOLDER]
"""

import argparse
import os
import pathlib
import statistics
import sys
import threading
import time

ROOT = pathlib.Path(__file__).resolve().parents[3]
sys.path.insert(0, str(ROOT / "tests"))
sys.path.insert(0, str(ROOT / "tests/bench"))
from service.machine import machine_line  # noqa: E402
from support.bench import alternate, ratio  # noqa: E402
from support.group_service import GroupService  # noqa: E402
from support.lathe_server import tiny_model  # noqa: E402
from support.sdk import resolved  # noqa: E402
from training.training_bench import random_rows, shallow  # noqa: E402

LAYERS = 8
TRANSPORTS = {"memory": (), "file": ("--version-listen", "none")}


class TransportClient:
    def __init__(self, service, rank):
        import tinker
        self.service = service
        self.api = tinker.ServiceClient(base_url=service.url, api_key=service.api_key)
        self.model = self.new_model(rank)
        self.busy = self.new_model(8)
        self.rows = random_rows([256] * 4, seed=1)
        self._stop = threading.Event()

    def new_model(self, rank):
        return resolved(self.api.create_lora_training_client("tiny", rank=rank, seed=rank))

    @staticmethod
    def data(rows):
        from tinker import types
        return [types.Datum(model_input=types.ModelInput.from_ints(row[:-1]),
                            loss_fn_inputs={"target_tokens": row[1:],
                                            "weights": [1.0] * (len(row) - 1)}) for row in rows]

    def transfer(self):
        """Seconds until a sample of one token of a version that was just saved is there."""
        from tinker import types
        params = types.SamplingParams(max_tokens=1, temperature=1, seed=1)
        begin = time.perf_counter()
        sampler = resolved(self.model.save_weights_and_get_sampling_client())
        sampler.sample(types.ModelInput.from_ints([1, 2, 3]), 1, params).result()
        return {"seconds": time.perf_counter() - begin}

    def train_on(self):
        """Passes of the other model until `stop`."""
        while not self._stop.is_set():
            self.busy.forward_backward(self.data(self.rows), "cross_entropy").result()

    def transfer_beside_training(self):
        self._stop.clear()
        thread = threading.Thread(target=self.train_on)
        thread.start()
        time.sleep(0.5)
        try:
            return self.transfer()
        finally:
            self._stop.set()
            thread.join()


def service_of(folder, options):
    groups = {"train": (folder, "tiny"), "sample": (folder, "tiny")}
    return GroupService(groups, {"train": ("--role", "train", *options), "sample": ("--role", "sample")},
                        snapshot_interval="1h")


def show(what, times):
    for transport, seconds in times.items():
        line = f"{what}, by {transport}: median {1e3 * statistics.median(seconds):.0f} ms"
        line += f", {1e3 * min(seconds):.0f} to {1e3 * max(seconds):.0f} of {len(seconds)}"
        if transport != "file":
            line += f", {ratio(seconds, times['file']):.2f} x as fast as by file"
        print(line, flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--rank", type=int, default=32)
    parser.add_argument("--model", help="folder; none: random, 0.6B shape with 8 layers")
    args = parser.parse_args()
    folder = args.model or shallow(tiny_model("--size", "0.6b"), LAYERS)
    print(machine_line(), flush=True)
    with service_of(folder, TRANSPORTS["memory"]) as memory, service_of(folder, TRANSPORTS["file"]) as file:
        clients = {"memory": TransportClient(memory, args.rank), "file": TransportClient(file, args.rank)}
        for what, name in (("idle", "transfer"), ("beside training", "transfer_beside_training")):
            times = alternate(args.rounds, *(getattr(transport, name) for transport in clients.values()))
            show(what, dict(zip(clients, times)))
    print(f"load {os.getloadavg()[0]:.1f} at the end", flush=True)


if __name__ == "__main__":
    main()
