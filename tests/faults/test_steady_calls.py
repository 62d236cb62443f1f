#!/usr/bin/env python3
"""test_steady_calls.py LOCKSTEP - a step in its steady state makes no memory call to the system, by strace.

A run of 25 steps makes as many calls of mmap, munmap, brk, mremap and madvise as one of 5.  Exit 77 without strace.
"""
import os
import shutil
import subprocess
import sys

sys.path.insert(0, os.path.join(os.path.dirname(__file__), ".."))
import cli  # noqa: E402

CALLS = "mmap,munmap,brk,mremap,madvise"
TRIES = 3  # a second thread may be late and make its first calls in the longer run alone


def usable():
    return shutil.which("strace") and subprocess.run(["strace", "-o", "/dev/null", "true"], check=False,
                                                     stderr=subprocess.DEVNULL).returncode == 0


def calls(folder, steps, threads, *sets):
    trace = os.path.join(folder, "trace")
    args = ["train", "c.json", "--set", f"run.steps={steps}", "--set", f"run.threads={threads}",
            "--set", "log.every=1000", "--set", "log.progress=none", "--set", "data.val_fraction=0"]
    for text in sets:
        args += ["--set", text]
    r = cli.run(folder, "-f", "-e", f"trace={CALLS}", "-o", trace, cli.command(), *args, program="strace")
    cli.check_ok(r)
    with open(trace, encoding="utf-8", errors="replace") as file:
        return sum("(" in line for line in file)


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
                    few, many = calls(folder, 5, threads, *sets), calls(folder, 25, threads, *sets)
                    if few == many:
                        break
                cli.equal(many, few, "calls of 25 steps and of 5")
    cli.finish()


if __name__ == "__main__":
    main()
