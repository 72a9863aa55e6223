"""Sampling equals HF generate and the trainer's own numbers."""

import random

import pytest
import torch
import transformers
from safetensors.torch import save_file

import reference
import sampling_driver
from families import FAMILIES

# fp32 on both sides, summed in another order.
TOLERANCE = 1e-4


def prompt_of(length, seed=0):
    return random.Random(seed).choices(range(5, 768), k=length)


def hf_greedy(model, prompt, max_tokens):
    ids = torch.tensor([prompt])
    out = model.generate(
        ids,
        attention_mask=torch.ones_like(ids),
        max_new_tokens=max_tokens,
        do_sample=False,
        pad_token_id=0,
    )
    return out[0, len(prompt) :].tolist()


def hf_logprobs(model, tokens):
    """Row i is the distribution behind tokens[: i + 1]."""
    with torch.no_grad():
        return torch.log_softmax(model(torch.tensor([tokens])).logits[0], -1)


@pytest.fixture
def adapted(folders, tmp_path, request):
    """A model with a random adapter: (folder, PEFT model, driver's adapters)."""
    folder = folders(getattr(request, "param", "tiny"))
    model = reference.load_peft(folder, 8)
    weights = reference.random_lora(model, seed=3)
    reference.set_lora(model, weights)
    save_file(weights, tmp_path / "weights.safetensors")
    return folder, model, {"m": {"rank": 8, "file": str(tmp_path / "weights.safetensors")}}


@pytest.mark.parametrize(
    "variant,lengths",
    [*((v, [1, 7, 16, 33, 200]) for v in ["tiny", "sharded_bf16", "everything"]),
     *((family, [7, 200]) for family in FAMILIES)],
)
def test_greedy_equals_hf_generate(folders, tmp_path, variant, lengths):
    folder = folders(variant)
    prompts = {f"r{i}": prompt_of(n, i) for i, n in enumerate(lengths)}
    prompts |= {f"t{n}": reference.text_tokens(folder, n) for n in lengths}
    requests = [
        {"id": key, "prompt": prompt, "max_tokens": 64, "temperature": 0}
        for key, prompt in prompts.items()
    ]
    outputs = sampling_driver.run(tmp_path, folder, requests=requests)["outputs"]
    model = reference.load_base(folder)
    for key, prompt in prompts.items():
        assert outputs[key]["sequences"][0]["tokens"] == hf_greedy(model, prompt, 64)
    assert max(len(output["sequences"][0]["tokens"]) for output in outputs.values()) == 64


def test_greedy_choices_of_trained_weights_are_hfs(smollm2, tmp_path):
    """Of each token behind those before it: HF's generate takes a minute."""
    prompts = {f"r{n}": prompt_of(n, n) for n in (1, 7, 150)}
    prompts |= {f"t{n}": reference.text_tokens(smollm2, n) for n in (1, 7, 150)}
    requests = [{"id": key, "prompt": prompt, "max_tokens": 64, "temperature": 0}
                for key, prompt in prompts.items()]
    outputs = sampling_driver.run(tmp_path, smollm2, requests=requests)["outputs"]
    model = reference.load_base(smollm2)
    for key, prompt in prompts.items():
        sequence = outputs[key]["sequences"][0]
        rows = hf_logprobs(model, prompt + sequence["tokens"])
        assert sequence["tokens"] == rows[len(prompt) - 1 : -1].argmax(-1).tolist()
        assert sequence["stopped"] or len(sequence["tokens"]) == 64


def test_greedy_with_an_adapter_equals_peft(adapted, tmp_path):
    folder, model, adapters = adapted
    prompt = prompt_of(30)
    requests = [
        {"id": name, "model": name, "prompt": prompt, "max_tokens": 40, "temperature": 0}
        for name in ["m", ""]
    ]
    outputs = sampling_driver.run(tmp_path, folder, adapters=adapters, requests=requests)["outputs"]
    assert outputs["m"]["sequences"][0]["tokens"] == hf_greedy(model, prompt, 40)
    with model.disable_adapter():
        assert outputs[""]["sequences"][0]["tokens"] == hf_greedy(model, prompt, 40)


def trainer_logprobs(folder, run_driver, adapters, sequences):
    """Logprobs of all tokens but the first, of each sequence, by the trainer with adapter m."""
    data = [{"tokens": tokens[:-1], "targets": tokens[1:], "weights": [1.0] * (len(tokens) - 1)}
            for tokens in sequences]
    request = {"id": "f", "model": "m", "forward_only": True, "data": data,
               "loss": {"name": "cross_entropy"}}
    results, _ = run_driver(
        folder,
        [
            {"op": "create", "model": "m", "rank": 8},
            {"op": "set_weights", "model": "m", "file": adapters["m"]["file"]},
            {"op": "train", "name": "t", "requests": [request]},
        ],
    )
    return [results[f"t.f.{i}"] for i in range(len(sequences))]


@pytest.mark.parametrize("adapted", ["tiny", *FAMILIES, "qwen2_windows"], indirect=True)
def test_chunks_decoding_and_prefix_hits_give_the_trainers_bits(adapted, tmp_path, run_driver):
    folder, _, adapters = adapted
    prompt = prompt_of(150)
    sampled = {"model": "m", "max_tokens": 40, "seed": 5, "ignore_eos": True, "tenant": "t"}
    request = {**sampled, "id": "r", "prompt": prompt, "prompt_logprobs": True}
    sequences, ours = [], []
    for chunk in [1, 7, 64]:
        output = sampling_driver.run(tmp_path, folder, adapters=adapters, requests=[request],
                                     max_prefill_tokens=chunk)["outputs"]["r"]
        generated = output["sequences"][0]
        sequences.append(prompt + generated["tokens"])
        ours.append(output["prompt_logprobs"][1:] + generated["logprobs"])

    # The cache holds the whole prompt when the others begin: one ends behind each of its blocks.
    requests = [{**sampled, "id": "all", "prompt": prompt}]
    requests += [{**sampled, "id": str(n), "prompt": prompt[: n + 1]} for n in range(16, 150, 16)]
    outputs = sampling_driver.run(tmp_path, folder, adapters=adapters, requests=requests,
                                  one_by_one=True)["outputs"]
    for request in requests:
        output = outputs[request["id"]]
        assert output["hit_tokens"] == (0 if request["id"] == "all" else int(request["id"]))
        sequences.append(request["prompt"] + output["sequences"][0]["tokens"])
        ours.append(output["sequences"][0]["logprobs"])

    theirs = trainer_logprobs(folder, run_driver, adapters, sequences)
    for i, logprobs in enumerate(ours):
        assert torch.equal(torch.tensor(logprobs), theirs[i][-len(logprobs) :]), i


def test_sampled_logprobs_equal_the_trainers_forward(adapted, tmp_path, run_driver):
    folder, model, adapters = adapted
    prompt = prompt_of(25)
    request = {"id": "r", "model": "m", "prompt": prompt, "max_tokens": 50, "num_samples": 4}
    result = sampling_driver.run(
        tmp_path, folder, adapters=adapters, requests=[{**request, "ignore_eos": True, "seed": 5}]
    )
    sequences = result["outputs"]["r"]["sequences"]
    trained = trainer_logprobs(folder, run_driver, adapters,
                               [prompt + sequence["tokens"] for sequence in sequences])
    for sequence, logprobs in zip(sequences, trained, strict=True):
        sampled = torch.tensor(sequence["logprobs"])
        assert (sampled - logprobs[len(prompt) - 1 :]).abs().max() <= TOLERANCE
        expected = hf_logprobs(model, prompt + sequence["tokens"])
        picked = [expected[len(prompt) - 1 + j, t] for j, t in enumerate(sequence["tokens"])]
        assert (sampled - torch.tensor(picked)).abs().max() <= TOLERANCE


def test_prompt_logprobs_equal_hf(folders, tmp_path):
    folder, prompt, k = folders("tiny"), prompt_of(70), 20
    request = {"id": "r", "prompt": prompt, "max_tokens": 1}
    result = sampling_driver.run(
        tmp_path,
        folder,
        max_prefill_tokens=32,
        requests=[{**request, "prompt_logprobs": True, "topk_prompt_logprobs": k}],
    )["outputs"]["r"]
    expected = hf_logprobs(reference.load_base(folder), prompt)
    logprobs = result["prompt_logprobs"]
    assert logprobs[0] is None  # NaN
    for i in range(1, len(prompt)):
        assert abs(logprobs[i] - expected[i - 1, prompt[i]]) <= TOLERANCE
    ids = torch.tensor(result["topk"]["token_ids"]).view(-1, k)
    values = torch.tensor(result["topk"]["logprobs"]).view(-1, k)
    assert ids[0].tolist() == [0] * k and values[0].tolist() == [-99999.0] * k
    best = expected.topk(k)
    assert (values[1:] - best.values[:-1]).abs().max() <= TOLERANCE
    assert torch.equal(ids[1:], best.indices[:-1])


def test_targets_and_top_tokens_equal_hf(adapted, tmp_path):
    folder, model, adapters = adapted
    prompt, k, temperature = prompt_of(50), 20, 0.7
    targets = torch.randint(0, 768, (49, 3), generator=torch.Generator().manual_seed(4))
    targets[::5, 1] = -1
    targets[:10] = -1
    request = {"id": "r", "model": "m", "prompt": prompt, "max_tokens": 30, "seed": 5,
               "temperature": temperature, "top_k": 40, "top_p": 0.9, "min_p": 0.01,
               "ignore_eos": True, "topk_sample_logprobs": k, "prompt_logprobs": True,
               "prompt_logprobs_last_n": 7, "target_prompt_logprobs": targets.tolist()}
    result = sampling_driver.run(tmp_path, folder, adapters=adapters, max_prefill_tokens=16,
                                 requests=[request])["outputs"]["r"]
    sequence = result["sequences"][0]
    with torch.no_grad():
        logits = model(torch.tensor([prompt + sequence["tokens"]])).logits[0]
    expected = torch.log_softmax(logits, -1)
    for i, value in enumerate(result["prompt_logprobs"]):
        assert (value is None) == (i < 50 - 7)
        assert value is None or abs(value - expected[i - 1, prompt[i]]) <= TOLERANCE
    picked = expected[:49].gather(1, targets.clamp(min=0)).where(targets >= 0, 0.0)
    assert (torch.tensor(result["targets"]).view(49, 3) - picked).abs().max() <= TOLERANCE
    assert result["targets"][:30] == [0.0] * 30
    best = torch.log_softmax(logits[49:-1] / temperature, -1).topk(k)
    assert torch.equal(torch.tensor(sequence["topk"]["token_ids"]).view(-1, k), best.indices)
    top = torch.tensor(sequence["topk"]["logprobs"]).view(-1, k)
    assert (top - best.values).abs().max() <= TOLERANCE


def test_filters_keep_what_hf_keeps(folders, tmp_path):
    """Every token of many samples is one that HF's warpers, in their order, leave."""
    folder, prompt = folders("tiny"), prompt_of(20)
    for temperature, top_k, top_p, min_p in [
        (0.6, 50, 0.9, 0.0), (0.6, 0, 1.0, 0.05), (0.4, 30, 0.8, 0.2), (1.0, 0, 0.3, 0.4),
    ]:
        request = {"id": "r", "prompt": prompt, "max_tokens": 1, "num_samples": 1024, "seed": 3,
                   "temperature": temperature, "top_k": top_k or -1, "top_p": top_p,
                   "min_p": min_p, "ignore_eos": True}
        result = sampling_driver.run(tmp_path, folder, requests=[request])["outputs"]["r"]
        with torch.no_grad():
            scores = reference.load_base(folder)(torch.tensor([prompt])).logits[:, -1]
        warpers = [transformers.TemperatureLogitsWarper(temperature)]
        if top_k:
            warpers.append(transformers.TopKLogitsWarper(top_k))
        warpers.append(transformers.TopPLogitsWarper(top_p))
        warpers.append(transformers.MinPLogitsWarper(min_p))
        for warper in warpers:
            scores = warper(None, scores)
        kept = set(torch.isfinite(scores[0]).nonzero().flatten().tolist())
        probability = torch.softmax(scores[0], -1)
        drawn = {sequence["tokens"][0] for sequence in result["sequences"]}
        assert drawn <= kept
        assert {t for t in kept if probability[t] > 0.02} <= drawn


def test_alt_tokens_follow_hf_at_the_requests_temperature(folders, tmp_path):
    folder, prompt, k = folders("tiny"), prompt_of(9), 5000
    request = {"id": "r", "prompt": prompt, "max_tokens": 1, "seed": 3, "temperature": 0.3,
               "prompt_alt_tokens_k": k}
    drawn = sampling_driver.run(tmp_path, folder, requests=[request])["outputs"]["r"][
        "alternatives"]
    with torch.no_grad():
        logits = reference.load_base(folder)(torch.tensor([prompt])).logits[0, :-1]
    logprobs = torch.log_softmax(logits / 0.3, -1)
    tokens = torch.tensor(drawn["token_ids"]).view(8, k)
    assert (torch.tensor(drawn["logprobs"]).view(8, k)
            - logprobs.gather(1, tokens)).abs().max() <= TOLERANCE / 0.3
    for row, row_logprobs in zip(tokens, logprobs, strict=True):
        share = torch.bincount(row, minlength=768) / k
        # Five standard deviations of a share.
        bound = 5 * (row_logprobs.exp() / k).sqrt() + 5 / k
        assert ((share - row_logprobs.exp()).abs() <= bound).all()


def test_a_small_cache_and_company_change_no_token(adapted, tmp_path):
    folder, _, adapters = adapted
    requests = [
        {
            "id": f"r{i}",
            "model": "m" if i % 2 else "",
            "prompt": prompt_of(10 + 9 * i, i),
            "max_tokens": 60,
            "num_samples": 3,
            "seed": i,
            "temperature": 0.5 + 0.1 * i,
            "top_p": 0.95 if i % 3 == 1 else 1.0,
            "top_k": 50 if i % 3 == 2 else -1,
            "ignore_eos": True,
        }
        for i in range(8)
    ]
    options = {"adapters": adapters}
    together = sampling_driver.run(tmp_path, folder, requests=requests, **options)
    crowded = sampling_driver.run(
        tmp_path, folder, requests=requests, kv_cache_tokens=512, **options
    )
    assert crowded["counters"]["preemptions"] > 0
    for request in requests:
        alone = sampling_driver.run(tmp_path, folder, requests=[request], **options)
        for other in (together, crowded):
            for a, b in zip(
                alone["outputs"][request["id"]]["sequences"],
                other["outputs"][request["id"]]["sequences"],
                strict=True,
            ):
                assert a["tokens"] == b["tokens"]


def test_stop_strings_end_where_the_decoded_text_has_them(folders, tmp_path):
    folder = folders("tiny")
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    request = {"id": "r", "prompt": prompt_of(8), "max_tokens": 60, "seed": 2, "ignore_eos": True}
    free = sampling_driver.run(tmp_path, folder, requests=[request])
    tokens = free["outputs"]["r"]["sequences"][0]["tokens"]
    texts = [tokenizer.decode(tokens[: n + 1]) for n in range(len(tokens))]
    # Two characters of the text as it was after 20 tokens, the last of which is new.
    stop = next(t[-2:] for t in texts[20:] if t[-2:].isascii())
    length = next(n + 1 for n, text in enumerate(texts) if stop in text)
    stopped = sampling_driver.run(tmp_path, folder, requests=[{**request, "stop_strings": [stop]}])
    sequence = stopped["outputs"]["r"]["sequences"][0]
    assert sequence["tokens"] == tokens[:length]
    assert sequence["stopped"]


def test_decoding_equals_hf(folders, tmp_path):
    folder = folders("tiny")
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    lists = [prompt_of(n, n) for n in range(1, 40)] + [list(range(len(tokenizer)))]
    decoded = sampling_driver.run(tmp_path, folder, decode=lists)["decoded"]
    for ids, text in zip(lists, decoded, strict=True):
        expected = tokenizer.decode(ids, clean_up_tokenization_spaces=False)
        assert bytes.fromhex(text).decode("utf-8", errors="replace") == expected
