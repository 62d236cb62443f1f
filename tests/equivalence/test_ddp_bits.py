#!/usr/bin/env python3
"""test_ddp_bits.py LOCKSTEP [--long] [--mpiexec PROGRAM] - N ranks train to the bits of one process.

Every loss, gradient norm, validation loss and both hashes of runs on N ranks equal those of one process, whatever
the transport, the size of buckets, overlap, threads and algorithm.  In the normal case a selection of all
combinations, in which every pair of two factors' values comes at least once; with --long all of them.
"""
import itertools
import os
import random
import sys

sys.path.insert(0, os.path.join(os.path.dirname(__file__), ".."))
import cli  # noqa: E402
import jobs  # noqa: E402

STEPS = 10
BASE = {"run__steps": STEPS, "model__dropout": 0.1, "optim__clip_norm": 0.5, "optim__type": "adamw",
        "eval__batches": 0, "eval__every": 4, "log__progress": "plain"}
STYLES = {
    "gpt2": {},
    "llama": {"model__n_head": 4, "model__n_kv_head": 2, "model__bias": False, "model__tie_embeddings": False,
              "model__norm": "rmsnorm", "model__mlp": "swiglu", "model__position": "rope"},
}
# N ranks, M micro-batches.  Blocks where M/N is a power of two, else interleaved.
WORLDS = [(1, 4), (1, 6), (2, 2), (2, 4), (2, 6), (3, 3), (3, 6), (4, 4), (4, 8), (4, 12), (8, 8)]
FACTORS = {
    "strategy": ["ddp"], "style": list(STYLES), "world": WORLDS, "backend": ["shm", "tcp"],
    "bucket_mb": [0.001, 0.1, 25], "overlap": [True, False], "threads": [1, 2], "algorithm": ["direct", "tree", "halving"],
}
SAME = ("step", "loss", "grad_norm", "lr", "val_loss", "tokens")


def allowed(row):
    return row["algorithm"] != "halving" or row["world"][0] & (row["world"][0] - 1) == 0


def every_row(factors, allowed=allowed):
    rows = (dict(zip(factors, values)) for values in itertools.product(*factors.values()))
    return [row for row in rows if allowed(row)]


def pairs(row):
    return set(itertools.combinations(row.items(), 2))


def covering(factors, allowed=allowed):
    """Greedy: the row of some random ones that has the most pairs not yet seen, until all have been."""
    draw, rows, every = random.Random(1), [], every_row(factors, allowed)
    left = set().union(*map(pairs, every))
    while left:
        a, b = min(left, key=str)  # this one surely comes
        some = [row for row in every if row[a[0]] == a[1] and row[b[0]] == b[1]]
        best = max(draw.sample(some, min(len(some), 40)), key=lambda row: len(pairs(row) & left))
        rows.append(best)
        left -= pairs(best)
    return rows


def write(folder, row, run_dir, **more):
    n, micros = row["world"]
    cli.write_config(folder, run__dir=run_dir, batch__global=2 * micros, batch__micro=2, **{
        **BASE, **STYLES[row["style"]], "run__threads": row["threads"], "parallel__strategy": row["strategy"],
        "parallel__backend": row["backend"], "parallel__bucket_mb": row["bucket_mb"],
        "parallel__overlap": row["overlap"], "parallel__algorithm": row["algorithm"], **more})
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
    """The run of one process, once for each style and number of micro-batches."""
    key = (row["style"], row["world"][1])
    if key not in known:
        write(folder, row, "single", parallel__strategy="single", parallel__backend="auto", run__threads=1)
        cli.check_ok(cli.run(folder, "train", "c.json"))
        known[key], made = result(folder, "single")
        cli.equal(made, ("single", 1), "strategy and world")
        cli.equal(sum("loss" in line for line in known[key]["lines"]), STEPS, "steps")
        cli.equal(sum("val_loss" in line for line in known[key]["lines"]), 3, "evaluations")
    return known[key]


def name_of(row):
    n, micros = row["world"]
    return f"{row['style']}, N {n}, M {micros}, {row['backend']}, {row['bucket_mb']} MB, " \
           f"{'overlap' if row['overlap'] else 'behind'}, {row['threads']} threads, {row['algorithm']}"


def ddp(folder, row, start):
    n = write(folder, row, row["strategy"])
    r = start(folder, n)
    if not cli.check_ok(r):
        return None, r
    got, made = result(folder, row["strategy"])
    cli.equal(made, (row["strategy"], n), "strategy and world")
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
    return {"strategy": "ddp", "style": "gpt2", "world": (2, 4), "backend": "auto", "bucket_mb": 25,
            "overlap": True, "threads": 1, "algorithm": "auto", **values}


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
        rows = covering({**FACTORS, "backend": ["mpi"]})
        test_rows(folder, rows if "--long" in sys.argv else rows[:12], by_mpiexec(mpiexec))
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
    rows = every_row(FACTORS) if "--long" in sys.argv else covering(FACTORS)
    print(f"{len(rows)} rows", flush=True)
    with cli.workspace() as folder:
        test_rows(folder, rows, by_nproc)
        if "--long" not in sys.argv:
            test_not_canonical(folder)
            test_warnings(folder)
        test_launchers(folder, mpiexec)
    cli.finish()


if __name__ == "__main__":
    main()
