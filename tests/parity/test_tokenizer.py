"""The worker's tokenizer against `tokenizers`: the same ids and the same text, whatever the input.

Each family's pipeline (tokenizer_families.py) over odd text (odd_text.py). Random texts and ids
have fixed seeds.
"""

import json
import random
import re
import unicodedata

import odd_text
import pytest
import tokenizer_driver
import tokenizer_families
from tokenizer_driver import added_contents, check_same_ids
from tokenizer_families import BYTE_LEVEL
from tokenizers import AddedToken, Tokenizer

SEED = 20260


@pytest.fixture(scope="module")
def family(tmp_path_factory):
    """Trains each family's tokenizer at its first use: family("qwen") -> (tokenizer, folder)."""
    made = {}
    text = odd_text.training_text()

    def get(name):
        if name not in made:
            tokenizer = tokenizer_families.FAMILIES[name](text)
            folder = tmp_path_factory.mktemp(name)
            tokenizer.save(str(folder / "tokenizer.json"))
            made[name] = tokenizer, folder
        return made[name]

    return get


@pytest.mark.parametrize("name", tokenizer_families.FAMILIES)
def test_ids_are_equal_on_every_assigned_character_and_odd_phrases(name, family, tmp_path):
    tokenizer, folder = family(name)
    texts = ["", " ", "  ", "a", *odd_text.PHRASES, *odd_text.planes()]
    check_same_ids(tmp_path, tokenizer, folder, texts, add_special_tokens=True)


@pytest.mark.parametrize("name", tokenizer_families.FAMILIES)
def test_ids_are_equal_on_random_texts_with_added_tokens(name, family, tmp_path):
    tokenizer, folder = family(name)
    texts = odd_text.random_texts(3000, SEED, added_contents(tokenizer))
    check_same_ids(tmp_path, tokenizer, folder, texts)


@pytest.mark.parametrize("name", tokenizer_families.FAMILIES)
def test_ids_are_equal_on_long_runs(name, family, tmp_path):
    tokenizer, folder = family(name)
    check_same_ids(tmp_path, tokenizer, folder, odd_text.long_runs(5000))


# A quadratic step would take minutes, and the limits on patterns would end it.
@pytest.mark.parametrize("name", ["qwen", "gpt_oss", "deepseek", "llama2", "gemma"])
def test_a_word_of_a_megabyte_is_encoded_and_decoded(name, family, tmp_path):
    _, folder = family(name)
    texts = odd_text.long_runs(1 << 20)
    encoded = tokenizer_driver.encode(tmp_path, folder, texts)
    decoded = tokenizer_driver.decode(tmp_path, folder, encoded)
    for text, shown in zip(texts, decoded, strict=True):
        expected = unicodedata.normalize("NFC", text) if name == "qwen" else text
        # The ▁ kinds cannot tell it from a space.
        expected = expected if name in BYTE_LEVEL else expected.replace("▁", " ")
        assert shown.decode() == expected, text[:10]


@pytest.mark.parametrize("skip_special_tokens", [False, True])
@pytest.mark.parametrize("name", tokenizer_families.FAMILIES)
def test_encoded_texts_decode_alike(name, skip_special_tokens, family, tmp_path):
    tokenizer, folder = family(name)
    texts = odd_text.PHRASES + odd_text.random_texts(500, SEED + 1, added_contents(tokenizer))
    sequences = [tokenizer.encode(text).ids for text in texts]
    ours = tokenizer_driver.decode(tmp_path, folder, sequences, skip_special_tokens)
    for ids, decoded in zip(sequences, ours, strict=True):
        assert decoded.decode() == tokenizer.decode(ids, skip_special_tokens=skip_special_tokens)


def random_sequences(tokenizer, count, seed):
    """Random ids, many of them of invalid UTF-8, some of no token."""
    generator = random.Random(seed)
    size = tokenizer.get_vocab_size()
    return [
        [generator.randrange(size + 3) for _ in range(generator.randrange(1, 20))]
        for _ in range(count)
    ]


@pytest.mark.parametrize("name", BYTE_LEVEL)
def test_random_ids_of_byte_level_tokens_decode_alike(name, family, tmp_path):
    tokenizer, folder = family(name)
    sequences = random_sequences(tokenizer, 2000, SEED + 2)
    ours = tokenizer_driver.decode(tmp_path, folder, sequences)
    for ids, decoded in zip(sequences, ours, strict=True):
        theirs = tokenizer.decode(ids, skip_special_tokens=False)
        assert decoded.decode(errors="replace") == theirs, ids


def with_replaced_bytes(spellings):
    """Text as ByteFallback shows it: a row of bytes that is not UTF-8 is U+FFFD for each."""
    text, row = "", b""
    for spelling in [*spellings, ""]:
        if match := re.fullmatch("<0x([0-9A-F]{2})>", spelling):
            row += bytes.fromhex(match[1])
            continue
        try:
            text += row.decode()
        except UnicodeDecodeError:
            text += "\ufffd" * len(row)
        text, row = text + spelling.replace("▁", " "), b""
    return text


def spelled_bytes(spellings):
    return b"".join(
        bytes.fromhex(spelling[3:5])
        if re.fullmatch("<0x[0-9A-F]{2}>", spelling)
        else spelling.replace("▁", " ").encode()
        for spelling in spellings
    )


@pytest.mark.parametrize("name", ["llama2", "mistral", "gemma"])
def test_random_ids_of_tokens_with_bytes_decode_alike(name, family, tmp_path):
    tokenizer, folder = family(name)
    sequences = random_sequences(tokenizer, 2000, SEED + 3)
    ours = tokenizer_driver.decode(tmp_path, folder, sequences)
    continued = tokenizer_driver.continuation(tmp_path, folder, sequences)
    strips = name != "gemma"
    for ids, decoded, added in zip(sequences, ours, continued, strict=True):
        spellings = [tokenizer.id_to_token(i) for i in ids if tokenizer.id_to_token(i) is not None]
        # The rule that both follow, so that ours is exact where theirs is U+FFFD.
        shown = with_replaced_bytes(spellings)
        theirs = tokenizer.decode(ids, skip_special_tokens=False)
        assert theirs == (shown.removeprefix(" ") if strips else shown)
        assert added == spelled_bytes(spellings)
        assert decoded == (added.removeprefix(b" ") if strips else added)


@pytest.mark.parametrize("name", tokenizer_families.FAMILIES)
def test_generated_tokens_continue_a_prompt_with_their_bytes(name, family, tmp_path):
    tokenizer, folder = family(name)
    prompt = tokenizer.encode("The lathe stands", add_special_tokens=False).ids
    answer = tokenizer.encode("The lathe stands by the window", add_special_tokens=False).ids
    generated = answer[len(prompt) :]
    assert answer[: len(prompt)] == prompt
    [added] = tokenizer_driver.continuation(tmp_path, folder, [generated])
    assert tokenizer.decode(prompt).encode() + added == tokenizer.decode(answer).encode()


ADDED = [
    AddedToken("<a>", normalized=False),
    AddedToken("<a><b>", normalized=False),
    AddedToken("<b>", normalized=False, lstrip=True),
    AddedToken("<c>", normalized=False, rstrip=True),
    AddedToken("<d>", normalized=False, lstrip=True, rstrip=True),
    AddedToken("word", normalized=False, single_word=True),
    AddedToken("Größe", normalized=True),
    AddedToken("e\u0301te\u0301", normalized=True),
    AddedToken("  ", normalized=False),
    AddedToken("ab", normalized=True),
    AddedToken("<|x|>", normalized=False, special=True),
]


@pytest.mark.parametrize("name", tokenizer_families.FAMILIES)
def test_added_tokens_are_found_alike(name, family, tmp_path):
    tokenizer, _ = family(name)
    tokenizer = Tokenizer.from_str(tokenizer.to_str())
    tokenizer.add_tokens(ADDED)
    tokenizer.save(str(tmp_path / "tokenizer.json"))
    generator = random.Random(SEED + 4)
    parts = [token.content for token in ADDED] + [
        *(" ", "\n", "\u3000", "words", "sword", "a", "b", "<", "été", "Gro\u0308ße", "é", "_", "\u200d")
    ]
    texts = ["".join(generator.choices(parts, k=generator.randrange(1, 12))) for _ in range(3000)]
    check_same_ids(tmp_path, tokenizer, tmp_path, texts)
    sequences = [tokenizer.encode(text).ids for text in texts]
    for skip in (False, True):
        ours = tokenizer_driver.decode(tmp_path, tmp_path, sequences, skip)
        for ids, decoded in zip(sequences, ours, strict=True):
            theirs = tokenizer.decode(ids, skip_special_tokens=skip)
            assert decoded.decode(errors="replace") == theirs, ids


def write_changed(tokenizer, folder, change):
    config = json.loads(tokenizer.to_str())
    change(config)
    (folder / "tokenizer.json").write_text(json.dumps(config))
    return config


def test_merges_of_older_files_give_the_same_ids(family, tmp_path):
    tokenizer, _ = family("qwen")

    def spell_merges_as_lines(config):
        config["model"]["merges"] = [" ".join(merge) for merge in config["model"]["merges"]]

    write_changed(tokenizer, tmp_path, spell_merges_as_lines)
    check_same_ids(tmp_path, tokenizer, tmp_path, odd_text.PHRASES)


@pytest.mark.parametrize("byte_fallback", [False, True])
@pytest.mark.parametrize("fuse_unk", [False, True])
def test_unknown_characters_are_encoded_alike(byte_fallback, fuse_unk, family, tmp_path):
    tokenizer, _ = family("llama2")

    def change(config):
        config["model"].update(byte_fallback=byte_fallback, fuse_unk=fuse_unk)
        # Some bytes have no token, so that both ways are taken.
        for byte in range(0xE0, 0xE8):
            config["model"]["vocab"][f"no byte {byte}"] = config["model"]["vocab"].pop(f"<0x{byte:02X}>")

    config = write_changed(tokenizer, tmp_path, change)
    changed = Tokenizer.from_str(json.dumps(config))
    texts = odd_text.planes()[::7] + odd_text.random_texts(500, SEED + 5)
    check_same_ids(tmp_path, changed, tmp_path, texts)


BEHAVIORS = ["removed", "isolated", "merged_with_previous", "merged_with_next", "contiguous"]
PATTERNS = [" ", ",", r"\s+", r"\p{N}", r"\w+", r"\W", r"(?=\p{Lu})", r"[^\s\w]+", r"^.", r"\p{Han}+", ".$", r"[\w\d]"]


@pytest.mark.parametrize("invert", [False, True])
@pytest.mark.parametrize("behavior", BEHAVIORS)
def test_splits_cut_alike(behavior, invert, family, tmp_path):
    tokenizer, _ = family("gpt2")
    texts = odd_text.PHRASES + odd_text.random_texts(200, SEED + 6)
    for pattern in PATTERNS:

        def change(config, pattern=pattern):
            kind = "String" if pattern in " ," else "Regex"
            name = "".join(part.capitalize() for part in behavior.split("_"))
            split = {"type": "Split", "pattern": {kind: pattern}, "behavior": name, "invert": invert}
            steps = [split, {**config["pre_tokenizer"], "use_regex": False}]
            config["pre_tokenizer"] = {"type": "Sequence", "pretokenizers": steps}

        config = write_changed(tokenizer, tmp_path, change)
        changed = Tokenizer.from_str(json.dumps(config))
        check_same_ids(tmp_path, changed, tmp_path, texts)


@pytest.mark.parametrize("form", ["NFC", "NFD", "NFKC", "NFKD"])
def test_normal_forms_are_equal_on_every_assigned_character(form, family, tmp_path):
    tokenizer, _ = family("gpt2")

    def change(config):
        config["normalizer"] = {"type": form}

    changed = Tokenizer.from_str(json.dumps(write_changed(tokenizer, tmp_path, change)))
    marks = ["a\u0334{}", "a{}\u0323\u0301", "{}\u0301 "]
    texts = [mark.format(character) for character in odd_text.ASSIGNED[::3] for mark in marks]
    joined = ["".join(texts[begin : begin + 300]) for begin in range(0, len(texts), 300)]
    check_same_ids(tmp_path, changed, tmp_path, joined)


@pytest.mark.parametrize("strip", [(True, True), (True, False), (False, True)])
def test_stripping_normalizers_are_equal(strip, family, tmp_path):
    tokenizer, _ = family("gpt2")
    left, right = strip
    steps = [
        {"type": "Strip", "strip_left": left, "strip_right": right},
        {"type": "Replace", "pattern": {"Regex": r"\s{2,}"}, "content": "▁▁"},
        {"type": "Prepend", "prepend": "x"},
    ]

    def change(config):
        config["normalizer"] = {"type": "Sequence", "normalizers": steps}

    changed = Tokenizer.from_str(json.dumps(write_changed(tokenizer, tmp_path, change)))
    texts = ["", "   ", *odd_text.PHRASES, *odd_text.random_texts(500, SEED + 7)]
    check_same_ids(tmp_path, changed, tmp_path, texts)


@pytest.mark.parametrize("text", [b"ab\xff", b"\xc0\x80", b"\xed\xa0\x80", b"ok \xf4\x90\x80\x80", b"\xe4"])
def test_text_that_is_not_utf8_is_refused(text, family, tmp_path):
    _, folder = family("qwen")
    [answer] = tokenizer_driver.encode(tmp_path, folder, [text])
    assert answer.startswith("text is not UTF-8 at byte ")
