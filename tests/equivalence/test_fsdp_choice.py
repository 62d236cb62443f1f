#!/usr/bin/env python3
"""test_fsdp_choice.py LOCKSTEP SOURCES - when "auto" takes FSDP, what run.memory_mb allows, keys that have no effect.

The model needs some 19 MiB on one process, 17 as one of four replicas and 5 as one of four shards.  Whatever is chosen,
the bits are those of one process without a limit.  SOURCES/examples/fsdp.sh at last.
"""
import os
import sys

sys.path.insert(0, os.path.join(os.path.dirname(__file__), ".."))
import cli  # noqa: E402

EXAMPLE = os.path.join(os.path.abspath(sys.argv[2]), "examples", "fsdp.sh")
FSDP = "parallel.strategy=fsdp"

# name, ranks (0: no --nproc), settings, strategy of summary.json, texts of the log, texts that are not in it
TRAINED = [
    ("fits", 4, ["run.memory_mb=64"], "ddp", ['"auto": a replica needs about', "a rank has 64 MiB (run.memory_mb), so ddp"],
     []),
    ("does not fit", 4, ["run.memory_mb=16"], "fsdp",
     ['"auto": a replica needs about', "a rank has 16 MiB (run.memory_mb), so fsdp", "9 units"], []),
    ("what is free", 2, [], "ddp", ["(what is free on its host, among its ranks), so ddp"], []),
    ("asked for", 4, ["run.memory_mb=16", FSDP], "fsdp", ["ranks: 4 over shm, fsdp"], ['"auto"']),
    ("asked for between hosts", 4, ["run.memory_mb=14", FSDP, "parallel.backend=tcp"], "fsdp", ["over tcp, fsdp"], []),
    ("one rank, auto", 1, [], "single", [], ['"auto"']),
    ("one rank, fsdp", 1, [FSDP], "fsdp", ["1 over "], []),
    ("keys of ddp", 2, [FSDP, "parallel.compress=bf16", "parallel.overlap=false", "parallel.bucket_mb=0.01"], "fsdp", [],
     ["8 bits", "one process"]),
    ("keys of fsdp under ddp", 2, ["parallel.strategy=ddp", "parallel.shard=optimizer", "parallel.prefetch=9",
                                   "parallel.accumulate=local", "parallel.unit_blocks=3"], "ddp", [], ["unit"]),
    ("ahead of all units", 2, [FSDP, "parallel.prefetch=1024", "parallel.unit_blocks=65536", "run.memory_mb=18"], "fsdp",
     ["2 units"], []),
    ("sums as shards", 2, [FSDP], "fsdp", ["interleaved"], ["parallel.accumulate"]),
    ("sums at home", 2, [FSDP, "parallel.accumulate=local"], "fsdp", ["in blocks"], ["parallel.accumulate"]),
]

# the same where M = 6 and a rank's micro-batches or the ranks are no power of two
ODD = [
    ("three ranks", 3, [FSDP], "fsdp", ['parallel.accumulate "sharded" would not give the bits', "in blocks"], []),
    ("two ranks", 2, [FSDP, "parallel.accumulate=local"], "fsdp",
     ['parallel.accumulate "local" would not give the bits', "interleaved"], []),
]

# name, ranks, settings, texts of the error
REFUSED = [
    ("alone", 0, ["run.memory_mb=16"], ["run.memory_mb: 16 MiB", '"single"', "parameters", "gradients"]),
    ("a replica", 4, ["run.memory_mb=16", "parallel.strategy=ddp"], ["run.memory_mb: 16 MiB", '"ddp"']),
    ("not even shards", 4, ["run.memory_mb=1"], ["run.memory_mb: 1 MiB", '"fsdp"']),
    ("whole gradients", 2, ["run.memory_mb=8", FSDP, "parallel.shard=optimizer"], ["run.memory_mb: 8 MiB", '"fsdp"']),
    ("prefetch below 0", 0, ["parallel.prefetch=-1"], ["parallel.prefetch: -1 is out of range", ">= 0 and <= 1024"]),
    ("no unit", 0, ["parallel.unit_blocks=0"], ["parallel.unit_blocks: 0 is out of range"]),
    ("another shard", 0, ["parallel.shard=half"], ["parallel.shard", '"full"', '"gradients"', '"optimizer"']),
    ("another sum", 0, ["parallel.accumulate=both"], ["parallel.accumulate", '"sharded"', '"local"']),
    ("a ring", 3, ["batch.global=6", FSDP, "parallel.algorithm=ring"], ["parallel.algorithm", "3 ranks", "fast"]),
]


def train(folder, name, ranks, settings):
    sets = [part for s in [f"run.dir={name}", *settings] for part in ("--set", s)]
    return cli.run(folder, "train", "c.json", *sets, *(["--nproc", str(ranks)] if ranks else []))


def check_trained(folder, rows, *more):
    cli.check_ok(train(folder, "alone", 0, more))
    want = cli.summary(folder, "alone")
    for name, ranks, settings, strategy, there, absent in rows:
        cli.row(name)
        r = train(folder, "ranks", ranks, [*more, *settings])
        if not cli.check_ok(r):
            continue
        got, log = cli.summary(folder, "ranks"), cli.read(folder, "ranks", "log.txt").decode()
        cli.equal((got["strategy"], got["world_size"]), (strategy, ranks), "strategy and ranks")
        for key in ("params_sha256", "state_sha256", "final_loss", "val_loss"):
            cli.equal(got[key], want[key], key)
        for text in there:
            cli.check(text in log, f"{text!r} is not in {log}")
        for text in absent:
            cli.check(text not in log, f"{text!r} is in {log}")


def check_refused(folder):
    for name, ranks, settings, texts in REFUSED:
        cli.row(name)
        r = train(folder, "never", ranks, settings)
        cli.equal(r.returncode, 2, f"exit status ({r.stderr[-300:]!r})")
        cli.check(cli.error_lines(r), "an error line without prefix")
        for text in texts:
            cli.check(text in r.stderr, f"{text!r} is not in {r.stderr[-500:]!r}")
        cli.check("never" not in os.listdir(folder), "nothing is written")


def check_example(folder):
    cli.row("examples/fsdp.sh")
    env = {**os.environ, "LOCKSTEP": cli.command(), "STEPS": "6", "DATA": os.path.join(folder, "text.txt"), "RUNS": folder}
    r = cli.run(folder, "4", program=EXAMPLE, env=env)
    cli.check_ok(r)
    cli.equal([line.split(":")[0] for line in r.stdout.splitlines()],
              ["fsdp-one", "fsdp-ddp", "fsdp-ranks", "identical", "identical", "look at"], "lines")


def main():
    with cli.workspace() as folder:
        cli.write_config(folder, batch={"global": 4, "micro": 1}, model__n_layer=8, model__d_model=96)
        check_trained(folder, TRAINED)
        check_trained(folder, ODD, "batch.global=6")
        check_refused(folder)
        check_example(folder)
    cli.finish()


if __name__ == "__main__":
    main()
