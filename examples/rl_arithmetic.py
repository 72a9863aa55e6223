#!/usr/bin/env python3
"""Reinforcement learning: teaches a served model sums of two digits by reward alone.

    python examples/rl_arithmetic.py --base-url http://127.0.0.1:8080 --api-key "$(cat DIR/admin.key)"

A few supervised steps on right sums show the model what an answer looks like. Then each step samples
answers to some prompts from the current weights, rewards the exact ones, and trains on the advantage
over the prompt's mean with `importance_sampling`. Ends with 1 when the rate of right answers does not
rise by 0.05 from the first pass over all prompts to the last. Sums that are held out are never trained
on; they are sampled before and after the reinforcement. The defaults suit SmolLM2-135M.
"""

import argparse
import dataclasses
import os
import random
import sys

import tinker
from tinker import types

from terminal_chart import show_curve

RISE_TO_REACH = 0.05


@dataclasses.dataclass
class Problem:
    prompt: list[int]
    answer: str


def make_problems(tokenizer, numbers: int) -> list[Problem]:
    return [
        Problem(tokenizer.encode(f"{a}+{b}=", add_special_tokens=False), f"{a + b}\n")
        for a in range(numbers)
        for b in range(numbers)
    ]


def batches(problems: list[Problem], batch_size: int, rng: random.Random):
    """Goes over the problems again and again, in another order each time."""
    while True:
        order = rng.sample(problems, len(problems))
        for begin in range(0, len(order) - batch_size + 1, batch_size):
            yield order[begin : begin + batch_size]


def supervised_datum(tokenizer, problem: Problem) -> types.Datum:
    answer = tokenizer.encode(problem.answer, add_special_tokens=False)
    tokens = problem.prompt + answer
    weights = [0.0] * len(problem.prompt) + [1.0] * len(answer)
    return types.Datum(
        model_input=types.ModelInput.from_ints(tokens[:-1]),
        loss_fn_inputs={"target_tokens": tokens[1:], "weights": weights[1:]},
    )


def supervised_step(client, tokenizer, problems: list[Problem], learning_rate: float) -> float:
    """Returns the mean loss per answer token."""
    data = [supervised_datum(tokenizer, problem) for problem in problems]
    forward_backward = client.forward_backward(data, "cross_entropy")
    optim_step = client.optim_step(types.AdamParams(learning_rate=learning_rate))
    loss = forward_backward.result().metrics["loss:sum"]
    optim_step.result()
    return loss / sum(sum(datum.loss_fn_inputs["weights"].data) for datum in data)


def policy_gradient_datum(prompt: list[int], sequence, advantage: float) -> types.Datum:
    """Prompt positions count for nothing: their advantage is 0."""
    tokens = prompt + list(sequence.tokens)
    num_prompt_targets = len(prompt) - 1
    return types.Datum(
        model_input=types.ModelInput.from_ints(tokens[:-1]),
        loss_fn_inputs={
            "target_tokens": tokens[1:],
            "logprobs": [0.0] * num_prompt_targets + list(sequence.logprobs),
            "advantages": [0.0] * num_prompt_targets + [advantage] * len(sequence.tokens),
        },
    )


def sample_all(client, problems: list[Problem], num_samples: int, rng: random.Random) -> list[list]:
    """The sequences of each problem from the current weights; all requests are in flight together."""
    sampler = resolved(client.save_weights_and_get_sampling_client())
    futures = [
        sampler.sample(
            types.ModelInput.from_ints(problem.prompt),
            num_samples=num_samples,
            sampling_params=types.SamplingParams(
                max_tokens=4, temperature=1.0, stop=["\n"], seed=rng.randrange(2**31)
            ),
        )
        for problem in problems
    ]
    return [future.result().sequences for future in futures]


def rewards_of(tokenizer, problem: Problem, sequences: list) -> list[float]:
    return [float(tokenizer.decode(s.tokens) == problem.answer) for s in sequences]


def mean(values: list[float]) -> float:
    return sum(values) / len(values)


def held_out_rate(client, tokenizer, problems: list[Problem], num_samples: int, seed: int) -> float:
    sampled = sample_all(client, problems, num_samples, random.Random(seed))
    return mean([mean(rewards_of(tokenizer, *pair)) for pair in zip(problems, sampled)])


def reinforcement_step(client, tokenizer, problems, num_samples: int, learning_rate: float,
                       rng: random.Random) -> float:
    """One round of sampling, rewarding and training. Returns the exact-match rate of the samples."""
    data, rates = [], []
    for problem, sequences in zip(problems, sample_all(client, problems, num_samples, rng)):
        rewards = rewards_of(tokenizer, problem, sequences)
        rates.append(mean(rewards))
        # A group of equal rewards says nothing about which answer was better.
        data.extend(
            policy_gradient_datum(problem.prompt, sequence, reward - rates[-1])
            for sequence, reward in zip(sequences, rewards)
            if reward != rates[-1]
        )
    if data:
        forward_backward = client.forward_backward(data, "importance_sampling")
        optim_step = client.optim_step(types.AdamParams(learning_rate=learning_rate, eps=1e-8))
        forward_backward.result()
        optim_step.result()
    return mean(rates)


def resolved(client):
    """The client itself: since 0.38 the SDK hands out a future of it."""
    return client.result() if hasattr(client, "result") else client


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--base-url", default=os.environ.get("TINKER_BASE_URL"))
    parser.add_argument("--api-key", default=os.environ.get("TINKER_API_KEY"))
    parser.add_argument("--model", help="default: the first model that is served")
    parser.add_argument("--lora-rank", type=int, default=32)
    parser.add_argument("--numbers", type=int, default=10, help="sums of the numbers below this one")
    parser.add_argument("--held-out-problems", type=int, default=36)
    parser.add_argument("--supervised-steps", type=int, default=24)
    parser.add_argument("--supervised-learning-rate", type=float, default=3e-4)
    parser.add_argument("--steps", type=int, default=16)
    parser.add_argument("--learning-rate", type=float, default=2e-4)
    parser.add_argument("--prompts-per-step", type=int, default=16)
    parser.add_argument("--samples-per-prompt", type=int, default=8)
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
    rng = random.Random(args.seed)
    problems = make_problems(tokenizer, args.numbers)
    rng.shuffle(problems)
    held_out, problems = problems[: args.held_out_problems], problems[args.held_out_problems :]
    batch = batches(problems, args.prompts_per_step, rng)

    def rate_of_held_out() -> float:
        return held_out_rate(client, tokenizer, held_out, args.samples_per_prompt, args.seed)

    print(f"sums of numbers below {args.numbers} on {model}, LoRA rank {args.lora_rank}:"
          f" {len(problems)} to train on, {len(held_out)} held out")
    for step in range(args.supervised_steps):
        loss = supervised_step(client, tokenizer, next(batch), args.supervised_learning_rate)
        print(f"supervised step {step:2d}  loss {loss:7.4f}", flush=True)
    held_out_before = rate_of_held_out() if held_out else None
    rates = []
    for step in range(args.steps):
        rates.append(reinforcement_step(client, tokenizer, next(batch), args.samples_per_prompt,
                                        args.learning_rate, rng))
        print(f"reinforcement step {step:2d}  exact-match rate {rates[-1]:.3f}", flush=True)

    show_curve("exact-match rate", rates)
    if held_out:
        print(f"held-out sums: exact-match rate {held_out_before:.2f} -> {rate_of_held_out():.2f}")
    steps_per_pass = max(1, len(problems) // args.prompts_per_step)
    before, after = mean(rates[:steps_per_pass]), mean(rates[-steps_per_pass:])
    print(f"exact-match rate, first and last pass over the prompts: {before:.2f} -> {after:.2f}"
          f" (to rise by {RISE_TO_REACH})")
    return 0 if after >= before + RISE_TO_REACH else 1


if __name__ == "__main__":
    sys.exit(main())
