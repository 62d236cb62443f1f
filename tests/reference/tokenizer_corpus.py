"""tokenizer_corpus.py - hard cases for a byte-level BPE, the same on every machine; standard library only."""
import random

BASE = """\
The quick brown fox doesn't jump; it'll wait, they've said: "we're 100% sure - I'd bet $3.50!"
def tokenize(text):\n    for i, c in enumerate(text):\n        if c == '\\t':\n            return {i: c}\n
Stra\u00dfe, na\u00efve caf\u00e9, \u0395\u03bb\u03bb\u03ac\u03b4\u03b1, \u041c\u043e\u0441\u043a\u0432\u0430, \u6771\u4eac\u90fd, \ud55c\uad6d\uc5b4, \u0939\u093f\u0928\u094d\u0926\u0940, \u05e2\u05d1\u05e8\u05d9\u05ea, \u0627\u0644\u0639\u0631\u0628\u064a\u0629.
1,234.56 \u00bd \u2167 \u0661\u0662\u0663 \u00b2 x\u2081 2024-05-20 0x1F 1e-5
\U0001f600\U0001f468\u200d\U0001f469\u200d\U0001f467\U0001f1e9\U0001f1ea \u2764\ufe0f \u2014 \u2018quoted\u2019 \u201cdouble\u201d\u2026
"""

CASES = [
    "", " ", "  ", "   ", "\n", "\n\n", " \n", "\n ", "\t", "\r\n", "\r\n\r\n", " \t \n  x", "x ", "x  ", "x\n", "x \n",
    "hello", " hello", "  hello", "hello world", "hello  world", "hello   world", "hello\nworld", "hello \n world",
    "Hello, World!", "don't", "DON'T", "I'll've", "'s's's", "'", "''", "'s", " 's", "it's 'quoted'", "'tis", "y'all'd",
    "'\u017f", "'S", "'RE", "I'lL'Vex", "'\u017fx", "a\r\n\r\n b", " \n \t\n x", "!!\r\n\n x", "\u00a0\n\u2028\r y", "12345678", "\ta\t!\t1", "a's", "1's", "!'s", "o\u2019clock", "rock'n'roll", "'re're", "'r", "'l", "'lll", "'ve1",
    "abc123def", "123abc", "1 2 3", "1  2", "3.14159", "1,000,000", "-1", "a1b2c3", "\u00b2\u00b3\u00b9", "\u2167 \u216b",
    "\u0661\u0662\u0663", "\u4e00\u4e8c\u4e09", "\u3007", "\u00bd\u00be", "x\u00b2+y\u00b2", "\U0001d7d8\U0001d7d9",
    "!@#$%^&*()", "a!b", "a !b", "a! b", "...", " ...", "a...b", "--- ---", "<|endoftext|>", "<|endoftext|><|endoftext|>",
    "a<|endoftext|>b", " <|endoftext|> ", "<|endoftext|", "|endoftext|>", "<|endo<|endoftext|>ftext|>", "<|pad|>x<|pad|>",
    "<|padding|>", "<|pad|><|padding|>", "x  <|endoftext|>  y", "it'<|endoftext|>s",
    "caf\u00e9", "cafe\u0301", "\u00c5\u212b", "e\u0301\u0302", "\u0301", " \u0301", "a\u0301b", "\u1100\u1161\u11a8", "\uac01",
    "\ufb01n", "\u017f", "\u0130I\u0131i", "\u01c5", "\u02b0", "\u00aa\u00ba", "\u2071\u207f",
    "\u0e44\u0e17\u0e22", "\u0939\u093f\u0928\u094d\u0926\u0940", "\u0ba4\u0bae\u0bbf\u0bb4\u0bcd", "\u05e9\u05c1\u05b8\u05dc\u05d5\u05b9\u05dd",
    "\u0645\u064e\u0631\u0652\u062d\u064e\u0628\u064b\u0627", "\u202bRTL\u202c", "\u4f60\u597d\uff0c\u4e16\u754c\u3002", "\u3053\u3093\u306b\u3061\u306f", "\uff21\uff22\uff23\uff11\uff12",
    "\U00020000\U0002a6df", "\U0001f600", "\U0001f600\U0001f600 \U0001f600", "a\U0001f600b", "\U0001f468\u200d\U0001f469\u200d\U0001f467", "\U0001f44d\U0001f3fd",
    "\u2764\ufe0f", "\U0001f1e9\U0001f1ea", "\u200d", "\u200b", "a\u200bb", "\ufeff", "\ufeffx", "a\u00adb",
    "\u00a0", "a\u00a0b", "\u00a0\u00a0", " \u00a0 ", "a\u2003b", "a \u2003 b", "\u3000\u5168\u89d2", "\u2028", "a\u2029b", "\x85", "\x0b\x0c",
    "\x1c\x1d\x1e\x1f", "a\x1fb", "\u180e", "\u1680x", "\u205f\u202f", "\x00", "a\x00b", "\x7f", "\x80\x9f", "\x01\x02\x03",
    "\u0378", "\ue000", "\U000f0000", "\U0010ffff", "\ufffd", "\ufffe", "\uffff", "\u1c89\u1c8a", "\ua7cb\ua7da", "\U00010d40",
    "a" * 100, "ab" * 200, " " * 100 + "x", "\n" * 50, "=" * 80, "a " * 100, "\u00e9" * 70, "0" * 64, "-+" * 40,
    "for (int i = 0; i < n; i++) {\n\tx[i] += y[i] * 2.0f;  // sum\n}\n", "<div class=\"a-b\">T&amp;C</div>", "https://example.org/a?b=c&d=%20#e",
    "C:\\path\\to\\file.txt", "snake_case_name camelCaseName", "e-mail@example.org", "\\u00e9\\n", "#include <stdio.h>", "x = y**2 if z else -1",
    "The  Total:\t$1,234.56\n\n\n  indented\n    more\n", BASE,
]

SPECIAL = ["<|endoftext|>", "<|pad|>", "<|padding|>"]

# Llama 3's pattern, and what makes a tokenizer.json another one of the same vocabulary: by row, its changed sections.
LLAMA3 = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+"
          r"|\s+(?!\S)|\s+")
LEVEL = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True}


def around(before, behind):
    """A post-processor that puts special tokens before and behind a text; names to ids."""
    def part(name):
        return {"SpecialToken": {"id": name, "type_id": 0}}
    parts = [*map(part, before), {"Sequence": {"id": "A", "type_id": 0}}, *map(part, behind)]
    special = {name: {"id": name, "ids": [token], "tokens": [name]} for name, token in {**before, **behind}.items()}
    return {"type": "TemplateProcessing", "single": parts, "pair": [*parts, {"Sequence": {"id": "B", "type_id": 1}}],
            "special_tokens": special}


KINDS = {
    "gpt2": {},
    "prefix_space": {"pre_tokenizer": {**LEVEL, "add_prefix_space": True}},
    "ignore_merges": {"ignore_merges": True},
    "around": {"post_processor": around({"<|pad|>": 1}, {"<|padding|>": 2, "<|endoftext|>": 0})},
    "llama3": {"ignore_merges": True,
               "pre_tokenizer": {"type": "Sequence", "pretokenizers": [
                   {"type": "Split", "pattern": {"Regex": LLAMA3}, "behavior": "Isolated", "invert": False},
                   {**LEVEL, "use_regex": False}]},
               "post_processor": {"type": "Sequence", "processors": [{**LEVEL, "trim_offsets": False},
                                                                     around({"<|endoftext|>": 0}, {})]}},
}


def of_kind(tokenizer, kind):
    """A tokenizer.json of that kind; with ignore_merges half of the merges are left out, so that it shows."""
    made = {**tokenizer, "model": dict(tokenizer["model"])}
    for key, value in KINDS[kind].items():
        if key == "ignore_merges":
            made["model"]["ignore_merges"] = value
            made["model"]["merges"] = made["model"]["merges"][:len(made["model"]["merges"]) // 2]
        else:
            made[key] = value
    return made


def strings():
    """CASES, and random ones of characters that lie on the borders of classes."""
    draw = random.Random(20240520)
    alphabet = list("aZ19'stdmlrve!?.,- \n\t\r") + list("\u00a0\u00e9\u00b2\u2003\u0301\u4e00\u0661\U0001f600\u200d\u3000\x85\x1f\ufffd") + SPECIAL
    made = ["".join(draw.choice(alphabet) for _ in range(draw.randint(1, 30))) for _ in range(60)]
    return CASES + made


def texts():
    """As bytes, and some that are not UTF-8."""
    good = [text.encode() for text in strings()]
    bad = [b"\xff", b"a\xffb", b"\xc3", b"a\xc3 b", b"\xe2\x82", b"\xe2\x82x", b"\xf0\x9f\x98", b"\xf0\x9f\x98 \xf0\x9f\x98\x80",
           b"\xed\xa0\x80", b"\xc0\x80", b"\xf5\x80\x80\x80", b"\x80\x80 \x80", b"caf\xe9 cr\xe8me", b"\xf4\x90\x80\x80", b"\xe0\x80\xaf!",
           b"'\xff's", b"\xfe\xff\x00a", bytes(range(128, 256)), bytes(range(256)) * 2]
    draw = random.Random(7)
    bad += [bytes(draw.choice(b"\xe2\x82\xac\xf0\x9f\x98\x80\xc3\xa9\xffa '1") for _ in range(20)) for _ in range(40)]
    return [text for text in good + bad if text]


def texts_of(kind):
    """One by one for GPT-2's; for the other kinds in one text, as special tokens between them part them."""
    return texts() if kind == "gpt2" else [b"<|endoftext|>".join(texts())]
