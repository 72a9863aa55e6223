"""Runs lathe_tokenizer_driver, and compares its ids with those of `tokenizers`."""

import json
import subprocess

import parity_setup


def run(tmp_path, folder, **script):
    """Outputs of a script (see tokenizer_driver.cc)."""
    path = tmp_path / "tokenizer_script.json"
    path.write_text(json.dumps({"folder": str(folder), **script}))
    done = subprocess.run(
        [parity_setup.BIN / "lathe_tokenizer_driver", path], capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def encode(tmp_path, folder, texts, add_special_tokens=False):
    """Ids of each text, or the error's text; bytes are given as they are."""
    as_bytes = [text if isinstance(text, bytes) else text.encode() for text in texts]
    hex_texts = [text.hex() for text in as_bytes]
    output = run(tmp_path, folder, encode=hex_texts, add_special_tokens=add_special_tokens)
    return output["encode"]


def decode(tmp_path, folder, sequences, skip_special_tokens=False):
    """The bytes of each sequence of ids as a text of its own."""
    output = run(tmp_path, folder, decode=sequences, skip_special_tokens=skip_special_tokens)
    return [bytes.fromhex(text) for text in output["decode"]]


def continuation(tmp_path, folder, sequences):
    """The bytes that each sequence of ids adds to a text before it."""
    output = run(tmp_path, folder, **{"continue": sequences})
    return [bytes.fromhex(text) for text in output["continue"]]


def added_contents(tokenizer):
    return [token.content for token in tokenizer.get_added_tokens_decoder().values()]


def check_same_ids(tmp_path, tokenizer, folder, texts, add_special_tokens=False):
    ours = encode(tmp_path, folder, texts, add_special_tokens)
    for text, ids in zip(texts, ours, strict=True):
        theirs = tokenizer.encode(text, add_special_tokens=add_special_tokens).ids
        assert ids == theirs, f"{text[:200]!r}: {ids[:50]}, expected {theirs[:50]}"
