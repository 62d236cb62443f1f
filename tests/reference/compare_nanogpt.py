#!/usr/bin/env python3
"""compare_nanogpt.py - nanoGPT's setting for a CPU, from token files made by its recipe: PyTorch's validation loss.

    compare_nanogpt.py LOCKSTEP

4 layers, 4 heads, 128 channels, context 64, batch 12, 2,000 steps; characters as 16-bit tokens, the first 90 % of the
text in train.bin, the rest in val.bin.  PyTorch starts from the same parameters and sees the same sequences; both
evaluate all of val.bin.  The text is the Jargon File of Debian's package jargon-text.  Exit 77 without it or PyTorch.
"""
import array
import gzip
import json
import os
import sys
import tempfile

import gpt_torch
import refs

TEXT = "/usr/share/doc/jargon-text/jargon.txt.gz"
BOUND = 0.02


def prepare(work):
    """nanoGPT's data/shakespeare_char/prepare.py; (train, val, size of the vocabulary)."""
    if not os.path.exists(TEXT):
        print(f"skipped: {TEXT} is missing (package jargon-text)")
        sys.exit(refs.SKIPPED)
    with gzip.open(TEXT, "rt", encoding="utf-8", errors="replace", newline="") as file:
        text = file.read()
    token = {c: i for i, c in enumerate(sorted(set(text)))}
    cut, parts = int(len(text) * 0.9), []
    for name, part in (("train.bin", text[:cut]), ("val.bin", text[cut:])):
        parts.append([token[c] for c in part])
        tokens = array.array("H", parts[-1])
        if sys.byteorder == "big":
            tokens.byteswap()
        with open(os.path.join(work, name), "wb") as file:
            file.write(tokens.tobytes())
    return *parts, len(token)


def config_in(work, vocab_size):
    return {
        "run": {"name": "nano", "dir": os.path.join(work, "nano"), "steps": 2000, "seed": 1337},
        "model": {"type": "gpt", "n_layer": 4, "n_head": 4, "d_model": 128, "context": 64, "bias": False,
                  "vocab_size": vocab_size},
        "data": {"train": os.path.join(work, "train.bin"), "val": os.path.join(work, "val.bin"),
                 "format": "tokens_u16", "order": "sequential"},
        "batch": {"global": 12},
        "optim": {"lr": 1e-3, "betas": [0.9, 0.99], "schedule": {"warmup": 100}},
        "eval": {"batches": 0},
        "log": {"every": 100},
    }


def pytorch(config, init, train_tokens, val_tokens):
    torch = gpt_torch.torch
    torch.set_num_threads(1)
    config = gpt_torch.resolve(config)
    p = gpt_torch.load_parameters(init, config["model"])
    for line in gpt_torch.train(config, p, torch.tensor(train_tokens)):
        if line["step"] % 500 == 0:
            print(f"PyTorch: step {line['step']}, loss {line['loss']:.4f}", flush=True)
    return gpt_torch.evaluate(config, p, torch.tensor(val_tokens))


def main():
    with tempfile.TemporaryDirectory() as work:
        train_tokens, val_tokens, vocab_size = prepare(work)
        config = config_in(work, vocab_size)
        path, init = refs.initial(sys.argv[1], config, os.path.join(work, "nano"))
        refs.train(sys.argv[1], path, config["run"]["dir"])
        with open(os.path.join(config["run"]["dir"], "summary.json"), encoding="utf-8") as file:
            got = json.load(file)["val_loss"]
        want = pytorch(config, init, train_tokens, val_tokens)
    print(f"{vocab_size} characters, {len(train_tokens)} + {len(val_tokens)} tokens; validation loss after 2,000 steps: "
          f"Lockstep {got:.5f}, PyTorch {gpt_torch.torch.__version__} {want:.5f}, difference {abs(got - want):.5f}, "
          f"bound {BOUND}")
    return 0 if abs(got - want) <= BOUND else 1


if __name__ == "__main__":
    sys.exit(main())
