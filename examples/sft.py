#!/usr/bin/env python3
"""Supervised fine-tuning: teaches a served model Pig Latin with the stock Tinker SDK.

    python examples/sft.py --base-url http://127.0.0.1:8080 --api-key "$(cat DIR/admin.key)"

Trains on some words and asks for others, before and after. Prints the loss of every step and its
curve, and saves the adapter for sampling. Ends with 1 when the loss did not halve or the model
does not translate more words than before. The defaults suit SmolLM2-135M.
"""

import argparse
import os
import pathlib
import random
import re
import sys

import tinker
from tinker import types

from terminal_chart import show_curve

WORDS = pathlib.Path(__file__).with_name("english_words.txt")
NUM_ANSWERS_SHOWN = 8


def pig_latin(english: str) -> str:
    """banana -> ananabay, physics -> ysicsphay, orange -> orangeway"""
    consonants, rest = re.fullmatch("([^aeiou]?[^aeiouy]*)(.*)", english).groups()
    return f"{rest}{consonants or 'w'}ay"


def spelled(word: str) -> str:
    """One token per letter: a small model hardly knows which letters its longer tokens have."""
    return " ".join(word)


def make_prompt(english: str) -> str:
    return f"{spelled(english)} ->"


def make_datum(tokenizer, english: str) -> types.Datum:
    """The model sees the prompt and learns the answer: weight 0, then weight 1."""
    prompt = tokenizer.encode(make_prompt(english), add_special_tokens=False)
    answer = tokenizer.encode(f" {spelled(pig_latin(english))}\n", add_special_tokens=False)
    tokens = prompt + answer
    weights = [0.0] * len(prompt) + [1.0] * len(answer)
    return types.Datum(
        model_input=types.ModelInput.from_ints(tokens[:-1]),
        loss_fn_inputs={"target_tokens": tokens[1:], "weights": weights[1:]},
    )


def batches(words: list[str], batch_size: int, seed: int):
    """Goes over the words again and again, in another order each time."""
    rng = random.Random(seed)
    while True:
        order = rng.sample(words, len(words))
        for begin in range(0, len(order) - batch_size + 1, batch_size):
            yield order[begin : begin + batch_size]


def train(client, tokenizer, words: list[str], args: argparse.Namespace) -> list[float]:
    """Returns the mean loss per answer token of every step."""
    losses = []
    for step, batch in zip(range(args.steps), batches(words, args.batch_size, args.seed)):
        data = [make_datum(tokenizer, word) for word in batch]
        num_answer_tokens = sum(sum(datum.loss_fn_inputs["weights"].data) for datum in data)
        # The rate falls to a tenth, so that the last steps settle.
        learning_rate = args.learning_rate * (1 - 0.9 * step / args.steps)
        # Both are queued at once; results are awaited afterwards.
        forward_backward = client.forward_backward(data, "cross_entropy")
        optim_step = client.optim_step(types.AdamParams(learning_rate=learning_rate))
        result = forward_backward.result()
        optim_step.result()
        losses.append(result.metrics["loss:sum"] / num_answer_tokens)
        print(f"step {step:3d}  loss {losses[-1]:7.4f}", flush=True)
    return losses


def ask(sampler, tokenizer, words: list[str]) -> list[str]:
    """The greedy answer for each word; all requests are in flight together."""
    params = types.SamplingParams(max_tokens=16, temperature=0.0, stop=["\n"])
    prompts = [tokenizer.encode(make_prompt(word), add_special_tokens=False) for word in words]
    futures = [
        sampler.sample(types.ModelInput.from_ints(prompt), num_samples=1, sampling_params=params)
        for prompt in prompts
    ]
    sequences = [future.result().sequences[0] for future in futures]
    return [tokenizer.decode(sequence.tokens).strip() for sequence in sequences]


def count_right_answers(sampler, tokenizer, words: list[str]) -> int:
    answers = ask(sampler, tokenizer, words)
    is_right = [answer == spelled(pig_latin(word)) for word, answer in zip(words, answers)]
    for word, answer, right in list(zip(words, answers, is_right))[:NUM_ANSWERS_SHOWN]:
        print(f"{'right' if right else 'wrong'}  {word} -> {answer}")
    print(f"{sum(is_right)} of {len(words)} answers right\n", flush=True)
    return sum(is_right)


def resolved(client):
    """The client itself: since 0.38 the SDK hands out a future of it."""
    return client.result() if hasattr(client, "result") else client


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--base-url", default=os.environ.get("TINKER_BASE_URL"))
    parser.add_argument("--api-key", default=os.environ.get("TINKER_API_KEY"))
    parser.add_argument("--model", help="default: the first model that is served")
    parser.add_argument("--lora-rank", type=int, default=32)
    parser.add_argument("--steps", type=int, default=24)
    parser.add_argument("--batch-size", type=int, default=16)
    parser.add_argument("--learning-rate", type=float, default=1e-3)
    parser.add_argument("--words", type=int, default=384, help="number of words to train on")
    parser.add_argument("--held-out-words", type=int, default=64,
                        help="0: asks for the words that it trained on")
    parser.add_argument("--seed", type=int, default=0)
    return parser.parse_args()


def main() -> int:
    args = parse_arguments()
    service = tinker.ServiceClient(base_url=args.base_url, api_key=args.api_key)
    model = args.model or service.get_server_capabilities().supported_models[0].model_name
    client = resolved(
        service.create_lora_training_client(
            base_model=model, rank=args.lora_rank, seed=args.seed
        )
    )
    tokenizer = client.get_tokenizer()
    words = WORDS.read_text(encoding="utf-8").split()
    random.Random(args.seed).shuffle(words)
    held_out, words = words[: args.held_out_words], words[args.held_out_words :][: args.words]
    asked = held_out or words

    print(f"Pig Latin on {model}, LoRA rank {args.lora_rank}: {len(words)} words to train on,"
          f" {len(held_out)} held out")
    base = resolved(service.create_sampling_client(base_model=model))
    before = count_right_answers(base, tokenizer, asked)
    losses = train(client, tokenizer, words, args)
    show_curve("loss per answer token", losses)
    path = client.save_weights_for_sampler(name="pig-latin").result().path
    tuned = resolved(service.create_sampling_client(model_path=path))
    after = count_right_answers(tuned, tokenizer, asked)

    print(f"saved {path}")
    print(f"loss {losses[0]:.3f} -> {losses[-1]:.3f},"
          f" right answers {before} -> {after} of {len(asked)}")
    return 0 if losses[-1] <= losses[0] / 2 and after > before else 1


if __name__ == "__main__":
    sys.exit(main())
