#!/usr/bin/env python3
"""test_host_data.py LOCKSTEP - ranks of one host open each data file once, together, and hold its tokens once.

Rank 0 of the job opens them once more, for the fingerprint that checkpoints carry.
Opens are counted by inotify, memory by what each process has for itself and what any of them maps.  The bits are
those of one process.
"""
import ctypes
import os
import shutil
import struct
import subprocess
import sys

sys.path.insert(0, os.path.join(os.path.dirname(__file__), ".."))
import cli  # noqa: E402
import jobs  # noqa: E402

IN_OPEN = 0x20
BIG_KIB = 48 << 10


class Opens:
    """How often each of some files is opened from here on; twice in a row, with nothing between, may count as once."""

    def __init__(self, *paths):
        self.libc = ctypes.CDLL(None, use_errno=True)
        self.fd = self.libc.inotify_init1(os.O_NONBLOCK | os.O_CLOEXEC)
        self.paths = {self.libc.inotify_add_watch(self.fd, path.encode(), IN_OPEN): path for path in paths}

    def counted(self):
        counts = dict.fromkeys((os.path.basename(p) for p in self.paths.values()), 0)
        while True:
            try:
                data = os.read(self.fd, 4096)
            except BlockingIOError:
                break
            while data:
                watch, _, _, length = struct.unpack_from("iIII", data)
                counts[os.path.basename(self.paths[watch])] += 1
                data = data[16 + length:]
        os.close(self.fd)
        return counts


def opened(folder, *args):
    watch = Opens(os.path.join(folder, "text.txt"), os.path.join(folder, "val.txt"), os.path.join(folder, "copy.txt"),
                  os.path.join(folder, "val_copy.txt"))
    r = cli.run(folder, *args)
    cli.check_ok(r)
    return watch.counted(), cli.summary(folder)["params_sha256"] if not r.returncode else None


def other_file(folder, rank, *command):
    """A script that is the command, with copies as data on one rank."""
    path = os.path.join(folder, "rank.sh")
    with open(path, "w") as f:
        f.write(f'#!/bin/sh\n[ "$RANK" = {rank} ] && set -- --set data.train=copy.txt --set data.val=val_copy.txt\n'
                f'exec {" ".join(command)} "$@"\n')
    os.chmod(path, 0o755)
    return path


def test_opens(folder):
    cli.write_text(folder, "val.txt", 500)
    for name, copy in (("text.txt", "copy.txt"), ("val.txt", "val_copy.txt")):
        shutil.copy(os.path.join(folder, name), os.path.join(folder, copy))
    for tokenizer in ("byte", "char"):
        cli.row(f"{tokenizer}, alone")
        cli.write_config(folder, data__tokenizer=tokenizer, data__val_fraction=None, data__val="val.txt", eval__every=2)
        alone, want = opened(folder, "train", "c.json")
        cli.equal(alone, {"text.txt": 2, "val.txt": 2, "copy.txt": 0, "val_copy.txt": 0}, "opens")
        for n, backend in ((4, "shm"), (4, "tcp"), (2, "auto")):
            cli.row(f"{tokenizer}, {n} ranks, {backend}")
            counts, params = opened(folder, "train", "c.json", "--nproc", str(n), "--set", f"parallel.backend={backend}")
            cli.equal(counts, alone, "opens")
            cli.equal(params, want, "params_sha256")
        for rank, n in ((0, 2), (2, 4)):
            cli.row(f"{tokenizer}, other files with the same texts on rank {rank} of {n}")
            script = other_file(folder, rank, cli.command(), "train", "c.json")
            counts, params = opened(folder, "run", "-n", str(n), "--", script)
            whose = {"text.txt": rank > 0, "val.txt": rank > 0, "copy.txt": rank == 0, "val_copy.txt": rank == 0}
            cli.equal(counts, {file: 1 + is_first for file, is_first in whose.items()}, "opens")
            cli.equal(params, want, "params_sha256")


def test_out_of_reach(folder):
    """A rank in a container of its own, from where the memory of another cannot be reached: it reads for itself."""
    cli.row("a rank in a space of process numbers of its own")
    apart = ("unshare", "--pid", "--fork", "--mount-proc")
    if os.geteuid() or not shutil.which(apart[0]) or subprocess.run([*apart, "true"], capture_output=True).returncode:
        cli.skip("needs root and unshare")
        return
    cli.write_config(folder, data__val_fraction=None, data__val="val.txt")
    _, want = opened(folder, "train", "c.json")
    script = os.path.join(folder, "rank.sh")
    with open(script, "w") as f:
        f.write(f'#!/bin/sh\n[ "$RANK" = 1 ] && exec {" ".join(apart)} {cli.command()} train c.json\n'
                f'exec {cli.command()} train c.json\n')
    _, params = opened(folder, "run", "-n", "4", "--", script)
    cli.equal(params, want, "params_sha256")


def test_failures(folder):
    """What only the rank that reads can see, all say alike."""
    with open(os.path.join(folder, "bad.txt"), "wb") as f:
        f.write(b"good " * 100 + b"\xff\xfe" + b" good" * 100)
    for name, changes, texts in (
            ("no UTF-8", {"data__train": "bad.txt", "data__tokenizer": "char"}, ["bad.txt", "500"]),
            ("a character that train lacks", {"data__val": "bad.txt", "data__val_fraction": None,
                                              "data__tokenizer": "char"}, ["data.val", "bad.txt"]),
            ("too short", {"model__context": 10 ** 6}, ["data.train", "model.context"])):
        cli.row(name)
        cli.write_config(folder, **changes)
        job = jobs.Job(folder, 4, "train", "c.json", "--nproc", "4")
        cli.equal(job.end(), 2, "exit status")
        errors = {rank: text for rank, text in job.errors().items() if rank is not None}
        cli.equal(len(set(errors.values())), 1, f"one text: {errors}")
        for text in texts:
            cli.check(all(text in e for e in errors.values()), f"{text!r} in {errors}")
        cli.check(not any(e.startswith("rank") for e in errors.values()), f"a failure of all: {errors}")
        job.check_nothing_left()


def held(job):
    """KiB: {rank: its own pages}, and of shared memory, whoever maps it, under its inode."""
    found = {}
    for rank, pid in job.ranks().items():
        with open(f"/proc/{pid}/status") as f:
            found[rank] = next(int(line.split()[1]) for line in f if line.startswith("RssAnon:"))
        with open(f"/proc/{pid}/maps") as f:
            for line in f:
                span, _, offset, _, inode, *name = line.split(None, 5)
                if name and name[0].startswith("/memfd:lockstep data"):
                    start, end = (int(x, 16) for x in span.split("-"))
                    found[inode] = max(found.get(inode, 0), (int(offset, 16) + end - start) // 1024)
    return found


def measure(folder, text, n, backend):
    """Sum over ranks while they train."""
    shutil.rmtree(os.path.join(folder, "r"), ignore_errors=True)
    cli.write_config(folder, run__steps=10 ** 6, data__train=text, data__val_fraction=0.1, log__progress="none",
                     eval__batches=1, parallel__backend=backend)
    job = jobs.Job(folder, n, "train", "c.json", "--nproc", str(n))
    job.wait_for_ranks()
    job.wait_for_steps(3)
    found = held(job)
    job.process.terminate()
    cli.equal(job.end(), 143, "exit status")
    job.check_nothing_left()
    cli.equal(sorted(key for key in found if isinstance(key, int)), list(range(n)), "ranks seen")
    return found


def test_memory(folder):
    with open(os.path.join(folder, "text.txt"), "rb") as f:
        some = f.read()
    with open(os.path.join(folder, "big.txt"), "wb") as f:
        f.write((some * (BIG_KIB * 1024 // len(some) + 1))[:BIG_KIB * 1024])
    for n, backend in ((4, "shm"), (2, "tcp")):
        cli.row(f"memory of {n} ranks, {backend}")
        small, big = (measure(folder, text, n, backend) for text in ("text.txt", "big.txt"))
        more = sum(big.values()) - sum(small.values())
        cli.check(0.9 * BIG_KIB < more < 1.2 * BIG_KIB, f"{BIG_KIB} KiB of text take {more} KiB of {n} ranks: {small}, {big}")


def main():
    with cli.workspace() as folder:
        test_opens(folder)
        test_out_of_reach(folder)
        test_failures(folder)
        if not jobs.SANITIZED:  # whose own memory is not ours
            test_memory(folder)
    cli.finish()


if __name__ == "__main__":
    main()
