"""bf16 weights in either arithmetic: closer to the exact numbers than HF and PEFT in bf16 are. GPUs have
one arithmetic, bf16."""

import pathlib

import pytest
import torch
from safetensors.torch import save_file

import reference
import sampling_driver
from families import BF16
from parity_setup import DEVICE
from reference import Loss

needs_bf16 = pytest.mark.skipif(
    "avx512_bf16" not in pathlib.Path("/proc/cpuinfo").read_text(),
    reason="this CPU does not multiply bf16 (AVX512-BF16)")
TINY = ["sharded_bf16", *BF16]
each_folder = pytest.mark.parametrize("variant", [*TINY, "smollm2"])
IS_CPU = DEVICE == "cpu"
each_arithmetic = pytest.mark.parametrize(
    "compute_dtype", ["fp32", pytest.param("bf16", marks=needs_bf16)] if IS_CPU else ["bf16"])
# PEFT in bf16 takes minutes for SmolLM2 on a CPU that does not multiply bf16.
each_affordable = pytest.mark.parametrize("variant, compute_dtype", [
    *((variant, "fp32") for variant in TINY if IS_CPU),
    *(pytest.param(variant, "bf16", marks=needs_bf16 if IS_CPU else [])
      for variant in [*TINY, "smollm2"])])


def mean_error(a, b):
    return (a.float() - b.float()).abs().mean().item()


@each_affordable
def test_logits(folders, run_driver, variant, compute_dtype):
    folder = folders(variant)
    prompt = reference.text_tokens(folder, 500)
    results, _ = run_driver(folder, [{"op": "logits", "tokens": prompt, "name": "l"}],
                            compute_dtype=compute_dtype)
    exact, narrow = reference.load_base(folder), reference.load_base(folder).to(torch.bfloat16)
    with torch.no_grad():
        expected, hf = (m(torch.tensor([prompt])).logits[0].float() for m in (exact, narrow))
    assert 0 < mean_error(results["l"], expected) < mean_error(hf, expected)
    # Logprobs of the tokens, as users see them.
    ours, wanted, theirs = (x[:499].log_softmax(-1)[range(499), prompt[1:]]
                            for x in (results["l"], expected, hf))
    assert mean_error(ours, wanted) < mean_error(theirs, wanted)


@each_affordable
def test_gradients(folders, run_driver, tmp_path, variant, compute_dtype):
    folder, loss, rank = folders(variant), Loss("cross_entropy"), 8
    model = reference.load_peft(folder, rank)
    weights = reference.random_lora(model, seed=1)
    reference.set_lora(model, weights)
    save_file(weights, tmp_path / "weights.safetensors")
    data = reference.make_data(model, loss, [12, 30, 300], seed=1)
    reference.backward(model, loss, data)
    exact = {name: p.grad.clone() for name, p in reference.lora_parameters(model).items()}

    narrow = reference.load_peft(folder, rank)
    reference.set_lora(narrow, weights)
    narrow.to(torch.bfloat16)
    reference.backward(narrow, loss, data)
    peft = {name: p.grad.float() for name, p in reference.lora_parameters(narrow).items()}

    request = {"id": "r", "model": "m", "loss": loss.spec, "data": data}
    results, _ = run_driver(
        folder,
        [{"op": "create", "model": "m", "rank": rank},
         {"op": "set_weights", "model": "m", "file": str(tmp_path / "weights.safetensors")},
         {"op": "train", "name": "t", "requests": [request]},
         {"op": "dump", "model": "m", "what": "gradient", "name": "g"}],
        compute_dtype=compute_dtype)
    ours = {name: results[f"g.{name}"] for name in exact}

    def distance(gradients):
        """Of all gradients as one vector, relative to its length."""
        squares = sum((gradients[n] - exact[n]).square().sum() for n in exact)
        return (squares / sum(exact[n].square().sum() for n in exact)).sqrt().item()

    assert 0 < distance(ours) < distance(peft)


@each_arithmetic
@each_folder
def test_the_sampler_equals_the_trainer(folders, run_driver, tmp_path, compute_dtype, variant):
    """After three steps of training, at each temperature."""
    folder, loss = folders(variant), Loss("cross_entropy")
    prompt = reference.text_tokens(folder, 25)
    trained = tmp_path / "trained.safetensors"
    data = [loss.datum(seed, 40, 768) for seed in range(3)]
    request = {"id": "r", "model": "m", "loss": loss.spec, "data": data}
    ops = [{"op": "create", "model": "m", "rank": 8}]
    for step in range(3):
        ops.append({"op": "train", "name": f"t{step}", "requests": [{**request, "seq_id": step}]})
        ops.append({"op": "step", "model": "m", "learning_rate": 1e-2})
    ops.append({"op": "dump", "model": "m", "what": "weights", "name": "w"})
    results, _ = run_driver(folder, ops, compute_dtype=compute_dtype)
    save_file({name.removeprefix("w."): value for name, value in results.items()
               if name.startswith("w.")}, trained)

    requests = [{"id": str(temperature), "model": "m", "prompt": prompt, "max_tokens": 60,
                 "num_samples": 2, "temperature": temperature, "ignore_eos": True, "seed": 5}
                for temperature in (0, 0.7, 1)]
    outputs = sampling_driver.run(tmp_path, folder, requests=requests, compute_dtype=compute_dtype,
                                  adapters={"m": {"rank": 8, "file": str(trained)}})["outputs"]
    sampled = [(float(temperature) or 1, sequence) for temperature, output in outputs.items()
               for sequence in output["sequences"]]
    ops = [{"op": "create", "model": "m", "rank": 8},
           {"op": "set_weights", "model": "m", "file": str(trained)}]
    ops += [{"op": "logits", "model": "m", "tokens": prompt + sequence["tokens"], "name": f"l{i}"}
            for i, (_, sequence) in enumerate(sampled)]
    results, _ = run_driver(folder, ops, compute_dtype=compute_dtype)
    for i, (temperature, sequence) in enumerate(sampled):
        # In fp64: for 49,152 tokens, torch's log_softmax in fp32 is 3e-5 away from it.
        rows = results[f"l{i}"][len(prompt) - 1 : -1].double() / temperature
        logprobs = rows.log_softmax(-1)[range(60), sequence["tokens"]]
        if compute_dtype == "fp32":
            assert (torch.tensor(sequence["logprobs"]) - logprobs).abs().max() <= 1e-5
        else:
            assert mean_error(torch.tensor(sequence["logprobs"]), logprobs) <= 1e-3
