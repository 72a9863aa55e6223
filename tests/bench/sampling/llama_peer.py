"""llama.cpp as a peer: commands on stdin, one JSON object a line, one answer a line on stdout.

Runs in the environment of tools/setup_bench. Loads a Qwen3 or Llama folder in bf16: a GGUF file of
the same tensors is written once, into the folder "out".
  {"op": "load", "folder": F, "out": O, "threads": 2, "sequences": 32, "context": 4096}
  {"op": "decode", "sequences": 8, "context": 64, "tokens": 32}   one token of each a pass
  {"op": "prefill", "tokens": 512}
Answers have "seconds" and "tokens". Drawing a token from the logits is not counted.
"""

import json
import os
import pathlib
import random
import sys
import time

import llama_cpp


def interleaved(weight, heads):
    """llama.cpp's Llama turns neighbouring numbers of a head, Hugging Face's those of its halves."""
    halves = weight.unflatten(0, (heads, 2, -1))
    return halves.transpose(1, 2).flatten(0, 2)


def write_gguf(folder, path):
    """The same tensors under llama.cpp's names; no tokenizer, ids go in and out."""
    import gguf
    import numpy
    import torch
    from safetensors.torch import load_file
    config = json.loads((folder / "config.json").read_text())
    family = config["model_type"]
    turned_heads = {}
    if family == "llama":
        turned_heads = {"q_proj": config["num_attention_heads"], "k_proj": config["num_key_value_heads"]}
    partial = path.with_suffix(".partial")
    out = gguf.GGUFWriter(str(partial), family)
    out.add_block_count(config["num_hidden_layers"])
    out.add_context_length(config["max_position_embeddings"])
    out.add_embedding_length(config["hidden_size"])
    out.add_feed_forward_length(config["intermediate_size"])
    out.add_head_count(config["num_attention_heads"])
    out.add_head_count_kv(config["num_key_value_heads"])
    out.add_key_length(config["head_dim"])
    out.add_value_length(config["head_dim"])
    out.add_rope_dimension_count(config["head_dim"])
    out.add_rope_freq_base(config["rope_theta"])
    out.add_layer_norm_rms_eps(config["rms_norm_eps"])
    out.add_vocab_size(config["vocab_size"])
    out.add_tokenizer_model("none")
    out.add_file_type(gguf.LlamaFileType.MOSTLY_BF16)
    names = gguf.get_tensor_name_map(gguf.MODEL_ARCH[family.upper()], config["num_hidden_layers"])
    for file in sorted(folder.glob("*.safetensors")):
        for name, tensor in load_file(file).items():
            known = names.get_name(name, try_suffixes=(".weight",))
            if known is None:
                raise SystemExit(f"no name for tensor {name}")
            if tensor.dim() == 1:
                out.add_tensor(known, tensor.float().numpy())
            else:
                if heads := turned_heads.get(name.split(".")[-2]):
                    tensor = interleaved(tensor, heads)
                bits = tensor.bfloat16().contiguous().view(torch.uint16).numpy().view(numpy.uint8)
                out.add_tensor(known, bits, raw_dtype=gguf.GGMLQuantizationType.BF16)
    out.write_header_to_file()
    out.write_kv_data_to_file()
    out.write_tensors_to_file()
    out.close()
    os.replace(partial, path)


class Peer:
    def __init__(self, folder, out, threads, sequences, context):
        path = pathlib.Path(out) / "bf16.gguf"
        if not path.exists():
            write_gguf(pathlib.Path(folder), path)
        llama_cpp.llama_backend_init()
        self.log = llama_cpp.llama_log_callback(lambda level, text, data: None)
        llama_cpp.llama_log_set(self.log, None)
        self.model = llama_cpp.llama_model_load_from_file(
            str(path).encode(), llama_cpp.llama_model_default_params())
        if not self.model:
            raise SystemExit(f"llama.cpp does not load {path}")
        params = llama_cpp.llama_context_default_params()
        params.n_ctx = context * sequences
        params.n_batch = params.n_ubatch = 512
        params.n_seq_max = sequences
        params.n_threads = params.n_threads_batch = threads
        self.context = llama_cpp.llama_init_from_model(self.model, params)
        if not self.context:
            raise SystemExit("llama.cpp makes no context")
        self.batch = llama_cpp.llama_batch_init(512, 0, 1)
        self.source = random.Random(1)

    def token(self):
        return self.source.randrange(20, 700)

    def fill(self, rows):
        """rows: (sequence, position, whether its logits are wanted)."""
        self.batch.n_tokens = len(rows)
        for i, (sequence, position, wanted) in enumerate(rows):
            self.batch.token[i] = self.token()
            self.batch.pos[i] = position
            self.batch.n_seq_id[i] = 1
            self.batch.seq_id[i][0] = sequence
            self.batch.logits[i] = wanted

    def compute(self, rows):
        self.fill(rows)
        if llama_cpp.llama_decode(self.context, self.batch) != 0:
            raise SystemExit("llama_decode failed")
        llama_cpp.llama_synchronize(self.context)

    def clear(self):
        llama_cpp.llama_memory_clear(llama_cpp.llama_get_memory(self.context), True)

    def prefill(self, tokens):
        self.clear()
        begin = time.perf_counter()
        self.compute([(0, i, i + 1 == tokens) for i in range(tokens)])
        return {"seconds": time.perf_counter() - begin, "tokens": tokens}

    def decode(self, sequences, context, tokens):
        self.clear()
        for sequence in range(sequences):
            self.compute([(sequence, i, i + 1 == context) for i in range(context)])
        begin = time.perf_counter()
        for step in range(tokens):
            self.compute([(sequence, context + step, True) for sequence in range(sequences)])
        return {"seconds": time.perf_counter() - begin, "tokens": tokens * sequences}


def main():
    peer = None
    for line in sys.stdin:
        command = json.loads(line)
        op = command.pop("op")
        if op == "load":
            begin = time.perf_counter()
            peer = Peer(**command)
            answer = {"seconds": time.perf_counter() - begin}
        else:
            answer = {"decode": peer.decode, "prefill": peer.prefill}[op](**command)
        print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    main()
