#!/usr/bin/env python3
"""test_fsdp_bits.py LOCKSTEP [--long] [--mpiexec PROGRAM] - shards on N ranks train to the bits of one process.

Every loss, gradient norm, validation loss and both hashes equal those of one process and of DDP, whatever is sharded,
dropped, gathered ahead, however micro-batches are summed and bytes move.  Shapes are odd: 257 rows of the vocabulary,
36 channels in 3 heads, biases shorter than the number of ranks allows to cut evenly.  In the normal case a selection in
which every pair of two factors' values comes at least once; with --long all combinations of what FSDP alone has, the
other factors drawn.
"""
import json
import os
import random
import sys

sys.path.insert(0, os.path.join(os.path.dirname(__file__), ".."))
sys.path.insert(0, os.path.dirname(__file__))
import cli  # noqa: E402
import test_ddp_bits as bits  # noqa: E402

STEPS = 20
BASE = {"run__steps": STEPS, "model__dropout": 0.1, "optim__clip_norm": 0.05, "optim__type": "adamw", "eval__batches": 3,
        "eval__every": 8, "log__progress": "plain", "model__n_layer": 3, "model__vocab_size": 257, "model__d_model": 36,
        "model__n_head": 3, "model__context": 8, "model__d_ff": 50}
STYLES = {
    "gpt2": {},
    "untied": {"model__tie_embeddings": False},
    "llama": {"model__n_kv_head": 1, "model__bias": False, "model__norm": "rmsnorm", "model__mlp": "swiglu",
              "model__position": "rope"},
    "llama untied": {"model__n_kv_head": 1, "model__bias": False, "model__tie_embeddings": False,
                     "model__norm": "rmsnorm", "model__mlp": "swiglu", "model__position": "rope"},
}
WORLDS = {1: [2, 3], 2: [2, 4, 6], 3: [3, 6], 4: [4, 8, 12], 8: [8, 16]}  # N: M
OWN = {"n": list(WORLDS), "shard": ["full", "gradients", "optimizer"], "reshard": [True, False], "prefetch": [0, 1, 2],
       "accumulate": ["sharded", "local"], "backend": ["shm", "tcp"]}
OTHERS = {"each": [0, 1, 2], "style": list(STYLES), "unit_blocks": [1, 2, 3], "recompute": [False, True],
          "threads": [1, 2]}


def allowed(row):
    return row["each"] < len(WORLDS[row["n"]])


def micros_of(row):
    return WORLDS[row["n"]][row["each"]]


def write(folder, row, run_dir, **more):
    micros = micros_of(row)
    cli.write_config(folder, run__dir=run_dir, batch__global=2 * micros, batch__micro=2, **{
        **BASE, **STYLES[row["style"]], "run__threads": row["threads"], "model__recompute": row["recompute"],
        "parallel__strategy": "fsdp", "parallel__backend": row["backend"], "parallel__shard": row["shard"],
        "parallel__reshard_after_forward": row["reshard"], "parallel__prefetch": row["prefetch"],
        "parallel__accumulate": row["accumulate"], "parallel__unit_blocks": row["unit_blocks"], **more})


def single(folder, row, known={}):
    """The run of one process, once for each style and number of micro-batches."""
    key = (row["style"], micros_of(row))
    if key not in known:
        write(folder, row, "single", parallel__strategy="single", parallel__backend="auto", run__threads=1,
              model__recompute=False)
        cli.check_ok(cli.run(folder, "train", "c.json"))
        known[key], made = bits.result(folder, "single")
        cli.equal(made, ("single", 1), "strategy and world")
        cli.equal(sum("loss" in line for line in known[key]["lines"]), STEPS, "steps")
        cli.check(all(line["grad_norm"] > "0.05" for line in known[key]["lines"] if "loss" in line), "clipping has an effect")
        cli.equal(sum("val_loss" in line for line in known[key]["lines"]), 3, "evaluations")
    return known[key]


def name_of(row):
    return ", ".join([row["style"], f"N {row['n']}, M {micros_of(row)}", row["backend"], row["shard"], row["accumulate"],
                      "reshard" if row["reshard"] else "keep", f"prefetch {row['prefetch']}",
                      f"{row['unit_blocks']} blocks a unit", f"{row['threads']} threads"] +
                     (["recompute"] if row["recompute"] else []))


def train(folder, row, start, strategy="fsdp"):
    write(folder, row, "many", parallel__strategy=strategy)
    r = start(folder, row["n"])
    if not cli.check_ok(r):
        return None, r
    got, made = bits.result(folder, "many")
    cli.equal(made, (strategy, row["n"]), "strategy and world")
    return got, r


def test_rows(folder, rows, start):
    for row in rows:
        cli.row(name_of(row))
        want = single(folder, row)
        got, _ = train(folder, row, start)
        if got:
            bits.check_same(got, want)


def row_of(**values):
    return {"style": "gpt2", "n": 2, "each": 1, "backend": "auto", "shard": "full", "reshard": True, "prefetch": 1,
            "accumulate": "sharded", "unit_blocks": 1, "recompute": False, "threads": 1, **values}


def test_overruled(folder):
    """Where one way of summing alone is canonical it is taken, and the log says so."""
    for n, each, wanted, overruled in [(3, 0, "sharded", True), (3, 1, "sharded", True), (3, 1, "local", False),
                                       (4, 2, "local", True), (4, 2, "sharded", False), (2, 1, "local", False)]:
        row = row_of(n=n, each=each, accumulate=wanted)
        cli.row(f"N {n}, M {micros_of(row)}, {wanted}")
        got, r = train(folder, row, bits.by_nproc)
        said = [line for line in r.stderr.splitlines() if "parallel.accumulate" in line]
        cli.equal(len(said), int(overruled), f"lines about parallel.accumulate: {said}")
        cli.check(not overruled or f'"{wanted}" would not' in said[0], f"{said}")
        cli.equal(cli.warnings(r.stderr), [], "warnings")
        if got:
            bits.check_same(got, single(folder, row))


def test_not_canonical(folder):
    """
    Neither N nor M/N a power of two: not the bits of one process, and the log says so, but those of DDP.  Of three ranks
    with three micro-batches each both ways of summing form the same tree.
    """
    WORLDS[3].append(9)
    runs = [single(folder, row_of(n=3, each=2))]
    for strategy, accumulate, backend, prefetch in [("ddp", "local", "shm", 1), ("fsdp", "local", "shm", 1),
                                                    ("fsdp", "sharded", "shm", 1), ("fsdp", "sharded", "tcp", 0)]:
        cli.row(f"N 3, M 9, {strategy}, {accumulate}, {backend}")
        row = row_of(n=3, each=2, accumulate=accumulate, backend=backend, prefetch=prefetch)
        got, r = train(folder, row, bits.by_nproc, strategy)
        if got:
            runs.append(got)
            bits.check_same(got, runs[1])
            cli.equal(sum("not those of one process" in line for line in cli.warnings(r.stderr)), 1, "warnings")
    cli.check(runs[0]["params"] != runs[-1]["params"], "other bits, else the warning would be wrong")
    WORLDS[3].pop()


def sent(folder, row, shape):
    """Bytes that rank 0 sends in one step, by operation, without the few that are agreements."""
    log = os.path.join(folder, "comm.jsonl")
    os.environ["LOCKSTEP_COMM_LOG"] = log
    try:
        write(folder, row, "many", **shape, run__steps=1, eval__every=0, checkpoint__save_at_end=False, data__val_fraction=0)
        cli.check_ok(bits.by_nproc(folder, row["n"]))
    finally:
        del os.environ["LOCKSTEP_COMM_LOG"]
    with open(log, encoding="utf-8") as file:
        lines = [json.loads(line) for line in file]
    os.remove(log)
    return {op: sum(line["sent"] for line in lines
                    if line["op"] == op and line["dtype"] == "F32" and line["rank"] == 0 and line["count"] > 1)
            for op in ("all_gather", "reduce_scatter")}


def test_traffic(folder):
    """
    The formulas of docs/fsdp.md: P elements, R of them the root's, k micro-batches a rank, c = (N-1)/N, where N divides
    all rows.
    """
    shape = {"model__d_model": 32, "model__n_head": 4, "model__d_ff": 64, "model__vocab_size": 256}
    block = 4 * 32 * 32 + 2 * 32 * 64 + (96 + 32 + 64 + 32) + 4 * 32  # weights, biases, norms
    root = 32 * (256 + 8 + 2)
    whole, n, k = 3 * block + root, 4, 2
    for shard, reshard, accumulate, gathered, scattered in [
            ("full", True, "sharded", k * (2 * whole - root), k * whole), ("full", False, "sharded", k * whole, k * whole),
            ("full", True, "local", k * (2 * whole - root), whole), ("gradients", True, "sharded", whole, k * whole),
            ("optimizer", True, "local", whole, whole)]:
        cli.row(f"traffic: {shard}, {'reshard' if reshard else 'keep'}, {accumulate}")
        row = row_of(n=n, each=1, backend="tcp", shard=shard, reshard=reshard, accumulate=accumulate)
        got = sent(folder, row, shape)
        want = {"all_gather": gathered * 4 * (n - 1) // n, "reduce_scatter": scattered * 4 * (n - 1) // n}
        cli.equal(got, want, "bytes sent")


def rows_of(long, factors):
    if not long:
        return bits.covering({**factors, **OTHERS}, allowed)
    draw, rows = random.Random(2), []
    for row in bits.every_row(factors, lambda row: True):
        others = [{**row, **other} for other in (dict(zip(OTHERS, map(draw.choice, OTHERS.values()))) for _ in range(20))]
        rows.append(next(filter(allowed, others)))
    return rows


def main():
    mpiexec = sys.argv[sys.argv.index("--mpiexec") + 1] if "--mpiexec" in sys.argv else None
    long = "--long" in sys.argv
    rows = rows_of(long, OWN)
    print(f"{len(rows)} rows", flush=True)
    with cli.workspace() as folder:
        test_rows(folder, rows, bits.by_nproc)
        test_overruled(folder)
        test_not_canonical(folder)
        test_traffic(folder)
        if mpiexec:
            rows = rows_of(long, {**OWN, "backend": ["mpi"]})
            test_rows(folder, rows if long else rows[:4], bits.by_mpiexec(mpiexec))
        else:
            cli.row("mpi")
            cli.skip("this build is without MPI")
    cli.finish()


if __name__ == "__main__":
    main()
