#!/usr/bin/env python3
"""Writes a random-weight model folder of any served family in the Hugging Face layout.

The folder is what the tests and the demo serve, because no real weights are needed to show that
the service computes the right numbers. It holds safetensors (one file, or shards with an index),
config.json, generation_config.json, a byte-level BPE tokenizer trained on tiny_model_text.txt,
and a chat template. Where readers of the format disagree on a spelling of Qwen3's config, both are
written. Configs and tensor names of the other families are those that transformers gives them.

The weights are drawn so that rounding decides nothing: a wide initializer keeps the greatest logit
clear of the second, and norm weights away from 1 make a forgotten norm visible.
"""

import argparse
import dataclasses
import json
import pathlib
import re
import sys

import torch
from safetensors.torch import save_file
from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers
from tokenizers import pre_tokenizers, trainers

TRAINING_TEXT = pathlib.Path(__file__).with_name("tiny_model_text.txt")
TOKENIZER_SIZE = 768

END_OF_TEXT, IM_START, IM_END = "<|endoftext|>", "<|im_start|>", "<|im_end|>"
SPECIAL_TOKENS = [END_OF_TEXT, IM_START, IM_END]
END_OF_TEXT_ID, IM_END_ID = 0, 2
# Added tokens that decode as ordinary text, even with skip_special_tokens.
TEXT_TOKENS = ["<think>", "</think>"]

# Qwen2's split: letters with one leading mark, digits one by one, runs of marks, white space.
SPLIT_PATTERN = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}"
    r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)

CHAT_TEMPLATE = """\
{%- for message in messages -%}
{{- '<|im_start|>' + message['role'] + '\\n' + message['content'] + '<|im_end|>\\n' -}}
{%- endfor -%}
{%- if add_generation_prompt -%}
{{- '<|im_start|>assistant\\n' -}}
{%- endif -%}
"""

DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}


@dataclasses.dataclass
class Shape:
    num_layers: int
    hidden_size: int
    mlp_size: int
    num_heads: int
    num_kv_heads: int
    head_dim: int
    vocab_size: int
    max_positions: int
    initializer_range: float
    dtype: str
    tied: bool = True
    attention_bias: bool = False


SIZES = {
    "tiny": Shape(2, 64, 192, 4, 2, 16, TOKENIZER_SIZE, 2048, 0.25, "float32"),
    "0.6b": Shape(28, 1024, 3072, 16, 8, 128, 151936, 40960, 0.02, "bfloat16"),
    "8b": Shape(36, 4096, 12288, 32, 8, 128, 151936, 40960, 0.02, "bfloat16", tied=False),
}


def tensor_shapes(shape: Shape) -> dict[str, tuple[int, ...]]:
    """Every tensor of the model by its Hugging Face name, in the order of the forward pass."""
    hidden, mlp = shape.hidden_size, shape.mlp_size
    q_size = shape.num_heads * shape.head_dim
    kv_size = shape.num_kv_heads * shape.head_dim
    shapes = {"model.embed_tokens.weight": (shape.vocab_size, hidden)}
    for layer in range(shape.num_layers):
        prefix = f"model.layers.{layer}."
        shapes[prefix + "input_layernorm.weight"] = (hidden,)
        for name, size in (("q", q_size), ("k", kv_size), ("v", kv_size)):
            shapes[f"{prefix}self_attn.{name}_proj.weight"] = (size, hidden)
            if shape.attention_bias:
                shapes[f"{prefix}self_attn.{name}_proj.bias"] = (size,)
        shapes[prefix + "self_attn.q_norm.weight"] = (shape.head_dim,)
        shapes[prefix + "self_attn.k_norm.weight"] = (shape.head_dim,)
        shapes[prefix + "self_attn.o_proj.weight"] = (hidden, q_size)
        if shape.attention_bias:
            shapes[prefix + "self_attn.o_proj.bias"] = (hidden,)
        shapes[prefix + "post_attention_layernorm.weight"] = (hidden,)
        shapes[prefix + "mlp.gate_proj.weight"] = (mlp, hidden)
        shapes[prefix + "mlp.up_proj.weight"] = (mlp, hidden)
        shapes[prefix + "mlp.down_proj.weight"] = (hidden, mlp)
    shapes["model.norm.weight"] = (hidden,)
    if not shape.tied:
        shapes["lm_head.weight"] = (shape.vocab_size, hidden)
    return shapes


def make_tensors(
    shapes: dict[str, tuple[int, ...]], shape: Shape, seed: int, norm_offset: float, device: str
) -> dict[str, torch.Tensor]:
    """`norm_offset`: what the family adds to the weight of a norm. Each device draws other values."""
    generator = torch.Generator(device).manual_seed(seed)
    dtype = DTYPES[shape.dtype]
    has_qk_norm = any("q_norm" in name for name in shapes)
    tensors = {}
    for name, size in shapes.items():
        # Without norms of q and k, large scores would magnify rounding.
        is_query_or_key = not has_qk_norm and re.search(r"[qk]_proj\.weight$", name)
        deviation = shape.initializer_range / (2 if is_query_or_key else 1)
        if "norm" in name:
            values = torch.empty(size, device=device).uniform_(0.6, 1.6, generator=generator) - norm_offset
        else:
            values = torch.empty(size, device=device).normal_(0, deviation, generator=generator)
        tensors[name] = values.to(dtype).cpu()
    return tensors


def split_into_shards(tensors: dict[str, torch.Tensor], num_shards: int) -> list[list[str]]:
    """Consecutive names, each shard about as many bytes as the others and none empty."""
    names = list(tensors)
    total = sum(t.nbytes for t in tensors.values())
    shards: list[list[str]] = [[]]
    written = 0
    for index, name in enumerate(names):
        names_left = len(names) - index
        shards_left = num_shards - len(shards)
        is_full = written >= total * len(shards) / num_shards
        if shards[-1] and shards_left and (is_full or names_left <= shards_left):
            shards.append([])
        shards[-1].append(name)
        written += tensors[name].nbytes
    return shards


def write_weights(out: pathlib.Path, tensors: dict[str, torch.Tensor], num_shards: int) -> None:
    metadata = {"format": "pt"}
    if num_shards == 1:
        save_file(tensors, out / "model.safetensors", metadata=metadata)
        return
    weight_map = {}
    for index, names in enumerate(split_into_shards(tensors, num_shards), start=1):
        file_name = f"model-{index:05d}-of-{num_shards:05d}.safetensors"
        save_file({name: tensors[name] for name in names}, out / file_name, metadata=metadata)
        weight_map.update({name: file_name for name in names})
    total = sum(t.nbytes for t in tensors.values())
    write_json(
        out / "model.safetensors.index.json",
        {"metadata": {"total_size": total}, "weight_map": weight_map},
    )


def write_json(path: pathlib.Path, value: dict) -> None:
    path.write_text(json.dumps(value, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")


def qwen3_config(shape: Shape) -> dict:
    rope_theta = 1000000.0
    return {
        "architectures": ["Qwen3ForCausalLM"],
        "model_type": "qwen3",
        "attention_bias": shape.attention_bias,
        "attention_dropout": 0.0,
        "bos_token_id": END_OF_TEXT_ID,
        "eos_token_id": IM_END_ID,
        "head_dim": shape.head_dim,
        "hidden_act": "silu",
        "hidden_size": shape.hidden_size,
        "initializer_range": shape.initializer_range,
        "intermediate_size": shape.mlp_size,
        "max_position_embeddings": shape.max_positions,
        "max_window_layers": shape.num_layers,
        "num_attention_heads": shape.num_heads,
        "num_hidden_layers": shape.num_layers,
        "num_key_value_heads": shape.num_kv_heads,
        "rms_norm_eps": 1e-6,
        "rope_scaling": None,
        "rope_theta": rope_theta,
        "rope_parameters": {"rope_type": "default", "rope_theta": rope_theta},
        "sliding_window": None,
        "tie_word_embeddings": shape.tied,
        "dtype": shape.dtype,
        "torch_dtype": shape.dtype,
        "use_cache": True,
        "use_sliding_window": False,
        "vocab_size": shape.vocab_size,
    }


def describe_family(
    family: str, shape: Shape, fields: dict
) -> tuple[dict, dict[str, tuple[int, ...]]]:
    """config.json with these `fields`, and the shapes of all tensors, both as transformers has them.
    """
    import transformers  # takes seconds, so Qwen3 goes without

    config = transformers.AutoConfig.for_model(
        family,
        **{
            "bos_token_id": END_OF_TEXT_ID,
            "eos_token_id": IM_END_ID,
            "pad_token_id": END_OF_TEXT_ID,
            "hidden_size": shape.hidden_size,
            "intermediate_size": shape.mlp_size,
            "max_position_embeddings": shape.max_positions,
            "num_attention_heads": shape.num_heads,
            "num_hidden_layers": shape.num_layers,
            "num_key_value_heads": shape.num_kv_heads,
            "head_dim": shape.head_dim,
            "tie_word_embeddings": shape.tied,
            "vocab_size": shape.vocab_size,
            "dtype": shape.dtype,
            **fields,
        },
    )
    with torch.device("meta"):
        model = transformers.AutoModelForCausalLM.from_config(config)
    shapes = {name: tuple(tensor.shape) for name, tensor in model.state_dict().items()}
    if shape.tied:
        del shapes["lm_head.weight"]
    written = json.loads(config.to_json_string())
    return {**written, "architectures": [type(model).__name__]}, shapes


def write_generation_config(out: pathlib.Path) -> None:
    write_json(
        out / "generation_config.json",
        {
            "bos_token_id": END_OF_TEXT_ID,
            "pad_token_id": END_OF_TEXT_ID,
            "eos_token_id": [IM_END_ID, END_OF_TEXT_ID],
            "do_sample": True,
            "temperature": 1.0,
        },
    )


def train_tokenizer() -> Tokenizer:
    tokenizer = Tokenizer(models.BPE())
    tokenizer.normalizer = normalizers.NFC()
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(SPLIT_PATTERN), behavior="isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=TOKENIZER_SIZE,
        min_frequency=1,
        special_tokens=[AddedToken(t, special=True, normalized=False) for t in SPECIAL_TOKENS]
        + [AddedToken(t, special=False, normalized=False) for t in TEXT_TOKENS],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator([TRAINING_TEXT.read_text(encoding="utf-8")], trainer)
    if tokenizer.get_vocab_size() != TOKENIZER_SIZE:
        raise SystemExit(
            f"{TRAINING_TEXT} gives {tokenizer.get_vocab_size()} tokens, {TOKENIZER_SIZE} are wanted"
        )
    return tokenizer


def write_tokenizer(out: pathlib.Path, max_positions: int) -> None:
    saved = json.loads(train_tokenizer().to_str())
    for token in saved["added_tokens"]:
        token["special"] = token["content"] in SPECIAL_TOKENS
    write_json(out / "tokenizer.json", saved)
    (out / "chat_template.jinja").write_text(CHAT_TEMPLATE, encoding="utf-8")
    write_json(
        out / "tokenizer_config.json",
        {
            "tokenizer_class": "PreTrainedTokenizerFast",
            "model_max_length": max_positions,
            "bos_token": None,
            "eos_token": IM_END,
            "pad_token": END_OF_TEXT,
            "unk_token": None,
            "clean_up_tokenization_spaces": False,
            "added_tokens_decoder": {
                str(token.pop("id")): token for token in saved["added_tokens"]
            },
            "chat_template": CHAT_TEMPLATE,
        },
    )


def parse_field(text: str) -> tuple[str, object]:
    key, _, value = text.partition("=")
    return key, json.loads(value)


def parse_arguments(arguments: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", required=True, type=pathlib.Path, help="folder to write")
    parser.add_argument("--family", default="qwen3", metavar="MODEL_TYPE")
    parser.add_argument("--size", choices=SIZES, default="tiny")
    parser.add_argument("--seed", type=int, default=0, help="of the weights")
    parser.add_argument("--device", default="cpu", help="draws the weights; a GPU is quick for large sizes")
    parser.add_argument("--dtype", choices=DTYPES, help="default: float32 for tiny, else bfloat16")
    parser.add_argument("--untied", action="store_true", help="an lm_head apart from the embedding")
    parser.add_argument("--shards", type=int, default=1, help="number of safetensors files")
    parser.add_argument("--layers", type=int, help="default: as the size has")
    parser.add_argument("--head-dim", type=int, help="heads x head_dim need not be hidden_size")
    parser.add_argument("--attention-bias", action="store_true", help="Qwen3: biases on q, k, v, o")
    parser.add_argument("--set", type=parse_field, action="append", default=[], metavar="KEY=JSON",
                        help="a field of config.json; not of Qwen3")
    return parser.parse_args(arguments)


def main(arguments: list[str] | None = None) -> int:
    args = parse_arguments(arguments)
    shape = dataclasses.replace(SIZES[args.size], tied=SIZES[args.size].tied and not args.untied)
    shape.num_layers = args.layers or shape.num_layers
    shape.attention_bias = args.attention_bias
    shape.dtype = args.dtype or shape.dtype
    shape.head_dim = args.head_dim or shape.head_dim
    if shape.head_dim <= 0 or shape.head_dim % 2:
        raise SystemExit(f"head_dim is {shape.head_dim}, rotary embedding needs an even number")
    if args.family == "qwen3":
        if args.set:
            raise SystemExit("--set is not for qwen3")
        config, shapes = qwen3_config(shape), tensor_shapes(shape)
    else:
        config, shapes = describe_family(args.family, shape, dict(args.set))
    if not 1 <= args.shards <= len(shapes):
        raise SystemExit(f"shards is {args.shards}, the range is 1 to {len(shapes)}")

    args.out.mkdir(parents=True, exist_ok=True)
    write_tokenizer(args.out, shape.max_positions)
    write_json(args.out / "config.json", config)
    write_generation_config(args.out)
    norm_offset = 1.0 if args.family.startswith("gemma") else 0.0
    write_weights(args.out, make_tensors(shapes, shape, args.seed, norm_offset, args.device), args.shards)
    print(f"{args.out}: {args.family} {args.size}, {shape.dtype}, seed {args.seed}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
