#!/usr/bin/env python3
"""compare_ways.py - one run in six ways beside PyTorch: alone, DDP and FSDP on two ranks, f32 and bf16.

    compare_ways.py LOCKSTEP [--short] [--work DIR] [--write docs/equivalence.md]

Same initial parameters (`lockstep init`), same batches, micro-batches, schedule, clipping and AdamW.  PyTorch is eager,
DistributedDataParallel and fully_shard over gloo; in bf16 autocast, autocast, and MixedPrecisionPolicy.  Lockstep's
three ways must agree in every bit, all with PyTorch within bounds, and PyTorch in double tells what a bound is worth.
100 steps of a GPT of 0.8 million parameters; --short: 20 of a smaller one.  --write puts the tables between the marks of
that file.  Exit 1 names way and step of every difference; exit 77 when PyTorch or its fully_shard is missing.
"""
import argparse
import collections
import json
import os
import platform
import sys
import tempfile

import compare_ddp
import compare_fsdp
import gpt_torch
import refs
import torch
import torch.multiprocessing as mp
import torch_ranks

BEGIN, END = "<!-- beside-pytorch: written by tests/reference/compare_ways.py -->", "<!-- beside-pytorch: end -->"

# bf16: PyTorch's three ways round at different places and part by up to 1.1e-3 from each other and from double, as does
# Lockstep; a learning rate that is 2 % off makes 4.2e-3 after 20 steps.  f32: refs.py has the bounds, ten and five times
# the largest differences found; PyTorch in float keeps to PyTorch in double no closer.
BF16_BOUND = 0.004

# parallel.strategy, ranks, PyTorch's class, which micro-batches (else blocks of neighbours), names of both
Way = collections.namedtuple("Way", "parallel ranks torch_class interleaved ours theirs")
WAYS = {
    "single": Way({"strategy": "single"}, 1, compare_ddp.Single, False, "one process", "one process"),
    "ddp": Way({"strategy": "ddp", "bucket_mb": 0.25}, 2, compare_ddp.Ddp, False, "DDP", "DDP"),
    "fsdp": Way({"strategy": "fsdp"}, 2, compare_fsdp.Fsdp, True, "FSDP", "FSDP2"),
}
DTYPES = ("f32", "bf16")

Run = collections.namedtuple("Run", "loss grad_norm after")  # lists by step, {name: values}


def config_of(way, dtype, short, work):
    config = refs.variant_config("gpt2-tied-gelu_tanh", work)
    text = os.path.join(work, "long.txt")
    if not os.path.exists(text):
        with open(text, "wb") as file:
            file.write(refs.text(110000))
    config["run"] = {"name": f"{way}-{dtype}", "dir": os.path.join(work, f"{way}-{dtype}"), "seed": 1337,
                     "steps": 20 if short else 100, "threads": 1}
    if not short:
        config["model"].update({"n_layer": 4, "d_model": 128, "context": 64})
        config["data"]["train"] = text
        config["optim"]["schedule"]["warmup"] = 10
    config["batch"] = {"global": 8 if short else 16, "micro": 2 if short else 4}
    config["parallel"] = {**WAYS[way].parallel, "param_dtype": dtype}
    return config


def run_of(lines, after):
    return Run([line["loss"] for line in lines], [line["grad_norm"] for line in lines],
               {name: torch.tensor(values, dtype=torch.float64) for name, values in after.items()})


def run_pytorch(jobs, work):
    """All of {name: (ranks, job of torch_ranks)}, and what they gave."""
    for ranks in sorted({ranks for ranks, _ in jobs.values()}):
        mp.spawn(torch_ranks.rank_main, (ranks, work, {n: job for n, (r, job) in jobs.items() if r == ranks}), nprocs=ranks)
    return {name: read_pytorch(os.path.join(work, name) + ".torch.json") for name in jobs}


def read_pytorch(path):
    with open(path, encoding="utf-8") as file:
        lines, after = json.load(file)
    return run_of(lines, after)


def run_lockstep(lockstep, name, ranks, work):
    """(what it gave, its hash)."""
    stem = os.path.join(work, name)
    metrics, after = refs.train(lockstep, stem + ".json", stem, nproc=ranks if ranks > 1 else None)
    with open(os.path.join(stem, "summary.json"), encoding="utf-8") as file:
        summary = json.load(file)
    run = run_of([line for line in metrics if "loss" in line], {name: values for name, (_, values) in after.items()})
    return run, (summary["strategy"], summary["world_size"], summary["params_sha256"])


def all_runs(lockstep, short, work):
    """({(side, way, dtype): Run}, {(way, dtype): (strategy, world, hash)}); side "double" is PyTorch in double."""
    ours, jobs, hashes = {}, {}, {}
    for dtype in DTYPES:
        for way, w in WAYS.items():
            name, config = f"{way}-{dtype}", config_of(way, dtype, short, work)
            refs.initial(lockstep, config, os.path.join(work, name))
            jobs[name] = (w.ranks, (config, w.torch_class, w.interleaved, torch.float32))
            ours["Lockstep", way, dtype], hashes[way, dtype] = run_lockstep(lockstep, name, w.ranks, work)
    config = config_of("single", "f32", short, work)
    refs.initial(lockstep, config, os.path.join(work, "double"))
    jobs["double"] = (1, (config, compare_ddp.Single, False, torch.float64))
    theirs = run_pytorch(jobs, work)
    ours["PyTorch", "single", "double"] = theirs["double"]
    for dtype in DTYPES:
        ours.update({("PyTorch", way, dtype): theirs[f"{way}-{dtype}"] for way in WAYS})
    return ours, hashes


def apart(a, b):
    """(largest relative difference, its step) of two lists."""
    if len(a) != len(b):
        return float("inf"), 0
    return max((abs(x - y) / abs(y), step) for step, (x, y) in enumerate(zip(a, b), 1))


def parameters_apart(a, b, config):
    """|a - b| / |b| over all parameters that the loss depends on."""
    x, y = (torch.cat([torch.as_tensor(refs.free_part(name, run.after[name], config)) for name in sorted(b.after)])
            for run in (a, b))
    return ((x - y).norm() / y.norm()).item()


def judge_runs(judge, runs, hashes):
    for dtype in DTYPES:
        for way, w in WAYS.items():
            name, mine, alone = f"{way}, {dtype}", runs["Lockstep", way, dtype], runs["Lockstep", "single", dtype]
            strategy, world, sha256 = hashes[way, dtype]
            judge.check(name, "ranks and strategy", "summary.json", (strategy, world) != (way, w.ranks), 0)
            judge.check(name, "bits of one process", "params_sha256", sha256 != hashes["single", dtype][2], 0)
            judge.check(name, "losses of one process", "step %d" % apart(mine.loss, alone.loss)[1], mine.loss != alone.loss, 0)
            other, bound = runs["PyTorch", way, dtype], BF16_BOUND if dtype == "bf16" else refs.LOSS_BOUND
            far, step = apart(mine.loss, other.loss)
            judge.check(name, "losses", f"step {step}", far, bound)
            if dtype == "f32":
                far, step = apart(mine.grad_norm, other.grad_norm)
                judge.check(name, "gradient norms", f"step {step}", far, refs.NORM_BOUND)
    rounded, _ = apart(runs["Lockstep", "single", "bf16"].loss, runs["Lockstep", "single", "f32"].loss)
    judge.check("bf16", "nothing was rounded", "losses are those of f32", rounded < 1e-6, 0)


def losses_table(runs, dtype):
    columns = [(side, way) for side in ("Lockstep", "PyTorch") for way in WAYS]
    names = [f"{side}, {WAYS[way].ours if side == 'Lockstep' else WAYS[way].theirs}" for side, way in columns]
    yield "| step | " + " | ".join(names) + " |"
    yield "|---" * (len(columns) + 1) + "|"
    for step in range(10, len(runs["Lockstep", "single", dtype].loss) + 1, 10):
        yield f"| {step} | " + " | ".join(f"{runs[side, way, dtype].loss[step - 1]:.7f}" for side, way in columns) + " |"


def differences_table(runs, dtype, config):
    alone, double = runs["PyTorch", "single", dtype], runs["PyTorch", "single", "double"]
    mine = runs["Lockstep", "single", dtype]
    rows = [("PyTorch, one process", "PyTorch in double", alone, double), ("Lockstep", "PyTorch in double", mine, double)]
    rows += [(f"PyTorch, {WAYS[way].theirs}", "PyTorch, one process", runs["PyTorch", way, dtype], alone)
             for way in ("ddp", "fsdp")]
    rows += [("Lockstep", f"PyTorch, {w.theirs}", mine, runs["PyTorch", way, dtype]) for way, w in WAYS.items()]
    rows += [(f"Lockstep, {WAYS[way].ours}", "Lockstep, one process", runs["Lockstep", way, dtype], mine)
             for way in ("ddp", "fsdp")]
    yield "| what | against | loss | at step | gradient norm | parameters at the end |"
    yield "|---|---|---|---|---|---|"
    for what, against, a, b in rows:
        loss, step = apart(a.loss, b.loss)
        figures = [loss, apart(a.grad_norm, b.grad_norm)[0], parameters_apart(a, b, config)]
        words = [f"{figure:.1e}" if figure else "0" for figure in figures]
        yield f"| {what} | {against} | {words[0]} | {step if loss else ''} | {words[1]} | {words[2]} |"


def tables(runs, hashes, config):
    model, batch, steps = config["model"], config["batch"], config["run"]["steps"]
    yield (f"{model['n_layer']} layers, {model['d_model']} channels, context {model['context']}, {batch['global']} sequences a "
           f"step in micro-batches of {batch['micro']}, {steps} steps; two ranks; PyTorch {torch.__version__.split('+')[0]}, "
           f"{platform.machine()}.")
    for dtype in DTYPES:
        yield f"\n### {dtype}: losses\n"
        yield from losses_table(runs, dtype)
        yield f"\n### {dtype}: largest relative difference over all {steps} steps\n"
        yield from differences_table(runs, dtype, config)
        found = {hashes[way, dtype][2] for way in WAYS}
        yield (f"\nParameters' SHA-256 of Lockstep's three ways: `{', '.join(sorted(h[:16] for h in found))}`"
               f"{', one and the same' if len(found) == 1 else ''}.")


def write_between(path, text):
    with open(path, encoding="utf-8") as file:
        page = file.read()
    if page.count(BEGIN) != 1 or page.count(END) != 1:
        sys.exit(f"{path}: wanted the lines {BEGIN} and {END}, once each")
    before, after = page.split(BEGIN)[0], page.split(END)[1]
    with open(path, "w", encoding="utf-8") as file:
        file.write(f"{before}{BEGIN}\n{text}\n{END}{after}")


def main():
    parser = argparse.ArgumentParser(description="Lockstep alone, DDP and FSDP beside PyTorch's")
    parser.add_argument("lockstep")
    parser.add_argument("--short", action="store_true", help="20 steps of a smaller model")
    parser.add_argument("--work", help="a folder for configs and runs, kept; a temporary one otherwise")
    parser.add_argument("--write", metavar="FILE", help="the page that gets the tables between its marks")
    options = parser.parse_args()
    judge = refs.Judge()
    with tempfile.TemporaryDirectory() as temporary:
        work = os.path.abspath(options.work or temporary)
        os.makedirs(work, exist_ok=True)
        runs, hashes = all_runs(options.lockstep, options.short, work)
        judge_runs(judge, runs, hashes)
        config = gpt_torch.resolve(config_of("single", "f32", options.short, work))
        text = "\n".join(tables(runs, hashes, config))
    status = judge.finish()
    print(text)
    if options.write and status == 0:
        write_between(options.write, text)
    return status


if __name__ == "__main__":
    sys.exit(main())
