"""Groups of ranks against one rank, as test_ranks.py compares them, with a model of each family."""

import functools

import make_tiny_model
import pytest
from families import FAMILIES, SPECIAL
from support.rank_service import RankService
from test_ranks import LAYERS, Run, check_same, run_with_a_kill
from tinker import types

STEPS = 3
# With the epsilon of test_ranks.py, rounding alone moves a matrix of Qwen2 by 1e-5: PEFT in fp32
# ends that far from PEFT in fp64. With this one it is 6e-7.
ADAM = types.AdamParams(learning_rate=1e-3, eps=1e-2)
# A rank that is killed, and the mesh of its group.
KILLS = {"tp 2": (1, {"tp": 2}), "fsdp 2": (0, {"fsdp": 2})}
# Two KV heads over four ranks, where neighbours hold the same one; copies of the model; three of
# nine heads.
SPLITS = [*((family, mesh) for family in FAMILIES for mesh in ({"tp": 4}, {"dp": 2})),
          ("llama_9_heads", {"tp": 3})]


@pytest.fixture(scope="module")
def alone(tmp_path_factory):
    """alone(variant) -> (folder, what one rank computes), at its first use."""

    @functools.cache
    def run(variant):
        folder = tmp_path_factory.mktemp("models") / variant
        arguments = {**FAMILIES, **SPECIAL}[variant]
        make_tiny_model.main(["--out", str(folder), *arguments, "--layers", LAYERS])
        with RankService(folder) as service:
            return folder, Run(service, steps=STEPS, adam=ADAM)

    return run


@pytest.mark.parametrize("mesh", KILLS)
@pytest.mark.parametrize("variant", FAMILIES)
def test_ranks_compute_what_one_rank_does_though_one_is_killed(alone, variant, mesh):
    folder, expected = alone(variant)
    killed, axes = KILLS[mesh]
    check_same(run_with_a_kill(folder, axes, killed, STEPS, ADAM), expected)


@pytest.mark.parametrize("variant, mesh", SPLITS, ids=str)
def test_heads_or_copies_are_shared_among_ranks(alone, variant, mesh):
    folder, expected = alone(variant)
    with RankService(folder, **mesh) as service:
        run = Run(service, steps=STEPS, adam=ADAM)
        assert service.exit_codes == []
    check_same(run, expected)
