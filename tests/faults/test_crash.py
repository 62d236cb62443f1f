"""test_crash.py - whatever happens to a process or a disk while it saves, the last good state is there.

    test_crash.py LOCKSTEP TOOL [long]

calls      every system call that a save makes (a part of them without `long`), killed at or failing with ENOSPC or
           EIO, one at a time (strace)
power      the recorded calls through the worlds of power_loss.py, which must find worse recordings guilty
soak       ranks killed at random moments, started again by the launcher, to the bits of an undisturbed run
timeouts   a rank whose disk hangs

Exit 77 without strace.  TOOL is checkpoint_tool.c.  test_crash_ranks.py does the first two with several ranks.
"""
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
import cli  # noqa: E402
import jobs  # noqa: E402
import power_loss  # noqa: E402
import crash_tool  # noqa: E402
from crash_tool import CALLS, FAULTS, LONG, TOOL, base, tool  # noqa: E402

SPARSE = 4  # of the points, every so many-th where the run is short; which, changes from row to row


def strace(folder, options, *args):
    return subprocess.run(["strace", "-f", *options, TOOL, *args], cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                          check=False, timeout=60)


# ---- every call ----

def ranges(folder):
    """{call: (first, last)} of those between the two getsid(), as strace counts them."""
    base(folder)
    path = os.path.join(folder, "calls")
    strace(folder, ["-o", path, "-e", "trace=getsid," + ",".join(CALLS)], "save", "store", "2")
    counts, found, inside = {}, {}, False
    with open(path, encoding="utf-8", errors="replace") as f:
        for line in f:
            m = re.match(r"\d+ +(\w+)\(", line)
            if not m:
                continue
            if m[1] == "getsid":
                inside = not inside
                continue
            counts[m[1]] = counts.get(m[1], 0) + 1
            if inside:
                found[m[1]] = (found.get(m[1], (counts[m[1]],))[0], counts[m[1]])
    return found


def check_after(folder, status, output, what):
    """Old or new, never nothing; new where the save said so; and the next save is well."""
    again = tool(folder, "again", "store", "3").stdout.split("\n")
    cli.check(again[0] in ("1", "2"), f"{what}: loads {again[0]!r}")
    if status == 0:
        cli.equal((output, again[0]), ("saved 2\n", "2"), f"{what}: what was said and what is there")
    elif status == 3:
        cli.check(output.startswith("failed: "), f"{what}: says {output!r}")
    cli.equal(again[1], "saved 3", f"{what}: the next save")
    cli.equal(tool(folder, "load", "store").stdout, "3\n", f"{what}: loads after it")
    left = sorted(os.listdir(os.path.join(folder, "store")))
    cli.equal(left, ["latest", "step-00000003"], f"{what}: files after it")


def test_calls(folder):
    found, points = ranges(folder), 0
    cli.check({"write", "fsync", "close", "getdents64"} <= set(found), f"calls of a save: {found}")
    for name, fault in FAULTS.items():
        for call, (first, last) in sorted(found.items()):
            cli.row(f"{call} {name}")
            for n in range(first + (0 if LONG else points % SPARSE), last + 1, 1 if LONG else SPARSE):
                base(folder)
                r = strace(folder, ["-o", "/dev/null", "-e", f"trace={call}", "-e", f"inject={call}:{fault}:when={n}"], "save", "store", "2")
                points += 1
                cli.check(r.returncode in (0, 3, -9, 137), f"the {n}-th: exit {r.returncode}: {r.stderr[-300:]}")
                check_after(folder, r.returncode, r.stdout, f"the {n}-th")
    print(f"  {points} points")


# ---- power loss ----

def record(folder):
    base(folder)
    path = os.path.join(folder, "recorded")
    r = strace(folder, ["-o", path, "-y", "-xx", "-s", "1000000", "-e", "trace=getsid," + ",".join(power_loss.CALLS)], "save", "store", "2")
    cli.equal(r.stdout, "saved 2\n", "the recorded save")
    with open(path, encoding="utf-8", errors="replace") as f:
        lines = f.read().splitlines()
    marks = [i for i, line in enumerate(lines) if " getsid(" in line]
    return power_loss.parse(lines[marks[0] + 1:marks[1]], folder)


def test_power(folder):
    cli.row("power loss")
    ops = record(folder)
    cli.check(len(ops) > 15, f"{len(ops)} recorded calls")
    power_loss.judge(folder, ops, power_loss.mutants(ops))


# ---- killed ranks ----

def test_soak(folder):
    rounds = 200 if LONG else 4
    draw = random.Random(11)
    cli.write_config(folder, run__steps=60, checkpoint__every=1, model__dropout=0.1, eval__every=0, data__val_fraction=None)
    cli.row("undisturbed")
    cli.check_ok(cli.run(folder, "train", "c.json", "--set", "run.dir=whole"))
    want, kills, began = cli.summary(folder, "whole")["state_sha256"], 0, time.monotonic()
    while kills < rounds:
        cli.row(f"killed ranks, after {kills} rounds")
        shutil.rmtree(os.path.join(folder, "r"), ignore_errors=True)
        job = jobs.Job(folder, 4, "run", "-n", "4", "--max-restarts", "100", "--min-nproc", "1", "--", cli.command(), "train", "c.json",
                       "--resume", "auto")
        end = time.monotonic() + 60 * jobs.SLOWER
        while job.process.poll() is None and time.monotonic() < end:
            time.sleep(draw.uniform(0.05, 0.6))
            ranks = job.ranks()
            if ranks and job.process.poll() is None:
                try:
                    os.kill(ranks[draw.choice(sorted(ranks))], signal.SIGKILL)
                    kills += 1
                except ProcessLookupError:
                    pass
        cli.equal(job.end(), 0, f"exit status of the job: {job.text()[-600:]}")
        cli.equal(cli.summary(folder)["state_sha256"], want, "state_sha256")
        job.check_nothing_left(writing=True)
    print(f"  {kills} kills in {time.monotonic() - began:.1f} s")


def test_fewer(folder):
    """A rank is lost: the job goes on with the next smaller world that divides, to the same bits."""
    cli.row("fewer ranks")
    cli.write_config(folder, run__steps=150, checkpoint__every=5, eval__every=0, data__val_fraction=None)
    cli.check_ok(cli.run(folder, "train", "c.json", "--set", "run.dir=fewer_whole"))
    shutil.rmtree(os.path.join(folder, "r"), ignore_errors=True)
    job = jobs.Job(folder, 4, "run", "-n", "4", "--max-restarts", "2", "--min-nproc", "1", "--", cli.command(), "train", "c.json",
                   "--resume", "auto", "--set", "log.every=1")
    job.wait_until(lambda: cli.latest(folder) is not None, "a checkpoint")
    os.kill(job.ranks()[2], signal.SIGKILL)
    cli.equal(job.end(), 0, f"exit status: {job.text()[-600:]}")
    s = cli.summary(folder)
    cli.equal((s["state_sha256"], s["world_size"]), (cli.summary(folder, "fewer_whole")["state_sha256"], 2), "state and world")


# ---- a disk that hangs ----

def test_hang(folder):
    """One rank's fsync takes longer than checkpoint.timeout_s: the save fails on all, training goes on."""
    cli.row("a rank's disk hangs")
    cli.write_config(folder, run__steps=40, checkpoint__every=10, checkpoint__timeout_s=0.5, eval__every=0, data__val_fraction=None)
    shutil.rmtree(os.path.join(folder, "r"), ignore_errors=True)
    script = ('if [ "$RANK" = 1 ]; then exec strace -f -qq -o /dev/null -e trace=fsync -e inject=fsync:delay_enter=2000000:when=1 "$@"; '
              'fi; exec "$@"')
    r = cli.run(folder, "run", "-n", "2", "--", "sh", "-c", script, "sh", cli.command(), "train", "c.json")
    cli.equal(r.returncode in (0, 1), True, f"exit status {r.returncode}: {r.stderr[-800:]}")
    cli.check("is not saved: rank 1: " in r.stderr and "checkpoint.timeout_s" in r.stderr, f"it says so: {r.stderr[-1500:]}")
    cli.check(any(m["step"] == "40" for m in cli.metrics(folder)), "training went on")


def main():
    if not crash_tool.can_trace():
        print("skipped: no strace")
        sys.exit(77)
    with cli.workspace() as folder:
        for test in (test_calls, test_power, test_hang, test_fewer, test_soak):
            began = time.monotonic()
            test(folder)
            print(f"{test.__name__}: {time.monotonic() - began:.1f} s", flush=True)
    cli.finish()


main()
