#!/usr/bin/env python3
"""test_bench.py LOCKSTEP - what `bench train` prints: the contract's keys, on one process, by --nproc and in a job.

How fast a step is says nothing here; that the figures agree with each other does.
"""
import json
import math
import os
import sys

sys.path.insert(0, os.path.join(os.path.dirname(__file__), ".."))
import cli  # noqa: E402

NUMBERS = ["median_ms", "tokens_per_s", "peak_rss_mb", "floor_ms", "ratio_to_floor", "comm_exposed_ms", "sgemm_gflops"]
L, B, T, C, V = 2, 8, 16, 32, 256  # layers, sequences, context, channels, vocabulary
MEGAFLOPS = (6 * B * T * (12 * L * C * C + V * C) + 6 * L * B * T * T * C) / 1e6  # products of a step, on all ranks

# name, ranks, the command around (job) or behind (--nproc) `bench train c.json`
ROWS = [
    ("alone", 1, [], []),
    ("one rank", 1, [], ["--nproc", "1"]),
    ("two ranks", 2, [], ["--nproc", "2"]),
    ("four ranks over TCP", 4, [], ["--nproc=4", "--set", "parallel.backend=tcp"]),
    ("two ranks, sharded", 2, [], ["--nproc", "2", "--set", "parallel.strategy=fsdp"]),
    ("a job", 2, ["run", "-n", "2", "--", cli.command()], []),
]


def result_of(folder, ranks, job, options):
    r = cli.run(folder, *job, "bench", "train", "c.json", "--steps", "3", "--json", *options)
    if not well(r):
        return None
    out = r.stdout.removeprefix("[0] ") if job else r.stdout
    if not cli.equal((out.count("\n"), out[-1:]), (1, "\n"), "lines"):
        return None
    return json.loads(out, parse_constant=lambda word: cli.check(False, f"{word} in JSON"))


def well(r):
    return cli.equal((r.returncode, r.stderr), (0, ""), "exit status, stderr")


def near(got, want, what):
    cli.check(math.isclose(got, want, rel_tol=0.02, abs_tol=2e-3), f"{what}: {got}, want about {want}")


def judge(o, ranks):
    for key in NUMBERS:
        cli.check(isinstance(o[key], (int, float)) and (o[key] > 0 or key == "comm_exposed_ms"), f"{key}: {o[key]!r}")
    cli.equal((o["ranks"], o["threads"], o["steps"]), (ranks, 1, 3), "ranks, threads, steps")
    near(o["tokens_per_s"] * o["median_ms"] / 1e3, B * T, "tokens of a step")
    near(o["floor_ms"] * o["sgemm_gflops"], MEGAFLOPS, "work behind the floor")
    near(o["ratio_to_floor"] * o["floor_ms"], o["median_ms"], "step over floor")
    cli.check(0 <= o["comm_exposed_ms"] < o["median_ms"], f"comm_exposed_ms: {o['comm_exposed_ms']}")
    if ranks == 1:  # among several all of it may be hidden
        cli.equal(o["comm_exposed_ms"], 0, "exposed communication of one process")
    cli.check(1 < o["peak_rss_mb"] < 2000, f"peak_rss_mb: {o['peak_rss_mb']}")
    cli.check(isinstance(o["blas"], str) and o["blas"], f"blas: {o['blas']!r}")
    cli.check("linear" in o["kernels_ms"], "kernels_ms")


def main():
    with cli.workspace() as folder:
        cli.write_config(folder, batch={"global": B, "micro": 2})
        for name, ranks, job, options in ROWS:
            cli.row(name)
            o = result_of(folder, ranks, job, options)
            if o:
                judge(o, ranks)
        cli.row("the table")
        r = cli.run(folder, "bench", "train", "c.json", "--steps", "1", "--nproc", "2")
        well(r)
        cli.check("2 ranks, 1 thread each" in r.stdout and "\nexposed " in r.stdout, f"table: {r.stdout[:300]}")
        cli.row("does not fit")
        cli.check_error(cli.run(folder, "bench", "train", "c.json", "--nproc", "3"), 3, "3 ranks", "1, 2, 4")
        cli.row("writes nothing")
        cli.equal(sorted(os.listdir(folder)), ["c.json", "text.txt"], "files")
    cli.finish()


if __name__ == "__main__":
    main()
