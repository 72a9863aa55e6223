"""The tutorial's seven phrases in Pig Latin: six steps of supervised training with the stock Tinker SDK.

    export TINKER_BASE_URL=http://127.0.0.1:8080 TINKER_API_KEY=tml-…
    python examples/pig_latin.py
"""

import argparse
import os
import sys

import tinker
from tinker import types

PHRASES = {
    "banana split": "anana-bay plit-say",
    "quantum physics": "uantum-qay ysics-phay",
    "donut shop": "onut-day op-shay",
    "pickle jar": "ickle-pay ar-jay",
    "space exploration": "ace-spay exploration-way",
    "rubber duck": "ubber-ray uck-day",
    "coding wizard": "oding-cay izard-way",
}
NUM_STEPS = 6


def make_datum(tokenizer, english: str, pig_latin: str) -> types.Datum:
    """The model sees the prompt and learns the answer: weight 0, then weight 1."""
    prompt = tokenizer.encode(f"English: {english}\nPig Latin:")
    answer = tokenizer.encode(f" {pig_latin}\n\n", add_special_tokens=False)
    tokens = prompt + answer
    weights = [0.0] * len(prompt) + [1.0] * len(answer)
    return types.Datum(
        model_input=types.ModelInput.from_ints(tokens[:-1]),
        loss_fn_inputs={"target_tokens": tokens[1:], "weights": weights[1:]},
    )


def resolved(client):
    """The client itself: since 0.38 the SDK hands out a future of it."""
    return client.result() if hasattr(client, "result") else client


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--base-url", default=os.environ.get("TINKER_BASE_URL"))
    parser.add_argument("--api-key", default=os.environ.get("TINKER_API_KEY"))
    parser.add_argument("--model", help="default: the first model that is served")
    parser.add_argument("--learning-rate", type=float, default=1e-3)
    args = parser.parse_args()

    service = tinker.ServiceClient(base_url=args.base_url, api_key=args.api_key)
    model = args.model or service.get_server_capabilities().supported_models[0].model_name
    client = resolved(service.create_lora_training_client(base_model=model, rank=32))
    tokenizer = client.get_tokenizer()
    data = [make_datum(tokenizer, english, pig_latin) for english, pig_latin in PHRASES.items()]
    num_answer_tokens = sum(sum(datum.loss_fn_inputs["weights"].data) for datum in data)
    losses = []
    for _ in range(NUM_STEPS):
        forward_backward = client.forward_backward(data, "cross_entropy")
        optim_step = client.optim_step(types.AdamParams(learning_rate=args.learning_rate))
        losses.append(forward_backward.result().metrics["loss:sum"] / num_answer_tokens)
        optim_step.result()
        print(f"Loss: {losses[-1]:.4f}", flush=True)
    return 0 if losses[-1] < losses[0] else 1


if __name__ == "__main__":
    sys.exit(main())
