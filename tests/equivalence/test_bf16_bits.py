#!/usr/bin/env python3
"""test_bf16_bits.py LOCKSTEP - parallel.param_dtype "bf16": the bits of one process on any ranks and threads.

As test_bits.py compares runs, with dropout and clipping, for GPT-2 style and Llama style.  Once with the kernel that
this processor has for bf16, once widened, as a processor without one would.
"""
import json
import os
import sys

sys.path.insert(0, os.path.join(os.path.dirname(__file__), ".."))
import cli  # noqa: E402
from test_bits import BASE, STYLES, check_same, train  # noqa: E402

BF16 = {**BASE, "parallel__param_dtype": "bf16", "optim__clip_norm": 0.5, "batch__micro": 2}

# name, arguments, changes of the config: the bits of the plain run
SAME = [
    ("2 threads", [], {"run__threads": 2}),
    ("recompute, 3 threads", [], {"model__recompute": True, "run__threads": 3}),
    ("2 ranks", ["--nproc", "2"], {"parallel__strategy": "ddp"}),
    ("4 ranks of 2 threads", ["--nproc", "4"], {"parallel__strategy": "ddp", "run__threads": 2}),
    ("2 ranks over TCP, small buckets", ["--nproc", "2"],
     {"parallel__strategy": "ddp", "parallel__backend": "tcp", "parallel__bucket_mb": 0.01}),
]


def kernel(folder, run_dir):
    """What log.txt says of the products."""
    line = next(line for line in cli.read(folder, run_dir, "log.txt").decode().splitlines() if "products of bf16" in line)
    return line.split("products of bf16: ")[1]


def test_style(folder, style):
    plain = train(folder, "plain", **style)
    for name, args, changes in SAME:
        cli.row(name)
        check_same(train(folder, "other", *args, **{**style, **changes}), plain)
    cli.row("eval")
    r = cli.run(folder, "eval", "plain")
    cli.check_ok(r)
    cli.equal(json.loads(r.stdout)["loss"], plain["val_loss"], "loss of eval")
    cli.row("f32")
    other = train(folder, "f32", **{**style, "parallel__param_dtype": "f32"})
    cli.check(other["params"] != plain["params"], "other parameters")
    first = [float(run["lines"][0][1]) for run in (plain, other)]
    cli.check(abs(first[0] - first[1]) < 0.01 * first[1], f"first losses {first}")
    print(f"  {kernel(folder, 'plain')}", flush=True)
    return plain, kernel(folder, "plain")


def test_kernels(folder, style):
    """The widened kernel has bits of its own, the same ones everywhere."""
    native, name = test_style(folder, style)
    os.environ["ONEDNN_MAX_CPU_ISA"] = os.environ["DNNL_MAX_CPU_ISA"] = "AVX2"
    try:
        widened, other_name = test_style(folder, style)
    finally:
        del os.environ["ONEDNN_MAX_CPU_ISA"], os.environ["DNNL_MAX_CPU_ISA"]
    cli.row("widened")
    cli.check("widened" in other_name, other_name)
    cli.equal(native["params"] == widened["params"], name == other_name, "equal bits of two kernels")


def main():
    for name, changes in STYLES.items():
        with cli.workspace() as folder:
            print(name, flush=True)
            test_kernels(folder, {**BF16, **changes})
    cli.finish()


if __name__ == "__main__":
    main()
