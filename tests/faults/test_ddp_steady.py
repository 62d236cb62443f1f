#!/usr/bin/env python3
"""test_ddp_steady.py LOCKSTEP [--strategy fsdp] - long runs of several ranks take no more memory, descriptors or threads with time.

1,000 steps of a tiny model on 4 ranks, evaluations included: after the first 100 nothing grows on any rank.  And 8
ranks, more than there are cores, train without a hang.
"""
import os
import shutil
import sys
import time

sys.path.insert(0, os.path.join(os.path.dirname(__file__), ".."))
import cli  # noqa: E402
import jobs  # noqa: E402

WARM_UP, STEPS = 100, 1000
# Measured: 0 to 20 KiB.  What leaks 100 bytes a step and rank is beyond it.
GROWTH_KIB = 64

FSDP = "--strategy" in sys.argv and sys.argv[sys.argv.index("--strategy") + 1] == "fsdp"
BASE = {"log__progress": "none", "parallel__strategy": "fsdp" if FSDP else "ddp"}
# name, changes of the config
RUNS = [
    ("shm, sharded, prefetch 1", {"parallel__backend": "shm", "batch__global": 16}),
    ("shm, interleaved, kept, prefetch 2",
     {"parallel__backend": "shm", "batch__global": 24, "batch__micro": 2, "parallel__prefetch": 2,
      "parallel__reshard_after_forward": False}),
    ("tcp, gradients, local, 2 threads",
     {"parallel__backend": "tcp", "batch__global": 16, "batch__micro": 2, "parallel__shard": "gradients",
      "parallel__accumulate": "local", "run__threads": 2}),
] if FSDP else [
    ("shm, blocks", {"parallel__backend": "shm", "batch__global": 16}),
    ("shm, interleaved, many buckets",
     {"parallel__backend": "shm", "batch__global": 24, "batch__micro": 2, "parallel__bucket_mb": 0.001}),
    ("tcp, blocks, 2 threads", {"parallel__backend": "tcp", "batch__global": 16, "run__threads": 2}),
]


def sample(job):
    """{rank: what it has}; {} where one has just ended."""
    try:
        return {rank: jobs.status_of(pid) for rank, pid in job.ranks().items()}
    except (OSError, TypeError):
        return {}


def watch(job):
    """At the end of the warm-up, and the last one before the end."""
    job.wait_until(lambda: job.lines() > WARM_UP, "the warm-up")
    first = last = sample(job)
    while job.process.poll() is None:
        now = sample(job)
        if len(now) == job.n and job.lines() < STEPS:
            last = now
        time.sleep(0.05)
    return first, last


def test_flat(folder):
    for name, changes in RUNS:
        cli.row(name)
        shutil.rmtree(os.path.join(folder, "r"), ignore_errors=True)  # whose lines are counted
        cli.write_config(folder, **{**BASE, "run__steps": STEPS, "eval__every": 50, "eval__batches": 0,
                                    "model__dropout": 0.1, **changes})
        job = jobs.Job(folder, 4, "train", "c.json", "--nproc", "4")
        first, last = watch(job)
        cli.equal(job.end(), 0, "exit status")
        job.check_nothing_left()
        cli.equal((len(first), len(last)), (4, 4), "ranks seen")
        grown = max((last[r]["rss"] - first[r]["rss"] for r in first if r in last), default=0)
        print(f"  {name}: grown by {grown} KiB at most", flush=True)
        if not jobs.SANITIZED:
            cli.check(grown <= GROWTH_KIB, f"grown by {grown} KiB, limit {GROWTH_KIB}")
        for r in first:
            for what in ("fds", "threads"):
                cli.equal(last.get(r, {}).get(what), first[r][what], f"{what} of rank {r}")


def test_many(folder):
    for backend in ("shm", "tcp"):
        cli.row(f"8 ranks, {backend}")
        cli.write_config(folder, **{**BASE, "run__steps": 200, "parallel__backend": backend, "batch__global": 16,
                                    "batch__micro": 2, "parallel__timeout_s": 20})
        began = time.monotonic()
        job = jobs.Job(folder, 8, "train", "c.json", "--nproc", "8")
        cli.equal(job.end(), 0, "exit status")
        print(f"  8 ranks, {backend}: {time.monotonic() - began:.1f} s for 200 steps", flush=True)
        job.check_nothing_left()
        cli.equal(job.text().count("error"), 0, "errors")


def main():
    for test in (test_many, test_flat):
        with cli.workspace() as folder:
            test(folder)
    cli.finish()


if __name__ == "__main__":
    main()
