#!/usr/bin/env python3
"""check_files.py - the files of a run as other tools see them.

    check_files.py LOCKSTEP

What Lockstep writes opens in Python's safetensors; what that library writes starts a run and is listed by
`lockstep inspect`; params_sha256 is what docs/architecture.md says, computed here anew.  Exit 77 without safetensors.
"""
import hashlib
import json
import os
import struct
import subprocess
import sys
import tempfile

import refs

try:
    import numpy
    from safetensors.numpy import load_file, save_file
except ImportError as missing:
    print(f"skipped: {missing}")
    sys.exit(refs.SKIPPED)


def params_sha256(tensors):
    """Name, NUL, dtype, NUL, dimensions as u64, values; in the bytewise order of the names."""
    digest = hashlib.sha256()
    for name in sorted(tensors, key=lambda name: name.encode()):
        values = tensors[name]
        digest.update(name.encode() + b"\0F32\0" + struct.pack(f"<{values.ndim}Q", *values.shape))
        digest.update(values.astype("<f4").tobytes())
    return digest.hexdigest()


def check(condition, what):
    print(("ok   " if condition else "FAIL ") + what)
    return bool(condition)


def same(a, b):
    return a.keys() == b.keys() and all(numpy.array_equal(a[name], b[name]) for name in a)


def summary(run_dir):
    with open(os.path.join(run_dir, "summary.json"), encoding="utf-8") as file:
        return json.load(file)


def arrays(tensors):
    return {name: numpy.array(values, dtype=numpy.float32).reshape(shape) for name, (shape, values) in tensors.items()}


def opened(run_dir):
    """What Python's safetensors finds in the only file of a run's checkpoint: the parameters and the optimizer's state."""
    with open(os.path.join(run_dir, "checkpoints", "latest"), encoding="utf-8") as file:
        folder = os.path.join(run_dir, "checkpoints", file.read().strip())
    return load_file(os.path.join(folder, "rank-00000-of-00001.safetensors"))


def check_all(lockstep, work):
    config = refs.variant_config("gpt2-untied-gelu", work)
    path, init = refs.initial(lockstep, config, os.path.join(work, "files"))
    start = load_file(init)
    foreign = os.path.join(work, "foreign.safetensors")
    save_file({name: start[name] for name in reversed(sorted(start))}, foreign)

    ours, theirs = os.path.join(work, "ours"), os.path.join(work, "theirs")
    refs.train(lockstep, path, ours, "run.steps=6")
    refs.train(lockstep, path, theirs, "run.steps=6", "model.init=" + foreign)
    end = arrays(refs.read_checkpoint(ours))
    listed = subprocess.run([lockstep, "inspect", foreign], stdout=subprocess.PIPE, text=True, check=False)
    return [
        check(same(end, {n: v for n, v in opened(ours).items() if not n.startswith("exp_avg")}) and
              all(numpy.isfinite(end[n]).all() and end[n].dtype == numpy.float32 for n in end),
              "Python's safetensors opens a checkpoint's file"),
        check(not same(start, end), "training changed the parameters"),
        check(same(end, arrays(refs.read_checkpoint(theirs))),
              "a run from a file that Python wrote has the same bits as one from the seed"),
        check(summary(ours)["params_sha256"] == params_sha256(end), "params_sha256 is the documented hash"),
        check(summary(theirs)["params_sha256"] == summary(ours)["params_sha256"], "both runs say the same hash"),
        check(listed.returncode == 0 and all(name in listed.stdout for name in start),
              "inspect lists every tensor of a file that Python wrote"),
    ]


def main():
    with tempfile.TemporaryDirectory() as work:
        return 0 if all(check_all(sys.argv[1], work)) else 1


if __name__ == "__main__":
    sys.exit(main())
