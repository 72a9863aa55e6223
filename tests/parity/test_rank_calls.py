"""Ranks call what the formulas of tests/support/rank_traffic.py say: how often, with how many bytes, and
what of it runs beside other work. Counted on emulated GPUs, as tools/scaling_model.py takes it."""

import json
import math
import os
import subprocess
import sys

import pytest
import torch
from parity_setup import BIN
from safetensors.torch import save_file

sys.path.insert(0, os.path.join(os.path.dirname(__file__), ".."))
from support import rank_traffic as formula  # noqa: E402

TINY = {"layers": 2, "hidden": 64, "heads": 4, "kv_heads": 4, "head_dim": 16, "mlp": 96, "vocab": 320,
        "tied": True, "bf16": False, "lora_rank": 4, "head_rows": 1000, "lengths": [16] * 8,
        "mesh": {"dp": 1, "fsdp": 1, "tp": 1}}
MESHES = [{"tp": 2}, {"tp": 4}, {"dp": 2}, {"fsdp": 2}, {"fsdp": 4}, {"dp": 2, "fsdp": 2},
          {"dp": 2, "tp": 2}, {"fsdp": 2, "tp": 2}, {"dp": 2, "fsdp": 2, "tp": 2}]
# Each changes one quantity that the formulas have, under a mesh that has it.
CHANGES = [{"layers": 5}, {"hidden": 128}, {"mlp": 160, "vocab": 512}, {"lengths": [8] * 8},
           {"lengths": [8] * 16}, {"lora_rank": 8}, {"tied": False}, {"head_rows": 8},
           {"heads": 8, "layers": 3}, {"bf16": True, "head_dim": 64}]
ALL_AXES = {"dp": 2, "fsdp": 2, "tp": 2}
CASES = [*({"mesh": mesh} for mesh in MESHES), *({"mesh": ALL_AXES, **change} for change in CHANGES),
         # Two buckets of gradients.
         {"mesh": {"dp": 2}, "vocab": 16384, "lora_rank": 500, "lengths": [4, 4]},
         {"mesh": {"dp": 4, "fsdp": 4, "tp": 4}, "lengths": [5] * 32}]


def write_folder(folder, case):
    """A Qwen3 of the case's shape."""
    hidden, mlp, head = case["hidden"], case["mlp"], case["head_dim"]
    q, kv = case["heads"] * head, case["kv_heads"] * head
    shapes = {"embed_tokens": (case["vocab"], hidden), "norm": (hidden,)}
    for layer in range(case["layers"]):
        shapes |= {f"layers.{layer}.{name}": shape for name, shape in {
            "input_layernorm": (hidden,), "post_attention_layernorm": (hidden,),
            "self_attn.q_norm": (head,), "self_attn.k_norm": (head,),
            "self_attn.q_proj": (q, hidden), "self_attn.k_proj": (kv, hidden),
            "self_attn.v_proj": (kv, hidden), "self_attn.o_proj": (hidden, q),
            "mlp.gate_proj": (mlp, hidden), "mlp.up_proj": (mlp, hidden),
            "mlp.down_proj": (hidden, mlp)}.items()}
    names = {f"model.{name}.weight": shape for name, shape in shapes.items()}
    if not case["tied"]:
        names["lm_head.weight"] = (case["vocab"], hidden)
    generator = torch.Generator().manual_seed(3)
    dtype = torch.bfloat16 if case["bf16"] else torch.float32
    save_file({name: (0.25 * torch.randn(shape, generator=generator)).to(dtype)
               for name, shape in names.items()}, folder / "model.safetensors")
    (folder / "config.json").write_text(json.dumps({
        "model_type": "qwen3", "hidden_act": "silu", "num_hidden_layers": case["layers"],
        "hidden_size": hidden, "intermediate_size": mlp, "num_attention_heads": case["heads"],
        "num_key_value_heads": case["kv_heads"], "head_dim": head, "vocab_size": case["vocab"],
        "max_position_embeddings": 512, "rms_norm_eps": 1e-6, "rope_theta": 1e4,
        "tie_word_embeddings": case["tied"]}))


@pytest.fixture
def count(tmp_path):
    """count(case) -> (the case in full, what each rank called)."""
    def run(case):
        case = {**TINY, **case, "folder": str(tmp_path)}
        case["mesh"] = {**TINY["mesh"], **case["mesh"]}
        write_folder(tmp_path, case)
        file = tmp_path / "case.json"
        file.write_text(json.dumps(case))
        done = subprocess.run([BIN / "lathe_rank_calls_driver", file], capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        return case, json.loads(done.stdout)

    return run


def check(counted, expected):
    """A call's bytes are rounded up."""
    assert {axis: {call: of_call["calls"] for call, of_call in calls.items()}
            for axis, calls in counted.items()} == {
        axis: {call: moved.calls for call, moved in calls.items()} for axis, calls in expected.items()}
    for axis, calls in expected.items():
        for call, moved in calls.items():
            received = counted[axis][call]["bytes"]
            assert moved.bytes <= received < moved.bytes + moved.calls, (axis, call)


def hidden(counted):
    return {call: (of_call["hidden_calls"], of_call["hidden_bytes"])
            for calls in counted.values() for call, of_call in calls.items() if of_call["hidden_calls"]}


@pytest.mark.parametrize("case", CASES, ids=str)
def test_ranks_call_what_the_formulas_say(count, case):
    case, ranks = count(case)
    mesh = case["mesh"]
    assert len(ranks) == math.prod(mesh.values())
    shape = formula.Shape(case["layers"], case["hidden"], case["heads"] * case["head_dim"],
                          case["kv_heads"] * case["head_dim"], case["mlp"], case["vocab"], case["tied"])
    data = mesh["dp"] * mesh["fsdp"]
    tokens = sum(case["lengths"]) // data
    chunks = math.ceil(tokens / case["head_rows"])
    weights = formula.BaseWeights(shape, mesh, formula.BF16 if case["bf16"] else formula.FP32,
                                  panel_rows=1)
    weights.uses(2 * chunks)  # that of the first pass
    uses = weights.uses(2 * chunks)
    of_pass = formula.add(formula.forward_backward(shape, tokens, mesh, chunks=chunks),
                          formula.moved_by(uses))
    of_step = formula.add(formula.optim_step(shape, case["lora_rank"], mesh))
    for rank in ranks:
        check(rank["pass"], of_pass)
        check(rank["step"], of_step)
        # Gathers of base weights, one block ahead, are all that a rank does not wait for at once.
        ahead = [use.ahead for use in uses if use.ahead.calls]
        expected = {"base weights": (len(ahead), sum(moved.bytes for moved in ahead))} if ahead else {}
        assert hidden(rank["pass"]) == expected
        assert hidden(rank["step"]) == {}
        assert rank["units"] == formula.units(case["layers"], chunks)
        assert rank["waits"] == formula.waits(mesh, chunks)
