"""From a checkpoint on the server to a model folder that transformers loads."""

import pytest
import tinker
from tinker import types

from .conftest import MODEL

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
