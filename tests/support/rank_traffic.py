"""Calls of collectives and bytes that a rank receives by them, by formula: {axis: {call: Moved}}, under
the names that lathe_worker_collective_received_bytes_total has. docs/scaling.md explains them.
tools/scaling_model.py takes times from them.

Ranks divide heads, MLP and vocabulary evenly; `tp` is at most the number of KV heads. `mesh` is a
dict of axes, missing ones are 1. Leaves out what ranks agree on between passes (axis `control`).
"""

import json
import math
import pathlib
from dataclasses import dataclass
from typing import NamedTuple

BF16, FP32, INT64 = 2, 4, 8
DATA, ALL = "dp.fsdp", "dp.fsdp.tp"
BUCKET = 8 << 20  # numbers of a sum of gradients
VOCABULARY_MULTIPLE = 4  # of a rank's part


class Moved(NamedTuple):
    calls: int
    bytes: float

    def __mul__(self, times):
        return Moved(self.calls * times, self.bytes * times)

    def plus(self, other):
        return Moved(self.calls + other.calls, self.bytes + other.bytes)


def all_reduce(ranks, payload):
    return Moved(int(ranks > 1), 2 * payload * (ranks - 1) / ranks)


def all_gather(ranks, piece):
    """`piece`: bytes of one rank's."""
    return Moved(int(ranks > 1), piece * (ranks - 1))


def sum_in_buckets(ranks, numbers):
    return all_reduce(ranks, FP32 * numbers)._replace(
        calls=math.ceil(numbers / BUCKET) if ranks > 1 else 0)


@dataclass(frozen=True)
class Shape:
    layers: int
    hidden: int
    q: int  # heads x head size
    kv: int
    mlp: int
    vocab: int
    tied: bool = True  # embedding and head are one matrix

    @staticmethod
    def of(folder):
        config = json.loads((pathlib.Path(folder) / "config.json").read_text())
        heads = config["num_attention_heads"]
        head_dim = config.get("head_dim") or config["hidden_size"] // heads
        return Shape(config["num_hidden_layers"], config["hidden_size"], heads * head_dim,
                     config["num_key_value_heads"] * head_dim, config["intermediate_size"],
                     config["vocab_size"], config["tie_word_embeddings"])

    def linears(self):
        """Numbers in the matrices of all layers."""
        per_layer = 2 * self.q + 2 * self.kv + 3 * self.mlp
        return self.layers * self.hidden * per_layer

    def vocabulary_of(self, tp):
        """Tokens that one rank of tp has, padded."""
        return -(-self.vocab // (tp * VOCABULARY_MULTIPLE)) * VOCABULARY_MULTIPLE if tp > 1 else self.vocab

    def summed_lora(self, rank, unembed):
        """Numbers of the LoRA factors on the hidden state's side, which every rank of tp has whole:
        A of q, k, v, gate and up, B of o and down."""
        return rank * self.hidden * (7 * self.layers + int(unembed))

    def lora(self, rank, unembed, tp=1):
        """Numbers of an adapter on all linears, as one rank of tp has them."""
        cut = self.layers * (2 * self.q + 2 * self.kv + 3 * self.mlp)
        cut += self.vocab if unembed else 0
        return self.summed_lora(rank, unembed) + rank * cut // tp


def forward(shape, rows, tp):
    """Of `rows` through all layers."""
    sum_of_rows = all_reduce(tp, rows * shape.hidden * FP32)
    return {"embedding": sum_of_rows,
            "output of attention": sum_of_rows * shape.layers,
            "output of the MLP": sum_of_rows * shape.layers}


def forward_backward(shape, tokens, mesh, checkpointed_layers=0, chunks=1):
    """One pass, each token with one target. `tokens`: of the rank that has most; `chunks`: of the
    head."""
    tp, data = mesh.get("tp", 1), mesh.get("dp", 1) * mesh.get("fsdp", 1)
    sum_of_rows = all_reduce(tp, tokens * shape.hidden * FP32)
    calls = forward(shape, tokens, tp)
    # Recomputation repeats the first half of a checkpointed layer.
    calls["output of attention"] = sum_of_rows * (shape.layers + checkpointed_layers)
    calls["softmax of the head"] = all_gather(tp, 3 * tokens * 8)._replace(
        calls=chunks * int(tp > 1))
    calls["gradient of the head's input"] = sum_of_rows
    calls["gradient of the MLP's input"] = sum_of_rows * shape.layers
    calls["gradient of attention's input"] = sum_of_rows * shape.layers
    return {"tp": calls,
            DATA: {"results of a training pass": all_gather(data, 2 * tokens * FP32),
                   "steps of a training pass": all_reduce(data, 2 * INT64),
                   "outcome of a training pass": all_reduce(data, INT64)}}


def optim_step(shape, lora_rank, mesh, unembed=True):
    tp, data = mesh.get("tp", 1), mesh.get("dp", 1) * mesh.get("fsdp", 1)
    summed = sum_in_buckets(tp, shape.summed_lora(lora_rank, unembed))
    return {"tp": {"gradients": summed, "adapter sums": all_gather(tp, 8)},
            DATA: {"data gradients": sum_in_buckets(data, shape.lora(lora_rank, unembed, tp))},
            ALL: {"adapter after step": all_gather(tp * data, 4 * INT64)}}


def decode(shape, rows, mesh, draws=None, whole_rows=False):
    """`rows` through all layers, `draws` of which (default: all) get a token: what the ranks of the
    replica that has them receive. `whole_rows`: every rank gets all logits, as on GPUs and on CPUs for
    top-k and top-p. Leaves out `samples`, the finished ones."""
    tp = mesh.get("tp", 1)
    draws = rows if draws is None else draws
    drawn = ({"draws.rows": all_gather(tp, FP32 * draws * shape.vocabulary_of(tp))} if whole_rows
             else {"draws": all_gather(tp, 32 * draws)})
    return add({"tp": {**forward(shape, rows, tp), **drawn}}, sampling_pass(mesh))


def sampling_pass(mesh):
    """What the ranks of every replica receive, one without work too."""
    if mesh.get("dp", 1) == 1:
        return {}
    world = mesh["dp"] * mesh.get("fsdp", 1) * mesh.get("tp", 1)
    return {ALL: {"sampling passes": all_gather(world, 12 * INT64)}}


class Use(NamedTuple):
    """A rank uses a block of base weights in a step of a pass."""
    step: str  # "embed", "forward", "head" or "backward"
    block: int
    waited: Moved  # gathered before the use: nothing hides it
    ahead: Moved  # of a next block, which is gathered during the use


NOTHING = Moved(0, 0)


class BaseWeights:
    """Gathers of a rank of fsdp. Begins after a training pass; calls in the order of the passes.
    `number_bytes`: of a number of a matrix, whose rows are padded to `panel_rows`."""

    def __init__(self, shape, mesh, number_bytes=FP32, panel_rows=64):
        self.ranks, self.layers = mesh.get("fsdp", 1), shape.layers
        tp = mesh.get("tp", 1)

        def matrix(rows, columns):
            num_bytes = -(-rows // panel_rows) * panel_rows * columns * number_bytes
            return -(-num_bytes // 64) * 64

        layer = [matrix((shape.q + 2 * shape.kv) // tp, shape.hidden)
                 + matrix(shape.hidden, shape.q // tp),
                 matrix(2 * shape.mlp // tp, shape.hidden), matrix(shape.hidden, shape.mlp // tp)]
        vocab = shape.vocabulary_of(tp)
        piece_rows = max(1, max(layer) // matrix(64, shape.hidden)) * 64
        pieces = [matrix(min(piece_rows, vocab - row), shape.hidden)
                  for row in range(0, vocab, piece_rows)]
        self.blocks = layer * shape.layers + pieces * (1 if shape.tied else 2)
        embedding = len(layer) * shape.layers
        self.tokens = list(range(embedding, embedding + len(pieces)))
        self.head = list(range(len(self.blocks) - len(pieces), len(self.blocks)))
        self.held = [0, 1]  # by even and odd numbers

    def _gather(self, block):
        if self.held[block % 2] == block:
            return NOTHING
        self.held[block % 2] = block
        return all_gather(self.ranks, self._share(block))

    def _share(self, block):
        """Bytes of a rank's."""
        return -(-self.blocks[block] // 64 // self.ranks) * 64

    def held_bytes(self):
        """That a rank has in memory: its shares, and buffers of the largest blocks."""
        shares = [self._share(block) for block in range(len(self.blocks))]
        buffers = [self.ranks * max(shares[parity::2]) for parity in (0, 1)] if self.ranks > 1 else []
        return sum(shares) + sum(buffers)

    def _uses(self, steps):
        uses = [(step, block) for step, blocks in steps for block in blocks]
        for (step, block), following in zip(uses, [*uses[1:], (None, None)]):
            waited = self._gather(block)
            # It has room if it goes into the buffer that is not in use.
            has_room = following[1] is not None and following[1] % 2 != block % 2
            yield Use(step, block, waited, self._gather(following[1]) if has_room else NOTHING)

    def uses(self, half_chunks, checkpointed_layers=0):
        """Of a training pass. Recomputation leaves out the last block of a layer."""
        layers = [[3 * layer, 3 * layer + 1, 3 * layer + 2] for layer in range(self.layers)]
        steps = [("embed", self.tokens), *(("forward", blocks) for blocks in layers),
                 *[("head", self.head)] * half_chunks]
        for blocks in layers[::-1]:
            if blocks[0] < 3 * checkpointed_layers:
                steps.append(("forward", blocks[:2]))
            steps.append(("backward", blocks[::-1]))
        return list(self._uses(steps))

    def uses_of_layer(self):
        """Of the first layer's forward step, which ran just before too."""
        for _ in range(2):
            uses = list(self._uses([("forward", [0, 1, 2])]))
        return uses

    def forward_backward(self, half_chunks):
        return moved_by(self.uses(half_chunks))

    def decode(self):
        layers = list(range(3 * self.layers))
        return moved_by(self._uses([("embed", self.tokens), ("forward", layers),
                                    ("head", self.head)]))


def moved_by(uses):
    return add(*({"fsdp": {"base weights": use.waited.plus(use.ahead)}} for use in uses))


def add(*traffics):
    total = {}
    for traffic in traffics:
        for axis, calls in traffic.items():
            for call, moved in calls.items():
                by_call = total.setdefault(axis, {})
                by_call[call] = by_call.get(call, NOTHING).plus(moved)
    total = {axis: {call: moved for call, moved in calls.items() if moved.calls}
             for axis, calls in total.items()}
    return {axis: calls for axis, calls in total.items() if calls}


def total(traffic):
    """Of all calls."""
    sum_of_all = NOTHING
    for calls in traffic.values():
        for moved in calls.values():
            sum_of_all = sum_of_all.plus(moved)
    return sum_of_all


def units(layers, chunks):
    """Of a pass with gradients and its preparation, in two units. All ranks agree before each."""
    return 2 + 1 + layers + 2 * chunks + layers


def waits(mesh, chunks):
    """Times that a pass makes the host wait for a GPU: for the log-probabilities of each chunk of the
    head; data ranks for both numbers of the steps, the outcome and the results."""
    return chunks + (4 if mesh.get("dp", 1) * mesh.get("fsdp", 1) > 1 else 0)
