#!/usr/bin/env python3
"""Supervised fine-tuning: teaches a served model Pig Latin with the stock Tinker SDK.

    python examples/sft.py --base-url http://127.0.0.1:8080 --api-key "$(cat DIR/admin.key)"

Prints the loss of every step, its curve, and greedy samples. Ends with 1 when the loss did not
fall or when no sample follows the pattern.
"""

import argparse
import os
import sys

import tinker
from tinker import types

from terminal_chart import show_curve

EXAMPLES = [
    ("banana split", "anana-bay plit-say"),
    ("quantum physics", "uantum-qay ysics-phay"),
    ("donut shop", "onut-day op-shay"),
    ("pickle jar", "ickle-pay ar-jay"),
    ("space exploration", "ace-spay exploration-way"),
    ("rubber duck", "ubber-ray uck-day"),
    ("coding wizard", "oding-cay izard-way"),
]


def make_prompt(english: str) -> str:
    return f"English: {english}\nPig Latin:"


def make_datum(tokenizer, english: str, pig_latin: str) -> types.Datum:
    """The model sees the prompt and learns the answer: weight 0, then weight 1."""
    prompt = tokenizer.encode(make_prompt(english), add_special_tokens=False)
    answer = tokenizer.encode(f" {pig_latin}\n\n", add_special_tokens=False)
    tokens = prompt + answer
    weights = [0.0] * len(prompt) + [1.0] * len(answer)
    return types.Datum(
        model_input=types.ModelInput.from_ints(tokens[:-1]),
        loss_fn_inputs={"target_tokens": tokens[1:], "weights": weights[1:]},
    )


def train(client, data: list[types.Datum], steps: int, learning_rate: float) -> list[float]:
    """Returns the mean loss per answer token of every step."""
    num_answer_tokens = sum(sum(datum.loss_fn_inputs["weights"].data) for datum in data)
    losses = []
    for step in range(steps):
        # Both are queued at once; results are awaited afterwards.
        forward_backward = client.forward_backward(data, "cross_entropy")
        optim_step = client.optim_step(types.AdamParams(learning_rate=learning_rate))
        result = forward_backward.result()
        optim_step.result()
        losses.append(result.metrics["loss:sum"] / num_answer_tokens)
        print(f"step {step:3d}  loss {losses[-1]:7.4f}", flush=True)
    return losses


def count_right_samples(client, tokenizer) -> int:
    sampler = resolved(client.save_weights_and_get_sampling_client(name="pig-latin"))
    params = types.SamplingParams(max_tokens=24, temperature=0.0, stop=["\n"])
    futures = []
    for english, _ in EXAMPLES:
        tokens = tokenizer.encode(make_prompt(english), add_special_tokens=False)
        prompt = types.ModelInput.from_ints(tokens)
        futures.append(sampler.sample(prompt, num_samples=1, sampling_params=params))
    num_right = 0
    for (english, expected), future in zip(EXAMPLES, futures):
        answer = tokenizer.decode(future.result().sequences[0].tokens).strip()
        is_right = answer == expected
        num_right += is_right
        print(f"{'right' if is_right else 'wrong'}  {english} -> {answer}")
    return num_right


def resolved(client):
    """The client itself: since 0.38 the SDK hands out a future of it."""
    return client.result() if hasattr(client, "result") else client


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--base-url", default=os.environ.get("TINKER_BASE_URL"))
    parser.add_argument("--api-key", default=os.environ.get("TINKER_API_KEY"))
    parser.add_argument("--model", help="default: the first model that is served")
    parser.add_argument("--lora-rank", type=int, default=32)
    parser.add_argument("--steps", type=int, default=40)
    parser.add_argument("--learning-rate", type=float, default=3e-3,
                        help="high, for a tiny model; a real one wants 1e-4 to 5e-4")
    return parser.parse_args()


def main() -> int:
    args = parse_arguments()
    service = tinker.ServiceClient(base_url=args.base_url, api_key=args.api_key)
    model = args.model or service.get_server_capabilities().supported_models[0].model_name
    client = resolved(
        service.create_lora_training_client(base_model=model, rank=args.lora_rank, seed=0)
    )
    tokenizer = client.get_tokenizer()

    print(f"Pig Latin on {model}, LoRA rank {args.lora_rank}")
    data = [make_datum(tokenizer, *example) for example in EXAMPLES]
    losses = train(client, data, args.steps, args.learning_rate)
    show_curve("loss per answer token", losses)
    num_right = count_right_samples(client, tokenizer)

    if losses[-1] > losses[0] / 2:
        print(f"the loss went from {losses[0]:.3f} to {losses[-1]:.3f}: not below half of it")
        return 1
    if num_right == 0:
        print("no sample follows the pattern")
        return 1
    print(f"loss {losses[0]:.3f} -> {losses[-1]:.3f}, {num_right} of {len(EXAMPLES)} samples right")
    return 0


if __name__ == "__main__":
    sys.exit(main())
