#!/usr/bin/env python3
"""test_ddp_wire.py LOCKSTEP - gradients as bf16 between ranks, and ranks that no longer hold the same.

parallel.compress "bf16" gives bits of its own: the same again, whatever carries them, and losses near those of
f32.  parallel.check_every stops all ranks where one parameter of one rank was changed behind its back.
"""
import glob
import json
import os
import re
import shutil
import struct
import sys
import time

sys.path.insert(0, os.path.join(os.path.dirname(__file__), ".."))
import cli  # noqa: E402

BASE = {"run__steps": 20, "batch__global": 8, "batch__micro": 2, "model__dropout": 0.1, "parallel__compress": "bf16"}

# name, changes: the bits of bf16 on two ranks over shm
SAME = [
    ("again", {}),
    ("tcp", {"parallel__backend": "tcp"}),
    ("tree", {"parallel__backend": "tcp", "parallel__algorithm": "tree"}),
    ("small buckets", {"parallel__bucket_mb": 0.001}),
    ("no overlap", {"parallel__overlap": False}),
    ("2 threads", {"run__threads": 2}),
]


def train(folder, ranks, **changes):
    cli.write_config(folder, **{**BASE, **changes})
    r = cli.run(folder, "train", "c.json", "--nproc", str(ranks))
    cli.check_ok(r)
    losses = [(m["step"], m["loss"], m["grad_norm"]) for m in cli.metrics(folder) if "loss" in m]
    return {"sha": cli.summary(folder)["params_sha256"], "losses": losses, "said": r.stderr}


def test_bf16(folder):
    cli.row("bf16")
    bf16 = train(folder, 2)
    cli.check(any("8 bits of their 24" in line for line in cli.warnings(bf16["said"])),
              f"the log says what it gives up: {bf16['said']}")
    cli.row("f32")
    f32 = train(folder, 2, parallel__compress="none")
    cli.equal(cli.warnings(f32["said"]), [], "warnings")
    cli.check(f32["sha"] != bf16["sha"], "other bits")
    for (step, a, _), (_, b, _) in zip(bf16["losses"], f32["losses"]):
        cli.check(abs(float(a) - float(b)) < 2e-3 * float(b), f"loss at step {step}: {a}, f32's {b}")
    cli.check(float(bf16["losses"][-1][1]) < float(bf16["losses"][0][1]), "it learns")
    for name, changes in SAME:
        cli.row(f"bf16, {name}")
        other = train(folder, 2, **changes)
        cli.equal((other["sha"], other["losses"]), (bf16["sha"], bf16["losses"]), "bits")


def embedding(folder):
    """Sixteen values of the token embedding of the initial model, as bytes."""
    cli.check_ok(cli.run(folder, "init", "c.json", "-o", "init.safetensors"))
    data = cli.read(folder, "init.safetensors")
    size, = struct.unpack("<Q", data[:8])
    header = json.loads(data[8:8 + size])
    name = next(name for name in header if name.startswith("wte"))
    at = 8 + size + header[name]["data_offsets"][0]
    return name, data[at:at + 64]


def rank_process(number):
    """The process that is this rank of our job."""
    for path in glob.glob("/proc/[0-9]*/environ"):
        try:
            with open(path, "rb") as f:
                names = f.read().split(b"\0")
        except OSError:
            continue
        if b"LS_TEST_JOB=%d" % os.getpid() in names and b"RANK=%d" % number in names:
            return int(path.split("/")[2])
    return 0


def poke(process, pattern):
    """Changes element 3 of what starts with the pattern; how often it was found."""
    found = 0
    with open(f"/proc/{process}/maps") as f:
        maps = [re.match(r"([0-9a-f]+)-([0-9a-f]+) rw", line) for line in f]
    with open(f"/proc/{process}/mem", "r+b", buffering=0) as memory:
        for m in filter(None, maps):
            first, end = (int(x, 16) for x in m.groups())
            if end - first > 1 << 30:
                continue  # a sanitizer's shadow
            try:
                memory.seek(first)
                at = memory.read(end - first).find(pattern)
            except (OSError, OverflowError):
                continue
            if at >= 0:
                memory.seek(first + at + 12)
                memory.write(struct.pack("<f", 0.5))
                found += 1
    return found


def test_check(folder):
    """Updates are too small to change the embedding, so it is found in a rank's memory."""
    cli.row("a parameter changed on one rank")
    cli.write_config(folder, run__steps=1000000, batch__global=6, batch__micro=2, optim__lr=1e-30, optim__weight_decay=0, optim__schedule__warmup=0,
                     optim__schedule__type="constant", optim__schedule__min_lr=0, parallel__check_every=10,
                     log__every=1000, run__dir="r", data__val_fraction=0)
    name, pattern = embedding(folder)
    shutil.rmtree(os.path.join(folder, "r"))
    job = cli.start(folder, "train", "c.json", "--nproc", "3", env={**os.environ, "LS_TEST_JOB": str(os.getpid())})
    try:
        end = time.time() + 30
        while not os.path.exists(os.path.join(folder, "r", "metrics.jsonl")) and time.time() < end:
            time.sleep(0.05)
        try:
            found = poke(rank_process(1), pattern)
        except PermissionError:
            return cli.skip("another process's memory may not be written here")
        cli.check(found > 0, "the embedding is in rank 1's memory")
        cli.equal(job.wait(timeout=20), 1, "exit status")
    finally:
        if job.poll() is None:
            job.kill()
            job.wait()
    log = cli.read(folder, "r", "log.txt").decode()
    want = rf"after step \d+0: ddp: parameter {name} differs: element 3 is \S+ \(0x[0-9a-f]+\) on rank 0 and " \
           r"0.5 \(0x3f000000\) on rank 1; 1 of the other 2 ranks differs"
    cli.check(re.search(want, log), f"log: {log[-400:]}")


with cli.workspace() as workspace:
    test_bf16(workspace)
    test_check(workspace)
cli.finish()
