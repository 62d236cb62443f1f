#!/usr/bin/env python3
"""generate_rate.py LOCKSTEP - tokens a second with the key-value cache and without, 256 tokens from one.

Both commands alternate, and the best of three counts, so that what else the machine does hits both.  Exit 1 where
the cache is not at least 5 times as fast.
"""
import json
import os
import re
import subprocess
import sys
import tempfile

SIZES = {"128 channels, 4 layers": (128, 4, 4), "256 channels, 6 layers": (256, 6, 8), "512 channels, 6 layers": (512, 6, 8)}


def rate(lockstep, file, *options):
    done = subprocess.run([lockstep, "generate", file, "--prompt", "A", "--tokens", "255", *options], check=True,
                          stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    return float(re.search(r"([0-9.]+) tokens/s", done.stderr)[1])


def main():
    lockstep, slow = sys.argv[1], False
    print(f"{'model':24} {'cache':>10} {'without':>10} {'ratio':>7}")
    with tempfile.TemporaryDirectory() as work:
        for name, (channels, layers, heads) in SIZES.items():
            config, file = os.path.join(work, "c.json"), os.path.join(work, "m.safetensors")
            with open(config, "w", encoding="utf-8") as f:
                json.dump({"run": {"steps": 1}, "data": {"train": "none"}, "batch": {"global": 4}, "optim": {"lr": 1e-3},
                           "model": {"type": "gpt", "n_layer": layers, "n_head": heads, "d_model": channels,
                                     "context": 512}}, f)
            subprocess.run([lockstep, "init", config, "-o", file], check=True, stdout=subprocess.DEVNULL)
            pairs = [(rate(lockstep, file), rate(lockstep, file, "--no-cache")) for _ in range(3)]
            cached, plain = max(p[0] for p in pairs), max(p[1] for p in pairs)
            slow = slow or cached < 5 * plain
            print(f"{name:24} {cached:10.0f} {plain:10.0f} {cached / plain:7.1f}")
    return 1 if slow else 0


if __name__ == "__main__":
    sys.exit(main())
