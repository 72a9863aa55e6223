"""Decode rate of the tiny model through the service: 64 concurrent samples against one.

Prints the median over alternating rounds of tokens per second for one sample and for 64, and their
ratio. Run: .venv/bin/python tests/bench/decode_rate.py
"""

import argparse
import os
import statistics
import sys
import time

sys.path.insert(0, os.path.join(os.path.dirname(__file__), ".."))
from support.lathe_server import LatheServer, tiny_model  # noqa: E402


def rate(client, types, concurrent, tokens, seed):
    prompt = types.ModelInput.from_ints([30, 31, 32, 33])
    begin = time.perf_counter()
    futures = [client.sample(prompt, num_samples=1, sampling_params=types.SamplingParams(
        max_tokens=tokens, seed=seed + index, stop=[])) for index in range(concurrent)]
    done = sum(len(future.result().sequences[0].tokens) for future in futures)
    return done / (time.perf_counter() - begin)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tokens", type=int, default=512)
    parser.add_argument("--rounds", type=int, default=5)
    args = parser.parse_args()
    import tinker
    from tinker import types
    with LatheServer(tiny_model()) as server:
        service = tinker.ServiceClient(base_url=server.url, api_key=server.api_key)
        client = service.create_sampling_client(base_model=server.model_name)
        rate(client, types, 4, 16, 0)
        one, many = [], []
        for number in range(args.rounds):
            one.append(rate(client, types, 1, args.tokens, 100 * number))
            many.append(rate(client, types, 64, args.tokens, 100 * number))
        print(f"decode  1 sample {statistics.median(one):.0f} tokens/s  64 concurrent samples "
              f"{statistics.median(many):.0f} tokens/s  ratio "
              f"{statistics.median(b / a for a, b in zip(one, many)):.1f}  "
              f"({args.tokens} tokens each, {args.rounds} alternating rounds)")


if __name__ == "__main__":
    main()
