"""How fast many devices would train and sample, from what one device computes, stated link speeds and
the bytes of docs/scaling.md. No measurement: prints the tables of
docs/measurements/cost_model.md.

Run: .venv/bin/python tests/bench/parallel/cost_model.py [--measured]

--measured instead: predicts what ranks_bench.py measures on two cores, to see how far to trust it.
"""

import argparse
import itertools
import math
import pathlib
import sys
from dataclasses import dataclass

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2]))
from support import rank_traffic as formula  # noqa: E402


@dataclass(frozen=True)
class Link:
    bytes_per_second: float  # into a device
    seconds: float  # that a collective takes besides


@dataclass(frozen=True)
class Device:
    flops: float  # that training attains
    read: float  # bytes per second that decoding attains
    memory: float  # for weights, bytes
    per_host: int
    inside: Link  # between devices of one host
    outside: Link  # between hosts
    step_agreement: float  # seconds that ranks take to agree before each step of a pass


SHAPES = {"8B": formula.Shape(36, 4096, 4096, 1024, 12288, 151936),
          "32B": formula.Shape(64, 5120, 8192, 1024, 25600, 151936)}
LORA_RANK = 32
HEAD_ROWS = 2048  # of a chunk of logits where the head is gathered for it; 80 GB have room for them
# Of the vendor's 989 TFLOP/s in bf16 and 3.35 TB/s, shares that this machine's CPU attains of its own
# (docs/measurements/training.md and sampling.md: 83 to 95 % and 96 %) are not to be had: 40 % and 80 %
# are assumed. Links: half of NVLink's 900 GB/s and 400 Gbit/s of InfiniBand or 100 of Ethernet per device, at 80 %.
NVLINK = Link(0.8 * 450e9, 10e-6)
OUTSIDE = {"InfiniBand": Link(0.8 * 50e9, 20e-6), "Ethernet": Link(0.8 * 12.5e9, 60e-6)}


def gpu(outside):
    return Device(0.4 * 989e12, 0.8 * 3.35e12, 60e9, 8, NVLINK, OUTSIDE[outside], 100e-6)


def numbers(shape):
    """Of the base model, the embedding once."""
    return shape.linears() + shape.vocab * shape.hidden


def flops_per_token(shape, length):
    """Forward and backward, LoRA on all linears, causal attention over `length` tokens."""
    return (4 * numbers(shape) + 6 * shape.lora(LORA_RANK, True)
            + 7 * shape.layers * shape.q * length)


def seconds_of(link, traffic, calls):
    return traffic / link.bytes_per_second + calls * link.seconds


def link_of(device, ranks, inner):
    """Of an axis of `ranks`, whose neighbours are `inner` ranks apart."""
    return device.inside if ranks * inner <= device.per_host else device.outside


def training(device, shape, mesh, tokens, passes, length):
    """Seconds of a step by part; `tokens` of each pass on each rank of dp and fsdp."""
    tp, fsdp, dp = mesh.get("tp", 1), mesh.get("fsdp", 1), mesh.get("dp", 1)
    of_pass = formula.forward_backward(shape, tokens, mesh)
    of_step = formula.optim_step(shape, LORA_RANK, mesh)
    compute = flops_per_token(shape, length) * tokens / tp / device.flops
    units = 2 * shape.layers + 3
    parts = {"compute": passes * compute, "tp": 0, "fsdp": 0, "dp": 0,
             "agreement": passes * units * device.step_agreement if tp * fsdp * dp > 1 else 0}
    if tp > 1:
        link = link_of(device, tp, 1)
        parts["tp"] = passes * seconds_of(link, formula.total({"tp": of_pass["tp"]}).bytes, 4 * shape.layers + 3)
        parts["tp"] += seconds_of(link, formula.total({"tp": of_step["tp"]}).bytes, 2)
    if fsdp > 1:
        # The layers forward and again backward, the embedding once, the head for each half of a
        # chunk, all a block ahead: what computation does not hide.
        link = link_of(device, fsdp, tp)
        num_heads = 1 + 2 * math.ceil(tokens / HEAD_ROWS)
        weights = 2 * (2 * shape.linears() + num_heads * shape.vocab * shape.hidden) / tp
        gather = seconds_of(link, weights * (fsdp - 1) / fsdp, 3 * 2 * shape.layers + 8 * num_heads)
        parts["fsdp"] = passes * max(0, gather - compute)
    if dp * fsdp > 1:
        link = link_of(device, dp * fsdp, tp)
        parts["dp"] = seconds_of(link, formula.total({"": of_step[formula.DATA]}).bytes, 2)
        parts["dp"] += passes * seconds_of(link, formula.total({"": of_pass[formula.DATA]}).bytes, 3)
    return parts


def decode(device, shape, tp, rows):
    """Seconds of a pass by part."""
    link = link_of(device, tp, 1)
    read = (2 * numbers(shape)) / tp / device.read
    traffic = formula.total(formula.decode(shape, rows, {"tp": tp})).bytes
    calls = 2 * shape.layers + 2 if tp > 1 else 0
    return {"compute": read, "tp": seconds_of(link, traffic, calls),
            "agreement": device.step_agreement if tp > 1 else 0}


def fits(device, shape, mesh):
    """Whether a rank has memory for its weights: of axis fsdp its share and two blocks, no larger
    than a layer together."""
    tp, fsdp = mesh["tp"], mesh["fsdp"]
    blocks = 2 * shape.linears() / shape.layers / tp if fsdp > 1 else 0
    return 2 * numbers(shape) / tp / fsdp + blocks <= device.memory


def meshes(devices, per_host):
    powers = [1 << i for i in range(devices.bit_length())]
    for tp, fsdp in itertools.product(powers, powers):
        if tp <= per_host and tp * fsdp <= devices:
            yield {"dp": devices // (tp * fsdp), "fsdp": fsdp, "tp": tp}


def name_of(mesh):
    return " x ".join(f"{axis} {n}" for axis, n in mesh.items() if n > 1) or "one"


def print_training(total_tokens, length, most_tokens):
    print("| model | links | devices | fastest mesh | tokens/s | of as many alone | where the rest goes |")
    print("|---|---|---|---|---|---|---|")
    for (name, shape), link, devices in itertools.product(SHAPES.items(), OUTSIDE, (8, 64, 512)):
        device = gpu(link)
        alone = device.flops / flops_per_token(shape, length)
        rates = []
        for mesh in meshes(devices, device.per_host):
            share = total_tokens / (mesh["dp"] * mesh["fsdp"])
            if share < length or not fits(device, shape, mesh):
                continue
            passes = math.ceil(share / most_tokens)
            parts = training(device, shape, mesh, share / passes, passes, length)
            rates.append((total_tokens / sum(parts.values()), mesh, parts))
        rate, mesh, parts = max(rates, key=lambda one: one[0])
        total = sum(parts.values())
        rest = ", ".join(f"{part} {100 * n / total:.0f} %" for part, n in parts.items()
                         if part != "compute" and n / total >= 0.005)
        print(f"| {name} | {link} | {devices} | {name_of(mesh)} | {rate:,.0f} | "
              f"{100 * rate / alone / devices:.0f} % | {rest} |")


def print_decode(rows):
    print("| model | tp | links | tokens/s of a group | times one | where the time goes |")
    print("|---|---|---|---|---|---|")
    for (name, shape), tp in itertools.product(SHAPES.items(), (1, 2, 4, 8, 16)):
        parts = decode(gpu("InfiniBand"), shape, tp, rows)
        total = sum(parts.values())
        one = sum(decode(gpu("InfiniBand"), shape, 1, rows).values())
        split = ", ".join(f"{part} {100 * n / total:.0f} %" for part, n in parts.items() if n)
        link = "none" if tp == 1 else "NVLink" if tp <= 8 else "InfiniBand"
        print(f"| {name} | {tp} | {link} | {rows / total:,.0f} | {one / total:.2f} | {split} |")


def print_measured():
    """A core of the machine of docs/measurements/ranks.md: one rank's 333 tokens/s, a copy through shared memory
    at about 3 GB/s and 5 us. Predicts ratios of 8 x 128 tokens over two ranks."""
    shape = formula.Shape(8, 1024, 2048, 1024, 3072, 151936)
    seconds = 1024 / 333
    flops = 1024 * flops_per_token(shape, 128) / seconds
    link = Link(3e9, 5e-6)
    core = Device(flops, 0, 0, 2, link, link, 20e-6)
    for mesh, tokens, passes in (({"dp": 2}, 512, 1), ({"tp": 2}, 512, 2)):
        parts = training(core, shape, mesh, tokens, passes, 128)
        print(f"{name_of(mesh)}: {seconds / sum(parts.values()):.2f} x one rank;",
              ", ".join(f"{part} {1e3 * n:.0f} ms" for part, n in parts.items()))


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--measured", action="store_true")
    parser.add_argument("--tokens", type=int, default=1 << 20, help="of a training step")
    parser.add_argument("--length", type=int, default=2048, help="of a sequence")
    parser.add_argument("--pass-tokens", type=int, default=4096, help="of a pass on a rank, at most")
    parser.add_argument("--rows", type=int, default=64, help="of a decode pass")
    args = parser.parse_args()
    if args.measured:
        return print_measured()
    print_training(args.tokens, args.length, args.pass_tokens)
    print()
    print_decode(args.rows)


if __name__ == "__main__":
    main()
