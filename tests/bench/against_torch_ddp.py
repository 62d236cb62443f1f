#!/usr/bin/env python3
"""against_torch_ddp.py - a training step on ranks: Lockstep's and PyTorch's DDP, and Lockstep on one process, in turn.

    against_torch_ddp.py LOCKSTEP [--python PYTHON] [--shapes a,b] [--ranks 2,4] [--rounds 3] [--steps N] [--dtype f32]

Every rank has one thread.  In each round, one after the other, for each shape of against_torch.py:

    ranks N     Lockstep, `bench train --nproc N`, each rank one micro-batch
    torch N     PyTorch, DistributedDataParallel over gloo, gradient_as_bucket_view (torch_step.py)
    whole       Lockstep on one process with as many threads as the first N, the batch as one micro-batch
    single      the same with the micro-batches of the first N: the same bits as on these ranks

A JSON line for each shape and N on standard output: medians over the rounds, and ratios round by round (median):
speed_ratio to PyTorch, single_ratio and whole_ratio to one process, ranks_ratio to the first N (tokens/s, more is
better), memory_ratio to PyTorch (peak RSS of the largest rank, less is better), sgemm_ratio (PyTorch's rate over ours).
exposed is the share of the step that waited for communication.  A table at the end on standard error.

Unsets OPENBLAS_CORETYPE and OPENBLAS_L2_SIZE for all.
"""
import argparse
import json
import os
import sys
import tempfile

from against_torch import HERE, SHAPES, config_of, median, run

COLUMNS = [("shape", "shape"), ("ranks", "ranks"), ("lockstep_ms", "Lockstep, ms"), ("torch_ms", "PyTorch, ms"),
           ("speed_ratio", "speed ratio"), ("sgemm_ratio", "sgemm ratio"), ("exposed", "exposed"),
           ("single_ratio", "to one process"), ("whole_ratio", "to one micro-batch"), ("ranks_ratio", "to fewer ranks"),
           ("lockstep_rss_mb", "peak RSS, MiB"), ("torch_rss_mb", "PyTorch's"), ("memory_ratio", "memory ratio")]


class Bench:
    """The programs of one shape; its config lies in a file."""

    def __init__(self, options, shape, path):
        self.options, self.path, self.whole = options, path, config_of(shape)["batch"]["global"]
        self.steps = str(options.steps or SHAPES[shape][6])

    def lockstep(self, micro, threads, *more):
        return run([self.options.lockstep, "bench", "train", self.path, "--steps", self.steps, "--json", *more,
                    "--set", f"run.threads={threads}", "--set", f"batch.micro={micro}"])

    def torch(self, ranks, *more):
        return run([self.options.python, f"{HERE}/torch_step.py", self.path, "--threads", "1", "--steps", self.steps,
                    "--nproc", str(ranks), *more])

    def ranks(self, n, strategy):
        return self.lockstep(self.whole // n, 1, "--nproc", str(n), "--set", f"parallel.strategy={strategy}")


def measure_round(bench, worlds):
    """{"single": ..., "whole": ..., (who, N): ...}, each measured once."""
    out = {}
    for n in worlds:
        out["ours", n] = bench.ranks(n, "ddp")
        out["torch", n] = bench.torch(n)
    out["whole"] = bench.lockstep(bench.whole, worlds[0])
    out["single"] = bench.lockstep(bench.whole // worlds[0], worlds[0])
    return out


def line_of(shape, n, worlds, rounds):
    ours, torch = ([r[who, n] for r in rounds] for who in ("ours", "torch"))

    def ratio(over, under, key="tokens_per_s"):
        return median(r[over][key] / r[under][key] for r in rounds)

    return {"shape": shape, "ranks": n, "threads": 1, "cpu": ours[0]["cpu"], "blas": ours[0]["blas"],
            "torch": torch[0]["torch"], "rounds": len(rounds), "cores": len(os.sched_getaffinity(0)),
            "lockstep_ms": median(o["median_ms"] for o in ours), "floor_ms": median(o["floor_ms"] for o in ours),
            "torch_ms": median(t["median_ms"] for t in torch),
            "single_ms": median(r["single"]["median_ms"] for r in rounds),
            "whole_ms": median(r["whole"]["median_ms"] for r in rounds),
            "speed_ratio": ratio(("ours", n), ("torch", n)),
            "single_ratio": ratio(("ours", n), "single"), "whole_ratio": ratio(("ours", n), "whole"),
            "ranks_ratio": ratio(("ours", n), ("ours", worlds[0])),
            "exposed_ms": median(o["comm_exposed_ms"] for o in ours),
            "exposed": median(o["comm_exposed_ms"] / o["median_ms"] for o in ours),
            "lockstep_rss_mb": median(o["peak_rss_mb"] for o in ours),
            "torch_rss_mb": median(t["peak_rss_mb"] for t in torch),
            "memory_ratio": ratio(("ours", n), ("torch", n), "peak_rss_mb"),
            "sgemm_gflops": median(o["sgemm_gflops"] for o in ours),
            "torch_sgemm_gflops": median(t["sgemm_gflops"] for t in torch),
            "sgemm_ratio": ratio(("torch", n), ("ours", n), "sgemm_gflops")}


def print_table(lines, columns):
    print("| " + " | ".join(title for _, title in columns) + " |\n" + "|---" * len(columns) + "|", file=sys.stderr)
    for line in lines:
        print("| " + " | ".join(str(line[key]) for key, _ in columns) + " |", file=sys.stderr)


def main(ranks, measure, line_of_world, columns):
    """measure(bench, worlds) is a round; line_of_world(shape, N, worlds, rounds) a line; ranks the default worlds."""
    parser = argparse.ArgumentParser()
    parser.add_argument("lockstep")
    parser.add_argument("--python", default=sys.executable, help="a Python that has PyTorch")
    parser.add_argument("--shapes", default="a,b")
    parser.add_argument("--ranks", default=ranks, help="each divides the shapes' batches")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--steps", type=int, help="of each run; by shape otherwise")
    parser.add_argument("--dtype", default="f32", choices=["f32", "bf16"], help="bf16: of parameters, in both")
    options = parser.parse_args()
    worlds, lines = [int(n) for n in options.ranks.split(",")], []
    for shape in options.shapes.split(","):
        with tempfile.NamedTemporaryFile("w", suffix=".json") as file:
            json.dump(config_of(shape, options.dtype), file)
            file.flush()
            bench = Bench(options, shape, file.name)
            rounds = [measure(bench, worlds) for _ in range(options.rounds)]
        for n in worlds:
            lines.append({"dtype": options.dtype, **line_of_world(shape, n, worlds, rounds)})
            print(json.dumps(lines[-1]), flush=True)
    print_table(lines, columns)


if __name__ == "__main__":
    main("2,4", measure_round, line_of, COLUMNS)
