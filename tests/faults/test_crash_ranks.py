"""test_crash_ranks.py - whatever happens to one of three ranks while they save, the last good state is there.

    test_crash_ranks.py LOCKSTEP TOOL [long]

errors     ENOSPC and EIO at each system call that rank 0, and rank 2, makes for a save: no rank ends or waits, all three
           tell of the save with one text, the store has the older or the newer state, and the next save of the same
           ranks is well
kills      SIGKILL at each of them: the other two notice, and what is left is as above
broken     the same judges find a save guilty that first removes what it replaces
training   on three ranks of which one never can sync its file: a warning for each save, and the bits of a run without
power      the recorded calls of all three ranks, by time, through the worlds of power_loss.py

Without `long` a part of the points, drawn anew for each; the seed is in the output, and LS_SEED repeats it.  Savers that
write on the ranks' own threads and ones that have a thread for it are both there.  Exit 77 without strace.
"""
import collections
import os
import random
import re
import shutil
import subprocess
import sys
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
import cli  # noqa: E402
import crash_tool  # noqa: E402
import power_loss  # noqa: E402

N, VICTIMS, HOWS = 3, (0, 2), ("alone", "threads")
SHORT = 4     # points of a row of a short run
AT_ONCE = 40  # errors that one job goes through
LIMIT_S = 8   # of one save whose rank was killed, with all that starts and ends ranks; less than a group's timeout there
SEED = int(os.environ.get("LS_SEED") or (1 if crash_tool.LONG else time.time_ns() % 1000000))


def ranks(folder, how, victim, *faults, limit=60):
    """Lines of a job of N ranks, and its status; None where it did not end in time."""
    try:
        r = subprocess.run([crash_tool.TOOL, "ranks", "store", how, str(victim), *faults], cwd=folder, stdout=subprocess.PIPE,
                           stderr=subprocess.STDOUT, text=True, check=False, timeout=limit)
    except subprocess.TimeoutExpired as e:
        return (e.stdout or b"").decode().splitlines(), None
    return r.stdout.splitlines(), r.returncode


# ---- which calls ----

def traces(folder, how, calls):
    """The lines of strace of each rank's part of a save."""
    crash_tool.base(folder)
    lines, status = ranks(folder, how, -1, "trace:" + ",".join(calls))
    cli.equal(status, 0, f"{how}: the traced save: {lines}")
    found = []
    for r in range(N):
        path = os.path.join(folder, f"store.trace.{r}")
        with open(path, encoding="utf-8", errors="replace") as f:
            found.append([line for line in f.read().splitlines() if "getsid(" not in line])
        os.unlink(path)
    return found


def counts(lines):
    """{call: how often}, the most that one thread makes, since strace counts for each."""
    made = collections.Counter(re.match(r"(\d+ +)?[\d.]+ (\w+)\(", line).groups() for line in lines if "(" in line and "<..." not in line)
    most = {}
    for (_, call), n in made.items():
        most[call] = max(n, most.get(call, 0))
    return most


def points(of_rank, fault):
    """strace's words for that fault at every call, one at a time."""
    return [f"{call}:{fault}:when={n}" for call, most in sorted(of_rank.items()) for n in range(1, most + 1)]


# ---- judges: lists of what is wrong ----

def told(lines, step):
    """{rank: (what, text)} of the save of a step."""
    found = {}
    for line in lines:
        m = re.match(rf"(\d) (saved|failed|lost) {step}(?:: (.*))?$", line)
        if m:
            found[int(m[1])] = (m[2], m[3])
    return found


def wrong_with_error(lines, step, victim, fault):
    """What the ranks told of the save with that fault, and of the one after it."""
    said, after = told(lines, step), told(lines, step + 1)
    what, text = said.get(0, ("nothing", None))
    why = "No space left on device" if "ENOSPC" in fault else "Input/output error"
    wrong = []
    if len(said) != N or len(set(said.values())) != 1 or (what == "failed" and (why not in text or not text.startswith(f"rank {victim}: "))):
        wrong.append(f"the ranks say {said}")
    loads = [line[7:] for line in lines if line.startswith("0 load ")]
    loaded = loads[(step - 2) // 2] if len(loads) > (step - 2) // 2 else "nothing"
    if loaded not in ([str(step)] if what == "saved" else [str(step - 1), str(step)]):
        wrong.append(f"it is {what}, and it loads {loaded}")
    if after != {r: ("saved", None) for r in range(N)}:
        wrong.append(f"the next save: {after}")
    return wrong


def wrong_after(folder, step):
    """The last save was of that step; keep is 1."""
    left = sorted(os.listdir(os.path.join(folder, "store")))
    if left != ["latest", f"step-{step:08d}"]:
        return [f"files left: {left}"]
    loads = crash_tool.tool(folder, "load", "store").stdout
    return [] if loads == f"{step}\n" else [f"it loads {loads!r}"]


def wrong_with_kill(folder, lines, status, victim):
    wrong, said = [], told(lines, 2)
    if status != 3 or not any(f"rank {victim}: " in line and "signal 9" in line for line in lines if line.startswith("failed: ")):
        wrong.append(f"exit {status}, {lines[-1:]}")
    for r in set(range(N)) - {victim}:
        if said.get(r, ("",))[0] not in ("lost", "saved") or (said[r][0] == "lost" and f"rank {victim}" not in (said[r][1] or "")):
            wrong.append(f"rank {r} says {said.get(r)}")
    again = crash_tool.tool(folder, "again", "store", "3").stdout.split()
    if again not in (["1", "saved", "3"], ["2", "saved", "3"]) or (again[0] == "1" and "saved" in [what for what, _ in said.values()]):
        wrong.append(f"loads, and then saves: {again}, after {said}")
    return wrong or wrong_after(folder, 3)


# ---- sweeps ----

def some(draw, all_points):
    if crash_tool.LONG or len(all_points) <= SHORT:
        return all_points
    return sorted(draw.sample(all_points, SHORT))


def errors(folder, how, victim, faults):
    """[(fault, what is wrong)]; a job goes on from fault to fault while nothing is."""
    found = []
    for at in range(0, len(faults), AT_ONCE):
        some_faults = faults[at:at + AT_ONCE]
        crash_tool.base(folder)
        lines, status = ranks(folder, how, victim, *some_faults)
        wrong = [(fault, what) for i, fault in enumerate(some_faults) for what in wrong_with_error(lines, 2 + 2 * i, victim, fault)]
        if not wrong and status != 0:
            wrong = [(some_faults, f"exit {status}: {lines[-3:]}")]
        if not wrong:
            wrong = [(some_faults, what) for what in wrong_after(folder, 1 + 2 * len(some_faults))]
        found += wrong[:1]  # what follows the first may be its consequence
    return found


def kills(folder, how, victim, faults):
    found = []
    for fault in faults:
        crash_tool.base(folder)
        lines, status = ranks(folder, how, victim, fault, limit=LIMIT_S)
        found += [(fault, what) for what in wrong_with_kill(folder, lines, status, victim)]
    return found


def test_sweeps(folder):
    draw, n = random.Random(SEED), 0
    for how in HOWS:
        by_rank = [counts(lines) for lines in traces(folder, how, crash_tool.CALLS)]
        cli.check(all({"write", "fsync", "rename", "close"} <= set(c) for c in by_rank), f"calls of a save: {by_rank}")
        for victim in VICTIMS:
            for name, fault in crash_tool.FAULTS.items():
                cli.row(f"{how}, rank {victim} {name}")
                chosen = some(draw, points(by_rank[victim], fault))
                cli.equal((kills if name == "killed" else errors)(folder, how, victim, chosen), [], "what is wrong")
                n += len(chosen)
    print(f"  {n} points")


def test_broken(folder):
    """A save that removes the old checkpoint first: the same faults, and the judges must find some of them."""
    calls = counts(traces(folder, "alone", crash_tool.CALLS)[0])
    cli.row("broken: errors are found")
    cli.check(errors(folder, "broken", 0, points({"write": calls["write"]}, "error=EIO")), "nothing is wrong")
    cli.row("broken: kills are found")
    cli.check(kills(folder, "broken", 2, points({"fsync": 1}, "signal=KILL")), "nothing is wrong")


def test_power(folder):
    cli.row("power loss of three ranks")
    lines = sorted(line for of_rank in traces(folder, "alone", power_loss.CALLS) for line in of_rank)
    crash_tool.base(folder)
    ops = power_loss.parse(lines, folder)
    cli.check(len(ops) > 35, f"{len(ops)} recorded calls")
    worse = {"rank 2's file is not synced": [op for op in ops if op[0] != "fsync" or "rank-00002" not in op[1]]}
    power_loss.judge(folder, ops, {**worse, **(power_loss.mutants(ops) if crash_tool.LONG else {})})


def test_training(folder):
    """A rank that never can sync its file: every save fails with the same words, training ends in the bits of one without.
    The last save is not only a warning."""
    cli.row("training whose saves all fail")
    cli.write_config(folder, run__steps=6, batch__global=6, batch__micro=1, eval__every=0, data__val_fraction=None)
    cli.check_ok(cli.run(folder, "train", "c.json", "--set", "run.dir=whole"))
    script = ('if [ "$RANK" = 2 ]; then exec strace -f -qq -o /dev/null -e trace=fsync -e inject=fsync:error=EIO "$@"; fi; exec "$@"')
    r = cli.run(folder, "run", "-n", str(N), "--", "sh", "-c", script, "sh", cli.command(), "train", "c.json", "--set", "checkpoint.every=2")
    cli.equal(r.returncode, 1, f"exit status: {r.stderr[-2000:]}")
    for step, times, sort in [(2, 1, "warning"), (4, 1, "warning"), (6, N, "error")]:
        said = re.findall(rf"{sort}: step {step} is not saved: rank 2: .*fsync: Input/output error", r.stderr)
        cli.equal((len(said), len(set(said))), (times, 1), f"{sort}s of step {step}: {r.stderr[-2000:]}")
    cli.equal(cli.latest(folder), None, "checkpoints")
    cli.equal(cli.summary(folder)["state_sha256"], cli.summary(folder, "whole")["state_sha256"], "state_sha256")


def main():
    if not crash_tool.can_trace():
        print("skipped: no strace that may hold other processes")
        sys.exit(77)
    print(f"  seed {SEED}")
    with cli.workspace() as folder:
        for test in (test_power, test_broken, test_training, test_sweeps):
            began = time.monotonic()
            test(folder)
            print(f"{test.__name__}: {time.monotonic() - began:.1f} s", flush=True)
    cli.finish()


main()
