#!/usr/bin/env python3
"""compare_gpt.py - Lockstep against PyTorch, live: the variants of refs.py from the same initial parameters.

    compare_gpt.py LOCKSTEP [--work DIR] [--only VARIANT]

Losses and gradient norms of 50 steps, gradients of step 1 and parameters after 50 steps, tensor by tensor.
Exit 1 names variant, step and tensor of every difference; exit 77 when PyTorch is missing.
"""
import argparse
import os
import sys
import tempfile

import gpt_torch
import refs


def compare(lockstep, name, work, judge):
    config, metrics, grads, after, init = refs.lockstep_results(lockstep, name, work)
    resolved = gpt_torch.resolve(config)
    lines, want_grads, want_after, _ = gpt_torch.train_all(resolved, init)
    judge.check_metrics(name, metrics, {k: [line[k] for line in lines] for k in ("loss", "grad_norm")})
    for kind, got, want, bound in (("gradient of step 1", grads, want_grads, refs.GRAD_BOUND),
                                   ("parameters at the end", after, want_after, refs.PARAM_BOUND)):
        for tensor, values in want.items():
            pair = [refs.free_part(tensor, v, resolved) for v in (got[tensor][1], values)]
            judge.check(name, kind, tensor, refs.distance(*pair), bound)


def main():
    parser = argparse.ArgumentParser(description="Lockstep against PyTorch")
    parser.add_argument("lockstep")
    parser.add_argument("--work", help="a folder for configs and runs, kept; a temporary one otherwise")
    parser.add_argument("--only", choices=refs.VARIANTS, help="one variant")
    options = parser.parse_args()
    judge = refs.Judge()
    with tempfile.TemporaryDirectory() as temporary:
        work = options.work or temporary
        os.makedirs(work, exist_ok=True)
        for name in [options.only] if options.only else refs.VARIANTS:
            compare(options.lockstep, name, work, judge)
    return judge.finish()


if __name__ == "__main__":
    sys.exit(main())
