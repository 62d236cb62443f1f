"""test_crash.py - whatever happens to a process or a disk while it saves, the last good state is there.

    test_crash.py LOCKSTEP TOOL [long]

calls      every system call that a save makes (a part of them without `long`), killed at or failing with ENOSPC or
           EIO, one at a time (strace)
power      the recorded calls, cut after each, in four worlds: all on the disk; only what was synced; names without
           data; data without names.  The same judge must find the recordings guilty from which syncs were taken
soak       ranks killed at random moments, started again by the launcher, to the bits of an undisturbed run
timeouts   a rank whose disk hangs

Exit 77 without strace.  TOOL is checkpoint_tool.c.
"""
import json
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

TOOL = os.path.abspath(sys.argv[2])
LONG = "long" in sys.argv
CALLS = ["openat", "open", "write", "fsync", "rename", "renameat", "renameat2", "mkdir", "mkdirat", "unlink", "unlinkat", "rmdir", "close",
         "statfs", "fstatfs", "newfstatat", "fstat", "getdents64"]
SPARSE = 4  # of the points, every so many-th where the run is short; which, changes from row to row
FAULTS = {"killed": "signal=KILL", "ENOSPC": "error=ENOSPC", "EIO": "error=EIO"}


def tool(folder, *args):
    return subprocess.run([TOOL, *args], cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, check=False, timeout=60)


def strace(folder, options, *args):
    return subprocess.run(["strace", "-f", *options, TOOL, *args], cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                          check=False, timeout=60)


def base(folder, name="store"):
    """A store with step 1, which a save of step 2 (keep 1) is to replace."""
    store = os.path.join(folder, name)
    shutil.rmtree(store, ignore_errors=True)
    if not os.path.isdir(os.path.join(folder, "base")):
        cli.equal(tool(folder, "save", "base", "1").stdout, "saved 1\n", "the first save")
    shutil.copytree(os.path.join(folder, "base"), store)
    return store


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

class Disk:
    """Files and directories as they are, and as they would be found: what was synced of each."""

    def __init__(self):
        self.nodes = {}
        self.root = self.new(True)

    def new(self, is_dir):
        node = len(self.nodes)
        self.nodes[node] = {"dir": is_dir, "now": {} if is_dir else b"", "synced": {} if is_dir else b""}
        return node

    def find(self, path, which="now"):
        node = self.root
        for part in [p for p in path.split("/") if p]:
            node = self.nodes[node][which].get(part)
            if node is None:
                return None
        return node

    def parent(self, path):
        folder, _, name = path.rstrip("/").rpartition("/")
        return self.nodes[self.find(folder)]["now"], name

    def sync(self, node):
        n = self.nodes[node]
        n["synced"] = dict(n["now"]) if n["dir"] else n["now"]

    def write_to(self, path, node, names, data):
        n = self.nodes[node]
        if not n["dir"]:
            with open(path, "wb") as f:
                f.write(n[data])
            return
        os.makedirs(path, exist_ok=True)
        for name, child in n[names].items():
            self.write_to(os.path.join(path, name), child, names, data)

    def read_from(self, path, node):
        """What is there before the save is on the disk."""
        for name in os.listdir(path):
            inside = os.path.join(path, name)
            child = self.nodes[node]["now"][name] = self.new(os.path.isdir(inside))
            if os.path.isdir(inside):
                self.read_from(inside, child)
            else:
                with open(inside, "rb") as f:
                    self.nodes[child]["now"] = f.read()
            self.sync(child)
        self.sync(node)


def unescape(text):
    return bytes.fromhex(text.replace("\\x", ""))


def record(folder):
    """The calls of a save as (verb, arguments); paths relative to the folder."""
    base(folder)
    path = os.path.join(folder, "recorded")
    r = strace(folder, ["-o", path, "-y", "-xx", "-s", "1000000", "-e",
                        "trace=getsid,openat,open,write,fsync,rename,renameat,renameat2,mkdir,mkdirat,unlink,unlinkat,rmdir"],
               "save", "store", "2")
    cli.equal(r.stdout, "saved 2\n", "the recorded save")
    ops, inside = [], False
    top = os.path.realpath(folder) + "/"

    def local(text):
        text = text if text.startswith("/") else os.path.join(top, text)
        return os.path.normpath(text)[len(top):]

    with open(path, encoding="utf-8", errors="replace") as f:
        for line in f:
            m = re.match(r"\d+ +(\w+)\((.*)\) += (-?\d+)", line)
            if not m:
                continue
            if m[1] == "getsid":
                inside = not inside
            if not inside or m[1] == "getsid" or int(m[3]) < 0:
                continue
            strings = [unescape(t) for t in re.findall(r'"((?:\\x[0-9a-f]{2})*)"', m[2])]
            held = [unescape(t).decode() for t in re.findall(r"<((?:\\x[0-9a-f]{2})+)>", m[2])]
            at = held[0] + "/" if held and m[1].endswith("at") and not m[2].startswith("AT_FDCWD") else ""
            if m[1] in ("openat", "open") and "O_CREAT" in m[2]:
                ops.append(("create", local(at + strings[0].decode())))
            elif m[1] == "write" and held and held[0].startswith(top):
                ops.append(("write", local(held[0]), strings[0]))
            elif m[1] == "fsync":
                ops.append(("fsync", local(held[0])))
            elif m[1].startswith("rename"):
                ops.append(("exchange" if "EXCHANGE" in m[2] else "rename", local(strings[0].decode()), local(strings[1].decode())))
            elif m[1].startswith("mkdir"):
                ops.append(("mkdir", local(at + strings[0].decode())))
            elif m[1].startswith("unlink") or m[1] == "rmdir":
                ops.append(("remove", local(at + strings[0].decode())))
    return ops


def apply(disk, op):
    if op[0] == "write":
        disk.nodes[disk.find(op[1])]["now"] += op[2]
    elif op[0] == "fsync":
        disk.sync(disk.find(op[1]))
    elif op[0] in ("create", "mkdir"):
        names, name = disk.parent(op[1])
        names[name] = disk.new(op[0] == "mkdir")
    elif op[0] == "remove":
        names, name = disk.parent(op[1])
        del names[name]
    else:
        old, name = disk.parent(op[1])
        new, other = disk.parent(op[2])
        if op[0] == "exchange":
            old[name], new[other] = new[other], old[name]
        else:
            new[other] = old.pop(name)


WORLDS = [("all", "now", "now"), ("synced", "synced", "synced"), ("names without data", "now", "synced"),
          ("data without names", "synced", "now")]


def crashes(folder, ops):
    """Worlds in which neither step 1 nor 2 is there, after any call; and whether step 2 lasts at the end."""
    base(folder)
    disk, stores, where = Disk(), [], []
    disk.nodes[disk.root]["now"]["store"] = disk.new(True)
    disk.read_from(os.path.join(folder, "store"), disk.find("store"))
    disk.sync(disk.root)
    shutil.rmtree(os.path.join(folder, "worlds"), ignore_errors=True)
    for i, op in enumerate(ops):
        apply(disk, op)
        for name, names, data in WORLDS:
            stores.append(f"worlds/{i}-{len(stores)}")
            where.append(f"after {op[:2]}, {name}")
            disk.write_to(os.path.join(folder, stores[-1]), disk.find("store", names), names, data)
    loads = tool(folder, "load", *stores).stdout.split()
    lost = [f"{what}: {step}" for what, step in zip(where, loads) if step not in ("1", "2")]
    return lost, loads[-4:] == ["2"] * 4, len(loads)


def test_power(folder):
    cli.row("power loss")
    ops = record(folder)
    cli.check(len(ops) > 15, f"{len(ops)} recorded calls")
    lost, lasts, n = crashes(folder, ops)
    cli.equal(lost, [], f"worlds of {n} in which the state is lost")
    cli.check(lasts, "when the save has said so, the new step lasts")
    commit = next(i for i, op in enumerate(ops) if op[0] == "rename" and op[2] == "store/step-00000002")
    is_dir = {op[1] for op in ops if op[0] == "mkdir"} | {"store"}
    prune = [op for op in ops if any("step-00000001" in str(word) for word in op[1:])]
    mutants = {
        "files are not synced": [op for op in ops if op[0] != "fsync" or op[1] in is_dir],
        "the folder is not synced": [op for op in ops if op[0] != "fsync" or ".tmp-step" not in op[1] or op[1] not in is_dir],
        "the store is not synced": [op for op in ops if op[:2] != ("fsync", "store")],
        "the old one goes first": prune + [op for op in ops if op not in prune],
    }
    for name, mutant in mutants.items():
        cli.row(f"mutant: {name}")
        lost, lasts, _ = crashes(folder, mutant)
        cli.check(lost or not lasts, "the judge finds it")
    cli.row("the commit is the only moment")
    cli.check(commit > 0, "there is one")


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
    if not shutil.which("strace") or subprocess.run(["strace", "-o", "/dev/null", "true"], check=False,
                                                    stderr=subprocess.DEVNULL).returncode:
        print("skipped: no strace")
        sys.exit(77)
    with cli.workspace() as folder:
        for test in (test_calls, test_power, test_hang, test_fewer, test_soak):
            began = time.monotonic()
            test(folder)
            print(f"{test.__name__}: {time.monotonic() - began:.1f} s", flush=True)
    cli.finish()


main()
