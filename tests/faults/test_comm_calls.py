#!/usr/bin/env python3
"""test_comm_calls.py PROGRAM BACKEND - operations that a group has done before ask the system for no memory, by strace.

Between the last mark "begin" and the first mark "end" of test_comm_steady.c there is no mmap, munmap, brk, mremap or
madvise of any rank or thread.  Exit 77 without strace.
"""
import os
import shutil
import subprocess
import sys
import tempfile

CALLS = "mmap,munmap,brk,mremap,madvise"


def usable():
    return shutil.which("strace") and subprocess.run(["strace", "-o", "/dev/null", "true"], check=False,
                                                     stderr=subprocess.DEVNULL).returncode == 0


def trace(program, backend, path):
    """The lines of the trace of a run that went well."""
    r = subprocess.run(["strace", "-f", "-s", "20", "-e", f"trace={CALLS},write", "-o", path, program, backend, "auto"],
                       check=False, capture_output=True, text=True, timeout=100)
    if r.returncode != 0:
        sys.exit(f"{program} {backend}: exit {r.returncode}\n{r.stdout}{r.stderr}")
    with open(path, encoding="utf-8", errors="replace") as file:
        return file.read().splitlines()


def between(lines):
    begins = [i for i, line in enumerate(lines) if 'write(2, "steady: begin' in line]
    ends = [i for i, line in enumerate(lines) if 'write(2, "steady: end' in line]
    if len(begins) != 3 or len(ends) != 3:
        sys.exit(f"{len(begins)} begins and {len(ends)} ends of 3 ranks")
    return lines[begins[-1] + 1:ends[0]]


def main():
    program, backend = sys.argv[1:]
    if not usable():
        print("skipped: strace is missing or may not trace here")
        sys.exit(77)
    with tempfile.TemporaryDirectory() as folder:
        lines = trace(program, backend, os.path.join(folder, "trace"))
    calls = [line for line in between(lines) if "(" in line and "write(" not in line]
    if calls:
        sys.exit(f"{len(calls)} memory calls of steady operations, first:\n" + "\n".join(calls[:5]))
    print(f"comm_calls: {len(lines)} lines, none between the marks")


if __name__ == "__main__":
    main()
