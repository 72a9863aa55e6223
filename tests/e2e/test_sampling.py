"""Sampling through the stock SDK."""

import asyncio
import math

import pytest
import tinker
import torch
import transformers
from tinker import types

from support.sdk import needs_argument

PROMPT = [30, 31, 32, 33]


def params(**options):
    return types.SamplingParams(**{"max_tokens": 12, "seed": 3, "stop": [], **options})


def prompt(tokens=PROMPT):
    return types.ModelInput.from_ints(tokens)


@pytest.fixture(scope="module")
def service(lathe):
    return tinker.ServiceClient(base_url=lathe.url, api_key=lathe.api_key)


@pytest.fixture(scope="module")
def base(service, lathe):
    return service.create_sampling_client(base_model=lathe.model_name)


def tokens_of(response):
    return [list(sequence.tokens) for sequence in response.sequences]


def test_a_seed_repeats_and_samples_of_one_request_differ(base):
    first = base.sample(prompt(), 3, params()).result()
    again = base.sample(prompt(), 3, params()).result()
    other = base.sample(prompt(), 3, params(seed=4)).result()
    assert tokens_of(first) == tokens_of(again)
    assert tokens_of(first) != tokens_of(other)
    assert len({tuple(tokens) for tokens in tokens_of(first)}) == 3
    assert all(len(sequence.logprobs) == 12 for sequence in first.sequences)
    assert all(sequence.stop_reason == "length" for sequence in first.sequences)


@pytest.mark.each_sdk
def test_two_hundred_concurrent_samples_equal_each_alone(base):
    async def all_of_them():
        return await asyncio.gather(*(
            base.sample_async(prompt(PROMPT + [40 + i]), 1, params(seed=i)) for i in range(200)))

    together = [tokens_of(response) for response in asyncio.run(all_of_them())]
    for i in (0, 77, 199):
        assert tokens_of(base.sample(prompt(PROMPT + [40 + i]), 1, params(seed=i)).result()) \
            == together[i]


def test_greedy_is_the_most_likely_token_and_top_k_one_agrees(base):
    greedy = base.sample(prompt(), 1, params(temperature=0.0)).result()
    assert tokens_of(greedy) == tokens_of(base.sample(prompt(), 1, params(top_k=1)).result())
    response = base.sample(prompt(PROMPT + tokens_of(greedy)[0]), 1, params(max_tokens=1),
                           include_prompt_logprobs=True, topk_prompt_logprobs=2).result()
    top = response.topk_prompt_logprobs[len(PROMPT):]
    assert [row[0][0] for row in top] == tokens_of(greedy)[0]


@pytest.mark.each_sdk
def test_stop_tokens_are_included_and_end_the_sequence(base):
    free = tokens_of(base.sample(prompt(), 1, params()).result())[0]
    stop = free[4]
    stopped = base.sample(prompt(), 1, params(stop=[stop])).result().sequences[0]
    assert list(stopped.tokens) == free[:free.index(stop) + 1]
    assert stopped.stop_reason == "stop"


@pytest.mark.each_sdk
def test_stop_strings_match_across_token_borders(base, lathe):
    # A sampler's get_tokenizer() takes the model's name to a hub, so the folder is named here.
    tokenizer = transformers.AutoTokenizer.from_pretrained(lathe.model)
    free = tokens_of(base.sample(prompt(), 1, params(max_tokens=40)).result())[0]
    text = tokenizer.decode(free)
    # A string that begins in one token and ends in the next, made of plain characters.
    for i in range(len(free) - 1):
        left, right = tokenizer.decode([free[i]]), tokenizer.decode([free[i + 1]])
        if left and right and left[-1].isascii() and right[0].isascii():
            needle = left[-1] + right[0]
            break
    else:
        pytest.fail("the sample has no two neighbouring ASCII tokens: choose another seed")
    stopped = base.sample(prompt(), 1, params(max_tokens=40, stop=[needle])).result().sequences[0]
    got = list(stopped.tokens)
    assert got == free[:len(got)] and stopped.stop_reason == "stop"
    assert needle in tokenizer.decode(got)
    assert needle not in tokenizer.decode(got[:-1])
    assert needle in text


def test_logprobs_are_those_of_the_trainer(service, lathe):
    client = service.create_lora_training_client(lathe.model_name, rank=4, seed=1)
    row = [30, 31, 32, 33, 34]
    datum = lambda tokens: types.Datum(
        model_input=types.ModelInput.from_ints(tokens[:-1]),
        loss_fn_inputs={"target_tokens": tokens[1:], "weights": [1.0] * (len(tokens) - 1)})
    for _ in range(3):
        client.forward_backward([datum(row)], "cross_entropy")
        client.optim_step(types.AdamParams(learning_rate=1e-2)).result()
    sampler = client.save_weights_and_get_sampling_client()
    sequence = sampler.sample(prompt(), 1, params()).result().sequences[0]
    whole = PROMPT + list(sequence.tokens)
    trained = client.forward([datum(whole)], "cross_entropy").result()
    expected = list(trained.loss_fn_outputs[0]["logprobs"].data)
    assert list(sequence.logprobs) == pytest.approx(expected[len(PROMPT) - 1:], abs=1e-4)
    scored = sampler.compute_logprobs(prompt(whole)).result()
    assert scored[0] is None
    assert scored[1:] == pytest.approx(expected, abs=1e-4)


def test_temperature_scales_log_ratios(base):
    response = base.sample(prompt(), 64, params(max_tokens=1, temperature=2.0)).result()
    hot = {s.tokens[0]: s.logprobs[0] for s in response.sequences}
    scored = {}
    for token in list(hot)[:2]:
        scored[token] = base.compute_logprobs(prompt(PROMPT + [token])).result()[-1]
    (a, b) = list(hot)[:2]
    assert hot[a] - hot[b] == pytest.approx((scored[a] - scored[b]) / 2.0, abs=1e-4)


def test_top_p_keeps_the_head_of_the_distribution(base):
    top = base.sample(prompt(PROMPT + [34]), 1, params(max_tokens=1),
                      include_prompt_logprobs=True, topk_prompt_logprobs=20).result()
    row = top.topk_prompt_logprobs[len(PROMPT)]
    assert [p for _, p in row] == sorted((p for _, p in row), reverse=True)
    assert top.topk_prompt_logprobs[0] is None
    mass, allowed = 0.0, set()
    for token, logprob in row:
        allowed.add(token)
        mass += math.exp(logprob)
        if mass >= 0.3:
            break
    drawn = base.sample(prompt(), 64, params(max_tokens=1, top_p=0.3)).result()
    assert {s.tokens[0] for s in drawn.sequences} <= allowed


@pytest.mark.each_sdk
@needs_argument(tinker.SamplingClient.sample, "topk_sample_logprobs")
def test_top_tokens_of_sampled_positions_are_those_of_the_prompt_scored(base):
    hot = base.sample(prompt(), 2, params(temperature=1.5), topk_sample_logprobs=5).result()
    for sequence in hot.sequences:
        assert [len(row) for row in sequence.topk_logprobs] == [5] * len(sequence.tokens)
    sampled = base.sample(prompt(), 2, params(), topk_sample_logprobs=5).result()
    for sequence in sampled.sequences:
        whole = PROMPT + list(sequence.tokens)
        scored = base.sample(prompt(whole), 1, params(max_tokens=1), topk_prompt_logprobs=5,
                             include_prompt_logprobs=True).result()
        assert sequence.topk_logprobs == scored.topk_prompt_logprobs[len(PROMPT):]


@pytest.mark.each_sdk
@needs_argument(tinker.SamplingClient.sample, "target_prompt_logprobs")
@needs_argument(types.TensorData.from_torch_sparse, "pad_value")
def test_named_targets_are_scored_dense_and_sparse(base):
    scored = base.sample(prompt(), 1, params(max_tokens=1), topk_prompt_logprobs=3,
                         include_prompt_logprobs=True).result()
    rows = scored.topk_prompt_logprobs[1:]
    ids = torch.full((len(PROMPT) - 1, 40), -1, dtype=torch.int64)
    expected = torch.zeros((len(PROMPT) - 1, 40))
    for i, row in enumerate(rows):
        for j, (token, logprob) in enumerate(row[:1 + i % 3]):
            ids[i, j], expected[i, j] = token, logprob
    dense = types.TensorData.from_torch(ids)
    sparse = types.TensorData.from_torch_sparse(ids, pad_value=-1)
    assert len(sparse.sparse_col_indices) == 6
    for targets in (dense, sparse):
        answer = base.sample(prompt(), 1, params(max_tokens=1),
                             target_prompt_logprobs=targets).result().target_prompt_logprobs
        assert torch.equal(answer.to_torch(), expected)
        assert answer.sparse_col_indices == targets.sparse_col_indices


@pytest.mark.each_sdk
@needs_argument(tinker.SamplingClient.sample, "prompt_alt_tokens_k")
def test_alt_tokens_are_sampled_at_every_prompt_position(base):
    ask = lambda **options: base.sample(
        prompt(), 1, params(**{"max_tokens": 1, **options}), prompt_alt_tokens_k=64,
    ).result().prompt_alt_tokens
    first, again, other = ask(), ask(), ask(seed=4)
    assert first.tokens.shape == first.logprobs.shape == [len(PROMPT) - 1, 64]
    assert list(first.tokens.data) == list(again.tokens.data) != list(other.tokens.data)
    targets = base.sample(
        prompt(), 1, params(max_tokens=1), target_prompt_logprobs=types.TensorData(
            data=list(first.tokens.data), dtype="int64", shape=first.tokens.shape),
    ).result().target_prompt_logprobs
    assert list(first.logprobs.data) == list(targets.data)
    # Greedy draws are the most likely token, whose logprob is that of temperature 1.
    scored = base.sample(prompt(), 1, params(max_tokens=1), topk_prompt_logprobs=1,
                         include_prompt_logprobs=True).result().topk_prompt_logprobs[1:]
    greedy = ask(temperature=0.0)
    rows = zip(torch.tensor(greedy.tokens.data).view(-1, 64).tolist(),
               torch.tensor(greedy.logprobs.data).view(-1, 64).tolist(), strict=True)
    assert [(set(tokens), set(logprobs)) for tokens, logprobs in rows] \
        == [({row[0][0]}, {row[0][1]}) for row in scored]


@pytest.mark.each_sdk
@needs_argument(tinker.SamplingClient.sample, "prompt_logprobs_last_n")
def test_only_the_last_prompt_tokens_are_scored(base):
    whole = base.compute_logprobs(prompt()).result()
    assert base.compute_logprobs(prompt(), prompt_logprobs_last_n=2).result() \
        == [None, None] + whole[2:]
    response = base.sample(prompt(), 1, params(max_tokens=1), include_prompt_logprobs=True,
                           topk_prompt_logprobs=2, prompt_logprobs_last_n=1).result()
    assert response.prompt_logprobs == [None] * 3 + whole[3:]
    assert [row is None for row in response.topk_prompt_logprobs] == [True] * 3 + [False]


def test_a_sampler_is_a_snapshot(service, lathe):
    client = service.create_lora_training_client(lathe.model_name, rank=4, seed=2)
    before = client.save_weights_and_get_sampling_client()
    old = tokens_of(before.sample(prompt(), 2, params()).result())
    datum = types.Datum(model_input=types.ModelInput.from_ints([30, 31, 32, 33]),
                        loss_fn_inputs={"target_tokens": [50, 51, 52, 53], "weights": [1.0] * 4})
    for _ in range(5):
        client.forward_backward([datum], "cross_entropy")
        client.optim_step(types.AdamParams(learning_rate=2e-2)).result()
    assert tokens_of(before.sample(prompt(), 2, params()).result()) == old
    after = client.save_weights_and_get_sampling_client()
    assert tokens_of(after.sample(prompt(), 2, params()).result()) != old
    assert before.get_base_model() == lathe.model_name


@pytest.mark.each_sdk
def test_named_sampler_weights_can_be_sampled_by_path(service, lathe):
    client = service.create_lora_training_client(lathe.model_name, rank=4, seed=3)
    datum = types.Datum(model_input=types.ModelInput.from_ints([30, 31, 32, 33]),
                        loss_fn_inputs={"target_tokens": [50, 51, 52, 53], "weights": [1.0] * 4})
    client.forward_backward([datum], "cross_entropy")
    client.optim_step(types.AdamParams(learning_rate=2e-2)).result()
    live = client.save_weights_and_get_sampling_client()
    path = client.save_weights_for_sampler("named").result().path
    assert path.endswith("/sampler_weights/named")
    by_path = service.create_sampling_client(model_path=path)
    expected = tokens_of(live.sample(prompt(), 2, params()).result())
    assert tokens_of(by_path.sample(prompt(), 2, params()).result()) == expected
    both = service.create_sampling_client(model_path=path, base_model=lathe.model_name)
    assert tokens_of(both.sample(prompt(), 2, params()).result()) == expected


@pytest.mark.each_sdk
def test_max_tokens_unset_samples_to_the_end_of_the_context(base, lathe):
    context = transformers.AutoConfig.from_pretrained(lathe.model).max_position_embeddings
    long = (PROMPT * context)[:context - 9]
    (sequence,) = base.sample(prompt(long), 1, params(max_tokens=None)).result().sequences
    assert (len(sequence.tokens), sequence.stop_reason) == (9, "length")
    with pytest.raises(tinker.BadRequestError, match="exceeds the model's context window"):
        base.sample(prompt((PROMPT * context)[:context]), 1, params(max_tokens=None)).result()


def test_the_most_samples_of_one_request_all_come_back(base):
    sequences = base.sample(prompt(), 1024, params(max_tokens=3)).result().sequences
    assert len(sequences) == 1024
    assert all(len(sequence.tokens) == 3 for sequence in sequences)
    assert len({tuple(sequence.tokens) for sequence in sequences}) > 700
    again = base.sample(prompt(), 1, params(max_tokens=3)).result().sequences
    assert list(again[0].tokens) == list(sequences[0].tokens)


@pytest.mark.each_sdk
def test_a_prompt_over_the_context_is_a_400_with_the_known_wording(base):
    with pytest.raises(tinker.BadRequestError,
                       match="Prompt length plus max_tokens exceeds the model's context window"):
        base.sample(prompt([30] * 2040), 1, params(max_tokens=100)).result()


@pytest.mark.parametrize("options, word", [
    ({"temperature": -1.0}, "temperature"), ({"top_p": 0.0}, "top_p"), ({"top_k": -7}, "top_k"),
    ({"max_tokens": 0}, "max_tokens")])
def test_bad_sampling_values_are_named(base, options, word):
    with pytest.raises(tinker.BadRequestError, match=word):
        base.sample(prompt(), 1, params(**options)).result()


@pytest.mark.each_sdk
def test_too_many_samples_and_bad_tokens_are_refused(base):
    with pytest.raises(tinker.BadRequestError, match="num_samples"):
        base.sample(prompt(), 100000, params()).result()
    with pytest.raises(tinker.BadRequestError, match="99999"):
        base.sample(prompt([99999]), 1, params()).result()


@pytest.mark.each_sdk
def test_a_thousand_samples_in_one_request(base):
    response = base.sample(prompt(), 1024, params(max_tokens=2)).result()
    assert len(response.sequences) == 1024


def test_unset_max_tokens_runs_to_the_end_of_the_context(base):
    response = base.sample(prompt([30] * 2040), 1,
                           types.SamplingParams(seed=1, stop=[])).result()
    assert len(response.sequences[0].tokens) == 8


def test_the_next_message_of_a_conversation_is_not_computed_again(service, lathe):
    client = service.create_sampling_client(base_model=lathe.model_name)
    question = [60 + i % 11 for i in range(40)]
    first = client.sample(prompt(question), 1, params(max_tokens=30)).result()
    turn = question + tokens_of(first)[0] + [50, 51, 52]
    second = client.sample(prompt(turn), 2, params()).result()
    assert second.prompt_cache_hit_tokens == 64  # whole blocks of 16 before the last sampled token
    third = client.sample(prompt(turn), 2, params()).result()
    assert tokens_of(third) == tokens_of(second)
    assert [s.logprobs for s in third.sequences] == [s.logprobs for s in second.sequences]
