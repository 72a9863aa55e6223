"""Odd text for tokenizers: every plane of Unicode, and what real text does to boundaries."""

import random
import unicodedata

# Python's Unicode (14 in 3.11) is older than ICU's and PCRE2's: what it knows, all of them know.
ASSIGNED = [
    chr(code)
    for code in range(0x110000)
    if unicodedata.category(chr(code)) not in ("Cn", "Cs", "Co")
]

PHRASES = [
    "The lathe stands by the window, and it's THEY'RE we'll I'D don'T 'S 's",
    "Die Größe der Werkstücke; naïve café — “quoted” … ﬁne ﬂow ŉ",
    "Über den Wolken muß die Freiheit wohl grenzenlos sein",
    "Съешь ещё этих мягких французских булок, да выпей чаю",
    "天地玄黃宇宙洪荒。日月盈昃、辰宿列張！我能吞下玻璃而不伤身体",
    "いろはにほへと ちりぬるを カタカナ ﾊﾝｶｸ 가나다라마바사 각",
    "نص عربي مع أرقام ١٢٣٤٥ وعلامات، שלום עולם",
    "नमस्ते दुनिया क्षत्रिय ไทยภาษา ສະບາຍດີ བོད་ཡིག",
    "👩‍👩‍👧‍👦 👍🏽 🇩🇪🇫🇷 ❤️ 🏴‍☠️ ☃︎ 1️⃣",
    "e\u0301 é o\u0308\u0323 ö\u0323 \u1e9b\u0323 Å Å ª º ² ½ Ⅷ ㎏ ﷺ",
    "for (int i = 0; i < 100; ++i) {\n\tx[i] += y[i] * 3.14e-10;\n}\r\n\r\n  // done\n\n\n",
    "1234567890 007 3,141.59 १२३ ４５６ ⅓ 10²",
    "http://example.org/a_b?c=d&e=%20#f user@host.name C:\\dir\\file.txt",
    "ALLCAPS camelCaseWords PascalCase HTTPServer snake_case kebab-case ǅungla ʰʷ",
    "\u00a0\u2003\u3000\u2028\u2029\u0085\u200b\u180e\ufeff nbsp\u00a0nbsp",
    "\x00\x01\x07\x08\x0b\x0c\x1b\x7f controls\x1c\x1d\x1e\x1f",
    "   leading, trailing   ",
    "\n\n \n  \t\t \t\r\r\n",
    "▁▁ already ▁meta ▁ Ġ Ċ <0x0A> <0xFF> <unk> <s> </s> ĠĠ",
    "'ſ 'ſt \u212a ı İ ß ẞ straße",
]


def training_text():
    """Words of several scripts, and words made of their halves, so that merges go deep."""
    generator = random.Random(1)
    words = [word for phrase in PHRASES for word in phrase.split(" ") if word]
    words = [word for word in words if "<0x" not in word]  # these are tokens of bytes
    parts = [word[: len(word) // 2] for word in words] + [word[len(word) // 2 :] for word in words]
    lines = []
    for _ in range(2000):
        made = ["".join(generator.choices(parts, k=generator.randrange(1, 4))) for _ in range(6)]
        lines.append(" ".join(generator.choices(words, k=8) + made))
    return "\n".join(lines) + "\n"


def planes():
    """All assigned characters in their order, in texts of some hundred, with and without spaces."""
    texts = []
    for begin in range(0, len(ASSIGNED), 512):
        characters = ASSIGNED[begin : begin + 512]
        texts.append("".join(characters))
        texts.append(" ".join(characters))
    return texts


def long_runs(length):
    """Single words, spaces and digits of `length` characters."""
    words = ["a", "A", "ab", "天", "0", "!", " ", "\n", " \n", "\t ", "👍", "e\u0301", "aB", "▁", "\u0301"]
    return [(word * length)[:length] for word in words]


def random_texts(count, seed, extra=()):
    """Phrases, characters and pieces of `extra` in random order."""
    generator = random.Random(seed)
    texts = []
    for _ in range(count):
        parts = []
        for _ in range(generator.randrange(1, 30)):
            kind = generator.randrange(6)
            if kind == 0:
                phrase = generator.choice(PHRASES)
                begin = generator.randrange(len(phrase))
                parts.append(phrase[begin : begin + generator.randrange(20)])
            elif kind == 1:
                parts.append("".join(generator.choices(ASSIGNED, k=generator.randrange(1, 6))))
            elif kind == 2:
                parts.append(generator.choice([" ", "\n", "\t", "\r\n", "\u3000"]) * generator.randrange(1, 5))
            elif kind == 3:
                parts.append("".join(generator.choices("abcXYZ019 '.\n", k=generator.randrange(1, 12))))
            elif kind == 4 and extra:
                parts.append(generator.choice(extra))
            else:
                parts.append(chr(generator.randrange(0x20, 0x2FF)))
        texts.append("".join(parts))
    return texts
