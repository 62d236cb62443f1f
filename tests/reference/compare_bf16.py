#!/usr/bin/env python3
"""compare_bf16.py - parallel.param_dtype "bf16" against PyTorch in bf16, live, from the same initial parameters.

    compare_bf16.py LOCKSTEP [--work DIR] [--only VARIANT]

Two ways in which PyTorch is used with bf16, over variants of refs.py: autocast over parameters in f32, and a
forward of parameters rounded to bf16 in which all is bf16 (as FSDP2's MixedPrecisionPolicy(param_dtype=bf16)), masters
in f32.  The loss is formed in f32.  Losses of 20 steps within 1 %, and not those of our own f32.  Exit 77 when PyTorch is missing.
"""
import argparse
import os
import sys
import tempfile

import gpt_torch
import refs

torch, plain = gpt_torch.torch, gpt_torch.loss_of
VARIANTS = ["gpt2-tied-gelu_tanh", "llama-untied-gqa", "gpt2-sgd-constant"]
STEPS, BOUND = 20, 0.01


def autocast(p, inputs, targets, model):
    with torch.autocast("cpu", dtype=torch.bfloat16):
        return plain(p, inputs, targets, model)


def all_bf16(p, inputs, targets, model):
    return plain({name: t.bfloat16() for name, t in p.items()}, inputs, targets, model)


WAYS = {"autocast": autocast, "all bf16": all_bf16}


def losses_in_pytorch(config, init, loss_of):
    gpt_torch.loss_of = loss_of
    resolved = gpt_torch.resolve(config)
    p = gpt_torch.load_parameters(init, resolved["model"])
    return [line["loss"] for line in gpt_torch.train(resolved, p, gpt_torch.load_tokens(resolved)[0])]


def apart(a, b):
    return max(abs(x - y) / abs(y) for x, y in zip(a, b, strict=True))


def compare(lockstep, name, work, judge):
    config, stem = refs.variant_config(name, work), os.path.join(work, name)
    config["run"]["steps"] = STEPS
    path, init = refs.initial(lockstep, config, stem)
    runs = {dtype: [line["loss"] for line in refs.train(lockstep, path, f"{stem}.{dtype}",
                                                        f"parallel.param_dtype={dtype}")[0]]
            for dtype in ("f32", "bf16")}
    if apart(runs["bf16"], runs["f32"]) < 1e-6:
        judge.failures.append(f"FAIL {name}: losses in bf16 are those of f32: nothing was rounded")
    for way, loss_of in WAYS.items():
        want = losses_in_pytorch(config, init, loss_of)
        judge.check(name, f"{way}: losses of {STEPS} steps", "losses", apart(runs["bf16"], want), BOUND)


def main():
    parser = argparse.ArgumentParser(description="Lockstep in bf16 against PyTorch in bf16")
    parser.add_argument("lockstep")
    parser.add_argument("--work", help="a folder for configs and runs, kept; a temporary one otherwise")
    parser.add_argument("--only", choices=VARIANTS, help="one variant")
    options = parser.parse_args()
    judge = refs.Judge()
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as temporary:
        work = options.work or temporary
        os.makedirs(work, exist_ok=True)
        for name in [options.only] if options.only else VARIANTS:
            compare(options.lockstep, name, work, judge)
    return judge.finish()


if __name__ == "__main__":
    sys.exit(main())
