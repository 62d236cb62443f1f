#!/usr/bin/env python3
"""check_tensorboard.py - log.tensorboard, read by TensorBoard's own loaders.

    check_tensorboard.py LOCKSTEP

Every point of metrics.jsonl is there, as float, under its tag, and no other; a file that was cut gives the points
before the cut; a run that starts over leaves its old events aside.  Exit 77 without tensorboard.
"""
import glob
import json
import os
import struct
import subprocess
import sys
import tempfile

import refs

try:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
    from tensorboard.backend.event_processing.event_file_loader import EventFileLoader
except ImportError as missing:
    print(f"skipped: {missing}")
    sys.exit(refs.SKIPPED)

TAGS = {"loss/train": ["loss"], "optim/lr": ["lr"], "optim/grad_norm": ["grad_norm"],
        "speed/tokens_per_s": ["tokens_per_s"], "speed/step_ms": ["step_ms"], "speed/comm_ms": ["comm_ms"],
        "speed/comm_exposed_ms": ["comm_exposed_ms"], "loss/validation": ["val_loss"],
        **{f"memory/{name}": ["mem", name]
           for name in ("params", "grads", "optim", "activations", "comm", "peak", "rss")}}
failures = 0


def check(condition, what):
    global failures
    failures += not condition
    print(("ok   " if condition else "FAIL ") + what)


def single(x):
    return struct.unpack("<f", struct.pack("<f", x))[0]


def at(line, path):
    for key in path:
        line = line.get(key, {})
    return line


def points_of_metrics(run):
    """{tag: [(step, value)]}"""
    points = {tag: [] for tag in TAGS}
    with open(os.path.join(run, "metrics.jsonl")) as f:
        for line in map(json.loads, f):
            for tag, path in TAGS.items():
                if at(line, path) != {}:
                    points[tag].append((line["step"], single(at(line, path))))
    return points


def events(run):
    return glob.glob(os.path.join(run, "events.out.tfevents.*"))


def points_of_events(run):
    loaded = EventAccumulator(run, size_guidance={"scalars": 0, "tensors": 0})
    loaded.Reload()
    # The loader turns simple values into tensors where it migrates them.
    tags = loaded.Tags()
    points = {tag: [(e.step, e.value) for e in loaded.Scalars(tag)] for tag in tags["scalars"]}
    points.update({tag: [(e.step, e.tensor_proto.float_val[0]) for e in loaded.Tensors(tag)] for tag in tags["tensors"]})
    return points


def train(lockstep, folder, run, *sets):
    with open(os.path.join(folder, "text.txt"), "w") as f:
        f.write("a tensor and its rank keep step " * 200)
    config = {"run": {"steps": 7, "dir": run, "threads": 1},
              "model": {"type": "gpt", "n_layer": 1, "n_head": 2, "d_model": 16, "context": 16},
              "data": {"train": "text.txt", "val_fraction": 0.2}, "batch": {"global": 4}, "optim": {"lr": 1e-3},
              "eval": {"every": 3}, "log": {"every": 1, "tensorboard": True}}
    with open(os.path.join(folder, "c.json"), "w") as f:
        json.dump(config, f)
    subprocess.run([lockstep, "train", "c.json", "--resume", "never", *sets], cwd=folder, check=True, capture_output=True, timeout=60)
    return os.path.join(folder, run)


def main():
    lockstep = os.path.abspath(sys.argv[1])
    with tempfile.TemporaryDirectory() as folder:
        for name, sets in (("one rank", []), ("two ranks", ["--nproc", "2"])):
            run = train(lockstep, folder, name.replace(" ", "-"), *sets)
            want = points_of_metrics(run)
            check(len(want["loss/train"]) == 7 and len(want["loss/validation"]) == 3, f"{name}: metrics.jsonl has all points")
            check(points_of_events(run) == want, f"{name}: TensorBoard reads all points of metrics.jsonl, and no others")
            check(len(events(run)) == 1, f"{name}: one file")
        run = train(lockstep, folder, "one-rank", "--set", "log.jsonl=false")
        check(len(events(run)) == 1 and len(events(os.path.join(run, "previous-1"))) == 1, "the earlier run's events are aside")
        check(not os.path.exists(os.path.join(run, "metrics.jsonl")) and len(points_of_events(run)["loss/train"]) == 7,
              "events without metrics.jsonl")
        path = events(run)[0]
        os.truncate(path, os.path.getsize(path) - 5)
        loaded = list(EventFileLoader(path).Load())
        check(len(loaded) == 1 + 7 + 3 - 1, f"a cut file: {len(loaded)} events, all but the last")
    print(f"check_tensorboard: {failures} failures")
    sys.exit(failures != 0)


main()
