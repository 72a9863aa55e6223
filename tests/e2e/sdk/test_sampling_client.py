"""SamplingClient, method by method."""

import pytest
import tinker
from support.sdk import resolved
from support.sdk_matrix import sdk_method
from tinker import types

PROMPT = types.ModelInput.from_ints([30, 31, 32])
GREEDY = types.SamplingParams(max_tokens=4, temperature=0, stop=[])


@sdk_method("SamplingClient.sample")
def test_sample(answer, base):
    """accepts all parameters and returns all scores ([sampling.md](sampling.md)); up to 1,024
    samples"""
    with answer(base, PROMPT, 3, GREEDY) as sampled:
        assert len({tuple(s.tokens) for s in sampled.sequences}) == 1
        assert [len(s.logprobs) for s in sampled.sequences] == [4, 4, 4]


@sdk_method("SamplingClient.compute_logprobs")
def test_compute_logprobs(answer, base):
    """returns the logprob of each prompt token but the first"""
    sampled = base.sample(PROMPT, 1, GREEDY).result().sequences[0]
    with answer(base, types.ModelInput.from_ints([30, 31, 32, *sampled.tokens])) as logprobs:
        assert logprobs[0] is None
        assert logprobs[3:] == pytest.approx(sampled.logprobs, rel=1e-4)


@sdk_method("SamplingClient.get_base_model")
def test_get_base_model(answer, base, lathe):
    """returns the name under which the base model is served"""
    with answer(base) as name:
        assert name == lathe.model_name


@sdk_method("SamplingClient.get_tokenizer")
def test_get_tokenizer(answer, trained, service, lathe, fresh_name, tmp_path, monkeypatch):
    """the SDK loads the tokenizer under the model's name: from Hugging Face, or from a folder of
    that name"""
    (tmp_path / lathe.model_name).symlink_to(lathe.model)
    monkeypatch.chdir(tmp_path)
    path = trained.save_weights_for_sampler(fresh_name).result().path
    sampler = resolved(service.create_sampling_client(model_path=path))
    with answer(sampler) as tokenizer:
        assert tokenizer.decode(tokenizer.encode("a b")) == "a b"


@sdk_method("SamplingClient.get_sampler_handle")
def test_get_sampler_handle(answer, base):
    """returns a string from which another process makes the same client; the string holds no key"""
    with answer(base) as handle:
        assert isinstance(handle, str) and handle


@sdk_method("SamplingClient.from_sampler_handle")
def test_from_sampler_handle(answer, base, lathe):
    """makes a client of the same sampler in another process"""
    expected = base.sample(PROMPT, 1, GREEDY).result().sequences[0].tokens
    with answer(tinker.SamplingClient, base.get_sampler_handle(), api_key=lathe.api_key) as copy:
        assert copy.sample(PROMPT, 1, GREEDY).result().sequences[0].tokens == expected
