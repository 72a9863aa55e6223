"""Where the binaries are, and the model folders that the parity tests compare."""

import os
import pathlib

from families import BF16, FAMILIES, SPECIAL

ROOT = pathlib.Path(__file__).resolve().parents[2]
BIN = pathlib.Path(os.environ.get("LATHE_BIN", ROOT / "build/release/bin"))

# Device of the drivers, such as cuda:0; the references run on the CPU.
DEVICE = os.environ.get("LATHE_TEST_DEVICE", "cpu")

# Folder variants: arguments of tools/make_tiny_model.py.
VARIANTS = {
    "tiny": [],
    "untied": ["--untied"],
    "sharded_bf16": ["--dtype", "bfloat16", "--shards", "3"],
    "fp16": ["--dtype", "float16"],
    "attention_bias": ["--attention-bias"],
    "wide_heads": ["--head-dim", "24"],  # 4 heads x 24 = 96, hidden is 64
    "everything": ["--untied", "--shards", "4", "--attention-bias", "--head-dim", "8"],
    **FAMILIES,
    **BF16,
    **SPECIAL,
}
