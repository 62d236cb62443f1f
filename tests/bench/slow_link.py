#!/usr/bin/env python3
"""slow_link.py LOCKSTEP [--rate 1gbit] [--rounds 3] [--steps 8] [--set KEY=VALUE]... - what overlap hides on a slow link.

Two network namespaces, joined by a cable that `tc qdisc tbf` holds to the rate in each direction; one rank of one thread
in each, over TCP.  In each round the same training with parallel.overlap on and off.  Prints one JSON object: medians
over all steps but the first two of each run, of both ways, and `hidden`: the share of the exposed communication without
overlap that overlap hides.  Exit status 1 where that is less than a half, 77 (with the reason) where namespaces cannot be
made: that takes root, ip and tc.

The model has 10.7 million parameters: 41 MiB of gradients, which take 0.36 s at 1 Gbit/s; backward computes for about as
long.  The bits of all runs are compared.  Unsets OPENBLAS_CORETYPE and OPENBLAS_L2_SIZE.
"""
import argparse
import json
import os
import random
import statistics
import subprocess
import sys
import tempfile

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
import two_hosts  # noqa: E402

WARM_UP = 2
CONFIG = {
    "run": {"dir": "r", "threads": 1},
    "model": {"type": "gpt", "n_layer": 6, "n_head": 6, "d_model": 384, "context": 128},
    "data": {"train": "text.txt"},
    "batch": {"global": 24, "micro": 12},
    "optim": {"lr": 1e-3},
    "parallel": {"strategy": "ddp", "backend": "tcp", "bucket_mb": 4, "check_every": 0},
    "log": {"every": 1, "progress": "none"},
}
KEYS = ("step_ms", "comm_ms", "comm_exposed_ms")


def environment(rank):
    env = {key: value for key, value in os.environ.items() if key not in ("OPENBLAS_CORETYPE", "OPENBLAS_L2_SIZE")}
    return {**env, "RANK": str(rank), "WORLD_SIZE": "2", "LOCAL_RANK": "0", "LOCAL_WORLD_SIZE": "1",
            "MASTER_ADDR": "10.77.0.1", "MASTER_PORT": "29500", "LOCKSTEP_SECRET": "51" * 32}


def train(hosts, folder, options, overlap):
    """The lines of metrics.jsonl after the warm-up, and the hash of the parameters."""
    words = [os.path.abspath(options.lockstep), "train", "c.json", "--set", f"run.steps={options.steps}",
             "--set", f"parallel.overlap={'true' if overlap else 'false'}"]
    words += [word for pair in options.set for word in ("--set", pair)]
    ranks = [subprocess.Popen([*hosts.enter(r), *words], cwd=folder, env=environment(r), stdin=subprocess.DEVNULL)
             for r in (0, 1)]
    try:
        if any([r.wait(600) for r in ranks]):
            sys.exit("slow_link: a rank failed")
    finally:
        for r in ranks:
            if r.poll() is None:
                r.kill()
    with open(os.path.join(folder, "r", "metrics.jsonl")) as f:
        lines = [json.loads(line) for line in f]
    with open(os.path.join(folder, "r", "summary.json")) as f:
        return lines[WARM_UP:], json.load(f)["params_sha256"]


def measure(hosts, folder, options):
    lines, hashes = {True: [], False: []}, set()
    for _ in range(options.rounds):
        for overlap in (True, False):
            more, digest = train(hosts, folder, options, overlap)
            lines[overlap] += more
            hashes.add(digest)
    if len(hashes) != 1:
        sys.exit("slow_link: overlap changed the parameters")
    on, off = ({key: round(statistics.median(m[key] for m in lines[way]), 1) for key in KEYS} for way in (True, False))
    return {"rate": options.rate, "rounds": options.rounds, "steps": options.steps - WARM_UP,
            "cores": len(os.sched_getaffinity(0)), "overlap": on, "no_overlap": off,
            "hidden": round(1 - on["comm_exposed_ms"] / off["comm_exposed_ms"], 3)}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("lockstep")
    parser.add_argument("--rate", default="1gbit")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--steps", type=int, default=8)
    parser.add_argument("--set", action="append", default=[])
    options = parser.parse_args()
    if two_hosts.lacks("tc"):
        print(f"slow_link: skipped: {two_hosts.lacks('tc')}", file=sys.stderr)
        return 77
    try:
        hosts = two_hosts.Hosts()
    except subprocess.CalledProcessError as e:
        print(f"slow_link: skipped: no network namespaces here: {e.stderr}", file=sys.stderr)
        return 77
    try:
        hosts.slow_down(options.rate, "256kb")
        with tempfile.TemporaryDirectory(prefix="lockstep-slow-") as folder:
            draw = random.Random(7)
            with open(os.path.join(folder, "text.txt"), "w") as f:
                f.write(" ".join(draw.choice(("lock", "step", "rank", "bit", "tree")) for _ in range(50000)))
            with open(os.path.join(folder, "c.json"), "w") as f:
                json.dump(CONFIG, f)
            result = measure(hosts, folder, options)
    finally:
        hosts.close()
    print(json.dumps(result))
    return 0 if result["hidden"] >= 0.5 else 1


if __name__ == "__main__":
    sys.exit(main())
