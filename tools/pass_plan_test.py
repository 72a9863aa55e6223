"""The plan of passes: its constants and figures are the worker's."""

import pathlib
import re

import pass_plan
import pytest
from pass_plan import Lora, Pass
from scaling_model import BACKWARD_COST, MEASURED_ROWS, SHAPES, STEP_SECONDS, axes, base_weights
from support import rank_traffic as formula

WORKER = pathlib.Path(__file__).resolve().parents[1] / "services/worker"
USABLE = 0.9 * 84.5e9


def constants(file):
    """{name: value} of the constants of a C++ file, as text of Python."""
    text = (WORKER / file).read_text(encoding="utf-8")
    found = re.findall(r"^constexpr (?:int64_t|double) k(\w+) = ([^;]+);", text, re.M)
    return {re.sub(r"(?<!^)(?=[A-Z])", "_", name).upper(): re.sub(r"int64_t\{(\d+)\}", r"\1", value)
            for name, value in found}


def test_constants_are_those_of_the_worker():
    plan, memory = constants("executor/startup/memory_plan.cc"), constants("training/pass_memory.cc")
    ours = {name: value for name, value in vars(pass_plan).items() if re.fullmatch("[A-Z][A-Z_]+", name)}
    # kFloat and kBf16 are sizes of types.
    shared = {name: value for name, value in {**plan, **memory}.items() if name in ours and name != "BF16"}
    assert len(shared) == 16
    assert {name: eval(value, {}) for name, value in shared.items() if "sizeof" not in value} == {
        name: ours[name] for name, value in shared.items() if "sizeof" not in value}
    assert "max_lora_rank = 512;" in (WORKER / "ops/reports.h").read_text(encoding="utf-8")
    assert pass_plan.MAX_LORA_RANK == 512
    rate = constants("executor/planning/step_rate.cc")
    assert (eval(rate["MEASURED_TOKENS"]), eval(rate["BACKWARD_COST"])) == (MEASURED_ROWS, BACKWARD_COST)
    loaded = (WORKER / "executor/startup/loaded_base.cc").read_text(encoding="utf-8")
    assert f"absl::Milliseconds({1e3 * STEP_SECONDS:.0f})" in loaded


# Results of PlanMemory itself for these shapes: arena_bytes, token_budget, num_checkpointed, rows of a chunk.
@pytest.mark.parametrize("model, mesh, samples, expected", [
    ("8B", "dp 8", False, (41580497191, 4096, 0, 256)),
    ("8B", "dp 8", True, (23209637530, 4096, 0, 256)),
    ("8B", "fsdp 64", True, (29498537626, 4096, 0, 4096)),
    ("8B", "tp 8", False, (51613770432, 4096, 0, 883)),
    ("32B", "dp 8", True, (3197145140, 512, 39, 164)),
    ("32B", "dp 4 x fsdp 2", False, (29380079501, 2048, 0, 2048)),
    ("32B", "dp 4 x fsdp 2", True, (15882293300, 1024, 0, 1024)),
    ("32B", "fsdp 8", False, (46579838861, 2048, 0, 2048)),
    ("32B", "fsdp 8", True, (25710727220, 2048, 0, 620)),
    ("32B", "fsdp 64", False, (51596435341, 4096, 0, 1190)),
    ("32B", "fsdp 64", True, (28577353780, 2048, 0, 1799)),
    ("32B", "dp 4 x tp 2", True, (16699501006, 2048, 0, 256)),
    ("32B", "dp 2 x fsdp 2 x tp 2", False, (41213587341, 4096, 0, 4096))])
def test_plans_are_those_of_the_worker(model, mesh, samples, expected):
    assert pass_plan.plan(SHAPES[model], axes(mesh), USABLE, 4096, samples)[:4] == expected


def test_a_layer_that_takes_long_bounds_passes_too():
    mesh = axes("dp 8")
    budgets = [pass_plan.plan(SHAPES["8B"], mesh, USABLE, tokens).token_budget for tokens in (7, 1024, 1 << 20)]
    assert budgets == [512, 1024, 4096]


def test_too_little_memory_is_refused():
    assert pass_plan.plan(SHAPES["32B"], axes("dp 8"), 60e9, 4096) is None
    assert pass_plan.plan(SHAPES["8B"], axes("dp 8"), 60e9, 4096) is not None


def test_a_rank_of_fsdp_holds_what_one_had_when_it_was_measured():
    """docs/measurements/ranks.md: all but the vectors, which are less than 0.1 MB."""
    shape = formula.Shape(8, 1024, 2048, 1024, 3072, 151936)
    for mesh, measured in (({}, 562_900_992), ({"fsdp": 2}, 306_655_232)):
        weights = formula.BaseWeights(shape, mesh, formula.BF16)
        assert 0 <= measured - weights.held_bytes() < 1e5
    assert base_weights(SHAPES["8B"], axes("dp 8")).held_bytes() == 2 * (
        SHAPES["8B"].linears() + 2 * 151936 * 4096)


def passes_of(model, mesh, sequences, length=2048, tokens_per_step=4096, samples=False, **more):
    planned = pass_plan.plan(SHAPES[model], axes(mesh), USABLE, tokens_per_step, samples)
    return pass_plan.passes(planned, SHAPES[model], axes(mesh), sequences, length, **more)


def test_passes_have_the_sequences_that_the_budget_allows():
    assert passes_of("8B", "dp 8", 64) == [Pass(4096, chunks=16)] * 4
    assert passes_of("8B", "dp 8", 40) == [Pass(4096, chunks=16)] * 2 + [Pass(2048, chunks=8)]
    assert passes_of("8B", "tp 8", 2) == [Pass(4096, chunks=5)]
    # 43 sequences of 3,000 tokens are the budget of 32 ranks: some get two.
    assert passes_of("8B", "dp 32", 43, length=3000) == [Pass(6000, chunks=24)]


def test_sequences_longer_than_the_budget_leave_ranks_idle():
    # 4 x 1,024 tokens are two sequences.
    assert passes_of("8B", "dp 4", 4, tokens_per_step=1024) == [Pass(2048, chunks=8, idle=2)] * 2


def test_layers_are_computed_twice_where_a_sequence_does_not_fit_otherwise():
    (a_pass,) = passes_of("32B", "tp 8", 1, length=16384)
    planned = pass_plan.plan(SHAPES["32B"], axes("tp 8"), USABLE, 4096)
    gradients = 4 * SHAPES["32B"].lora(32, True, tp=8)

    def fits(layers):
        return planned.memory.bytes(16384, 32, gradients=gradients, checkpointed=layers) <= planned.arena

    assert 0 < a_pass.checkpointed < 64
    assert fits(a_pass.checkpointed) and not fits(a_pass.checkpointed - 1)
    assert passes_of("32B", "dp 4 x fsdp 2", 8, length=65536) is None


def test_gradients_take_room_of_sequences():
    """A sum that several passes add to has two buffers, each of 1.1 GB."""
    assert [a_pass.idle for a_pass in passes_of("32B", "fsdp 8", 16, samples=True)] == [1, 1, 6]
    assert passes_of("32B", "fsdp 8", 16, samples=True, lora=Lora(1, False)) == [Pass(2048, 4)] * 2
