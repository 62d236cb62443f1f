#!/usr/bin/env python3
"""Writes golden_tokenizer.json: a tokenizer of the Python package tokenizers and its tokens of the corpus.

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
    tokenizer = make()
    tokens = [tokenizer.encode(text.decode(errors="replace")).ids for text in tokenizer_corpus.texts()]
    path = os.path.join(os.path.dirname(os.path.abspath(__file__)), "golden_tokenizer.json")
    with open(path, "w", encoding="utf-8") as file:
        file.write('{"made_by": "tokenizers %s",\n"tokenizer": %s,\n"tokens": [\n%s]}\n' % (
            tokenizers.__version__, json.dumps(json.loads(tokenizer.to_str())),
            ",\n".join(json.dumps(ids, separators=(",", ":")) for ids in tokens)))


main()
