"""power_loss.py - the calls of a save, cut after each, in worlds that a loss of power may leave.

    ops = power_loss.parse(lines, folder)           [("create", path), ("write", path, bytes), ("fsync", path), ...]
    power_loss.crashes(folder, ops)                 worlds in which the state is lost

A world is what is found afterwards: all; only what was synced; names without data; data without names.
"""
import os
import re
import shutil

import cli
import crash_tool

CALLS = ["openat", "open", "write", "fsync", "rename", "renameat", "renameat2", "mkdir", "mkdirat", "unlink", "unlinkat", "rmdir"]


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


def parse(lines, folder):
    """strace's lines (-y -xx) of calls that went well as (verb, arguments...); paths relative to the folder."""
    ops, top = [], os.path.realpath(folder) + "/"

    def local(text):
        text = text if text.startswith("/") else os.path.join(top, text)
        return os.path.normpath(text)[len(top):]

    for line in lines:
        m = re.match(r"(?:[\d.]+ +)*(\w+)\((.*)\) += (-?\d+)", line)
        if not m or int(m[3]) < 0:
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
    crash_tool.base(folder)
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
    loads = crash_tool.tool(folder, "load", *stores).stdout.split()
    lost = [f"{what}: {step}" for what, step in zip(where, loads) if step not in ("1", "2")]
    return lost, loads[-4:] == ["2"] * 4, len(loads)


def mutants(ops):
    """{name: ops} of protocols in which something is missing or too early."""
    is_dir = {op[1] for op in ops if op[0] == "mkdir"} | {"store"}
    prune = [op for op in ops if any("step-00000001" in str(word) for word in op[1:])]
    return {
        "files are not synced": [op for op in ops if op[0] != "fsync" or op[1] in is_dir],
        "the folder is not synced": [op for op in ops if op[0] != "fsync" or ".tmp-step" not in op[1] or op[1] not in is_dir],
        "the store is not synced": [op for op in ops if op[:2] != ("fsync", "store")],
        "the old one goes first": prune + [op for op in ops if op not in prune],
    }


def judge(folder, ops, worse):
    """The save is well, and mutants are found guilty."""
    lost, lasts, n = crashes(folder, ops)
    cli.equal(lost, [], f"worlds of {n} in which the state is lost")
    cli.check(lasts, "when the save has said so, the new step lasts")
    for name, mutant in worse.items():
        cli.row(f"mutant: {name}")
        lost, lasts, _ = crashes(folder, mutant)
        cli.check(lost or not lasts, "the judge finds it")
    cli.row("the commit is the only moment")
    cli.equal(sum(op[0] == "rename" and op[2] == "store/step-00000002" for op in ops), 1, "renames to its name")
