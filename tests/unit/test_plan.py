#!/usr/bin/env python3
"""test_plan.py - lockstep plan: its memory against what runs were charged, its choice, its usage errors.

Memory: for models of both styles, with and without recomputed blocks, with one, two and many micro-batches a rank,
alone and under DDP on 1, 2 and 4 ranks, and some under FSDP and ZeRO, the plan is within 5 % of the peak that metrics.jsonl has.
"""
import json
import os
import sys

sys.path.insert(0, os.path.join(os.path.dirname(__file__), ".."))
import cli  # noqa: E402

WITHIN = 0.05
EVERYWHERE = ("gelu", "vocabulary")  # also under FSDP and ZeRO
SHARDS = {"zero1": "optimizer", "zero2": "gradients", "fsdp": "full"}
LAYERS = {"model__n_layer": 4, "model__n_head": 4, "model__d_model": 128, "model__context": 64, "run__steps": 2}
MODELS = [
    ("gelu", {"batch__global": 8}),
    ("one micro-batch", {"batch__global": 4, "batch__micro": 4}),
    ("many micro-batches", {"batch__global": 16, "batch__micro": 1}),
    ("no power of two", {"batch__global": 12, "batch__micro": 1}),
    ("recompute", {"batch__global": 16, "model__recompute": True, "model__n_layer": 8}),
    ("llama", {"batch__global": 16, "model__norm": "rmsnorm", "model__mlp": "swiglu", "model__position": "rope",
               "model__bias": False, "model__tie_embeddings": False, "model__n_kv_head": 2, "model__d_model": 192}),
    ("vocabulary", {"batch__global": 16, "model__vocab_size": 8192}),
    ("momentum", {"batch__global": 8, "optim__type": "sgd", "optim__momentum": 0.9}),
]


def plan(folder, *args):
    r = cli.run(folder, "plan", "c.json", "--json", *args)
    return json.loads(r.stdout) if cli.check_ok(r) else {"plans": []}


def peak(folder, world, strategy):
    ranks = ["--nproc", str(world)] if world > 1 else []
    r = cli.run(folder, "train", "c.json", "--resume", "never", *ranks, "--set",
                f"parallel.strategy={'fsdp' if strategy in SHARDS else strategy}", "--set",
                f"parallel.shard={SHARDS.get(strategy, 'full')}")
    lines = cli.metrics(folder) if cli.check_ok(r) else []
    return max((int(line["mem"]["peak"]) for line in lines if "mem" in line), default=0)


def check_memory(folder):
    worst = 0
    for name, changes in MODELS:
        cli.write_config(folder, **{**LAYERS, **changes})
        rows = {(row["world"], row["strategy"]): row for row in plan(folder, "--world", "1,2,4")["plans"]}
        for (world, strategy), row in rows.items():
            parts = row["memory_bytes"]
            cli.row(f"{name}, {strategy} on {world}")
            cli.check(parts["total"] > 0 and row["step_ms"] > 0, "memory and time are there")
            if name not in EVERYWHERE and strategy not in ("single", "ddp"):
                continue
            got = peak(folder, world, strategy)
            off = parts["total"] / got - 1 if got else 1
            worst = max(worst, abs(off))
            cli.check(abs(off) <= WITHIN, f"{parts['total']} bytes planned, {got} charged: {off:+.1%}")
    print(f"worst difference of memory {worst:.1%}")


def check_orders(folder):
    """What must hold of the formulas whatever the machine."""
    cli.row("orders")
    cli.write_config(folder, **{**LAYERS, "batch__global": 64, "batch__micro": 1, "model__n_layer": 12})
    rows = {(row["world"], row["strategy"]): row for row in plan(folder, "--world", "1,8", "--bandwidth", "10")["plans"]}
    total = {strategy: rows[8, strategy]["memory_bytes"]["total"] for strategy in ("ddp", "zero1", "zero2", "fsdp")}
    cli.check(total["ddp"] > total["zero1"] >= total["zero2"] > total["fsdp"], f"more shards, less memory: {total}")
    for key, row in rows.items():
        cli.check(abs(row["compute_ms"] + row["update_ms"] + row["comm_exposed_ms"] - row["step_ms"]) < 1e-3 * row["step_ms"],
                  f"{key}: the parts are the step")
        cli.check(row["comm_exposed_ms"] <= row["comm_ms"], f"{key}: what is exposed is a part")
    cli.check(rows[8, "ddp"]["step_ms"] < rows[1, "single"]["step_ms"], "hosts of their own are faster")
    slow = plan(folder, "--world", "8", "--bandwidth", "0.01", "--latency", "1000")["plans"][0]
    cli.check(slow["comm_exposed_ms"] > 10 * rows[8, "ddp"]["comm_exposed_ms"], "a slow link shows")


def check_threads(folder):
    """Compute is measured with the threads of a rank, each number once."""
    cores = len(os.sched_getaffinity(0))
    cli.write_config(folder, **LAYERS, batch__global=16, batch__micro=1, run__threads=cores)
    for row, args, want in [
            ("ranks share the cores", ["--world", "1,2,4,16"], {max(1, cores // n) for n in (1, 2, 4, 16)}),
            ("hosts of their own", ["--world", "1,2,4", "--bandwidth", "10"], {cores}),
            ("one thread", ["--world", "1,2", "--set", "run.threads=1"], {1})]:
        cli.row(row)
        rates = plan(folder, *args).get("rates", [])
        cli.equal(sorted(rate["threads"] for rate in rates), sorted(want), "threads")
        cli.check(all(rate["micro_ms"] > 0 and rate["update_ms"] > 0 for rate in rates), f"times: {rates}")


def check_choice(folder):
    cli.row("choice")
    cli.write_config(folder, **LAYERS, batch__global=8, run__threads=len(os.sched_getaffinity(0)))
    made = plan(folder)
    use, times = made["use"], {(row["world"], row["strategy"]): row["step_ms"] for row in made["plans"]}
    cli.check("fits" in use["reason"], f"one host: {use}")
    cli.check(times[use["world"], use["strategy"]] <= 1.031 * min(times.values()), f"none is much faster: {use}, {times}")
    use = plan(folder, "--world", "2,4", "--bandwidth", "100")["use"]
    cli.check(use["world"] == 4, f"hosts: {use}")
    use = plan(folder, "--memory", "0.000001")["use"]
    cli.check(use["strategy"] is None and "nothing fits" in use["reason"], f"no memory: {use}")
    r = cli.run(folder, "plan", "c.json", "--world", "1,2,3")
    cli.check_ok(r)
    cli.check("3  does not divide" in r.stdout and "\nUse " in r.stdout, f"text: {r.stdout}")
    cli.check(not os.path.exists(os.path.join(folder, "r", "plan")), "nothing is written")


def check_usage(folder):
    cli.write_config(folder, batch__global=4)
    for row, args, status, texts in [
            ("no config", [], 2, ["CONFIG is missing"]),
            ("world", ["c.json", "--world", "2,x"], 2, ["--world 2,x"]),
            ("world 0", ["c.json", "--world", "0"], 2, ["--world 0"]),
            ("comma", ["c.json", "--world", "2,"], 2, ["--world 2,"]),
            ("bandwidth", ["c.json", "--bandwidth", "fast"], 2, ["--bandwidth fast"]),
            ("memory", ["c.json", "--memory", "-1"], 2, ["--memory -1"]),
            ("latency", ["c.json", "--latency", "nan"], 2, ["--latency nan"]),
            ("no world fits", ["c.json", "--world", "3"], 3, ["4 micro-batches"]),
            ("no file", ["nope.json"], 2, ["nope.json"])]:
        cli.row(row)
        cli.check_error(cli.run(folder, "plan", *args), status, *texts)


def main():
    with cli.workspace() as folder:
        check_memory(folder)
        check_orders(folder)
        check_threads(folder)
        check_choice(folder)
        check_usage(folder)
    cli.finish()


main()
