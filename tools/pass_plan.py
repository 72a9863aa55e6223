"""The passes of training that a worker on a GPU plans, by the formulas of the worker:
services/worker/executor/startup/memory_plan.cc (memory, token_budget), services/worker/training/pass_memory.cc
(bytes of a pass) and micro_batches.cc (sequences of a pass). tools/scaling_model.py takes passes from here.

For bf16, heads of 128, layers that are all alike and norms as in Qwen3. Leaves out bounds that do not bind on a
GPU with 80 GB: that of the cache by the context, and vectors of the base model.
"""

import math
import pathlib
import sys
from typing import NamedTuple

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "tests"))
from support import rank_traffic as formula  # noqa: E402

# Constants of the C++ files; tools/pass_plan_test.py compares them.
PROCESS_BYTES = 256 << 20
CACHE_SHARE, ADAPTER_SHARE = 0.3, 0.3
PREFILL_TOKENS, RUNNING_SAMPLES = 2048, 256
HEAD_ROWS, MIN_HEAD_ELEMENTS, ARENA_PER_HEAD_BYTE = 256, 1 << 24, 16
MIN_TOKEN_BUDGET, MAX_TOKEN_BUDGET = 512, 4096
MOST_MULTIPROCESSORS, FLASH_TILE_ROWS = 160, 128
INDEX_BYTES_PER_TOKEN, BYTES_PER_ENTRY, TORCH_ATTENTION_TILE = 48, 128, 256 * 4
MAX_LORA_RANK = 512

HEAD_DIM = 128
BF16, FP32 = formula.BF16, formula.FP32
BYTES_PER_HEAD_ELEMENT = 2 * FP32


class Lora(NamedTuple):
    """On all linears."""
    rank: int = 32
    unembed: bool = True


class Pass(NamedTuple):
    tokens: int  # of the data rank that has most
    chunks: int  # of the head
    checkpointed: int = 0  # layers that are computed twice
    idle: int = 0  # data ranks without a sequence


class PassMemory:
    """Most bytes of a pass on a rank."""

    def __init__(self, shape, mesh, head_elements):
        tp, h = mesh["tp"], shape.hidden
        q, kv, mlp = shape.q // tp, shape.kv // tp, shape.mlp // tp
        heads = q // HEAD_DIM
        flash_row = FP32 * heads * (HEAD_DIM + 1)
        attention = (BF16 * (5 * q + 6 * kv) + math.ceil(MOST_MULTIPROCESSORS / heads) * flash_row
                     + 2 * BF16 * heads * HEAD_DIM)
        self.layers = shape.layers
        self.head = BYTES_PER_HEAD_ELEMENT * max(head_elements, shape.vocabulary_of(tp))
        # The plan gives sampling passes room for fp32 and for scores.
        self.forward = FP32 * (6 * h + 4 * (q + kv + mlp) + TORCH_ATTENTION_TILE * heads)
        self.backward = FP32 * 7 * h + max(BF16 * 5 * mlp, attention)
        self.saved = FP32 * (2 * h + heads) + BF16 * 2 * (q + kv + mlp)
        self.checkpoint = FP32 * h
        self.sequence = FLASH_TILE_ROWS * flash_row
        self.flash = self.sequence * MOST_MULTIPROCESSORS // heads

    def bytes(self, tokens, lora_rank, sequences=1, gradients=0, checkpointed=0, targets=None):
        """With gradients; `gradients`: bytes of their buffers."""
        kept = checkpointed * self.checkpoint + max(self.layers - checkpointed, 1) * self.saved
        per_token = INDEX_BYTES_PER_TOKEN + self.backward + FP32 * 6 * lora_rank + kept
        return (self.head + (tokens if targets is None else targets) * BYTES_PER_ENTRY + gradients
                + self.flash + sequences * self.sequence + tokens * per_token)

    def forward_bytes(self, tokens):
        return self.head + tokens * (INDEX_BYTES_PER_TOKEN + self.forward + FP32 * 6 * MAX_LORA_RANK)

    def fewest_checkpointed(self, limit, *shape_of_pass, **more):
        """With which a pass fits `limit`; None if it does not."""
        return next((layers for layers in range(self.layers + 1)
                     if self.bytes(*shape_of_pass, **more, checkpointed=layers) <= limit), None)


class Plan(NamedTuple):
    arena: int  # bytes
    token_budget: int
    checkpointed: int  # of a pass of token_budget
    head_rows: int  # of a chunk
    memory: PassMemory


def plan(shape, mesh, usable, tokens_per_step, samples=False):
    """Of a rank with `usable` bytes, in a group that trains and, if `samples`, also samples. None if the worker
    refuses to start."""
    vocab = shape.vocabulary_of(mesh["tp"])
    rest = int(usable) - PROCESS_BYTES - formula.BaseWeights(shape, mesh, BF16, panel_rows=1).held_bytes()
    if samples:
        rest -= PassMemory(shape, mesh, RUNNING_SAMPLES * vocab).forward_bytes(PREFILL_TOKENS)
    arena = rest - int(rest * CACHE_SHARE if samples else 0) - int(rest * ADAPTER_SHARE)
    head = min(max(arena // (ARENA_PER_HEAD_BYTE * BYTES_PER_HEAD_ELEMENT), vocab),
               max(HEAD_ROWS * vocab, MIN_HEAD_ELEMENTS))
    memory = PassMemory(shape, mesh, head)

    def checkpointed(tokens):
        return memory.fewest_checkpointed(arena, tokens, MAX_LORA_RANK)

    if checkpointed(MIN_TOKEN_BUDGET) is None:
        return None
    budget = min(max(tokens_per_step, MIN_TOKEN_BUDGET), MAX_TOKEN_BUDGET)
    while budget > MIN_TOKEN_BUDGET and checkpointed(budget) != 0:
        budget //= 2
    if mesh["fsdp"] > 1:
        room = arena - memory.bytes(budget, MAX_LORA_RANK, checkpointed=checkpointed(budget))
        head = max(head, min(head + room // 2 // BYTES_PER_HEAD_ELEMENT, budget * vocab))
    return Plan(arena, budget, checkpointed(budget), head // vocab, PassMemory(shape, mesh, head))


def passes(planned, shape, mesh, sequences, length, lora=Lora(), adapters=1):
    """Of a step of that many sequences. `adapters` share them. None if a sequence does not fit the arena."""
    memory, arena = planned.memory, planned.arena
    data = mesh["dp"] * mesh["fsdp"]
    of_small = memory.fewest_checkpointed(arena, min(planned.token_budget, MIN_TOKEN_BUDGET), 0)
    empty = memory.bytes(0, 0, sequences=0, checkpointed=of_small)
    of_sequence = memory.bytes(length, lora.rank, checkpointed=of_small) - empty
    by_tokens = max(1, data * planned.token_budget // length)
    sums = min(adapters, math.ceil(by_tokens * adapters / sequences)) * FP32 * shape.lora(*lora, mesh["tp"])

    def most_with(gradients):
        # A pass may have as much as all ranks hold together.
        return max(1, min(by_tokens, data * (arena - empty - gradients) // of_sequence))

    # A sum that several passes add to has a second buffer.
    gradients = sums if sequences // adapters <= most_with(sums) else 2 * sums
    most = most_with(gradients)
    result = []
    for begin in range(0, sequences, most):
        here = min(most, sequences - begin)
        of_rank = math.ceil(here / data)
        checkpointed = memory.fewest_checkpointed(arena, of_rank * length, lora.rank, of_rank, gradients)
        if checkpointed is None:
            return None
        result.append(Pass(of_rank * length, math.ceil(of_rank * length / planned.head_rows), checkpointed,
                           max(0, data - here)))
    return result
