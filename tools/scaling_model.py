#!/usr/bin/env python3
"""Models how much of a training step on 8 and 64 GPUs is communication that nothing hides.

Also models decode passes. Nothing of it is measured.

  tools/scaling_model.py [--mfu 45] [--nic 50] [--tokens 131072,1048576] ...
  tools/scaling_model.py --measured

Calls and bytes are those of tests/support/rank_traffic.py. tests/parity/test_rank_calls.py holds these
formulas equal to what ranks call, and which calls run beside other work. Times come from the arguments.
Prints the tables of docs/measurements/cost_model.md; docs/scaling.md says what they mean.
--measured instead: predicts what tests/bench/parallel/ranks_bench.py measures on two cores, to see
how far to trust the model.
"""

import argparse
import math
import pathlib
import sys
from dataclasses import dataclass

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "tests"))
from support import rank_traffic as formula  # noqa: E402

GOAL = 0.05  # of a step, exposed
LORA_RANK = 32
# Rows of a chunk of logits; where the head is gathered for each chunk, as 80 GB have room for.
HEAD_ROWS, GATHERED_HEAD_ROWS = 256, 2048
# config.json of Qwen/Qwen3-8B and Qwen/Qwen3-32B.
SHAPES = {"8B": formula.Shape(36, 4096, 4096, 1024, 12288, 151936, tied=False),
          "32B": formula.Shape(64, 5120, 8192, 1024, 25600, 151936, tied=False)}
MESHES = {("8B", 8): ["dp 8", "fsdp 8", "dp 4 x tp 2", "tp 8"],
          ("8B", 64): ["dp 64", "dp 8 x fsdp 8", "fsdp 64", "dp 32 x tp 2", "dp 8 x tp 8"],
          ("32B", 8): ["dp 4 x fsdp 2", "fsdp 8", "dp 4 x tp 2", "dp 2 x fsdp 2 x tp 2", "tp 8"],
          ("32B", 64): ["dp 32 x fsdp 2", "dp 8 x fsdp 8", "fsdp 64", "dp 32 x tp 2",
                        "dp 16 x fsdp 2 x tp 2", "dp 8 x tp 8"]}


@dataclass(frozen=True)
class Machine:
    flops: float  # that training attains
    read: float  # bytes per second that decoding attains
    memory: float  # of a device for weights, bytes
    per_host: int
    nvlink: float  # bytes per second that a collective attains
    nic: float  # the same, of the network port of a device
    nvlink_seconds: float  # that a collective takes besides
    nic_seconds: float  # the same, each time the number of hosts doubles
    round_seconds: float  # that all ranks take to agree on the host


@dataclass(frozen=True)
class Change:
    """What the code could do, and does not."""
    dp_beside: bool = False  # gradients are summed while the last pass goes backward
    dp_bytes: float = 1
    tp_bytes: float = 1
    tp_beside: bool = False  # two halves of a pass take turns: one computes, one is summed
    embeds_rows: bool = False  # of the embedding only the rows of the pass's tokens are gathered
    units_a_round: int = 1


@dataclass(frozen=True)
class Link:
    bytes_per_second: float
    seconds: float

    def time(self, moved):
        return moved.bytes / self.bytes_per_second + moved.calls * self.seconds


def link_of(machine, ranks, stride):
    """Between `ranks` ranks whose neighbours are `stride` apart. All ports of a host's ranks carry the
    rings of a collective."""
    hosts = math.ceil(ranks * stride / machine.per_host)
    if hosts == 1:
        return Link(machine.nvlink, machine.nvlink_seconds)
    of_a_host = max(1, machine.per_host // stride)
    return Link(min(machine.nvlink, machine.nic * of_a_host),
                machine.nvlink_seconds + machine.nic_seconds * math.ceil(math.log2(hosts)))


def axes(text):
    mesh = dict(zip(("dp", "fsdp", "tp"), (1, 1, 1)))
    for part in text.split(" x "):
        axis, ranks = part.split()
        mesh[axis] = int(ranks)
    return mesh


def numbers(shape):
    """That products read: of the base model, the head but not the embedding."""
    return shape.linears() + shape.vocab * shape.hidden


def flops_per_token(shape, length):
    """Forward and backward, LoRA on all linears, causal attention over `length` tokens."""
    return (4 * numbers(shape) + 6 * shape.lora(LORA_RANK, True)
            + 7 * shape.layers * shape.q * length)


class Compute:
    """Seconds of a pass of `tokens` tokens on a rank, by block of base weights."""

    def __init__(self, machine, shape, mesh, tokens, length):
        self.seconds_of_flop = tokens / mesh["tp"] / machine.flops
        self.shape, self.length = shape, length
        self.lora = shape.lora(LORA_RANK, True) / numbers(shape)
        self.all = flops_per_token(shape, length) * self.seconds_of_flop

    def _flops(self, weights, attention, is_backward):
        return 2 * weights * (1 + self.lora * (2 if is_backward else 1)) + attention

    def block(self, step, block):
        """`block`: 0 for attention, 1 for gate and up, 2 for down."""
        s = self.shape
        is_backward = step == "backward"
        attention = (5 if is_backward else 2) * s.q * self.length if block == 0 else 0
        weights = s.hidden * (2 * s.q + 2 * s.kv, 2 * s.mlp, s.mlp)[block]
        return self._flops(weights, attention, is_backward) * self.seconds_of_flop

    def layer(self, step):
        return sum(self.block(step, block) for block in range(3))

    def head(self, is_backward):
        return self._flops(self.shape.vocab * self.shape.hidden, 0, is_backward) * self.seconds_of_flop


def fsdp_seconds(link, shape, mesh, compute, chunks, change):
    """(exposed, hidden) of the gathers of a pass. A block is gathered while the one before it
    computes. Sums of tp that run meanwhile hide nothing here."""
    weights = formula.BaseWeights(shape, mesh, formula.BF16, panel_rows=1)
    pieces = len(weights.head)
    exposed = hidden = 0
    is_backward_half = False
    for use in weights.uses(2 * chunks):
        if use.step == "embed":
            seconds = 0
        elif use.step == "head":
            # Halves of chunks alternate.
            seconds = compute.head(is_backward_half) / chunks / pieces
            if use.block == weights.head[-1]:
                is_backward_half = not is_backward_half
        else:
            seconds = compute.block(use.step, use.block % 3)
        if use.step == "embed" and change.embeds_rows:
            continue
        ahead = link.time(use.ahead)
        exposed += link.time(use.waited) + max(0, ahead - seconds)
        hidden += min(ahead, seconds)
    return exposed, hidden


def round_seconds(machine, compute, shape, chunks, change):
    """Exposed, of the rounds before the units of a pass. The device has one unit queued, so it works
    during a round, unless the host has just waited for it: after each chunk of the head, at the
    pass's end, and when the ranks have agreed on the next pass's steps."""
    waits = chunks + 2
    behind = [compute.layer("forward")] * shape.layers + [compute.layer("backward")] * shape.layers
    short = sum(max(0, machine.round_seconds - seconds) for seconds in behind)
    return (waits * machine.round_seconds + short) / change.units_a_round


def training(machine, shape, mesh, work, change=Change()):
    """Seconds of a step: {"compute", and what is exposed of "dp", "fsdp", "tp", "rounds"}, and what
    is hidden. `work`: (tokens of a pass on a rank, passes, length of a sequence, adapters)."""
    tokens, passes, length, adapters = work
    tp, fsdp, data = mesh["tp"], mesh["fsdp"], mesh["dp"] * mesh["fsdp"]
    chunks = math.ceil(tokens / (GATHERED_HEAD_ROWS if fsdp > 1 else HEAD_ROWS))
    compute = Compute(machine, shape, mesh, tokens, length)
    of_pass = formula.forward_backward(shape, tokens, mesh, chunks=chunks)
    of_step = formula.optim_step(shape, LORA_RANK, mesh)
    exposed = {"dp": 0, "fsdp": 0, "tp": 0, "rounds": 0}
    hidden = 0
    if tp > 1:
        link = link_of(machine, tp, 1)
        moved = formula.total({"tp": of_pass["tp"]})
        moved = moved._replace(bytes=moved.bytes * change.tp_bytes)
        if change.tp_beside:
            twice = moved._replace(calls=2 * moved.calls)
            of_a_pass = max(link.time(twice) - compute.all, link.time(moved) / moved.calls)
        else:
            of_a_pass = link.time(moved)
        exposed["tp"] = passes * of_a_pass
        exposed["tp"] += adapters * link.time(formula.total({"tp": of_step["tp"]}))
    if fsdp > 1:
        waited, beside = fsdp_seconds(link_of(machine, fsdp, tp), shape, mesh, compute, chunks, change)
        exposed["fsdp"] += passes * waited
        hidden += passes * beside
    if data > 1:
        link = link_of(machine, data, tp)
        gradients = of_step[formula.DATA]["data gradients"]
        gradients = gradients._replace(bytes=gradients.bytes * change.dp_bytes)
        seconds = adapters * link.time(gradients)
        if change.dp_beside:
            hidden += min(seconds, shape.layers * compute.layer("backward"))
            seconds = max(0, seconds - shape.layers * compute.layer("backward"))
        exposed["dp"] = seconds + passes * link.time(formula.total({"": of_pass[formula.DATA]}))
    if tp * data > 1:
        rounds = round_seconds(machine, compute, shape, chunks, change)
        # An optimizer's step compares the weights of all ranks on the host.
        exposed["rounds"] = passes * rounds + 2 * adapters * machine.round_seconds
    return {"compute": passes * compute.all, **exposed}, hidden


def share_exposed(parts):
    return 1 - parts["compute"] / sum(parts.values())


def decode(machine, shape, tp, rows):
    """Seconds of a pass by part."""
    read = 2 * numbers(shape) / tp / machine.read
    moved = formula.total(formula.decode(shape, rows, {"tp": tp}, whole_rows=True))
    return {"compute": read, "tp": link_of(machine, tp, 1).time(moved),
            "rounds": machine.round_seconds if tp > 1 else 0}


def fits(machine, shape, mesh):
    """Whether a rank has memory for its weights: of axis fsdp its share and two blocks, no larger
    than a layer together."""
    tp, fsdp = mesh["tp"], mesh["fsdp"]
    all_numbers = numbers(shape) + (0 if shape.tied else shape.vocab * shape.hidden)
    blocks = 2 * shape.linears() / shape.layers / tp if fsdp > 1 else 0
    return 2 * all_numbers / tp / fsdp + blocks <= machine.memory


def as_passes(tokens, most):
    """(tokens of a pass, passes)"""
    passes = math.ceil(tokens / most)
    return tokens / passes, passes


def cases(args, machine):
    """(model, devices, mesh, tokens of a step, work) of each row."""
    for (model, devices), meshes in MESHES.items():
        for tokens in args.tokens:
            for name in meshes:
                mesh = axes(name)
                assert math.prod(mesh.values()) == devices, name
                share = tokens / (mesh["dp"] * mesh["fsdp"])
                if share >= args.length and fits(machine, SHAPES[model], mesh):
                    work = (*as_passes(share, args.pass_tokens), args.length, args.adapters)
                    yield model, devices, name, tokens, work


def print_training(args, machine):
    print("| model | GPUs | mesh | tokens a step | tokens/s | compute | hidden | exposed: dp, fsdp, tp, "
          "rounds | exposed | goal |")
    print("|" + "---|" * 10)
    for model, devices, name, tokens, work in cases(args, machine):
        parts, hidden = training(machine, SHAPES[model], axes(name), work)
        by_part = ", ".join(f"{1e3 * parts[part]:.1f}" for part in ("dp", "fsdp", "tp", "rounds"))
        share = share_exposed(parts)
        print(f"| {model} | {devices} | {name} | {tokens:,} | {tokens / sum(parts.values()):,.0f} | "
              f"{1e3 * parts['compute']:,.0f} ms | {1e3 * hidden:,.0f} ms | {by_part} ms | "
              f"{100 * share:.1f} % | {'met' if share <= GOAL else '**missed**'} |")


CHANGES = {
    "dp": {"sums of gradients beside the last backward pass": Change(dp_beside=True),
           "gradients in bf16": Change(dp_bytes=0.5)},
    "tp": {"sums in bf16": Change(tp_bytes=0.5),
           "two halves of a pass in turn": Change(tp_beside=True)},
    "fsdp": {"rows of the embedding instead of all": Change(embeds_rows=True)},
    "rounds": {"a round for four units": Change(units_a_round=4)},
}
ALL_CHANGES = Change(True, 0.5, 0.5, True, True, 4)


def mends(machine, shape, mesh, work, pass_tokens):
    """(what would help, the exposed share then), for the parts that alone take half of the goal."""
    parts, _ = training(machine, shape, mesh, work)
    step = sum(parts.values())
    tokens, passes, *rest = work

    def then(change, tokens=tokens, passes=passes):
        return share_exposed(training(machine, shape, mesh, (tokens, passes, *rest), change)[0])

    for part, changes in CHANGES.items():
        if parts[part] >= GOAL / 2 * step:
            for what, change in changes.items():
                yield what, then(change)
    yield "all of these changes", then(ALL_CHANGES)
    for times in (2, 4, 8, 16):
        # Passes are as large as now, or larger if they were small.
        if (share := then(Change(), *as_passes(times * tokens * passes, pass_tokens))) <= GOAL:
            yield f"no change, {times} times the tokens a step", share
            break


def print_missed(args, machine):
    print("| model | GPUs | mesh | tokens a step | exposed | what would mend it, and what is exposed then |")
    print("|" + "---|" * 6)
    seen = {}
    for model, devices, name, tokens, work in cases(args, machine):
        shape, mesh = SHAPES[model], axes(name)
        share = share_exposed(training(machine, shape, mesh, work)[0])
        # Larger steps change little where passes are as large before.
        if share <= GOAL or abs(share - seen.get((model, devices, name), 0)) < 0.02:
            continue
        seen[model, devices, name] = share
        helps = "; ".join(f"{what}: {100 * then:.1f} %"
                          for what, then in mends(machine, shape, mesh, work, args.pass_tokens))
        print(f"| {model} | {devices} | {name} | {tokens:,} | {100 * share:.1f} % | {helps} |")


def print_decode(args, machine):
    print("| model | tp | tokens/s of a group | times one | where the time goes |")
    print("|" + "---|" * 5)
    for name, shape in SHAPES.items():
        one = sum(decode(machine, shape, 1, args.rows).values())
        for tp in (1, 2, 4, 8, 16):
            parts = decode(machine, shape, tp, args.rows)
            total = sum(parts.values())
            split = ", ".join(f"{part} {100 * n / total:.0f} %" for part, n in parts.items() if n)
            print(f"| {name} | {tp} | {args.rows / total:,.0f} | {one / total:.2f} | {split} |")


def print_measured():
    """A core of the machine of docs/measurements/ranks.md: one rank's 333 tokens/s, a copy through shared
    memory at about 3 GB/s and 5 us. Predicts ratios of 8 x 128 tokens over two ranks."""
    shape = formula.Shape(8, 1024, 2048, 1024, 3072, 151936)
    seconds = 1024 / 333
    flops = 1024 * flops_per_token(shape, 128) / seconds
    core = Machine(flops, 0, 0, 2, 3e9, 3e9, 5e-6, 0, 20e-6)
    for name, tokens, passes in (("dp 2", 512, 1), ("tp 2", 512, 2)):
        parts, _ = training(core, shape, axes(name), (tokens, passes, 128, 1))
        print(f"{name}: {seconds / sum(parts.values()):.2f} x one rank;",
              ", ".join(f"{part} {1e3 * n:.0f} ms" for part, n in parts.items()))


def parse(argv):
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    number = {"type": float, "metavar": "N"}
    parser.add_argument("--measured", action="store_true", help="predict two ranks on two cores "
                        "instead, which were measured")
    parser.add_argument("--peak", default=989, help="TFLOP/s of bf16: H100 SXM's data sheet", **number)
    parser.add_argument("--mfu", default=45, help="%% of it in training: an H200 trains 8B at 14,190 "
                        "tokens/s (docs/measurements/gpu.md)", **number)
    parser.add_argument("--hbm", default=3350, help="GB/s of memory: H100 SXM's data sheet", **number)
    parser.add_argument("--hbm-share", default=80, help="%% of it in decoding: assumed", **number)
    parser.add_argument("--memory", default=60, help="GB for weights: 80 without the rest of the "
                        "plan (docs/memory.md)", **number)
    parser.add_argument("--per-host", type=int, default=8, help="GPUs of a host")
    parser.add_argument("--nvlink", default=450, help="GB/s into a GPU: half of NVLink 4's 900", **number)
    parser.add_argument("--nic", default=50, help="GB/s into a GPU: 400 Gb/s InfiniBand", **number)
    parser.add_argument("--link-share", default=80, help="%% of a link that a collective attains: "
                        "assumed; NCCL attains 46 to 48 GB/s of a 400 Gb/s port with large messages "
                        "(github.com/NVIDIA/nccl-tests, issue 290)", **number)
    parser.add_argument("--nvlink-us", default=10, help="of a collective inside a host: assumed", **number)
    parser.add_argument("--nic-us", default=30, help="more, each time the number of hosts doubles: "
                        "assumed", **number)
    parser.add_argument("--round-us", default=100, help="of all ranks agreeing on the host: assumed",
                        **number)
    parser.add_argument("--tokens", default="131072,1048576", help="of a training step",
                        type=lambda text: [int(part) for part in text.split(",")])
    parser.add_argument("--length", type=int, default=2048, help="of a sequence")
    parser.add_argument("--pass-tokens", type=int, default=4096, help="of a pass on a rank, at most: the "
                        "largest token_budget")
    parser.add_argument("--adapters", type=int, default=1, help="that share the tokens of a step, each "
                        "with an optim_step of its own")
    parser.add_argument("--rows", type=int, default=64, help="of a decode pass")
    return parser.parse_args(argv)


def machine_of(args):
    link = args.link_share / 100
    return Machine(flops=args.peak * 1e12 * args.mfu / 100, read=args.hbm * 1e9 * args.hbm_share / 100,
                   memory=args.memory * 1e9, per_host=args.per_host, nvlink=args.nvlink * 1e9 * link,
                   nic=args.nic * 1e9 * link, nvlink_seconds=args.nvlink_us * 1e-6,
                   nic_seconds=args.nic_us * 1e-6, round_seconds=args.round_us * 1e-6)


def main(argv=None):
    args = parse(argv)
    if args.measured:
        return print_measured()
    machine = machine_of(args)
    for print_table in (print_training, print_missed, print_decode):
        print_table(args, machine)
        print()


if __name__ == "__main__":
    main()
