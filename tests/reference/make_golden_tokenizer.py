#!/usr/bin/env python3
"""Writes golden_tokenizer.json: a tokenizer of the Python package tokenizers and its tokens of the corpus,
and those of the other kinds of tokenizer_corpus.KINDS.

    python3 -m pip install tokenizers==0.23.3
    python3 tests/reference/make_golden_tokenizer.py
"""
import json
import os

import tokenizer_corpus
import tokenizers
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers


def make():
    made = Tokenizer(models.BPE())
    made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    made.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(vocab_size=500, show_progress=False, special_tokens=tokenizer_corpus.SPECIAL,
                                  initial_alphabet=pre_tokenizers.ByteLevel.alphabet())
    made.train_from_iterator([tokenizer_corpus.BASE * 2] + tokenizer_corpus.CASES, trainer)
    return made


def main():
    tokenizer = json.loads(make().to_str())
    rows = []
    for kind in tokenizer_corpus.KINDS:
        of_kind = Tokenizer.from_str(json.dumps(tokenizer_corpus.of_kind(tokenizer, kind)))
        tokens = [of_kind.encode(text.decode(errors="replace")).ids for text in tokenizer_corpus.texts_of(kind)]
        rows.append('"%s": [\n%s]' % (kind, ",\n".join(json.dumps(ids, separators=(",", ":")) for ids in tokens)))
    path = os.path.join(os.path.dirname(os.path.abspath(__file__)), "golden_tokenizer.json")
    with open(path, "w", encoding="utf-8") as file:
        file.write('{"made_by": "tokenizers %s",\n"tokenizer": %s,\n"tokens": {\n%s}}\n' % (
            tokenizers.__version__, json.dumps(tokenizer), ",\n".join(rows)))


main()
