"""From a checkpoint on the server to a model folder that transformers loads."""

import pathlib
import sys

import pytest
import tinker
from tinker import types

from .conftest import MODEL

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "tests/parity"), str(ROOT / "tools")]
from families import FAMILIES  # noqa: E402

RENDERER = "qwen3_disable_thinking"
ROW = [30, 31, 32, 33, 34, 35, 36]


def test_a_downloaded_and_merged_checkpoint_is_the_model_that_was_sampled(
        kitchen, tmp_path, monkeypatch):
    import torch
    from tinker_cookbook import weights
    from transformers import AutoModelForCausalLM

    # The cookbook cannot merge an lm_head into a model whose embeddings are tied.
    taught = kitchen.teach("downloaded", [
        [{"role": "user", "content": "Hello."}, {"role": "assistant", "content": "Good day."}]],
        5, RENDERER, train_unembed=False)
    monkeypatch.setenv("TINKER_API_KEY", kitchen.server.api_key)
    adapter = weights.download(tinker_path=taught["state"], output_dir=str(tmp_path / "adapter"),
                               base_url=kitchen.server.url)
    merged = tmp_path / "merged"
    weights.build_hf_model(base_model=str(kitchen.folder / MODEL), adapter_path=adapter,
                           output_path=str(merged), dtype="float32")

    service = tinker.ServiceClient(base_url=kitchen.server.url, api_key=kitchen.server.api_key)
    sampler = service.create_sampling_client(model_path=taught["sampler"]).result()
    scored = sampler.compute_logprobs(types.ModelInput.from_ints(ROW)).result()[1:]
    with torch.no_grad():
        logits = AutoModelForCausalLM.from_pretrained(merged, dtype=torch.float32)(
            torch.tensor([ROW])).logits[0]
    expected = logits.log_softmax(-1)
    assert scored == pytest.approx([float(expected[i, ROW[i + 1]]) for i in range(len(ROW) - 1)],
                                   abs=1e-3)


@pytest.mark.parametrize("family", FAMILIES)
def test_an_adapter_of_each_family_is_merged_and_converted(family, tmp_path):
    import make_tiny_model
    import reference
    import sampling_driver
    import torch
    from peft import PeftModel
    from safetensors.torch import save_file
    from tinker_cookbook import weights

    def logits(model):
        with torch.no_grad():
            return model(torch.arange(5, 60)[None]).logits[0]

    folder = tmp_path / "base"
    make_tiny_model.main(["--out", str(folder), *FAMILIES[family], "--untied"])
    model = reference.load_peft(folder, 6, 16)
    factors = reference.random_lora(model, seed=1)
    reference.set_lora(model, factors)
    save_file(factors, tmp_path / "factors.safetensors")
    adapter = {"rank": 6, "alpha": 16, "file": str(tmp_path / "factors.safetensors"),
               "save_sampler": "adapter"}
    sampling_driver.run(tmp_path, folder, adapters={"m": adapter})

    paths = {"base_model": str(folder), "adapter_path": str(tmp_path / "adapter")}
    weights.build_hf_model(**paths, output_path=str(tmp_path / "merged"), dtype="float32")
    weights.build_lora_adapter(**paths, output_path=str(tmp_path / "peft"))
    expected = logits(model)
    assert (logits(reference.load_base(folder)) - expected).abs().max() > 1e-2
    assert (logits(reference.load_base(tmp_path / "merged")) - expected).abs().max() <= 1e-4
    served = PeftModel.from_pretrained(reference.load_base(folder), tmp_path / "peft").eval()
    assert (logits(served) - expected).abs().max() <= 1e-4
