#!/usr/bin/env python3
"""compare_learning.py - it learns: the validation loss after 2,000 steps equals PyTorch's within 0.02.

    compare_learning.py LOCKSTEP           Lockstep against PyTorch's figure in golden_learning.json
    compare_learning.py LOCKSTEP --live    against PyTorch now (minutes)
    compare_learning.py LOCKSTEP --make    PyTorch now, written to golden_learning.json
    compare_learning.py LOCKSTEP --bf16    parallel.param_dtype "bf16" against Lockstep's own f32

The text is the Jargon File of Debian's package jargon-text; its SHA-256 is in the table, and another edition is
reported as skipped (exit 77), as is a machine without it.
"""
import argparse
import gzip
import hashlib
import json
import os
import sys
import tempfile

import refs

TEXT = "/usr/share/doc/jargon-text/jargon.txt.gz"
TABLE = os.path.join(os.path.dirname(os.path.abspath(__file__)), "golden_learning.json")
BOUND = 0.02


def config_in(work):
    return {
        "run": {"name": "learning", "dir": os.path.join(work, "learning"), "steps": 2000, "seed": 1337},
        "model": {"type": "gpt", "n_layer": 4, "n_head": 4, "d_model": 128, "context": 64, "mlp": "gelu_tanh"},
        "data": {"train": TEXT, "val_fraction": 0.1, "order": "sequential"},
        "batch": {"global": 12},
        "optim": {"lr": 1e-3, "schedule": {"warmup": 100}},
        "eval": {"batches": 20},
        "log": {"every": 100},
    }


def skip(why):
    print("skipped: " + why)
    sys.exit(refs.SKIPPED)


def text_sha256():
    if not os.path.exists(TEXT):
        skip(f"{TEXT} is missing (package jargon-text)")
    with gzip.open(TEXT, "rb") as file:
        return hashlib.sha256(file.read()).hexdigest()


def pytorch(config, init):
    """What PyTorch gets from the same parameters."""
    import gpt_torch  # ends with 77 where PyTorch is missing

    gpt_torch.torch.set_num_threads(1)  # products this small gain little from more, and wait badly on a busy machine
    config = gpt_torch.resolve(config)
    p = gpt_torch.load_parameters(init, config["model"])
    train_tokens, val_tokens = gpt_torch.load_tokens(config)
    for line in gpt_torch.train(config, p, train_tokens):
        if line["step"] % 100 == 0:
            print(f"PyTorch: step {line['step']}, loss {line['loss']:.4f}", flush=True)
    return {"made_by": "tests/reference/compare_learning.py --make", "torch": gpt_torch.torch.__version__,
            "text_sha256": text_sha256(), "train_loss": line["loss"],
            "val_loss": gpt_torch.evaluate(config, p, val_tokens)}


def reference(options, config, init):
    if options.live or options.make:
        table = pytorch(config, init)
        if options.make:
            with open(TABLE, "w", encoding="utf-8") as file:
                json.dump(table, file, indent=1)
                file.write("\n")
        return table
    with open(TABLE, encoding="utf-8") as file:
        table = json.load(file)
    if table["text_sha256"] != text_sha256():
        skip(f"{TEXT} is another edition than the table's; --live compares all the same")
    return table


def val_loss(lockstep, path, config, *settings):
    refs.train(lockstep, path, config["run"]["dir"], *settings)
    with open(os.path.join(config["run"]["dir"], "summary.json"), encoding="utf-8") as file:
        return json.load(file)["val_loss"]


def judge(got, want, whose):
    gap = abs(got - want)
    print(f"validation loss after 2,000 steps: {got:.4f}, {whose} {want:.4f}, difference {gap:.4f}, bound {BOUND}")
    return 0 if gap <= BOUND else 1


def main():
    parser = argparse.ArgumentParser(description="validation loss after 2,000 steps, Lockstep and PyTorch")
    parser.add_argument("lockstep")
    parser.add_argument("--live", action="store_true", help="run PyTorch instead of reading the table")
    parser.add_argument("--make", action="store_true", help="run PyTorch and write the table")
    parser.add_argument("--bf16", action="store_true", help="compare parameters in bf16 with f32, both Lockstep's")
    options = parser.parse_args()
    text_sha256()
    with tempfile.TemporaryDirectory() as work:
        config = config_in(work)
        path, init = refs.initial(options.lockstep, config, os.path.join(work, "learning"))
        if options.bf16:
            narrow = val_loss(options.lockstep, path, config, "parallel.param_dtype=bf16")
            return judge(narrow, val_loss(options.lockstep, path, config), "in f32")
        want = reference(options, config, init)
        return judge(val_loss(options.lockstep, path, config), want["val_loss"], f"PyTorch {want['torch']}")


if __name__ == "__main__":
    sys.exit(main())
