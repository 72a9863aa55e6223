"""Bytes that a rank receives from the others, by formula: {axis: {call: bytes}}, under the names that
lathe_worker_collective_received_bytes_total has. docs/scaling.md explains them.

Ranks divide heads, MLP and vocabulary evenly; `tp` is at most the number of KV heads. `mesh` is a
dict of axes, missing ones are 1. Leaves out what ranks agree on between passes (axis `control`).
"""

import json
import pathlib
from dataclasses import dataclass

FP32, INT64 = 4, 8
DATA, ALL = "dp.fsdp", "dp.fsdp.tp"


def all_reduce(ranks, payload):
    return 2 * payload * (ranks - 1) / ranks


def all_gather(ranks, piece):
    """`piece`: bytes of one rank's."""
    return piece * (ranks - 1)


@dataclass(frozen=True)
class Shape:
    layers: int
    hidden: int
    q: int  # heads x head size
    kv: int
    mlp: int
    vocab: int

    @staticmethod
    def of(folder):
        config = json.loads((pathlib.Path(folder) / "config.json").read_text())
        heads = config["num_attention_heads"]
        head_dim = config.get("head_dim") or config["hidden_size"] // heads
        return Shape(config["num_hidden_layers"], config["hidden_size"], heads * head_dim,
                     config["num_key_value_heads"] * head_dim, config["intermediate_size"],
                     config["vocab_size"])

    def linears(self):
        """Numbers in the matrices of all layers."""
        per_layer = 2 * self.q + 2 * self.kv + 3 * self.mlp
        return self.layers * self.hidden * per_layer

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
            "output of attention": shape.layers * sum_of_rows,
            "output of the MLP": shape.layers * sum_of_rows}


def forward_backward(shape, tokens, mesh, checkpointed_layers=0):
    """One pass, each token with one target. `tokens`: of the rank that has most."""
    tp, data = mesh.get("tp", 1), mesh.get("dp", 1) * mesh.get("fsdp", 1)
    sum_of_rows = all_reduce(tp, tokens * shape.hidden * FP32)
    calls = forward(shape, tokens, tp)
    # Recomputation repeats the first half of a checkpointed layer.
    calls["output of attention"] += checkpointed_layers * sum_of_rows
    calls["softmax of the head"] = all_gather(tp, 3 * tokens * 8)
    calls["gradient of the head's input"] = sum_of_rows
    calls["gradient of the MLP's input"] = shape.layers * sum_of_rows
    calls["gradient of attention's input"] = shape.layers * sum_of_rows
    results = all_gather(data, 2 * tokens * FP32)
    agreement = all_reduce(data, INT64)
    return {"tp": calls, DATA: {"results of a training pass": results,
                                "steps of a training pass": 2 * agreement,
                                "outcome of a training pass": agreement}}


def optim_step(shape, lora_rank, mesh, unembed=True):
    tp, data = mesh.get("tp", 1), mesh.get("dp", 1) * mesh.get("fsdp", 1)
    summed = all_reduce(tp, FP32 * shape.summed_lora(lora_rank, unembed))
    return {"tp": {"gradients": summed, "adapter sums": all_gather(tp, 8)},
            DATA: {"data gradients": all_reduce(data, FP32 * shape.lora(lora_rank, unembed, tp))},
            ALL: {"adapter after step": all_gather(tp * data, 4 * INT64)}}


def decode(shape, rows, mesh, draws=None):
    """`rows` through all layers, `draws` of which (default: all) get a token: what the ranks of the
    replica that has them receive. Leaves out `samples`, the finished ones."""
    tp = mesh.get("tp", 1)
    return add({"tp": {**forward(shape, rows, tp),
                       "draws": all_gather(tp, 32 * (rows if draws is None else draws))}},
               sampling_pass(mesh))


def sampling_pass(mesh):
    """What the ranks of every replica receive, one without work too."""
    if mesh.get("dp", 1) == 1:
        return {}
    world = mesh["dp"] * mesh.get("fsdp", 1) * mesh.get("tp", 1)
    return {ALL: {"sampling passes": all_gather(world, 12 * INT64)}}


class BaseWeights:
    """Gathers of a rank of fsdp, of a tied fp32 model on CPUs. Begins after a training pass; calls
    in the order of the passes."""

    def __init__(self, shape, mesh):
        self.ranks, self.layers = mesh.get("fsdp", 1), shape.layers
        def matrix(rows, columns):
            return -(-rows // 64) * 64 * columns * FP32
        layer = [matrix(shape.q + 2 * shape.kv, shape.hidden) + matrix(shape.hidden, shape.q),
                 matrix(2 * shape.mlp, shape.hidden), matrix(shape.hidden, shape.mlp)]
        piece_rows = max(layer) // matrix(64, shape.hidden) * 64
        pieces = [matrix(min(piece_rows, shape.vocab - row), shape.hidden)
                  for row in range(0, shape.vocab, piece_rows)]
        self.blocks = layer * shape.layers + pieces
        self.tokens = list(range(3 * shape.layers, len(self.blocks)))
        self.held = [0, 1]  # by even and odd numbers

    def _gather(self, blocks):
        received = 0
        for block in blocks:
            if self.held[block % 2] != block:
                share = -(-self.blocks[block] // 64 // self.ranks) * 64
                received += all_gather(self.ranks, share)
            self.held[block % 2] = block
        return {"fsdp": {"base weights": received}}

    def forward_backward(self, half_chunks):
        layers = list(range(3 * self.layers))
        return self._gather(self.tokens + layers + self.tokens * half_chunks + layers[::-1])

    def decode(self):
        return self._gather(self.tokens + list(range(3 * self.layers)) + self.tokens)


def add(*traffics):
    total = {}
    for traffic in traffics:
        for axis, calls in traffic.items():
            for call, num_bytes in calls.items():
                by_call = total.setdefault(axis, {})
                by_call[call] = by_call.get(call, 0) + num_bytes
    return {axis: {call: n for call, n in calls.items() if n} for axis, calls in total.items()
            if any(calls.values())}


def total(traffic):
    return sum(sum(calls.values()) for calls in traffic.values())
