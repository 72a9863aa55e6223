"""Ranks move what docs/scaling.md says, by their own count: a training step and a decoded token."""

import os
import sys
import time

import pytest
import tinker
from tinker import types

sys.path.insert(0, os.path.join(os.path.dirname(__file__), ".."))
from support import rank_traffic as formula  # noqa: E402
from support.lathe_server import tiny_model  # noqa: E402
from support.rank_service import RankService  # noqa: E402
from support.sdk import resolved  # noqa: E402

MESHES = [{"tp": 2}, {"dp": 2}, {"dp": 2, "tp": 2}, {"fsdp": 2}]
LORA_RANK, LENGTHS = 4, [24, 24]  # as many tokens on each rank of dp or fsdp
TOLERANCE = 0.02


def difference(after, before):
    return {axis: {call: n - before.get(axis, {}).get(call, 0) for call, n in calls.items()
                   if n != before.get(axis, {}).get(call, 0)}
            for axis, calls in after.items()}


def counted(service, run):
    """What `run` brought each rank, without what they agree on between passes."""
    before = settled(service)
    run()
    of_ranks = [difference(after, past) for after, past in zip(settled(service), before)]
    return [{axis: calls for axis, calls in traffic.items() if calls} for traffic in of_ranks]


def settled(service):
    """What each rank counted: an answer may be there before the last rank is done."""
    def read():
        of_ranks = [service.traffic(rank) for rank in range(service.world)]
        assert all(traffic.pop("control") for traffic in of_ranks)
        return of_ranks
    last = None
    while (now := read()) != last:
        last = now
        time.sleep(0.2)
    return now


def check(of_ranks, expected):
    """`expected`: of all ranks, or by replica."""
    for rank, traffic in enumerate(of_ranks):
        if isinstance(expected_here := expected, list):
            expected_here = expected[rank * len(expected) // len(of_ranks)]
        assert traffic.keys() == expected_here.keys(), rank
        for axis, calls in expected_here.items():
            by_formula = {call: moved.bytes for call, moved in calls.items()}
            assert traffic[axis] == pytest.approx(by_formula, rel=TOLERANCE), (rank, axis)


@pytest.mark.parametrize("mesh", MESHES, ids=str)
def test_bytes_are_those_of_the_formulas(mesh):
    with RankService(tiny_model(), **mesh, snapshot_interval="1h") as service:
        shape = formula.Shape.of(service.model)
        api = tinker.ServiceClient(base_url=service.url, api_key=service.api_key)
        model = resolved(api.create_lora_training_client("tiny", rank=LORA_RANK))
        sampler = api.create_sampling_client(base_model="tiny")
        data = [types.Datum(
            model_input=types.ModelInput.from_ints(list(range(30, 30 + length))),
            loss_fn_inputs={"target_tokens": list(range(31, 31 + length)),
                            "weights": [1.0] * length}) for length in LENGTHS]

        def step():
            model.forward_backward(data, "cross_entropy").result()
            model.optim_step(types.AdamParams(learning_rate=1e-3)).result()

        def sample(prompt, num_tokens, **options):
            params = types.SamplingParams(max_tokens=num_tokens, temperature=1, seed=3, stop=[],
                                          **options)
            sampled = sampler.sample(types.ModelInput.from_ints(prompt), 1, params).result()
            assert len(sampled.sequences[0].tokens) == num_tokens

        tokens_of_a_rank = sum(LENGTHS) // (mesh.get("dp", 1) * mesh.get("fsdp", 1))
        step()  # so that it is known which weights are there
        weights = formula.BaseWeights(shape, mesh)
        check(counted(service, step),
              formula.add(formula.forward_backward(shape, tokens_of_a_rank, mesh),
                          weights.forward_backward(half_chunks=2),
                          formula.optim_step(shape, LORA_RANK, mesh)))
        replicas = mesh.get("dp", 1)
        # With top-k, ranks of tp gather whole rows, as they always do on GPUs.
        for prompt, options in ((range(40, 50), {}), (range(60, 70), {"top_k": 5})):
            prompt = list(prompt)
            of_ranks = counted(service, lambda: sample(prompt, 9, **options))
            for traffic in of_ranks:
                assert (traffic.get(formula.ALL, {}).pop("samples", 0) > 0) == (replicas > 1)
            # The first token comes of the prompt's pass. The other replicas have nothing to do.
            passes = [formula.decode(shape, len(prompt), mesh, draws=1, whole_rows=bool(options)),
                      *[formula.decode(shape, 1, mesh, whole_rows=bool(options))] * 8]
            idle = formula.add(*[formula.sampling_pass(mesh)] * len(passes))
            gathered = [weights.decode() for _ in passes]
            check(of_ranks, [formula.add(*passes, *gathered), *[idle] * (replicas - 1)])
