#!/usr/bin/env python3
"""against_torch.py - training steps of Lockstep and of PyTorch in turn, A B A B, on the same machine.

    against_torch.py LOCKSTEP [--python PYTHON] [--shapes a,b,small] [--threads 1,2] [--dtype f32] [--pairs 3] [--steps N]

Unsets OPENBLAS_CORETYPE and OPENBLAS_L2_SIZE for both.  For each shape and number of threads a JSON line: the medians over
the pairs, and the ratios pair by pair (median): speed (tokens/s, more is better), memory (peak RSS), step over floor.
"""
import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
TEXTS = ["/usr/share/doc/jargon-text/jargon.txt.gz", "/usr/share/common-licenses/GPL-3"]

# (layers, channels, heads, context, batch, vocabulary, steps)
SHAPES = {"a": (6, 384, 6, 256, 8, 256, 9), "b": (12, 768, 12, 256, 4, 50304, 5), "small": (4, 128, 4, 64, 12, 256, 60),
          "long1024": (2, 384, 6, 1024, 2, 256, 9), "long2048": (2, 384, 6, 2048, 1, 256, 9)}


def config_of(shape, dtype="f32"):
    layers, channels, heads, context, batch, vocab, _ = SHAPES[shape]
    text = next(t for t in TEXTS if os.path.exists(t))
    return {"run": {"name": shape, "steps": 100},
            "model": {"type": "gpt", "n_layer": layers, "n_head": heads, "d_model": channels, "context": context,
                      "vocab_size": vocab, "mlp": "gelu_tanh"},
            "data": {"train": text}, "batch": {"global": batch, "micro": batch}, "optim": {"lr": 1e-4},
            "parallel": {"param_dtype": dtype}}


def run(command):
    env = {k: v for k, v in os.environ.items() if k not in ("OPENBLAS_CORETYPE", "OPENBLAS_L2_SIZE")}
    done = subprocess.run(command, env=env, stdout=subprocess.PIPE, text=True, check=True)
    return json.loads(done.stdout)


def median(values):
    return round(statistics.median(values), 4)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("lockstep")
    parser.add_argument("--python", default=sys.executable, help="a Python that has PyTorch")
    parser.add_argument("--shapes", default="a,b,small")
    parser.add_argument("--threads", default="1,2")
    parser.add_argument("--dtype", default="f32", choices=["f32", "bf16"], help="bf16: of parameters, against autocast")
    parser.add_argument("--pairs", type=int, default=3)
    parser.add_argument("--steps", type=int, help="of each run; by shape otherwise")
    options = parser.parse_args()
    for shape in options.shapes.split(","):
        steps = str(options.steps or SHAPES[shape][6])
        with tempfile.NamedTemporaryFile("w", suffix=".json") as file:
            json.dump(config_of(shape, options.dtype), file)
            file.flush()
            for threads in options.threads.split(","):
                ours, theirs = [], []
                for _ in range(options.pairs):
                    ours.append(run([options.lockstep, "bench", "train", file.name, "--steps", steps, "--json", "--set",
                                     f"run.threads={threads}"]))
                    theirs.append(run([options.python, f"{HERE}/torch_step.py", file.name, "--threads", threads, "--steps",
                                       steps]))
                pairs = list(zip(ours, theirs))
                print(json.dumps({
                    "shape": shape, "dtype": options.dtype, "threads": int(threads), "cpu": ours[0]["cpu"], "blas": ours[0]["blas"],
                    "torch": theirs[0]["torch"], "pairs": len(pairs),
                    "lockstep_ms": median(o["median_ms"] for o in ours), "floor_ms": median(o["floor_ms"] for o in ours),
                    "torch_ms": median(t["median_ms"] for t in theirs),
                    "step_over_floor": median(o["ratio_to_floor"] for o in ours),
                    "speed_ratio": median(o["tokens_per_s"] / t["tokens_per_s"] for o, t in pairs),
                    "lockstep_rss_mb": median(o["peak_rss_mb"] for o in ours),
                    "torch_rss_mb": median(t["peak_rss_mb"] for t in theirs),
                    "memory_ratio": median(o["peak_rss_mb"] / t["peak_rss_mb"] for o, t in pairs),
                    "sgemm_gflops": median(o["sgemm_gflops"] for o in ours),
                    "torch_sgemm_gflops": median(t["sgemm_gflops"] for t in theirs)}), flush=True)


if __name__ == "__main__":
    main()
