#!/usr/bin/env python3
"""against_torch_fsdp.py - a training step of fully sharded ranks: Lockstep's FSDP, PyTorch's FSDP2, Lockstep's DDP, in turn.

    against_torch_fsdp.py LOCKSTEP [--python PYTHON] [--shapes a,b] [--ranks 2] [--rounds 3] [--steps N] [--dtype f32]

Every rank has one thread and one micro-batch a step, in f32; units are blocks, dropped after forward.  In each round,
one after the other, for each shape of against_torch.py:

    fsdp N      Lockstep, `bench train --nproc N`, parallel.strategy fsdp
    torch N     PyTorch, fully_shard of each block and of the root, over gloo (torch_step.py --fsdp)
    ddp N       Lockstep, parallel.strategy ddp

A JSON line for each shape and N on standard output: medians over the rounds, and ratios round by round (median):
speed_ratio to PyTorch and ddp_ratio to our DDP (tokens/s, more is better), memory_ratio and ddp_memory_ratio (peak RSS
of the largest rank, less is better), sgemm_ratio (PyTorch's rate over ours).  exposed is the share of the step that
waited for communication.  A table at the end on standard error.

Unsets OPENBLAS_CORETYPE and OPENBLAS_L2_SIZE for all.
"""
import os

import against_torch_ddp
from against_torch import median

COLUMNS = [("shape", "shape"), ("ranks", "ranks"), ("lockstep_ms", "Lockstep, ms"), ("torch_ms", "PyTorch, ms"),
           ("ddp_ms", "our DDP, ms"), ("speed_ratio", "speed ratio"), ("sgemm_ratio", "sgemm ratio"),
           ("ddp_ratio", "to our DDP"), ("exposed", "exposed"), ("lockstep_rss_mb", "peak RSS, MiB"),
           ("torch_rss_mb", "PyTorch's"), ("ddp_rss_mb", "our DDP's"), ("memory_ratio", "memory ratio")]


def measure_round(bench, worlds):
    """{(who, N): ...}, each measured once."""
    out = {}
    for n in worlds:
        out["fsdp", n] = bench.ranks(n, "fsdp")
        out["torch", n] = bench.torch(n, "--fsdp")
        out["ddp", n] = bench.ranks(n, "ddp")
    return out


def line_of(shape, n, _, rounds):
    ours, torch, ddp = ([r[who, n] for r in rounds] for who in ("fsdp", "torch", "ddp"))

    def ratio(over, under, key="tokens_per_s"):
        return median(a[key] / b[key] for a, b in zip(over, under))

    return {"shape": shape, "ranks": n, "threads": 1, "cpu": ours[0]["cpu"], "blas": ours[0]["blas"],
            "torch": torch[0]["torch"], "rounds": len(rounds), "cores": len(os.sched_getaffinity(0)),
            "lockstep_ms": median(o["median_ms"] for o in ours), "floor_ms": median(o["floor_ms"] for o in ours),
            "torch_ms": median(t["median_ms"] for t in torch), "ddp_ms": median(d["median_ms"] for d in ddp),
            "speed_ratio": ratio(ours, torch), "ddp_ratio": ratio(ours, ddp),
            "exposed_ms": median(o["comm_exposed_ms"] for o in ours),
            "exposed": median(o["comm_exposed_ms"] / o["median_ms"] for o in ours),
            "lockstep_rss_mb": median(o["peak_rss_mb"] for o in ours),
            "torch_rss_mb": median(t["peak_rss_mb"] for t in torch),
            "ddp_rss_mb": median(d["peak_rss_mb"] for d in ddp),
            "memory_ratio": ratio(ours, torch, "peak_rss_mb"), "ddp_memory_ratio": ratio(ours, ddp, "peak_rss_mb"),
            "sgemm_gflops": median(o["sgemm_gflops"] for o in ours),
            "torch_sgemm_gflops": median(t["sgemm_gflops"] for t in torch),
            "sgemm_ratio": ratio(torch, ours, "sgemm_gflops")}


if __name__ == "__main__":
    against_torch_ddp.main("2", measure_round, line_of, COLUMNS)
