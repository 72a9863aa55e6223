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
from collections import Counter
from dataclasses import dataclass

import pass_plan
from pass_plan import Lora, Pass, formula

GOAL = 0.05  # of a step, exposed
PARTS = ("compute", "dp", "fsdp", "tp", "rounds")  # of a step's seconds
# From services/worker/executor/planning/step_rate.cc: a worker times a layer with so many rows, and a backward step
# takes so much longer. On a GPU it times 2,048 rows, which this model does not follow yet. A step of a layer may take
# so many seconds.
MEASURED_ROWS, BACKWARD_COST, STEP_SECONDS = 256, 1.5, 0.02
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
    memory: float  # of a device, bytes that a worker plans with
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


def flops_per_token(shape, length, lora):
    """Forward and backward, causal attention over `length` tokens."""
    return 4 * numbers(shape) + 6 * shape.lora(*lora) + 7 * shape.layers * shape.q * length


class Compute:
    """Seconds of a pass of `tokens` tokens on a rank, by block of base weights."""

    def __init__(self, machine, shape, mesh, tokens, length, lora=Lora(), checkpointed=0):
        self.seconds_of_flop = tokens / mesh["tp"] / machine.flops
        self.shape, self.length = shape, length
        self.lora = shape.lora(*lora) / numbers(shape)
        self.all = (flops_per_token(shape, length, lora) * self.seconds_of_flop
                    + checkpointed * self.recompute())

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

    def recompute(self):
        """Of a layer, which leaves out the product with the last matrix."""
        return self.block("forward", 0) + self.block("forward", 1)

    def head(self, is_backward):
        return self._flops(self.shape.vocab * self.shape.hidden, 0, is_backward) * self.seconds_of_flop


def base_weights(shape, mesh):
    return formula.BaseWeights(shape, mesh, formula.BF16, panel_rows=1)


def fsdp_seconds(link, shape, mesh, compute, a_pass, change):
    """(exposed, hidden) of the gathers of a pass. A block is gathered while the one before it
    computes. Sums of tp that run meanwhile hide nothing here."""
    weights = base_weights(shape, mesh)
    pieces = len(weights.head)
    exposed = hidden = 0
    is_backward_half = False
    for use in weights.uses(2 * a_pass.chunks, a_pass.checkpointed):
        if use.step == "embed":
            seconds = 0
        elif use.step == "head":
            # Halves of chunks alternate.
            seconds = compute.head(is_backward_half) / a_pass.chunks / pieces
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


def tokens_per_step(machine, shape, mesh):
    """Largest pass whose layers take no longer than they may, by the time of a layer with its collectives that a
    worker takes at its start. A power of two."""
    compute = Compute(machine, shape, mesh, MEASURED_ROWS, MEASURED_ROWS, Lora(0, False))
    seconds = compute.layer("forward")
    if mesh["fsdp"] > 1:
        link = link_of(machine, mesh["fsdp"], mesh["tp"])
        for use in base_weights(shape, mesh).uses_of_layer():
            seconds += link.time(use.waited)
            seconds += max(0, link.time(use.ahead) - compute.block("forward", use.block))
    if mesh["tp"] > 1:
        sums = formula.all_reduce(mesh["tp"], formula.FP32 * MEASURED_ROWS * shape.hidden) * 2
        seconds += link_of(machine, mesh["tp"], 1).time(sums)
    return 2 ** math.floor(math.log2(STEP_SECONDS / (seconds / MEASURED_ROWS) / BACKWARD_COST))


def round_seconds(machine, compute, shape, a_pass, change):
    """Exposed, of the rounds before the units of a pass. The device has one unit queued, so it works
    during a round, unless the host has just waited for it: after each chunk of the head, at the
    pass's end, and when the ranks have agreed on the next pass's steps."""
    waits = a_pass.chunks + 2
    behind = ([compute.layer("forward")] * shape.layers + [compute.layer("backward")] * shape.layers
              + [compute.recompute()] * a_pass.checkpointed)
    short = sum(max(0, machine.round_seconds - seconds) for seconds in behind)
    return (waits * machine.round_seconds + short) / change.units_a_round


@dataclass(frozen=True)
class Work:
    """Of a training step."""
    passes: tuple[Pass, ...]
    length: int  # of a sequence
    adapters: int = 1  # that share the passes, each with an optim_step of its own
    lora: Lora = Lora()


def pass_seconds(machine, shape, mesh, a_pass, work, change):
    """(seconds of one pass by part, what is hidden)"""
    tokens, chunks = a_pass.tokens, a_pass.chunks
    tp, fsdp, data = mesh["tp"], mesh["fsdp"], mesh["dp"] * mesh["fsdp"]
    compute = Compute(machine, shape, mesh, tokens, work.length, work.lora, a_pass.checkpointed)
    of_pass = formula.forward_backward(shape, tokens, mesh, a_pass.checkpointed, chunks)
    parts, hidden = dict.fromkeys(PARTS, 0) | {"compute": compute.all}, 0
    if tp > 1:
        link = link_of(machine, tp, 1)
        moved = formula.total({"tp": of_pass["tp"]})
        moved = moved._replace(bytes=moved.bytes * change.tp_bytes)
        if change.tp_beside:
            twice = moved._replace(calls=2 * moved.calls)
            parts["tp"] = max(link.time(twice) - compute.all, link.time(moved) / moved.calls)
        else:
            parts["tp"] = link.time(moved)
    if fsdp > 1:
        link = link_of(machine, fsdp, tp)
        parts["fsdp"], hidden = fsdp_seconds(link, shape, mesh, compute, a_pass, change)
    if data > 1:
        parts["dp"] = link_of(machine, data, tp).time(formula.total({"": of_pass[formula.DATA]}))
    if tp * data > 1:
        parts["rounds"] = round_seconds(machine, compute, shape, a_pass, change)
    return parts, hidden


def training(machine, shape, mesh, work, change=Change()):
    """Seconds of a step: {"compute", and what is exposed of "dp", "fsdp", "tp", "rounds"}, and what
    is hidden."""
    tp, data, adapters = mesh["tp"], mesh["dp"] * mesh["fsdp"], work.adapters
    sums, hidden = dict.fromkeys(PARTS, 0), 0
    for a_pass, times in Counter(work.passes).items():
        parts, beside = pass_seconds(machine, shape, mesh, a_pass, work, change)
        sums = {part: sums[part] + times * parts[part] for part in PARTS}
        hidden += times * beside
    of_step = formula.optim_step(shape, work.lora.rank, mesh, work.lora.unembed)
    if tp > 1:
        sums["tp"] += adapters * link_of(machine, tp, 1).time(formula.total({"tp": of_step["tp"]}))
    if data > 1:
        gradients = of_step[formula.DATA]["data gradients"]
        gradients = gradients._replace(bytes=gradients.bytes * change.dp_bytes)
        seconds = adapters * link_of(machine, data, tp).time(gradients)
        last = Compute(machine, shape, mesh, work.passes[-1].tokens, work.length, work.lora)
        beside = min(seconds, shape.layers * last.layer("backward")) if change.dp_beside else 0
        hidden += beside
        sums["dp"] += seconds - beside
    if tp * data > 1:
        # An optimizer's step compares the weights of all ranks on the host.
        sums["rounds"] += 2 * adapters * machine.round_seconds
    return sums, hidden


def share_exposed(parts):
    return 1 - parts["compute"] / sum(parts.values())


def decode(machine, shape, tp, rows):
    """Seconds of a pass by part."""
    read = 2 * numbers(shape) / tp / machine.read
    moved = formula.total(formula.decode(shape, rows, {"tp": tp}, whole_rows=True))
    return {"compute": read, "tp": link_of(machine, tp, 1).time(moved),
            "rounds": machine.round_seconds if tp > 1 else 0}


def work_of(args, machine, shape, mesh, tokens):
    """A step of that many tokens in the passes that a worker plans. None if it cannot run, or if data ranks have
    no sequence."""
    sequences = tokens // args.length
    rows = tokens_per_step(machine, shape, mesh)
    planned = pass_plan.plan(shape, mesh, machine.memory, rows, samples=args.role == "both")
    if planned is None or sequences < mesh["dp"] * mesh["fsdp"]:
        return None
    passes = pass_plan.passes(planned, shape, mesh, sequences, args.length, Lora(), args.adapters)
    return passes and Work(tuple(passes), args.length, args.adapters)


def cases(args, machine):
    """(model, devices, mesh, tokens of a step, work) of each row."""
    for (model, devices), meshes in MESHES.items():
        for tokens in args.tokens:
            for name in meshes:
                assert math.prod(axes(name).values()) == devices, name
                if work := work_of(args, machine, SHAPES[model], axes(name), tokens):
                    yield model, devices, name, tokens, work


def text_of(passes):
    """ "4 x 4,096" """
    texts = []
    for a_pass, times in Counter(passes).items():
        text = f"{times} x {a_pass.tokens:,}"
        text += f", {a_pass.checkpointed} layers twice" if a_pass.checkpointed else ""
        text += f", {a_pass.idle} ranks idle" if a_pass.idle else ""
        texts.append(text)
    return "; ".join(texts)


def print_training(args, machine):
    print("| model | GPUs | mesh | tokens a step | passes | tokens/s | compute | hidden | exposed: dp, fsdp, tp, "
          "rounds | exposed | goal |")
    print("|" + "---|" * 11)
    for model, devices, name, tokens, work in cases(args, machine):
        parts, hidden = training(machine, SHAPES[model], axes(name), work)
        by_part = ", ".join(f"{1e3 * parts[part]:.1f}" for part in PARTS[1:])
        share = share_exposed(parts)
        print(f"| {model} | {devices} | {name} | {tokens:,} | {text_of(work.passes)} | "
              f"{tokens / sum(parts.values()):,.0f} | {1e3 * parts['compute']:,.0f} ms | "
              f"{1e3 * hidden:,.0f} ms | {by_part} ms | {100 * share:.1f} % | "
              f"{'met' if share <= GOAL else '**missed**'} |")


CHANGES = {
    "dp": {"sums of gradients beside the last backward pass": Change(dp_beside=True),
           "gradients in bf16": Change(dp_bytes=0.5)},
    "tp": {"sums in bf16": Change(tp_bytes=0.5),
           "two halves of a pass in turn": Change(tp_beside=True)},
    "fsdp": {"rows of the embedding instead of all": Change(embeds_rows=True)},
    "rounds": {"a round for four units": Change(units_a_round=4)},
}
ALL_CHANGES = Change(True, 0.5, 0.5, True, True, 4)


def mends(args, machine, shape, mesh, tokens, work):
    """(what would help, the exposed share then), for the parts that alone take half of the goal."""
    parts, _ = training(machine, shape, mesh, work)
    step = sum(parts.values())

    def then(change):
        return share_exposed(training(machine, shape, mesh, work, change)[0])

    for part, changes in CHANGES.items():
        if parts[part] >= GOAL / 2 * step:
            for what, change in changes.items():
                yield what, then(change)
    yield "all of these changes", then(ALL_CHANGES)
    for times in (2, 4, 8, 16):
        larger = work_of(args, machine, shape, mesh, times * tokens)
        if larger and (share := share_exposed(training(machine, shape, mesh, larger)[0])) <= GOAL:
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
                          for what, then in mends(args, machine, shape, mesh, tokens, work))
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
    shape, lora = formula.Shape(8, 1024, 2048, 1024, 3072, 151936), Lora(8, unembed=False)
    seconds = 1024 / 333
    flops = 1024 * flops_per_token(shape, 128, lora) / seconds
    core = Machine(flops, 0, 0, 2, 3e9, 3e9, 5e-6, 0, 20e-6)
    of_pass = Pass(tokens=512, chunks=2)
    for name, passes in (("dp 2", (of_pass,)), ("tp 2", (of_pass, of_pass))):
        parts, _ = training(core, shape, axes(name), Work(passes, 128, lora=lora))
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
    parser.add_argument("--memory", default=84.5, help="GB that are free when a worker starts: assumed, "
                        "of an H100 with 80 GiB", **number)
    parser.add_argument("--memory-fraction", default=0.9, help="worker.memory_fraction", **number)
    parser.add_argument("--role", choices=("train", "both"), default="train", help="of the group: one that "
                        "also samples has less memory for passes (docs/memory.md)")
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
    parser.add_argument("--adapters", type=int, default=1, help="that share the tokens of a step, each "
                        "with an optim_step of its own")
    parser.add_argument("--rows", type=int, default=64, help="of a decode pass")
    return parser.parse_args(argv)


def machine_of(args):
    link = args.link_share / 100
    return Machine(flops=args.peak * 1e12 * args.mfu / 100, read=args.hbm * 1e9 * args.hbm_share / 100,
                   memory=args.memory * 1e9 * args.memory_fraction, per_host=args.per_host,
                   nvlink=args.nvlink * 1e9 * link, nic=args.nic * 1e9 * link, nvlink_seconds=args.nvlink_us * 1e-6,
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
