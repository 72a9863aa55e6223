#!/usr/bin/env python3
"""Prints the greedy answer of a served model, or of a checkpoint, to each prompt.

    python examples/ask.py --chat "What is the capital of France?"
    python examples/ask.py --checkpoint tinker://... "b a n a n a ->"
    python examples/ask.py --folder ./merged "b a n a n a ->"

An answer is one line. With --folder, Transformers answers from a Hugging Face folder, such as one
that `lathe export --merged` wrote, and Lathe is not needed.
"""

import argparse
import os
import sys

import tinker
from tinker import types

MAX_TOKENS = 32


def encode(tokenizer, prompt: str, is_chat: bool) -> list[int]:
    if is_chat:
        messages = [{"role": "user", "content": prompt}]
        prompt = tokenizer.apply_chat_template(messages, tokenize=False, add_generation_prompt=True)
    return tokenizer.encode(prompt, add_special_tokens=False)


def answers_of_lathe(args: argparse.Namespace) -> list[str]:
    from transformers import AutoTokenizer

    service = tinker.ServiceClient(base_url=args.base_url, api_key=args.api_key)
    model = args.model or service.get_server_capabilities().supported_models[0].model_name
    base = None if args.checkpoint else model
    sampler = resolved(service.create_sampling_client(base_model=base, model_path=args.checkpoint))
    tokenizer = AutoTokenizer.from_pretrained(args.tokenizer or model)
    params = types.SamplingParams(max_tokens=MAX_TOKENS, temperature=0.0, stop=["\n"])
    futures = [
        sampler.sample(
            types.ModelInput.from_ints(encode(tokenizer, prompt, args.chat)),
            num_samples=1,
            sampling_params=params,
        )
        for prompt in args.prompts
    ]
    sequences = [future.result().sequences[0] for future in futures]
    return [tokenizer.decode(sequence.tokens, skip_special_tokens=True) for sequence in sequences]


def answers_of_transformers(args: argparse.Namespace) -> list[str]:
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(args.folder)
    # CPUs without products of bfloat16 emulate them slowly.
    model = AutoModelForCausalLM.from_pretrained(args.folder, dtype=torch.float32)
    answers = []
    for prompt in args.prompts:
        tokens = torch.tensor([encode(tokenizer, prompt, args.chat)])
        output = model.generate(tokens, attention_mask=torch.ones_like(tokens), do_sample=False,
                                max_new_tokens=MAX_TOKENS, stop_strings=["\n"], tokenizer=tokenizer)
        answers.append(tokenizer.decode(output[0, tokens.shape[1] :], skip_special_tokens=True))
    return answers


def resolved(client):
    """The client itself: since 0.38 the SDK hands out a future of it."""
    return client.result() if hasattr(client, "result") else client


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("prompts", nargs="+", metavar="PROMPT")
    parser.add_argument("--base-url", default=os.environ.get("TINKER_BASE_URL"))
    parser.add_argument("--api-key", default=os.environ.get("TINKER_API_KEY"))
    parser.add_argument("--model", help="default: the first model that is served")
    parser.add_argument("--checkpoint", help="tinker:// path of weights that were saved for sampling")
    parser.add_argument("--folder", help="Hugging Face folder that Transformers loads instead")
    parser.add_argument("--tokenizer", help="id or folder of the tokenizer; default: the model's name")
    parser.add_argument("--chat", action="store_true", help="prompts are messages of a user")
    return parser.parse_args()


def main() -> int:
    args = parse_arguments()
    answers = answers_of_transformers(args) if args.folder else answers_of_lathe(args)
    for prompt, answer in zip(args.prompts, answers):
        print(f"{prompt} {answer.strip()}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
