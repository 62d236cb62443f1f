#!/usr/bin/env python3
"""test_steady_calls.py LOCKSTEP - a step in its steady state makes no memory call to the system, by strace.

Between the metrics line of step 150 and that of step 300 there is no mmap, munmap, brk, mremap or madvise, of any thread.
Exit 77 without strace.
"""
import os
import shutil
import subprocess
import sys

sys.path.insert(0, os.path.join(os.path.dirname(__file__), ".."))
import cli  # noqa: E402

CALLS = "mmap,munmap,brk,mremap,madvise"
WARM_UP, STEPS = 150, 300
TRIES = 3  # a second thread may be late and make its first calls behind the warm-up


def usable():
    return shutil.which("strace") and subprocess.run(["strace", "-o", "/dev/null", "true"], check=False,
                                                     stderr=subprocess.DEVNULL).returncode == 0


def calls(folder, threads, *sets):
    """The memory calls between the two lines, as strace shows them."""
    trace = os.path.join(folder, "trace")
    args = ["train", "c.json", "--set", f"run.steps={STEPS}", "--set", f"run.threads={threads}",
            "--set", "log.progress=none", "--set", "data.val_fraction=0"]
    for text in sets:
        args += ["--set", text]
    r = cli.run(folder, "-f", "-s", "16", "-e", f"trace={CALLS},write", "-o", trace, cli.command(), *args,
                program="strace")
    cli.check_ok(r)
    with open(trace, encoding="utf-8", errors="replace") as file:
        lines = file.read().splitlines()
    ends = [[i for i, line in enumerate(lines) if 'write(' in line and f'"{{\\"step\\":{step},' in line]
            for step in (WARM_UP, STEPS)]
    if not cli.equal([len(e) for e in ends], [1, 1], "metrics lines in the trace"):
        return lines
    return [line for line in lines[ends[0][0]:ends[1][0]] if "(" in line and "write(" not in line]


def main():
    if not usable():
        print("skipped: strace is missing or may not trace here")
        sys.exit(77)
    with cli.workspace() as folder:
        cli.write_config(folder)
        for threads in (1, 2):
            for sets in ((), ("model.dropout=0.1", "batch.micro=1"), ("model.recompute=true", "model.mlp=swiglu")):
                cli.row(f"{threads} threads {' '.join(sets)}")
                for _ in range(TRIES):
                    made = calls(folder, threads, *sets)
                    if not made:
                        break
                cli.equal(made[:3], [], "memory calls of steady steps")
    cli.finish()


if __name__ == "__main__":
    main()
