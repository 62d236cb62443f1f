#!/usr/bin/env python3
"""test_ddp_demo.py LOCKSTEP DDP_DEMO - what examples/ddp_demo.c writes, for several worlds."""
import json
import math
import os
import sys

sys.path.insert(0, os.path.join(os.path.dirname(__file__), ".."))
import cli  # noqa: E402

DEMO = os.path.abspath(sys.argv[2])

# the default, an even and an odd world, another transport
ROWS = [([], 2), (["--world-size", "3"], 3), (["--world-size", "4", "--backend", "tcp"], 4),
        (["--world-size", "1"], 1), (["--world-size", "2", "--backend", "threads"], 2)]


def finite(x):
    """Every number below x."""
    if isinstance(x, dict):
        return all(map(finite, x.values()))
    return all(map(finite, x)) if isinstance(x, list) else math.isfinite(x)


def judge(j, world):
    cli.equal(j["world_size"], world, "world_size")
    cli.check(finite(j), f"all numbers are finite: {j}")
    cli.equal(len(j["parameter_sums"]), world, "ranks with a sum")
    cli.equal(len(set(j["parameter_sums"])), 1, "different sums")
    cli.equal(j["parameter_spread"], 0, "parameter_spread")
    cli.check(0 < j["grad_norm"] < 10, f"grad_norm {j['grad_norm']}")
    cli.check(j["loss"]["last"] < 0.5 * j["loss"]["first"], f"it learns: {j['loss']}")
    d = j["gradient_difference"]
    cli.equal((d["limit"], d["canonical_order"]), (1e-3, 0), "limit and canonical order")
    cli.check(d["one_big_batch"] < 1e-6, f"one_big_batch {d['one_big_batch']}")
    cli.check(world == 1 or d["one_big_batch"] > 0, "one big batch rounds elsewhere")
    for group, names in [("average_ms", ("sum_then_divide", "avg")),
                         ("step_ms", ("after_backward", "overlapped"))]:
        for name in names:
            cli.check(j[group][name] > 0 or world == 1, f"{group}.{name} {j[group][name]}")
    for way in ("after_backward", "overlapped"):
        cli.check(0 <= j["step_ms"][way + "_exposed"] <= j["step_ms"][way], f"exposed: {j['step_ms']}")


with cli.workspace() as folder:
    for args, world in ROWS:
        cli.row(" ".join(args) or "default")
        r = cli.run(folder, *args, program=DEMO)
        if cli.check_ok(r):
            judge(json.loads(cli.read(folder, "outputs", "ddp-demo.json")), world)
            cli.check("outputs/ddp-demo.json" in r.stdout, f"says where: {r.stdout}")
    cli.row("--out")
    cli.check_ok(cli.run(folder, "--out", "here.json", program=DEMO))
    judge(json.loads(cli.read(folder, "here.json")), 2)
    cli.row("nowhere to write")
    r = cli.run(folder, "--out", "no/such/folder.json", program=DEMO)
    cli.check(r.returncode == 1 and "no/such/folder.json" in r.stderr, f"{r.returncode}: {r.stderr}")
    cli.row("bad arguments")
    cli.equal(cli.run(folder, "--world", "2", program=DEMO).returncode, 2, "exit status")
cli.finish()
