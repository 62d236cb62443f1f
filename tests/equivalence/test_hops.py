"""test_hops.py - a training that is stopped again and again, and goes on on another world, ends in the bits of one that was not.

    test_hops.py LOCKSTEP

Every stop leaves a checkpoint; the next hop is another strategy, world, way of writing.  Losses of all steps and the
final state_sha256 are those of the undisturbed single run.
"""
import json
import os
import shutil
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
import cli  # noqa: E402

BASE = {"run__steps": 40, "batch__global": 12, "batch__micro": 1, "optim__schedule": {"warmup": 12}, "eval__every": 5}

# name, changes of the config; 40 steps of 12 sequences are 480
STYLES = [
    ("dropout, inside warm-up", {"model__dropout": 0.2}),
    ("epochs of 53 sequences", {"data__train": "short.txt", "data__val_fraction": None, "eval__every": 0}),
    ("llama style, sequential", {"model__norm": "rmsnorm", "model__position": "rope", "model__mlp": "swiglu",
                                 "model__n_kv_head": 1, "model__tie_embeddings": False, "data__order": "sequential"}),
    ("sgd with momentum", {"optim__type": "sgd", "optim__momentum": 0.9, "optim__lr": 0.05}),
    ("bf16", {"parallel__param_dtype": "bf16", "model__dropout": 0.1}),
    ("char, linear", {"data__tokenizer": "char", "optim__schedule": {"type": "linear", "warmup": 3}}),
]

FSDP = ["parallel.strategy=fsdp"]

# (step to stop at, ranks, settings) of each hop; 0 ranks: one process
HOPS = [
    [(10, 2, ["parallel.strategy=ddp"]), (17, 4, [*FSDP, "checkpoint.compress=true"]), (23, 3, [*FSDP, "parallel.shard=gradients"]),
     (30, 0, ["checkpoint.async=false"]), (35, 2, [*FSDP, "parallel.shard=optimizer"]), (40, 4, ["parallel.strategy=ddp"])],
    [(13, 0, ["checkpoint.every=3"]), (14, 1, ["parallel.strategy=ddp"]), (20, 2, [*FSDP, "checkpoint.every=1"]),
     (27, 3, ["parallel.strategy=ddp", "checkpoint.every=1"]), (32, 1, FSDP), (40, 0, [])],
]


def steps(folder, run_dir):
    return [(m["step"], m["loss"], m["lr"], m["grad_norm"], m["tokens"]) for m in cli.metrics(folder, run_dir)
            if "loss" in m]


def validations(folder, run_dir):
    return [(m["step"], m["val_loss"]) for m in cli.metrics(folder, run_dir) if "val_loss" in m]


def hop(folder, run_dir, stop, ranks, sets):
    words = [word for setting in [f"run.dir={run_dir}", *sets] for word in ("--set", setting)]
    nproc = ["--nproc", str(ranks)] if ranks else []
    r = cli.run(folder, "train", "c.json", "--resume", "auto", "--stop-at", str(stop), *nproc, *words)
    cli.check_ok(r)
    cli.equal(cli.summary(folder, run_dir)["steps"], stop, "the summary's step")
    return r


def check_equal(folder, run_dir):
    want, got = cli.summary(folder, "whole"), cli.summary(folder, run_dir)
    for key in ("state_sha256", "params_sha256", "final_loss", "val_loss", "tokens", "steps"):
        cli.equal(got[key], want[key], key)
    cli.equal(steps(folder, run_dir), steps(folder, "whole"), "metrics of all steps")
    cli.equal(validations(folder, run_dir), validations(folder, "whole"), "validations")
    cli.check_ok(cli.run(folder, "diff", run_dir, "whole"))
    inspected = json.loads(cli.run(folder, "inspect", run_dir, "--json").stdout)
    cli.equal(inspected["state_sha256"], want["state_sha256"], "inspect's state_sha256")


def test_styles(folder):
    for name, changes in STYLES:
        cli.write_config(folder, **{**BASE, **changes})
        cli.row(f"{name}: whole")
        cli.check_ok(cli.run(folder, "train", "c.json", "--set", "run.dir=whole"))
        for i, hops in enumerate(HOPS):
            for stop, ranks, sets in hops:
                cli.row(f"{name}: hops {i}, to {stop} on {ranks}")
                hop(folder, "hops", stop, ranks, sets)
            check_equal(folder, "hops")
            shutil.rmtree(os.path.join(folder, "hops"))
        shutil.rmtree(os.path.join(folder, "whole"))


def test_every_border(folder):
    """Stops at each of the steps around the border of an epoch, which is no multiple of the batch."""
    cli.write_config(folder, **{**BASE, **STYLES[1][1], "run__steps": 30})
    cli.check_ok(cli.run(folder, "train", "c.json", "--set", "run.dir=whole"))
    for stop in range(3, 7):
        cli.row(f"epoch's border, {stop}")
        hop(folder, "border", stop, 2, [])
    hop(folder, "border", 30, 0, [])
    check_equal(folder, "border")


def test_longer(folder):
    """A larger run.steps alone does not stretch the schedule, which is part of the state."""
    cli.row("more steps")
    cli.write_config(folder, **{**BASE, "optim__schedule": {"warmup": 2}})
    cli.check_ok(cli.run(folder, "train", "c.json", "--set", "run.dir=longer", "--set", "run.steps=20"))
    r = cli.run(folder, "train", "c.json", "--resume", "auto", "--set", "run.dir=longer", "--set", "run.steps=25")
    cli.check_ok(r)
    rates = [float(m["lr"]) for m in cli.metrics(folder, "longer") if "lr" in m]
    cli.equal((len(rates), rates[20:]), (25, [1e-4] * 5), "the schedule ended with step 20")
    cli.row("a schedule that is given")
    r = cli.run(folder, "train", "c.json", "--resume", "auto", "--set", "run.dir=longer", "--set", "run.steps=30", "--set",
                "optim.schedule.steps=30")
    cli.check_error(r, 2, "optim.schedule.steps is 30", "has 20", "--allow-change")
    r = cli.run(folder, "train", "c.json", "--resume", "auto", "--set", "run.dir=longer", "--set", "run.steps=30", "--set",
                "optim.schedule.steps=30", "--allow-change", "optim.schedule.steps")
    cli.check_ok(r)
    cli.row("finished")
    before = cli.summary(folder, "longer")
    r = cli.run(folder, "train", "c.json", "--resume", "auto", "--set", "run.dir=longer", "--set", "run.steps=30",
                "--set", "optim.schedule.steps=30")
    cli.check_ok(r)
    cli.check("reached already" in r.stderr and "verified" in r.stderr, "it says so")
    after = cli.summary(folder, "longer")
    cli.equal({**after, "seconds": 0}, {**before, "seconds": 0}, "the summary again")


def main():
    with cli.workspace() as folder:
        cli.write_text(folder, "short.txt", words=190)
        for test in (test_styles, test_every_border, test_longer):
            test(folder)
    cli.finish()


main()
