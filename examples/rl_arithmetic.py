#!/usr/bin/env python3
"""Reinforcement learning: teaches a served model sums of two digits by reward alone.

    python examples/rl_arithmetic.py --base-url http://127.0.0.1:8080 --api-key "$(cat DIR/admin.key)"

Ten supervised steps on right sums of the digits 0 to 4 show the model what an answer looks like.
Then each step samples 16 answers to each of the 25 prompts from the current weights, rewards the
exact ones, and trains on the advantage over the prompt's mean with `importance_sampling`.
Ends with 1 when the exact-match rate does not reach 0.6; always answering 4 would give 0.2.
"""

import argparse
import dataclasses
import os
import sys

import tinker
from tinker import types

from terminal_chart import show_curve

DIGITS = range(5)
SAMPLES_PER_PROMPT = 16
RATE_TO_REACH = 0.6
# The rate shown at the end is the mean of this many steps: one of them has 400 samples.
STEPS_TO_AVERAGE = 5


@dataclasses.dataclass
class Problem:
    prompt: list[int]
    answer: str


def make_problems(tokenizer) -> list[Problem]:
    return [
        Problem(tokenizer.encode(f"{a}+{b}=", add_special_tokens=False), f"{a + b}\n")
        for a in DIGITS
        for b in DIGITS
    ]


def supervised_datum(tokenizer, problem: Problem) -> types.Datum:
    answer = tokenizer.encode(problem.answer, add_special_tokens=False)
    tokens = problem.prompt + answer
    weights = [0.0] * len(problem.prompt) + [1.0] * len(answer)
    return types.Datum(
        model_input=types.ModelInput.from_ints(tokens[:-1]),
        loss_fn_inputs={"target_tokens": tokens[1:], "weights": weights[1:]},
    )


def warm_up(client, tokenizer, problems: list[Problem], steps: int, learning_rate: float) -> None:
    data = [supervised_datum(tokenizer, problem) for problem in problems]
    for step in range(steps):
        forward_backward = client.forward_backward(data, "cross_entropy")
        optim_step = client.optim_step(types.AdamParams(learning_rate=learning_rate))
        loss = forward_backward.result().metrics["loss:sum"] / len(data)
        optim_step.result()
        print(f"supervised step {step:2d}  loss {loss:7.4f}", flush=True)


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


def sample_all(sampler, problems: list[Problem], seed: int) -> list[list]:
    """Sixteen sequences per problem; all requests are in flight together."""
    futures = [
        sampler.sample(
            types.ModelInput.from_ints(problem.prompt),
            num_samples=SAMPLES_PER_PROMPT,
            sampling_params=types.SamplingParams(
                max_tokens=4, temperature=1.0, stop=["\n"], seed=seed * len(problems) + index
            ),
        )
        for index, problem in enumerate(problems)
    ]
    return [future.result().sequences for future in futures]


def reinforcement_step(client, tokenizer, problems, seed: int, learning_rate: float) -> float:
    """One round of sampling, rewarding and training. Returns the exact-match rate of the samples."""
    sampler = resolved(client.save_weights_and_get_sampling_client())
    data, num_right = [], 0
    for problem, sequences in zip(problems, sample_all(sampler, problems, seed)):
        rewards = [float(tokenizer.decode(s.tokens) == problem.answer) for s in sequences]
        num_right += sum(rewards)
        mean = sum(rewards) / len(rewards)
        # A group of equal rewards says nothing about which answer was better.
        data.extend(
            policy_gradient_datum(problem.prompt, sequence, reward - mean)
            for sequence, reward in zip(sequences, rewards)
            if reward != mean
        )
    if data:
        forward_backward = client.forward_backward(data, "importance_sampling")
        optim_step = client.optim_step(types.AdamParams(learning_rate=learning_rate, eps=1e-8))
        forward_backward.result()
        optim_step.result()
    return num_right / (len(problems) * SAMPLES_PER_PROMPT)


def resolved(client):
    """The client itself: since 0.38 the SDK hands out a future of it."""
    return client.result() if hasattr(client, "result") else client


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--base-url", default=os.environ.get("TINKER_BASE_URL"))
    parser.add_argument("--api-key", default=os.environ.get("TINKER_API_KEY"))
    parser.add_argument("--model", help="default: the first model that is served")
    parser.add_argument("--lora-rank", type=int, default=32)
    parser.add_argument("--supervised-steps", type=int, default=10)
    parser.add_argument("--steps", type=int, default=60)
    parser.add_argument("--supervised-learning-rate", type=float, default=4e-3)
    parser.add_argument("--learning-rate", type=float, default=2e-3,
                        help="high, for a tiny model; a real one wants 1e-5 to 1e-4")
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
    problems = make_problems(tokenizer)

    print(f"sums of two digits on {model}, LoRA rank {args.lora_rank}")
    warm_up(client, tokenizer, problems, args.supervised_steps, args.supervised_learning_rate)
    rates = []
    for step in range(args.steps):
        seed = args.seed * args.steps + step
        rates.append(reinforcement_step(client, tokenizer, problems, seed, args.learning_rate))
        print(f"reinforcement step {step:2d}  exact-match rate {rates[-1]:.3f}", flush=True)

    show_curve("exact-match rate", rates)
    last = rates[-STEPS_TO_AVERAGE:]
    rate = sum(last) / len(last)
    print(f"exact-match rate {rates[0]:.2f} -> {rate:.2f} (to reach: {RATE_TO_REACH})")
    return 0 if rate >= RATE_TO_REACH else 1


if __name__ == "__main__":
    sys.exit(main())
