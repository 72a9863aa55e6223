"""Sampling beside llama.cpp and HF Transformers, in one run, alternating: the table of
docs/measurements/sampling.md.

Ours is the sampling engine alone (lathe_sampling_bench), but for the last case, which goes through
HTTP. All have the same threads and weights. Prints the machine's read bandwidth and matmul rate
first, then for each case medians, ratios to the peers, and the share of what the machine allows.
Run: tools/setup_bench; .venv/bin/python tests/bench/sampling/sampling_bench.py [--cases one,...]
"""

import argparse
import atexit
import os
import pathlib
import shutil
import statistics
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parents[3]
sys.path.insert(0, str(ROOT / "tests"))
from support.bench import Driver, alternate, ratio  # noqa: E402
from support.lathe_server import tiny_model  # noqa: E402

CONTEXT = 64
TOKENS = {1: 24, 8: 16, 32: 12}  # a round draws as many of each sequence
PREFILL = 512


class Transformers:
    """HF Transformers, greedy, with its own KV cache."""

    def __init__(self, folder, dtype):
        import torch
        from transformers import AutoModelForCausalLM
        self.torch = torch
        self.model = AutoModelForCausalLM.from_pretrained(folder, dtype=dtype).eval()

    def decode(self, sequences, tokens):
        torch = self.torch
        with torch.inference_mode():
            ids = torch.randint(20, 700, (sequences, CONTEXT))
            out = self.model(ids, use_cache=True, logits_to_keep=1)
            begin = time.perf_counter()
            for _ in range(tokens):
                ids = out.logits[:, -1].argmax(-1, keepdim=True)
                out = self.model(ids, past_key_values=out.past_key_values, use_cache=True)
            return {"seconds": time.perf_counter() - begin, "tokens": sequences * tokens}


class Rates:
    """Read bandwidth and matmul rate, measured before and after each step of ours: machines change
    their speed within minutes."""

    def __init__(self, driver):
        self.driver = driver
        self.bandwidth, self.matmul = [], []  # bytes/s, flop/s

    def __call__(self):
        self.bandwidth.append(1e9 * self.driver.run(op="bandwidth")["gb_per_second"])
        self.matmul.append(1e9 * self.driver.run(op="matmul", rows=PREFILL)["gflops"])

    @staticmethod
    def around(rates):
        """By step: the mean of before and after; the first round warmed up."""
        return [statistics.mean(pair) for pair in zip(rates[2::2], rates[3::2])]


class Table:
    def __init__(self, args):
        self.args = args
        self.folder = args.model or tiny_model("--size", "0.6b")
        binary = pathlib.Path(os.environ.get("LATHE_BIN", ROOT / "build/release/bin"))
        self.ours = Driver(binary / "lathe_sampling_bench")
        self.weight_bytes = self.ours.run(op="load", folder=str(self.folder),
                                          threads=args.threads)["weight_bytes"]
        self.peers = {}
        rates = Rates(self.ours)
        for _ in range(args.rounds):
            rates()
        print(f"this machine reads {1e-9 * statistics.median(rates.bandwidth):.1f} GB/s and multiplies "
              f"{1e-9 * statistics.median(rates.matmul):.0f} GFLOP/s in bf16 ({PREFILL} rows), "
              f"{args.threads} threads", flush=True)

    def llama(self):
        if "llama" not in self.peers:
            python = ROOT / ".venv-bench/bin/python"
            if not python.exists():
                raise SystemExit("no .venv-bench here: run tools/setup_bench first")
            peer = Driver(python, pathlib.Path(__file__).with_name("llama_peer.py"))
            out = tempfile.mkdtemp(prefix="lathe-gguf-")
            atexit.register(shutil.rmtree, out, ignore_errors=True)
            peer.run(op="load", folder=str(self.folder), out=out, threads=self.args.threads, sequences=32,
                     context=PREFILL + 64)
            self.peers["llama"] = peer
        return self.peers["llama"]

    def transformers(self, dtype):
        if dtype not in self.peers:
            self.peers[dtype] = Transformers(self.folder, dtype)
        return self.peers[dtype]

    def our_decode(self, sequences, **more):
        # The first token of each comes with its prompt.
        answer = self.ours.run(op="decode", sequences=sequences, context=CONTEXT,
                               tokens=TOKENS[sequences] + 1, **more)
        assert answer["tokens"] == sequences * TOKENS[sequences], answer
        return answer

    def one(self):
        rates = Rates(self.ours)
        steps = [rates, lambda: self.our_decode(1), rates,
                 lambda: self.llama().run(op="decode", sequences=1, context=CONTEXT, tokens=TOKENS[1]),
                 lambda: self.transformers("bfloat16").decode(1, TOKENS[1]),
                 lambda: self.transformers("float32").decode(1, TOKENS[1])]
        _, mine, _, llama, bf16, fp32 = alternate(self.args.rounds, *steps)
        share = statistics.median(TOKENS[1] * self.weight_bytes / (seconds * bandwidth) for seconds, bandwidth
                                  in zip(mine, Rates.around(rates.bandwidth)))
        print(f"decode, 1 sequence: ours {TOKENS[1] / statistics.median(mine):.1f} tokens/s, {100 * share:.0f} % "
              f"of read bandwidth / bytes per token; llama.cpp {TOKENS[1] / statistics.median(llama):.1f}, "
              f"ours/llama.cpp {ratio(mine, llama):.2f}; Transformers bf16 ours/theirs {ratio(mine, bf16):.2f}, "
              f"fp32 {ratio(mine, fp32):.2f}", flush=True)

    def many(self, sequences):
        tokens = TOKENS[sequences]
        mine, single, llama = alternate(
            self.args.rounds, lambda: self.our_decode(sequences), lambda: self.our_decode(1),
            lambda: self.llama().run(op="decode", sequences=sequences, context=CONTEXT, tokens=tokens))
        per_token = sequences * tokens / TOKENS[1]
        print(f"decode, {sequences} sequences: ours {sequences * tokens / statistics.median(mine):.1f} tokens/s, "
              f"{per_token * ratio(mine, single):.1f} x one sequence; llama.cpp "
              f"{sequences * tokens / statistics.median(llama):.1f}, ours/llama.cpp {ratio(mine, llama):.2f}",
              flush=True)

    def prefill(self):
        rates = Rates(self.ours)
        flops = []

        def ours():
            answer = self.ours.run(op="prefill", tokens=PREFILL)
            flops.append(1e9 * answer["gflops"])
            return answer

        _, mine, _, llama = alternate(self.args.rounds, rates, ours, rates,
                                      lambda: self.llama().run(op="prefill", tokens=PREFILL))
        share = statistics.median(a / b for a, b in zip(flops[1:], Rates.around(rates.matmul)))
        print(f"prefill of {PREFILL} tokens: ours {PREFILL / statistics.median(mine):.0f} tokens/s, "
              f"{100 * share:.0f} % of the matmul rate; llama.cpp {PREFILL / statistics.median(llama):.0f}, "
              f"ours/llama.cpp {ratio(mine, llama):.2f}", flush=True)

    def group(self):
        def first_token(separate):
            answer = self.ours.run(op="group", samples=8, prompt_tokens=PREFILL, tokens=2, separate=separate)
            return {"seconds": answer["first_token_seconds"]}

        together, apart = alternate(self.args.rounds, lambda: first_token(False), lambda: first_token(True))
        print(f"8 samples of one {PREFILL}-token prompt: first token of all after "
              f"{statistics.median(together):.2f} s, as 8 requests without prefix cache "
              f"{statistics.median(apart):.2f} s, {ratio(together, apart):.1f} x", flush=True)

    def adapters(self):
        byte_counts = {}

        def run(count):
            answer = self.our_decode(8, adapters=count, rank=8)
            byte_counts[count] = answer["adapter_bytes"]
            return answer

        four, one = alternate(self.args.rounds, lambda: run(4), lambda: run(1))
        against_one = ratio(four, one)
        allowed = (self.weight_bytes + byte_counts[1]) / (self.weight_bytes + byte_counts[4])
        print(f"4 adapters of rank 8 in a batch of 8: {100 * against_one:.0f} % of one adapter, "
              f"{100 * against_one / allowed:.0f} % of what the extra bytes allow ({100 * allowed:.1f} %)",
              flush=True)

    def cold(self):
        answers = {}

        def run(resident, busy):
            answer = self.ours.run(op="cold", rank=8, resident=resident, busy=busy)
            answers.setdefault((resident, busy), []).append(answer)
            return answer

        def median(key, *which):
            return 1e3 * statistics.median(answer[key] for answer in answers[which][1:])

        def delay(key):
            pairs = zip(answers[True, True][1:], answers[False, True][1:])
            return 1e3 * statistics.median(away[key] - here[key] for here, away in pairs)

        here, away, busy_here, busy_away = alternate(
            self.args.rounds, lambda: run(True, False), lambda: run(False, False),
            lambda: run(True, True), lambda: run(False, True))
        added = [1e3 * statistics.median(b - a for a, b in zip(*pair))
                 for pair in ((here, away), (busy_here, busy_away))]
        print(f"adapter of rank 8 not resident, file cached: {added[0]:.1f} ms added to its first token, "
              f"{added[1]:.1f} ms beside a sequence that decodes (reading takes {median('load_seconds', False, False):.1f} "
              f"and {median('load_seconds', False, True):.1f} ms); passes of that sequence meanwhile "
              f"{median('pass_seconds', False, True):.1f} ms, {delay('pass_seconds'):.1f} ms more than with a resident one, "
              f"the longest {median('longest_pass_seconds', False, True):.1f} ms, "
              f"{delay('longest_pass_seconds'):.1f} ms more", flush=True)

    def share(self):
        for share in (0.2, 0.5, 0.8):
            answer = self.ours.run(op="share", share=share, run_seconds=self.args.share_seconds)
            wait = answer["longest_gap_seconds"] - answer["pass_seconds"]
            print(f"decode of 4 sequences beside training, sampling_share {share}: {100 * answer['share']:.1f} % of "
                  f"device time (the two add up to {answer['sampling_seconds'] + answer['training_seconds']:.1f} of "
                  f"{answer['seconds']:.1f} s), {answer['decode_passes']} passes of {1e3 * answer['pass_seconds']:.0f} ms; "
                  f"longest wait {1e3 * wait:.0f} ms, longest training without a pause "
                  f"{1e3 * answer['longest_step_seconds']:.0f} ms", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--model", help="folder; default: random weights of the Qwen3-0.6B shape")
    parser.add_argument("--share-seconds", type=float, default=8, help="of each run of the case share")
    parser.add_argument("--threads", type=int, default=os.cpu_count())
    parser.add_argument("--cases", default="one,eight,many,prefill,group,adapters,cold,share")
    args = parser.parse_args()
    os.environ["OMP_NUM_THREADS"] = str(args.threads)
    import torch
    torch.set_num_threads(args.threads)
    table = Table(args)
    cases = {"one": table.one, "eight": lambda: table.many(8), "many": lambda: table.many(32),
             "prefill": table.prefill, "group": table.group, "adapters": table.adapters, "cold": table.cold,
             "share": table.share}
    for name in args.cases.split(","):
        cases[name]()


if __name__ == "__main__":
    main()
