"""Training beside PEFT + torch, in one run, alternating: the table of docs/measurements/training.md.

Ours is the compute library alone (lathe_training_bench), the peer is PEFT in this process; both have
the same threads and random weights of the same shape. Prints for each case medians, the ratio to the
peer, and the share of what the matmul rate measured around each step allows.
Run: .venv/bin/python tests/bench/training/training_bench.py [--cases one,batch,...]
"""

import argparse
import atexit
import hashlib
import json
import os
import pathlib
import statistics
import sys
import time

ROOT = pathlib.Path(__file__).resolve().parents[3]
sys.path.insert(0, str(ROOT / "tests"))
from support.bench import Driver, alternate, ratio  # noqa: E402
from support.lathe_server import tiny_model  # noqa: E402

MIXED_RANKS = [4, 8, 16, 24, 32, 40, 56, 64]
MIXED_LOSSES = ["cross_entropy", "importance_sampling", "ppo"]


class TrainingDriver(Driver):
    """lathe_training_bench as a child process."""

    def __init__(self, folder, threads, numerics="fast"):
        binary = pathlib.Path(os.environ.get("LATHE_BIN", ROOT / "build/release/bin"))
        super().__init__(binary / "lathe_training_bench")
        self.loaded = self.run(op="load", folder=str(folder), threads=threads, numerics=numerics)


class Shape:
    """Sizes of a model that the cost of a pass depends on."""

    def __init__(self, config):
        self.layers, self.hidden = config.num_hidden_layers, config.hidden_size
        self.q = config.num_attention_heads * config.head_dim
        self.kv = config.num_key_value_heads * config.head_dim
        self.mlp, self.vocab = config.intermediate_size, config.vocab_size

    def linears(self):
        per_layer = self.hidden * (2 * self.q + 2 * self.kv) + 3 * self.hidden * self.mlp
        return self.layers * per_layer

    def lora(self, rank):
        h, q, kv, i = self.hidden, self.q, self.kv, self.mlp
        return self.layers * rank * ((h + q) + 2 * (h + kv) + (q + h) + 3 * (h + i))

    def step_flops(self, lengths, rank, recompute=False):
        """Forward and backward of packed sequences, LoRA on all linears, loss on all tokens."""
        tokens = sum(lengths)
        squares = sum(length * length for length in lengths)
        dense = (6 if recompute else 4) * self.linears() + (8 if recompute else 6) * self.lora(rank)
        head = 4 * self.vocab * self.hidden
        attention = (9 if recompute else 7) * self.layers * self.q * squares
        return tokens * (dense + head) + attention


class Peer:
    """PEFT + torch, bf16."""

    def __init__(self, folder, ranks, layers=None):
        import peft
        import torch
        from transformers import AutoConfig, AutoModelForCausalLM
        self.torch = torch
        config = AutoConfig.from_pretrained(folder)
        if layers:
            config.num_hidden_layers = layers
        base = AutoModelForCausalLM.from_pretrained(folder, config=config, dtype=torch.bfloat16)
        targets = ["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"]
        loras = [peft.LoraConfig(r=rank, lora_alpha=32, target_modules=targets) for rank in ranks]
        self.model = peft.get_peft_model(base, loras[0], adapter_name="a0")
        for i, lora in enumerate(loras[1:], start=1):
            self.model.add_adapter(f"a{i}", lora)
        self.model.train()

    def checkpointing(self, on):
        if on:
            self.model.enable_input_require_grads()
            self.model.gradient_checkpointing_enable()
        else:
            self.model.gradient_checkpointing_disable()

    def step(self, rows, adapter=0, loss="cross_entropy"):
        """Forward and backward of token lists, padded to the longest."""
        torch = self.torch
        self.model.set_adapter(f"a{adapter}")
        longest = max(len(row) for row in rows)
        ids = torch.zeros(len(rows), longest, dtype=torch.long)
        counts = torch.zeros(len(rows), longest)
        for i, row in enumerate(rows):
            ids[i, :len(row)] = torch.tensor(row)
            counts[i, :len(row)] = 1
        logits = self.model(ids[:, :-1], attention_mask=counts[:, :-1]).logits.float()
        negative = torch.nn.functional.cross_entropy(
            logits.flatten(0, 1), ids[:, 1:].flatten(), reduction="none") * counts[:, 1:].flatten()
        if loss == "cross_entropy":
            total = negative.sum()
        else:
            ratio = (-negative + 6.0 * counts[:, 1:].flatten()).clamp(max=20).exp()
            if loss == "ppo":
                ratio = torch.minimum(ratio, ratio.clamp(0.8, 1.2))
            total = -(0.5 * ratio * counts[:, 1:].flatten()).sum()
        total.backward()
        self.model.zero_grad()


def random_rows(lengths, seed, vocab=700):
    """One more token than positions: each is to predict the next."""
    import random
    source = random.Random(seed)
    return [[source.randrange(20, vocab) for _ in range(length + 1)] for length in lengths]


def ragged_lengths(count=32, low=16, high=512):
    import random
    source = random.Random(7)
    return [source.randint(low, high) for _ in range(count)]


def shallow(folder, layers):
    """A copy of a model folder whose config says fewer layers."""
    import shutil
    import tempfile
    from safetensors.torch import load_file, save_file
    out = pathlib.Path(tempfile.mkdtemp(prefix="lathe-shallow-"))
    atexit.register(shutil.rmtree, out, ignore_errors=True)
    for path in pathlib.Path(folder).iterdir():
        if path.suffix != ".safetensors":
            shutil.copy(path, out)
    config = json.loads((out / "config.json").read_text())
    config["num_hidden_layers"] = layers
    for key in ("layer_types",):
        if key in config:
            config[key] = config[key][:layers]
    (out / "config.json").write_text(json.dumps(config))
    tensors = {}
    for path in pathlib.Path(folder).glob("*.safetensors"):
        tensors.update(load_file(path))
    kept = {name: value for name, value in tensors.items()
            if ".layers." not in name or int(name.split(".layers.")[1].split(".")[0]) < layers}
    save_file(kept, out / "model.safetensors", metadata={"format": "pt"})
    return out


class MatmulRate:
    """How fast this machine multiplies matrices in bf16, by our kernel and by torch's. Measured before
    and after each step of ours, because machines change their speed within minutes."""

    ROWS, OUT, IN, REPEATS = 512, 6144, 1024, 8

    def __init__(self, driver, torch):
        self.driver = driver
        self.w = torch.randn(self.OUT, self.IN).bfloat16()
        self.x = torch.randn(self.ROWS, self.IN).bfloat16()
        self.ours, self.torch = [], []  # flop/s

    def __call__(self):
        self.ours.append(1e9 * self.driver.run(op="matmul", rows=self.ROWS)["gflops"])
        begin = time.perf_counter()
        for _ in range(self.REPEATS):
            self.x @ self.w.t()
        flops = self.REPEATS * 2 * self.ROWS * self.OUT * self.IN
        self.torch.append(flops / (time.perf_counter() - begin))

    def around_steps(self):
        """Mean of before and after, each the larger of both kernels; the first round warmed up."""
        best = [max(pair) for pair in zip(self.ours, self.torch)]
        return [statistics.mean(pair) for pair in zip(best[2::2], best[3::2])]

    def __str__(self):
        ours, other = (statistics.median(rates[2:]) * 1e-9 for rates in (self.ours, self.torch))
        return f"matrix products in bf16: ours {ours:.0f} GFLOP/s, torch {other:.0f} GFLOP/s"


class Table:
    def __init__(self, args):
        import torch
        from transformers import AutoConfig
        self.args, self.torch = args, torch
        torch.set_num_threads(args.threads)
        self.folder = args.model or tiny_model("--size", "0.6b")
        self.shape = Shape(AutoConfig.from_pretrained(self.folder))

    def single(self, name, lengths, recompute, peer_batch, rank=8):
        """One adapter; the peer in padded micro-batches of `peer_batch`."""
        driver = TrainingDriver(self.folder, self.args.threads)
        peer = Peer(self.folder, [rank])
        peer.checkpointing(recompute)
        rate = MatmulRate(driver, self.torch)
        rows = random_rows(lengths, seed=1)
        driver.run(op="adapter", model="m0", rank=rank)
        answers = []

        def ours():
            answers.append(driver.run(op="train", sequences=[
                {"model": "m0", "tokens": row} for row in rows]))
            return answers[-1]

        def theirs():
            for first in range(0, len(rows), peer_batch):
                peer.step(rows[first:first + peer_batch])

        _, mine, _, other = alternate(self.args.rounds, rate, ours, rate, theirs)
        tokens = sum(lengths)
        flops = self.shape.step_flops(lengths, rank, recompute)
        share = statistics.median(flops / (seconds * limit) for seconds, limit in zip(mine, rate.around_steps()))
        peak = max(answer["peak_mib"] for answer in answers) - driver.loaded["resident_mib"]
        print(f"{name}: ours {tokens / statistics.median(mine):.1f} tokens/s, {100 * share:.0f} % of what the "
              f"matmul rate around it allows; PEFT {tokens / statistics.median(other):.1f} tokens/s, ours/PEFT "
              f"{ratio(mine, other):.2f}; peak memory {peak:.0f} MiB above the loaded model, "
              f"{answers[-1]['passes']} passes; {rate}", flush=True)
        driver.close()

    def ragged(self):
        folder = shallow(self.folder, 8)
        lengths = ragged_lengths()
        rows = random_rows(lengths, seed=2)
        driver, peer = TrainingDriver(folder, self.args.threads), Peer(folder, [8])
        driver.run(op="adapter", model="m0", rank=8)

        def ours():
            return driver.run(op="train", sequences=[{"model": "m0", "tokens": r} for r in rows])

        def theirs():
            for first in range(0, len(rows), 4):
                peer.step(rows[first:first + 4])

        mine, other = alternate(self.args.rounds, ours, theirs)
        tokens = sum(lengths)
        print(f"32 ragged sequences of 16 to 512 tokens, 8 layers, r8: ours "
              f"{tokens / statistics.median(mine):.1f} tokens/s, PEFT padded by 4 "
              f"{tokens / statistics.median(other):.1f}, ours/PEFT {ratio(mine, other):.2f}", flush=True)
        driver.close()

    def mixed(self):
        folder = shallow(self.folder, 8)
        lengths = ragged_lengths()
        rows = random_rows(lengths, seed=3)
        driver, peer = TrainingDriver(folder, self.args.threads), Peer(folder, MIXED_RANKS)
        mean = round(statistics.mean(MIXED_RANKS))
        driver.run(op="adapter", model="mean", rank=mean)
        for i, rank in enumerate(MIXED_RANKS):
            driver.run(op="adapter", model=f"m{i}", rank=rank)

        def ours():
            return driver.run(op="train", sequences=[
                {"model": f"m{i % 8}", "tokens": row, "loss": MIXED_LOSSES[i % 8 % 3]}
                for i, row in enumerate(rows)])

        def one_adapter():
            return driver.run(op="train", sequences=[{"model": "mean", "tokens": r} for r in rows])

        def theirs():
            for i in range(8):
                peer.step(rows[i::8], adapter=i, loss=MIXED_LOSSES[i % 3])

        mine, single, other = alternate(self.args.rounds, ours, one_adapter, theirs)
        tokens = sum(lengths)
        print(f"the same from 8 adapters of ranks {MIXED_RANKS} with three losses: ours "
              f"{tokens / statistics.median(mine):.1f} tokens/s, {100 * ratio(mine, single):.0f} % of one "
              f"adapter of rank {mean}; PEFT one after another {tokens / statistics.median(other):.1f}, "
              f"ours/PEFT {ratio(mine, other):.2f}", flush=True)
        driver.close()

    def exact(self):
        folder = shallow(self.folder, 8)
        rows = random_rows(ragged_lengths(), seed=3)
        sequences = [{"model": f"m{i % 8}", "tokens": row} for i, row in enumerate(rows)]
        drivers = [TrainingDriver(folder, self.args.threads, numerics) for numerics in ("fast", "exact")]
        for driver in drivers:
            for i in range(8):
                driver.run(op="adapter", model=f"m{i}", rank=8)
        fast, exact = alternate(self.args.rounds, *(
            lambda driver=driver: driver.run(op="train", sequences=sequences) for driver in drivers))
        print(f"numerics exact beside fast, 32 ragged sequences of 8 adapters, 8 layers: "
              f"{100 * ratio(exact, fast):.0f} % of the rate", flush=True)
        for driver in drivers:
            driver.close()

    def tiny(self):
        driver = TrainingDriver(tiny_model(), self.args.threads)
        rows = random_rows([8] * 256, seed=4)
        for i in range(256):
            driver.run(op="adapter", model=f"m{i}", rank=8)
        sequences = [{"model": f"m{i}", "tokens": row} for i, row in enumerate(rows)]
        together, apart = alternate(
            self.args.rounds, lambda: driver.run(op="train", sequences=sequences),
            lambda: driver.run(op="train", sequences=sequences, one_by_one=True))
        print(f"tiny model (2 layers, hidden 64, MLP 192, 4 heads of 16, vocabulary 768), 256 adapters of "
              f"rank 8, one datum of 8 tokens each: together {1e3 * statistics.median(together):.1f} ms, one "
              f"by one {1e3 * statistics.median(apart):.1f} ms, ratio {ratio(together, apart):.1f}", flush=True)
        driver.close()

    def step(self):
        driver = TrainingDriver(self.folder, self.args.threads)
        size = driver.run(op="adapter", model="m0", rank=32, train_unembed=True)["parameters"]
        mine, bare = alternate(3 * self.args.rounds, lambda: driver.run(op="step", model="m0"),
                               lambda: driver.run(op="bare_adam", elements=size))
        print(f"optim_step of {size / 1e6:.1f} M parameters, published: {1e3 * statistics.median(mine):.1f} ms, "
              f"bare Adam loop {1e3 * statistics.median(bare):.1f} ms, ratio {1 / ratio(mine, bare):.2f}",
              flush=True)
        driver.close()


    def load(self):
        """Beside one thread that reads the files and hashes them."""
        files = [path for path in pathlib.Path(self.folder).iterdir() if path.suffix == ".safetensors"]

        def ours():
            driver = TrainingDriver(self.folder, self.args.threads)
            driver.close()
            return driver.loaded

        def bare():
            begin = time.perf_counter()
            for path in files:
                hashlib.sha256(path.read_bytes()).hexdigest()
            return time.perf_counter() - begin

        mine, other = alternate(self.args.rounds, ours, lambda: {"seconds": bare()})
        print(f"loading {sum(path.stat().st_size for path in files) / 1e6:.0f} MB, cached: ours "
              f"{statistics.median(mine):.2f} s, one read and one SHA-256 {statistics.median(other):.2f} s, "
              f"ratio {1 / ratio(mine, other):.2f}", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--model", help="folder; default: random weights of the Qwen3-0.6B shape")
    parser.add_argument("--threads", type=int, default=os.cpu_count())
    parser.add_argument("--cases", default="one,batch,ragged,mixed,exact,tiny,step,long")
    args = parser.parse_args()
    os.environ["OMP_NUM_THREADS"] = str(args.threads)
    table = Table(args)
    cases = {
        "one": lambda: table.single("one sequence of 512 tokens, r8", [512], False, 1),
        "long": lambda: table.single("one sequence of 4,096 tokens, r8", [4096], True, 1),
        "batch": lambda: table.single("8 x 512 tokens, r8", [512] * 8, False, 4),
        "four": lambda: table.single("4 x 512 tokens, r16", [512] * 4, False, 4, rank=16),
        "load": table.load,
        "ragged": table.ragged,
        "mixed": table.mixed,
        "exact": table.exact,
        "tiny": table.tiny,
        "step": table.step,
    }
    for name in args.cases.split(","):
        cases[name]()


if __name__ == "__main__":
    main()
