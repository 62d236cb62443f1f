#!/usr/bin/env python3
"""check_fashion.py - an MLP on Fashion-MNIST: 0.88 of the test images right, the same bits by DDP on 2 and FSDP on 4 ranks.

    check_fashion.py LOCKSTEP [short]

examples/mlp_fashion.json (784-256-128-100-10, relu, 10 epochs) on the files of Debian's package dataset-fashion-mnist;
short: one epoch and 0.82.  Exit 77 without them.
"""
import json
import os
import sys
import tempfile

import refs

CONFIG = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "examples", "mlp_fashion.json")
STEPS, WANTED = 4700, 0.88
if sys.argv[2:] == ["short"]:
    STEPS, WANTED = 470, 0.82


def train(lockstep, work, strategy, nproc):
    run_dir = os.path.join(work, strategy)
    command = [lockstep, "train", CONFIG, "--resume", "never", "--set", f"run.dir={run_dir}", "--set", "log.every=1000",
               "--set", f"run.steps={STEPS}", "--set", f"parallel.strategy={strategy}"]
    refs.run(command + (["--nproc", str(nproc)] if nproc > 1 else []))
    with open(os.path.join(run_dir, "summary.json"), encoding="utf-8") as file:
        return json.load(file)


def main():
    with open(CONFIG, encoding="utf-8") as file:
        data = json.load(file)["data"]
    for path in data["train"] + data["val"]:
        if not os.path.exists(path):
            print(f"skipped: {path} is missing (package dataset-fashion-mnist)")
            return refs.SKIPPED
    with tempfile.TemporaryDirectory() as work:
        ways = [("single", 1), ("ddp", 2), ("fsdp", 4)]
        ends = [train(sys.argv[1], work, *way) for way in ways]
    one = ends[0]
    same = all(one[key] == end[key] for end in ends for key in ("state_sha256", "val_loss", "val_accuracy"))
    print(f"test accuracy {one['val_accuracy']:.4f}, wanted {WANTED}; "
          + ", ".join(f"{way} {n}: {end['seconds']:.1f} s" for (way, n), end in zip(ways, ends))
          + f"; {'the same' if same else 'OTHER'} bits")
    return 0 if same and one["val_accuracy"] >= WANTED else 1


if __name__ == "__main__":
    sys.exit(main())
