"""Small tokenizers with the pipelines of known model families.

The components and their options are those of the families' tokenizer.json files; the vocabularies
are trained here on odd text, since real ones are not at hand.
"""

import json

from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers
from tokenizers import pre_tokenizers, processors, trainers

VOCABULARY_SIZE = 2500

CONTRACTIONS = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)"
GPT4_END = r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
QWEN2 = CONTRACTIONS + r"|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}" + GPT4_END
LLAMA3 = CONTRACTIONS + r"|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}" + GPT4_END
UPPER, LOWER = r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]", r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]"
O200K = (
    rf"[^\r\n\p{{L}}\p{{N}}]?{UPPER}*{LOWER}+{CONTRACTIONS}?"
    rf"|[^\r\n\p{{L}}\p{{N}}]?{UPPER}+{LOWER}*{CONTRACTIONS}?"
    r"|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
DEEPSEEK_CJK = "[一-龥぀-ゟ゠-ヿ]+"
DEEPSEEK = (
    r"""[!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+"""
    r"| ?[\p{P}\p{S}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)


def split(pattern):
    return pre_tokenizers.Split(Regex(pattern), "isolated")


def byte_level(*splits):
    last = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=not splits)
    return pre_tokenizers.Sequence([*splits, last]) if splits else last


def train(tokenizer, text, special_tokens, alphabet=(), **options):
    trainer = trainers.BpeTrainer(
        vocab_size=VOCABULARY_SIZE,
        special_tokens=special_tokens,
        initial_alphabet=list(alphabet),
        show_progress=False,
        **options,
    )
    tokenizer.train_from_iterator(text.splitlines(keepends=True), trainer)


def with_model(tokenizer, **options):
    """The tokenizer with its model's options set in its JSON, as families have them."""
    config = json.loads(tokenizer.to_str())
    config["model"].update(options)
    return Tokenizer.from_str(json.dumps(config))


def make_byte_level(text, pre_tokenizer, special, normalizer=None, **options):
    tokenizer = Tokenizer(models.BPE())
    if normalizer:
        tokenizer.normalizer = normalizer
    tokenizer.pre_tokenizer = pre_tokenizer
    tokenizer.decoder = decoders.ByteLevel()
    train(tokenizer, text, [], pre_tokenizers.ByteLevel.alphabet())
    tokenizer.post_processor = processors.ByteLevel(trim_offsets=False)
    tokenizer.add_special_tokens(special)
    return with_model(tokenizer, **options)


def qwen(text):
    special = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
    tokenizer = make_byte_level(text, byte_level(split(QWEN2)), special, normalizers.NFC())
    plain = ["<think>", "</think>", "<tool_call>"]
    tokenizer.add_tokens([AddedToken(token, normalized=False) for token in plain])
    return tokenizer


def llama3(text):
    special = ["<|begin_of_text|>", "<|end_of_text|>", "<|eot_id|>"]
    pre_tokenizer = byte_level(split(LLAMA3))
    tokenizer = make_byte_level(text, pre_tokenizer, special, ignore_merges=True)
    begin = tokenizer.token_to_id(special[0])
    template = processors.TemplateProcessing(
        single="<|begin_of_text|> $A", special_tokens=[(special[0], begin)]
    )
    tokenizer.post_processor = processors.Sequence([processors.ByteLevel(trim_offsets=True), template])
    return tokenizer


def gpt_oss(text):
    special = ["<|startoftext|>", "<|endoftext|>", "<|start|>", "<|channel|>", "<|end|>"]
    return make_byte_level(text, byte_level(split(O200K)), special)


def deepseek(text):
    special = ["<｜begin▁of▁sentence｜>", "<｜end▁of▁sentence｜>", "<｜User｜>"]
    splits = [split(r"\p{N}{1,3}"), split(DEEPSEEK_CJK), split(DEEPSEEK)]
    return make_byte_level(text, byte_level(*splits), special)


def gpt2(text):
    return make_byte_level(text, byte_level(), ["<|endoftext|>"])


def smollm(text):
    digits = pre_tokenizers.Digits(individual_digits=True)
    last = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True)
    pre_tokenizer = pre_tokenizers.Sequence([digits, last])
    return make_byte_level(text, pre_tokenizer, ["<|endoftext|>", "<|im_start|>"])


def make_fallback(text, special, normalizer, pre_tokenizer, decoder_steps, begin):
    """The ▁ kinds: unknown characters become their bytes, which are tokens."""
    tokenizer = Tokenizer(models.BPE(byte_fallback=True, fuse_unk=True, unk_token="<unk>"))
    if normalizer:
        tokenizer.normalizer = normalizer
    # Words are cut for training alone, as SentencePiece does.
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="always")
    bytes_ = [f"<0x{byte:02X}>" for byte in range(256)]
    train(tokenizer, text, special + bytes_, limit_alphabet=600)
    config = json.loads(tokenizer.to_str())
    config["added_tokens"] = [t for t in config["added_tokens"] if t["content"] in special]
    config["pre_tokenizer"] = None
    config["model"].update(byte_fallback=True, fuse_unk=True, unk_token="<unk>")
    tokenizer = Tokenizer.from_str(json.dumps(config))
    if pre_tokenizer:
        tokenizer.pre_tokenizer = pre_tokenizer
    tokenizer.decoder = decoders.Sequence(decoder_steps)
    if begin:
        tokenizer.post_processor = processors.TemplateProcessing(
            single=f"{begin} $A", special_tokens=[(begin, tokenizer.token_to_id(begin))]
        )
    return tokenizer


def fallback_decoder(strip):
    steps = [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse()]
    return steps + ([decoders.Strip(" ", 1, 0)] if strip else [])


SENTENCEPIECE = ["<unk>", "<s>", "</s>"]


def llama2(text):
    normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
    return make_fallback(text, SENTENCEPIECE, normalizer, None, fallback_decoder(True), "<s>")


def mistral(text):
    metaspace = pre_tokenizers.Metaspace(prepend_scheme="first", split=False)
    special = [*SENTENCEPIECE, "[INST]", "[/INST]", "[TOOL_CALLS]"]
    return make_fallback(text, special, None, metaspace, fallback_decoder(True), "<s>")


def gemma(text):
    normalizer = normalizers.Replace(" ", "▁")
    pre_tokenizer = pre_tokenizers.Split(" ", "merged_with_previous")
    special = ["<pad>", "<eos>", "<bos>", "<unk>", "<start_of_turn>", "<end_of_turn>"]
    tokenizer = make_fallback(
        text, special, normalizer, pre_tokenizer, fallback_decoder(False), "<bos>"
    )
    runs = ["\n" * n for n in range(2, 8)] + ["▁" * n for n in range(2, 8)] + ["<table>", "</td>"]
    tokenizer.add_tokens([AddedToken(token, normalized=False) for token in runs])
    return tokenizer


def metaspace(text):
    """Words cut at ▁ and the Metaspace decoder."""
    cut = pre_tokenizers.Metaspace(prepend_scheme="always", split=True)
    steps = [decoders.Metaspace(), decoders.ByteFallback(), decoders.Fuse()]
    return make_fallback(text, SENTENCEPIECE, normalizers.NFKC(), cut, steps, "")


BYTE_LEVEL = {
    "qwen": qwen,
    "llama3": llama3,
    "gpt_oss": gpt_oss,
    "deepseek": deepseek,
    "gpt2": gpt2,
    "smollm": smollm,
}
FALLBACK = {"llama2": llama2, "mistral": mistral, "gemma": gemma, "metaspace": metaspace}
FAMILIES = BYTE_LEVEL | FALLBACK
