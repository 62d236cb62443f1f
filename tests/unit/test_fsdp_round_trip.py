#!/usr/bin/env python3
"""test_fsdp_round_trip.py LOCKSTEP FSDP_ROUND_TRIP - what examples/fsdp_round_trip.c writes, and into which file."""
import json
import os
import sys

sys.path.insert(0, os.path.join(os.path.dirname(__file__), ".."))
import cli  # noqa: E402

DEMO = os.path.abspath(sys.argv[2])
WIDTHS = [32, 33, 35, 31, 3]
SHAPES = [shape for a, b in zip(WIDTHS, WIDTHS[1:]) for shape in ((b, a), (b,))]
LAYERS = len(WIDTHS) - 1

# the default, odd and even worlds, more ranks than a layer has rows, other transports
ROWS = [([], 2), (["--world-size", "3"], 3), (["--world-size", "4", "--backend", "tcp"], 4),
        (["--world-size", "5", "--backend", "threads"], 5), (["--world-size", "1"], 1)]


def elements(shape):
    return shape[0] * (shape[1] if len(shape) > 1 else 1)


def own_bytes(rank, world):
    """By rows: chunks of ceil(rows / world), the last ones smaller or empty."""
    total = 0
    for shape in SHAPES:
        chunk = -(-shape[0] // world)
        first = min(rank * chunk, shape[0])
        total += 4 * (min(first + chunk, shape[0]) - first) * (elements(shape) // shape[0])
    return total


def layer_bytes(i):
    return 4 * (elements(SHAPES[2 * i]) + elements(SHAPES[2 * i + 1]))


def moments_of(world):
    """(when, bytes with units that are dropped, bytes with units that stay) on rank 0."""
    own = own_bytes(0, world)
    one = [own + layer_bytes(i) if world > 1 else own for i in range(LAYERS)]
    upto = [own + sum(map(layer_bytes, range(i + 1))) if world > 1 else own for i in range(LAYERS)]
    return [("before", own, own), *((f"forward {i}", one[i], upto[i]) for i in range(LAYERS)),
            ("after forward", own, upto[-1]),
            *((f"backward {i}", one[i], upto[i]) for i in reversed(range(LAYERS))), ("after backward", own, own)]


def judge(text, world):
    j = json.loads(text)["fsdp_round_trip"]
    cli.equal((j["world_size"], j["bit_equal"], j["loss_equal"], j["whole_forms_equal"]), (world, True, True, True),
              "world and verdicts")
    cli.equal(len(j["parameters"]), len(SHAPES), "parameters")
    for p, shape in zip(j["parameters"], SHAPES):
        n, rows = elements(shape), shape[0]
        cli.equal((p["elements"], p["slice"], p["padded"]), (n, -(-n // world), world * -(-n // world)), p["name"])
        cli.equal((p["rows"], p["rows_each"]), (rows, -(-rows // world)), f"rows of {p['name']}")
        cli.equal((p["flat_equal"], p["rows_equal"]), (True, True), f"round trips of {p['name']}")
    cli.equal(j["bytes"]["whole"], sum(4 * elements(s) for s in SHAPES), "bytes of all")
    cli.equal(j["bytes"]["own_rows"], [own_bytes(r, world) for r in range(world)], "bytes of each rank's rows")
    cli.equal([(m["when"], m["resharded"], m["kept"]) for m in j["bytes"]["moments"]], moments_of(world), "moments")


def run(folder, *args):
    return cli.run(folder, *args, program=DEMO)


with cli.workspace() as folder:
    for args, world in ROWS:
        cli.row(" ".join(args) or "default")
        r = run(folder, *args)
        if cli.check_ok(r):
            judge(cli.read(folder, "outputs", "ddp-demo.json"), world)
            cli.check("outputs/ddp-demo.json" in r.stdout and "DIFFERS" not in r.stdout, f"says so: {r.stdout}")
    cli.row("beside what is there")
    there = {"world_size": 2, "loss": {"first": 1e-3, "last": [1.5, None, "a \"b\""]}, "fsdp_round_trip": {"old": 1}, "z": True}
    with open(os.path.join(folder, "both.json"), "w", encoding="utf-8") as file:
        json.dump(there, file)
    for _ in range(2):
        cli.check_ok(run(folder, "--out", "both.json"))
    text = cli.read(folder, "both.json")
    judge(text, 2)
    cli.equal({k: v for k, v in json.loads(text).items() if k != "fsdp_round_trip"},
              {k: v for k, v in there.items() if k != "fsdp_round_trip"}, "what was there")
    cli.equal(text.count(b"fsdp_round_trip"), 1, "members of that name")
    for name, wrong in (("no JSON", b"{1: 2}"), ("an array", b"[1]")):
        cli.row(name)
        with open(os.path.join(folder, "wrong.json"), "wb") as file:
            file.write(wrong)
        r = run(folder, "--out", "wrong.json")
        cli.check(r.returncode == 1 and "wrong.json" in r.stderr, f"{r.returncode}: {r.stderr}")
        cli.equal(cli.read(folder, "wrong.json"), wrong, "the file")
    cli.row("nowhere to write")
    r = run(folder, "--out", "no/such/folder.json")
    cli.check(r.returncode == 1 and "no/such/folder.json" in r.stderr, f"{r.returncode}: {r.stderr}")
    cli.row("bad arguments")
    cli.equal(run(folder, "--world", "2").returncode, 2, "exit status")
    cli.equal(sorted(os.listdir(folder)), ["both.json", "outputs", "text.txt", "wrong.json"], "files left")
cli.finish()
