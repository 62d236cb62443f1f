#!/usr/bin/env python3
"""test_fsdp_bits.py LOCKSTEP - what shards on N ranks send, and how their micro-batches are summed.

Where one of the two ways of summing alone has the bits of one process it is taken, and the log says so; where neither
has, shards have the bits of DDP, and the log warns.  Bytes sent are those of docs/fsdp.md's formulas.  Shapes are odd:
257 rows of the vocabulary, 36 channels in 3 heads, biases shorter than the number of ranks allows to cut evenly.  What
is sharded, dropped and gathered ahead, transports and models are columns of test_table.py.
"""
import json
import os
import sys

sys.path.insert(0, os.path.join(os.path.dirname(__file__), ".."))
sys.path.insert(0, os.path.dirname(__file__))
import cli  # noqa: E402
import test_ddp_bits as bits  # noqa: E402

STEPS = 20
BASE = {"run__steps": STEPS, "model__dropout": 0.1, "optim__clip_norm": 0.05, "optim__type": "adamw", "eval__batches": 3,
        "eval__every": 8, "log__progress": "plain", "model__n_layer": 3, "model__vocab_size": 257, "model__d_model": 36,
        "model__n_head": 3, "model__context": 8, "model__d_ff": 50}
WORLDS = {2: [2, 4], 3: [3, 6], 4: [4, 8, 12]}  # N: M


def micros_of(row):
    return WORLDS[row["n"]][row["each"]]


def write(folder, row, run_dir, **more):
    micros = micros_of(row)
    cli.write_config(folder, run__dir=run_dir, batch__global=2 * micros, batch__micro=2, **{
        **BASE, "parallel__strategy": "fsdp", "parallel__backend": row["backend"], "parallel__shard": row["shard"],
        "parallel__reshard_after_forward": row["reshard"], "parallel__prefetch": row["prefetch"],
        "parallel__accumulate": row["accumulate"], **more})


def single(folder, row, known={}):
    """The run of one process, once for each number of micro-batches."""
    key = micros_of(row)
    if key not in known:
        write(folder, row, "single", parallel__strategy="single", parallel__backend="auto")
        cli.check_ok(cli.run(folder, "train", "c.json"))
        known[key], made = bits.result(folder, "single")
        cli.equal(made, ("single", 1), "strategy and world")
        cli.equal(sum("loss" in line for line in known[key]["lines"]), STEPS, "steps")
        cli.check(all(line["grad_norm"] > "0.05" for line in known[key]["lines"] if "loss" in line), "clipping has an effect")
        cli.equal(sum("val_loss" in line for line in known[key]["lines"]), 3, "evaluations")
    return known[key]


def train(folder, row, start, strategy="fsdp"):
    write(folder, row, "many", parallel__strategy=strategy)
    r = start(folder, row["n"])
    if not cli.check_ok(r):
        return None, r
    got, made = bits.result(folder, "many")
    cli.equal(made, (strategy, row["n"]), "strategy and world")
    return got, r


def row_of(**values):
    return {"n": 2, "each": 1, "backend": "auto", "shard": "full", "reshard": True, "prefetch": 1, "accumulate": "sharded",
            **values}


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


def main():
    with cli.workspace() as folder:
        test_overruled(folder)
        test_not_canonical(folder)
        test_traffic(folder)
    cli.finish()


if __name__ == "__main__":
    main()
