#!/usr/bin/env python3
"""check_tokenizer.py - Lockstep's byte-level BPE against Python's tokenizers.

    check_tokenizer.py LOCKSTEP golden      tokens of the corpus as golden_tokenizer.json has them
    check_tokenizer.py LOCKSTEP live        the same with the package here; every code point; what it trains, and what it
                                            makes of a tokenizer.json that Lockstep trained.  Exit 77 without the package.
"""
import array
import json
import os
import subprocess
import sys
import tempfile

import tokenizer_corpus

HERE = os.path.dirname(os.path.abspath(__file__))
SKIPPED = 77
failures = 0


def check(ok, what):
    global failures
    if not ok:
        failures += 1
        print("FAIL", what)
    return ok


def read_u16(path):
    tokens = array.array("H")
    with open(path, "rb") as file:
        tokens.frombytes(file.read())
    if sys.byteorder == "big":
        tokens.byteswap()
    return list(tokens)


class Lockstep:
    def __init__(self, command, work):
        self.command, self.work = command, work

    def path(self, name):
        return os.path.join(self.work, name)

    def run(self, *args):
        done = subprocess.run([self.command, "tokenize", *args], capture_output=True, text=True, check=False)
        return check(done.returncode == 0, f"{args}: {done.stderr}")

    def encode(self, tokenizer, text):
        with open(self.path("text"), "wb") as file:
            file.write(text)
        if self.run(self.path("text"), "--tokenizer", tokenizer, "--tokens", self.path("tokens")):
            return read_u16(self.path("tokens"))
        return []


def compare(lockstep, tokenizer, text, want):
    got = lockstep.encode(tokenizer, text)
    at = next((i for i, (a, b) in enumerate(zip(got, want)) if a != b), min(len(got), len(want)))
    check(got == want, f"{text[:60]!r}: {len(got)} tokens, want {len(want)}; first difference at {at}: "
                       f"{got[at:at + 5]}, want {want[at:at + 5]}")


def check_golden(lockstep):
    """Of every kind of tokenizer; returns their files and tokens by kind."""
    with open(os.path.join(HERE, "golden_tokenizer.json"), encoding="utf-8") as file:
        golden = json.load(file)
    files = {}
    check(list(golden["tokens"]) == list(tokenizer_corpus.KINDS), f"kinds {list(golden['tokens'])}")
    for kind, tokens in golden["tokens"].items():
        files[kind] = lockstep.path(kind + ".json")
        with open(files[kind], "w", encoding="utf-8") as file:
            json.dump(tokenizer_corpus.of_kind(golden["tokenizer"], kind), file)
        texts = tokenizer_corpus.texts_of(kind)
        check(len(texts) == len(tokens), f"{kind}: {len(texts)} texts, {len(tokens)} in the file")
        for text, want in zip(texts, tokens):
            compare(lockstep, files[kind], text, want)
    check_vocab(lockstep, files["gpt2"])
    print(f"{len(tokenizer_corpus.texts())} texts by {', '.join(files)} as {golden['made_by']} has them")
    return files, golden["tokens"]


def every_code_point(each="a{c}1{c}!{c} {c}{c}\n"):
    """
    Each between a letter, a number, a mark and a space, so that its class shows in where the text is cut.  Of the planes
    above 3, of which none holds a letter or a number, every 61st.
    """
    numbers = [*range(0xd800), *range(0xe000, 0x34000), *range(0x34000, 0x110000, 61)]
    points = [chr(number) for number in numbers]
    return "".join(each.format(c=c) for c in points)


SPECIAL_MAP = {"bos_token": "<|endoftext|>", "eos_token": {"content": "<|pad|>", "lstrip": False, "normalized": True},
               "unk_token": "<|endoftext|>", "additional_special_tokens": ["<|padding|>"]}
ADDED = {"content": "<|zz|>", "lstrip": False, "normalized": False, "rstrip": False, "single_word": False, "special": True}
VOCAB_FILES = {  # beside vocab.json and merges.txt
    "alone": {},
    "map": {"special_tokens_map.json": SPECIAL_MAP},
    "config": {"tokenizer_config.json": {"tokenizer_class": "GPT2Tokenizer", "add_prefix_space": True,
                                         "pad_token": "<|pad|>", "model_max_length": 1024}},
    "added": {"added_tokens.json": {"<|zz|>": 500, "q w": 501}, "special_tokens_map.json": SPECIAL_MAP},
    "decoder": {"tokenizer_config.json": {"tokenizer_class": "GPT2Tokenizer", "add_bos_token": True,
                                          "added_tokens_decoder": {"500": ADDED}}},
    "no end of text": {},
}


def write_vocab(lockstep, tokenizer, name):
    """A directory of vocab.json and merges.txt; the path of the first."""
    folder = lockstep.path("vocab of " + name)
    os.mkdir(folder)
    with open(tokenizer, encoding="utf-8") as file:
        model = json.load(file)["model"]
    vocab = {t: i for t, i in model["vocab"].items() if name != "no end of text" or i}
    first = min(vocab.values())
    files = {"vocab.json": {t: i - first for t, i in vocab.items()}, "config.json": {"model_type": "gpt2"},
             **VOCAB_FILES[name]}
    for file_name, content in files.items():
        with open(os.path.join(folder, file_name), "w", encoding="utf-8") as file:
            json.dump(content, file)
    with open(os.path.join(folder, "merges.txt"), "w", encoding="utf-8") as file:
        file.write("#version: 0.2\n" + "".join(" ".join(merge) + "\n" for merge in model["merges"]))
    return os.path.join(folder, "vocab.json")


def check_vocab(lockstep, tokenizer):
    """vocab.json and merges.txt with the same special tokens are the same tokenizer."""
    text = b" <|zz|>q w".join(tokenizer_corpus.texts())
    compare(lockstep, write_vocab(lockstep, tokenizer, "map"), text, lockstep.encode(tokenizer, text))


def check_vocab_live(lockstep, tokenizer):
    try:
        import transformers
    except ImportError as missing:
        print(f"skipped: {missing}")
        return
    text = b" <|zz|>q w".join(tokenizer_corpus.texts())
    for name in VOCAB_FILES:
        path = lockstep.path("vocab of map/vocab.json") if name == "map" else write_vocab(lockstep, tokenizer, name)
        theirs = transformers.GPT2Tokenizer.from_pretrained(os.path.dirname(path))
        want = theirs.backend_tokenizer.encode(text.decode(errors="replace")).ids
        compare(lockstep, path, text, want)
    print(f"vocab.json and merges.txt as transformers {transformers.__version__}")


def check_live(lockstep, files, tokens):
    try:
        import tokenizers
        from tokenizers import Tokenizer, models, pre_tokenizers, trainers
    except ImportError as missing:
        print(f"skipped: {missing}")
        return SKIPPED
    wholes = {"gpt2": every_code_point(), "llama3": every_code_point("a{c}!{c}1\n'{c}x")}  # the others cut as gpt2 does
    for kind, file in files.items():
        theirs = Tokenizer.from_file(file)
        for text, golden_tokens in zip(tokenizer_corpus.texts_of(kind), tokens[kind]):
            check(theirs.encode(text.decode(errors="replace")).ids == golden_tokens, f"the golden tokens of {text[:60]!r}")
        if kind in wholes:
            compare(lockstep, file, wholes[kind].encode(), theirs.encode(wholes[kind]).ids)
    check_vocab_live(lockstep, files["gpt2"])

    corpus = (tokenizer_corpus.BASE * 3 + "".join(tokenizer_corpus.CASES)).replace("<|", "< |")
    corpus += every_code_point()[::97]
    ours, size = lockstep.path("ours.json"), 900
    with open(lockstep.path("corpus"), "w", encoding="utf-8", newline="") as file:
        file.write(corpus)
    lockstep.run(lockstep.path("corpus"), "--vocab-size", str(size + 3), "-o", ours,
                 *[word for token in tokenizer_corpus.SPECIAL for word in ("--special", token)])
    trained = Tokenizer(models.BPE())
    trained.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    trained.train_from_iterator([corpus], trainers.BpeTrainer(
        vocab_size=size, show_progress=False, initial_alphabet=pre_tokenizers.ByteLevel.alphabet()))
    with open(ours, encoding="utf-8") as file:
        merges = json.load(file)["model"]["merges"]
    check(merges == json.loads(trained.to_str())["model"]["merges"], "the merges of the two trainers differ")
    loaded = Tokenizer.from_file(ours)
    check(loaded.get_vocab_size() == size + 3, f"{loaded.get_vocab_size()} tokens in what Lockstep trained")
    for text in (b" ".join(tokenizer_corpus.texts()), corpus.encode()):
        want = loaded.encode(text.decode(errors="replace")).ids
        compare(lockstep, ours, text, want)
        check(loaded.decode(want, skip_special_tokens=False) == text.decode(errors="replace"), f"decoded: {text[:60]!r}")
    print(f"corpus, every code point and training as tokenizers {tokenizers.__version__}")
    return 0


def main():
    with tempfile.TemporaryDirectory(prefix="lockstep-test-") as work:
        lockstep = Lockstep(os.path.abspath(sys.argv[1]), work)
        files, tokens = check_golden(lockstep)
        status = check_live(lockstep, files, tokens) if sys.argv[2] == "live" else 0
    print(f"{failures} failures")
    return 1 if failures else status


sys.exit(main())
