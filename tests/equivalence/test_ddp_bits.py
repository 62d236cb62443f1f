#!/usr/bin/env python3
"""test_ddp_bits.py LOCKSTEP [--mpiexec PROGRAM] - whoever starts N ranks, the bits of one process; where not, it is said.

Every loss, gradient norm, validation loss and both hashes of runs that `lockstep run`, mpiexec and torchrun start equal
those of one process.  Worlds whose sums are not those of one process repeat their own bits, and the log warns; it
warns of no other world.  Transports, buckets, algorithms and more are columns of test_table.py.
"""
import os
import sys

sys.path.insert(0, os.path.join(os.path.dirname(__file__), ".."))
import cli  # noqa: E402
import jobs  # noqa: E402

STEPS = 10
BASE = {"run__steps": STEPS, "model__dropout": 0.1, "optim__clip_norm": 0.5, "optim__type": "adamw",
        "eval__batches": 0, "eval__every": 4, "log__progress": "plain"}
SAME = ("step", "loss", "grad_norm", "lr", "val_loss", "tokens")


def write(folder, row, run_dir, **more):
    n, micros = row["world"]
    cli.write_config(folder, run__dir=run_dir, batch__global=2 * micros, batch__micro=2, **{
        **BASE, "parallel__strategy": "ddp", "parallel__backend": row["backend"], "parallel__bucket_mb": row["bucket_mb"],
        **more})
    return n


def result(folder, run_dir):
    s = cli.summary(folder, run_dir)
    lines = [{key: m[key] for key in SAME if key in m} for m in cli.metrics(folder, run_dir)]
    return {"params": s["params_sha256"], "state": s["state_sha256"], "val_loss": s["val_loss"],
            "lines": lines}, (s["strategy"], s["world_size"])


def check_same(got, want):
    for a, b in zip(got["lines"], want["lines"]):
        if not cli.equal(a, b, "line"):
            break
    for key in ("params", "state", "val_loss"):
        cli.equal(got[key], want[key], key)
    cli.equal(len(got["lines"]), len(want["lines"]), "lines")


def single(folder, row, known={}):
    """The run of one process, once for each number of micro-batches."""
    key = row["world"][1]
    if key not in known:
        write(folder, row, "single", parallel__strategy="single", parallel__backend="auto")
        cli.check_ok(cli.run(folder, "train", "c.json"))
        known[key], made = result(folder, "single")
        cli.equal(made, ("single", 1), "strategy and world")
        cli.equal(sum("loss" in line for line in known[key]["lines"]), STEPS, "steps")
        cli.equal(sum("val_loss" in line for line in known[key]["lines"]), 3, "evaluations")
    return known[key]


def name_of(row):
    n, micros = row["world"]
    return f"N {n}, M {micros}, {row['backend']}, {row['bucket_mb']} MB"


def ddp(folder, row, start):
    n = write(folder, row, "ddp")
    r = start(folder, n)
    if not cli.check_ok(r):
        return None, r
    got, made = result(folder, "ddp")
    cli.equal(made, ("ddp", n), "strategy and world")
    return got, r


def by_nproc(folder, n):
    return cli.run(folder, "train", "c.json", *(["--nproc", str(n)] if n > 1 else []))


def by_run(folder, n):
    return cli.run(folder, "run", "-n", str(n), "--", cli.command(), "train", "c.json")


def by_torchrun(python):
    return lambda folder, n: cli.run(folder, "-m", "torch.distributed.run", "--standalone", "--no-python",
                                     f"--nproc_per_node={n}", cli.command(), "train", "c.json", program=python)


def by_mpiexec(program):
    return lambda folder, n: cli.run(folder, "-n", str(n), cli.command(), "train", "c.json", program=program)


def test_rows(folder, rows, start):
    for row in rows:
        cli.row(name_of(row))
        want = single(folder, row)
        got, _ = ddp(folder, row, start)
        if got:
            check_same(got, want)


def row_of(**values):
    return {"world": (2, 4), "backend": "auto", "bucket_mb": 25, **values}


def test_not_canonical(folder):
    """Neither N nor M/N a power of two: the bits of its own repetition, and the log says so."""
    row, runs = row_of(world=(3, 9)), []
    for backend, bucket_mb in (("shm", 25), ("shm", 25), ("tcp", 0.001)):
        cli.row(f"N 3, M 9, {backend}, {bucket_mb} MB")
        got, r = ddp(folder, {**row, "backend": backend, "bucket_mb": bucket_mb}, by_nproc)
        if got:
            runs.append(got)
            check_same(got, runs[0])
            cli.equal(sum("not those of one process" in line for line in cli.warnings(r.stderr)), 1, "warnings")
    cli.row("N 3, M 9, and one process")
    want = single(folder, row)
    cli.check(runs and runs[0]["params"] != want["params"], "other bits, else the warning would be wrong")


def test_warnings(folder):
    """What is canonical warns of nothing."""
    for world in ((3, 6), (2, 6), (1, 6)):
        cli.row(f"warnings of N {world[0]}, M {world[1]}")
        _, r = ddp(folder, row_of(world=world), by_nproc)
        cli.equal(cli.warnings(r.stderr), [], "warnings")
        cli.equal("interleaved" in r.stderr, world != (3, 6), "the log tells how micro-batches are dealt out")


def test_launchers(folder, mpiexec):
    test_rows(folder, [row_of(world=(2, 4)), row_of(world=(4, 4), backend="tcp")], by_run)
    if mpiexec:
        test_rows(folder, [row_of(world=(2, 4)), row_of(world=(4, 4), backend="tcp")], by_mpiexec(mpiexec))
    else:
        cli.row("mpi")
        cli.skip("this build is without MPI")
    python = jobs.python_with_torch()
    if python:
        test_rows(folder, [row_of(world=(2, 4)), row_of(world=(4, 8), backend="tcp", bucket_mb=0.001)],
                  by_torchrun(python))
    else:
        cli.row("torchrun")
        cli.skip("no Python with torch here")


def main():
    mpiexec = sys.argv[sys.argv.index("--mpiexec") + 1] if "--mpiexec" in sys.argv else None
    with cli.workspace() as folder:
        test_not_canonical(folder)
        test_warnings(folder)
        test_launchers(folder, mpiexec)
    cli.finish()


if __name__ == "__main__":
    main()
