"""The Qwen3-0.6B shape (random weights, bf16): training and decode beside PEFT / HF, in one run.

Alternates ours (through the service, stock SDK) and the peer's, prints medians and ratios.
Both use the same number of threads. Run: .venv/bin/python tests/bench/model_06b.py
"""

import argparse
import os
import statistics
import sys
import time

sys.path.insert(0, os.path.join(os.path.dirname(__file__), ".."))
from support.lathe_server import LatheServer, tiny_model  # noqa: E402


def seconds(function):
    begin = time.perf_counter()
    function()
    return time.perf_counter() - begin


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--threads", type=int, default=os.cpu_count())
    parser.add_argument("--new-tokens", type=int, default=16)
    args = parser.parse_args()
    os.environ["OMP_NUM_THREADS"] = str(args.threads)
    import peft
    import tinker
    import torch
    from tinker import types
    from transformers import AutoModelForCausalLM
    torch.set_num_threads(args.threads)

    folder = tiny_model("--size", "0.6b")
    base = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.bfloat16)
    lora = peft.get_peft_model(base, peft.LoraConfig(
        r=8, lora_alpha=32, target_modules=["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj",
                                            "up_proj", "down_proj"]))
    ids = torch.randint(20, 700, (4, 129), generator=torch.Generator().manual_seed(0))

    def peft_step():
        logits = lora(ids[:, :-1]).logits.float()
        loss = torch.nn.functional.cross_entropy(
            logits.flatten(0, 1), ids[:, 1:].flatten(), reduction="sum")
        loss.backward()
        lora.zero_grad()

    prompt = ids[:, :16].repeat(2, 1)

    def hf_decode():
        with lora.disable_adapter(), torch.no_grad():
            lora.generate(input_ids=prompt, attention_mask=torch.ones_like(prompt), do_sample=True,
                          min_new_tokens=args.new_tokens, max_new_tokens=args.new_tokens)

    with LatheServer(folder, name="Qwen3-0.6B", args=["--threads", str(args.threads)]) as server:
        service = tinker.ServiceClient(base_url=server.url, api_key=server.api_key)
        training = service.create_lora_training_client(
            server.model_name, rank=8, train_unembed=False)
        sampler = service.create_sampling_client(base_model=server.model_name)
        data = [types.Datum(
            model_input=types.ModelInput.from_ints(row[:-1].tolist()),
            loss_fn_inputs={"target_tokens": row[1:].tolist(), "weights": [1.0] * 128})
            for row in ids]

        def our_step():
            training.forward_backward(data, "cross_entropy").result()

        def our_decode():
            done = [sampler.sample(
                types.ModelInput.from_ints(row.tolist()), num_samples=1,
                sampling_params=types.SamplingParams(max_tokens=args.new_tokens, seed=1, stop=[]))
                for row in prompt]
            for future in done:
                future.result()

        for name, ours, peer, tokens in (
                ("forward_backward 4 x 128 tokens, LoRA r8", our_step, peft_step, 4 * 128),
                (f"decode of 8 x {args.new_tokens} tokens", our_decode, hf_decode,
                 8 * args.new_tokens)):
            ours(), peer()
            mine, theirs = [], []
            for _ in range(args.rounds):
                mine.append(seconds(ours))
                theirs.append(seconds(peer))
            print(f"{name}: ours {tokens / statistics.median(mine):.1f} tokens/s, peer "
                  f"{tokens / statistics.median(theirs):.1f} tokens/s, ratio ours/peer "
                  f"{statistics.median(b / a for a, b in zip(mine, theirs)):.2f} "
                  f"({args.rounds} alternating rounds, {args.threads} threads)", flush=True)


if __name__ == "__main__":
    main()
