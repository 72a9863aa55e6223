"""The families that the tests compare beside Qwen3. A new family is a line of FAMILIES."""

import json


def folder(model_type, *options, **fields):
    """Arguments of tools/make_tiny_model.py. All weights are random; `fields` of config.json are
    chosen so that each step of the family shows."""
    settings = [f"{key}={json.dumps(value)}" for key, value in fields.items()]
    return ["--family", model_type, *options, *(word for s in settings for word in ("--set", s))]


def rope(rope_type, theta=1e6, **fields):
    return {"rope_type": rope_type, "rope_theta": theta, **fields}


# The original contexts are so short that each branch of a scaling has frequencies, and windows are
# shorter than sequences.
LLAMA = {
    "rms_norm_eps": 1e-5,
    "rope_parameters": rope("llama3", 5e5, factor=8.0, low_freq_factor=1.0, high_freq_factor=4.0,
                            original_max_position_embeddings=64),
}
YARN = {"rope_parameters": rope("yarn", factor=4.0, original_max_position_embeddings=64)}
GEMMA3 = {"sliding_window": 8, "sliding_window_pattern": 2, "query_pre_attn_scalar": 16}

FAMILIES = {
    "llama": folder("llama", **LLAMA),
    "qwen2": folder("qwen2", rope_parameters=rope("default")),
    "mistral": folder("mistral", sliding_window=8, rope_parameters=rope("default")),
    "gemma3": folder("gemma3_text", "--layers", "4", **GEMMA3),
}
# Heads of the sizes that the kernels of GPUs take.
WIDE = {
    "qwen3_heads_of_64": folder("qwen3", "--head-dim", "64"),
    "gemma3_heads_of_256": folder("gemma3_text", "--layers", "4", "--head-dim", "256",
                                  **{**GEMMA3, "query_pre_attn_scalar": 256}),
}
BF16 = {f"{family}_bf16": [*arguments, "--dtype", "bfloat16", "--shards", "2"]
        for family, arguments in {**FAMILIES, **WIDE}.items()}
# Folders with what only some models of a family have.
SPECIAL = {
    # Heads as those of SmolLM2.
    "llama_9_heads": folder("llama", "--head-dim", "8", **LLAMA, hidden_size=72,
                            num_attention_heads=9, num_key_value_heads=3),
    "llama_biases": folder("llama", "--untied", **LLAMA, attention_bias=True, mlp_bias=True),
    "qwen2_yarn": folder("qwen2", "--untied", **YARN),
    "qwen2_windows": folder("qwen2", "--layers", "3", rope_parameters=rope("default"),
                            use_sliding_window=True, sliding_window=8, max_window_layers=1),
    # Scores are not scaled by the width of a head, and layers without a window have another rope.
    "gemma3_scaled": folder(
        "gemma3_text", "--layers", "4", **{**GEMMA3, "query_pre_attn_scalar": 24},
        rope_parameters={"full_attention": rope("linear", factor=8.0),
                         "sliding_attention": rope("default", 1e4)}),
}
