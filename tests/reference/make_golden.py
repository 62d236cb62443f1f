#!/usr/bin/env python3
"""make_golden.py - writes golden_gpt.json, PyTorch's results for machines without PyTorch.

    make_golden.py LOCKSTEP

The variants of refs.py from the parameters of `lockstep init`, computed in double, so that the table holds the
truth rather than one machine's rounding.  Of each tensor it keeps the norm and the probe of refs.digest.
"""
import json
import os
import sys
import tempfile

import gpt_torch
import refs


def golden(lockstep, name, work):
    config = refs.variant_config(name, work)
    _, init = refs.initial(lockstep, config, os.path.join(work, name))
    config = gpt_torch.resolve(config)
    lines, grads, after, _ = gpt_torch.train_all(config, init, gpt_torch.torch.float64)
    start = refs.read_safetensors(init)

    def digests(tensors):
        return {n: refs.digest(refs.free_part(n, v, config)) for n, v in sorted(tensors.items())}

    return {"loss": [line["loss"] for line in lines], "grad_norm": [line["grad_norm"] for line in lines],
            "init": digests({n: v for n, (_, v) in start.items()}), "grads": digests(grads),
            "params": digests(after)}


def main():
    table = {"made_by": "tests/reference/make_golden.py", "torch": gpt_torch.torch.__version__,
             "dtype": "float64", "variants": {}}
    with tempfile.TemporaryDirectory() as work:
        for name in refs.VARIANTS:
            table["variants"][name] = golden(sys.argv[1], name, work)
    path = os.path.join(os.path.dirname(os.path.abspath(__file__)), "golden_gpt.json")
    with open(path, "w", encoding="utf-8") as file:
        json.dump(table, file, indent=1)
        file.write("\n")


if __name__ == "__main__":
    main()
