#!/usr/bin/env python3
"""check_golden.py - Lockstep against the committed table golden_gpt.json; needs no PyTorch and no numpy.

    check_golden.py LOCKSTEP [--work DIR]

A probe is a sum with pseudo-random signs, so a difference of relative size b in a tensor of norm n moves it by
about b * n; five times that is allowed.
"""
import argparse
import json
import os
import sys
import tempfile

import refs

INIT_BOUND = 1e-6  # the generator's log and cos may differ in a last bit between C libraries


def check_tensors(judge, variant, kind, got, want, config, bound):
    for tensor, (norm, probe) in want.items():
        mine = refs.digest(refs.free_part(tensor, got[tensor][1], config)) if tensor in got else (float("nan"),) * 2
        size = norm or 1.0
        judge.check(variant, kind + ", norm", tensor, abs(mine[0] - norm) / size, bound)
        judge.check(variant, kind + ", probe", tensor, abs(mine[1] - probe) / size, 5 * bound)


def main():
    parser = argparse.ArgumentParser(description="Lockstep against a table of PyTorch's results")
    parser.add_argument("lockstep")
    parser.add_argument("--work", help="a folder for configs and runs, kept; a temporary one otherwise")
    options = parser.parse_args()
    with open(os.path.join(os.path.dirname(os.path.abspath(__file__)), "golden_gpt.json"), encoding="utf-8") as file:
        table = json.load(file)
    judge = refs.Judge()
    with tempfile.TemporaryDirectory() as temporary:
        work = options.work or temporary
        os.makedirs(work, exist_ok=True)
        for name, want in table["variants"].items():
            config, metrics, grads, after, init = refs.lockstep_results(options.lockstep, name, work)
            check_tensors(judge, name, "init", refs.read_safetensors(init), want["init"], config, INIT_BOUND)
            judge.check_metrics(name, metrics, want)
            check_tensors(judge, name, "grads", grads, want["grads"], config, refs.GRAD_BOUND)
            check_tensors(judge, name, "params", after, want["params"], config, refs.PARAM_BOUND)
    return judge.finish()


if __name__ == "__main__":
    sys.exit(main())
