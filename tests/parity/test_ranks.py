"""A group of several ranks against one rank, through the API: losses, weights after ten steps of
three tenants, logprobs and samples; also when a rank is killed in the middle."""

import io
import os
import random
import sys
import tarfile
import urllib.request

import httpx
import pytest
import tinker
from safetensors.torch import load
from tinker import types

sys.path.insert(0, os.path.join(os.path.dirname(__file__), ".."))
from support.lathe_server import tiny_model  # noqa: E402
from support.rank_service import RankService  # noqa: E402
from support.sdk import resolved  # noqa: E402

STEPS = 10
LAYERS = "5"  # more than a rank of axis fsdp has at a time
TOLERANCE = 1e-5
# Relative: importance ratios here are far from 1, and multiply what rounding does.
NORM_TOLERANCE = 1e-4
MESHES = {
    "tp 2": {"tp": 2},
    "dp 2": {"dp": 2},
    "fsdp 2": {"fsdp": 2},
    "dp 2 x tp 2": {"dp": 2, "tp": 2},
    "fsdp 2 x tp 2": {"fsdp": 2, "tp": 2},
}
# With the usual epsilon a gradient that is nothing but rounding makes a whole step.
ADAM = types.AdamParams(learning_rate=1e-3, eps=1e-3)
TENANTS = {"cross_entropy": 2, "importance_sampling": 4, "ppo": 8}  # loss: LoRA rank


def datum(generator, loss):
    tokens = [generator.randrange(700) for _ in range(generator.randrange(4, 24))]
    n = len(tokens) - 1
    inputs = {"target_tokens": tokens[1:]}
    if loss == "cross_entropy":
        inputs["weights"] = [generator.random() for _ in range(n)]
    else:
        inputs["logprobs"] = [-6.5 + generator.random() for _ in range(n)]
        inputs["advantages"] = [generator.uniform(-1, 1) for _ in range(n)]
    return types.Datum(model_input=types.ModelInput.from_ints(tokens[:-1]), loss_fn_inputs=inputs)


def weights_of(service, path):
    run, kind, name = path.removeprefix("tinker://").split("/")
    answer = httpx.get(f"{service.url}/api/v1/training_runs/{run}/checkpoints/{kind}/{name}/archive",
                       headers={"X-API-Key": service.api_key}, follow_redirects=False)
    assert answer.status_code == 302, answer.text
    with urllib.request.urlopen(answer.headers["location"]) as download:
        archive = tarfile.open(fileobj=io.BytesIO(download.read()))
    return load(archive.extractfile("adapter_model.safetensors").read())


class Run:
    """What three tenants see of `service`; `kill_rank`: when half of the steps are done and there is
    a snapshot, amidst the next step."""

    def __init__(self, service, kill_rank=None, steps=STEPS, adam=ADAM):
        self.numbers, self.norms, self.tokens, self.weights = {}, {}, {}, {}
        api = tinker.ServiceClient(base_url=service.url, api_key=service.api_key)
        clients = {loss: resolved(api.create_lora_training_client("tiny", rank=rank, seed=rank))
                   for loss, rank in TENANTS.items()}
        generator = random.Random(8)
        for step in range(steps):
            kills = kill_rank is not None and step == steps // 2
            if kills:
                service.wait_snapshot()
            # All at once, so that they share passes.
            futures = []
            for loss, client in clients.items():
                data = [datum(generator, loss) for _ in range(5)]
                futures.append((loss, client.forward_backward(data, loss),
                                client.optim_step(adam)))
            if kills:
                service.kill(kill_rank)
            for loss, forward, optim in futures:
                self._note(f"{loss}, step {step}", forward.result(), optim.result())
        for loss, client in clients.items():
            path = client.save_weights_for_sampler("end").result().path
            self.weights[loss] = weights_of(service, path)
            self._sample(loss, api.create_sampling_client(model_path=path))

    def _note(self, what, forward, optim):
        logprobs = [x for output in forward.loss_fn_outputs for x in output["logprobs"].data]
        mean_loss = forward.metrics["loss:sum"] / len(logprobs)
        self.numbers[what] = [mean_loss, *logprobs]
        self.norms[what] = optim.metrics["grad_norm"]

    def _sample(self, loss, sampler):
        prompt = types.ModelInput.from_ints(list(range(40, 60)))
        self.numbers[f"{loss}, prompt"] = sampler.compute_logprobs(prompt).result()[1:]
        for temperature in (0, 1):
            params = types.SamplingParams(max_tokens=12, temperature=temperature, seed=5, stop=[])
            for i, sequence in enumerate(sampler.sample(prompt, 2, params).result().sequences):
                name = f"{loss}, sample {i} at temperature {temperature}"
                self.tokens[name] = list(sequence.tokens)
                self.numbers[name] = list(sequence.logprobs)


@pytest.fixture(scope="module")
def alone():
    with RankService(tiny_model("--layers", LAYERS)) as service:
        return Run(service)


def check_same(run, alone):
    assert run.tokens == alone.tokens
    assert run.norms == pytest.approx(alone.norms, rel=NORM_TOLERANCE)
    for what, numbers in alone.numbers.items():
        assert run.numbers[what] == pytest.approx(numbers, rel=TOLERANCE, abs=TOLERANCE), what
    for loss, weights in alone.weights.items():
        assert run.weights[loss].keys() == weights.keys()
        for name, tensor in weights.items():
            difference = (run.weights[loss][name].float() - tensor.float()).abs().max().item()
            assert difference <= TOLERANCE, f"{loss}: {name}"


@pytest.mark.parametrize("mesh", MESHES)
def test_ranks_compute_what_one_rank_does(alone, mesh):
    with RankService(tiny_model("--layers", LAYERS), **MESHES[mesh]) as service:
        run = Run(service)
        assert service.exit_codes == []
    check_same(run, alone)


def run_with_a_kill(model, mesh, killed, steps=STEPS, adam=ADAM):
    """A run during which the rank `killed` dies and the group forms again."""
    with RankService(model, **mesh) as service:
        run = Run(service, killed, steps, adam)
        codes = dict(reversed(service.exit_codes))  # of each rank's first process
        assert codes.pop(killed) == -9
        # The others end by themselves, and at once.
        assert len(codes) == service.world - 1
        assert set(codes.values()) <= {75, 76}
        replayed = service.num_replayed()
        assert len(replayed) == len(TENANTS)
        # From a snapshot, not all of a forward_backward and an optim_step for each step.
        assert min(replayed) < 2 * (steps // 2 + 1)
    return run


@pytest.mark.parametrize("mesh", MESHES)
@pytest.mark.parametrize("killed", [0, 1])
def test_ranks_compute_the_same_when_one_is_killed(alone, mesh, killed):
    model = tiny_model("--layers", LAYERS)
    check_same(run_with_a_kill(model, MESHES[mesh], killed), alone)
