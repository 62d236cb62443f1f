#!/usr/bin/env python3
"""test_table.py LOCKSTEP [--all | --row N]... - every row of the table of equivalence trains to the bits of one process.

    test_table.py LOCKSTEP                          the small table
    test_table.py LOCKSTEP --all                    the whole one: every pair of two columns' values
    test_table.py LOCKSTEP --row 17 --row 18        these rows of the whole one
    ... --seed N               another table of the same columns
    ... --mpiexec PROGRAM      rows over MPI, else they are skipped; rows between two hosts need root and ip
    ... --json FILE            what was run and compared, as tests/equivalence/equivalence.json
    ... --keep FOLDER          work there, and leave configs, runs and commands behind

table.py has the columns.  Each line of metrics.jsonl, all of it but times and memory, each hash and result of
summary.json and each tensor of the last checkpoint are those of one process that nobody stopped.  A row that differs
tells the first step and the first tensor that do, the commands of its run, and how to repeat it alone.
"""
import argparse
import contextlib
import json
import os
import random
import shlex
import struct
import subprocess
import sys
import time

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [os.path.join(HERE, ".."), os.path.join(HERE, "..", "faults"), HERE]
import cli  # noqa: E402
import meeting  # noqa: E402
import table  # noqa: E402
import two_hosts  # noqa: E402

# Of a line of metrics.jsonl and of summary.json: what may differ.
TIMES = {"tokens_per_s", "step_ms", "comm_ms", "comm_exposed_ms", "mem"}
OWN = {"seconds", "world_size", "strategy"}
EACH_STEP = {"checkpoint.every": 1, "checkpoint.keep": table.STEPS + 1}


def write_table(path, n):
    draw = random.Random(path)
    rows = [[draw.randrange(-300, 300) / 100 for _ in range(16)] for _ in range(n)]
    with open(path, "w", encoding="ascii") as f:
        f.writelines(",".join(map(str, row)) + f",{sum(x > 0 for x in row) % 5}\n" for row in rows)


def write_idx(images, labels, n):
    draw = random.Random(images)
    for path, dims in ((images, (n, 4, 4)), (labels, (n,))):
        size, most = n * 16 // (1 if len(dims) > 1 else 16), 256 if len(dims) > 1 else 5
        with open(path, "wb") as f:
            f.write(struct.pack(f">{1 + len(dims)}I", 0x800 + len(dims), *dims))
            f.write(bytes(draw.randrange(most) for _ in range(size)))


def write_data(folder):
    """Beside text.txt: every other file that table.DATA names."""
    tokens = table.CONTEXT * table.VALIDATION + 1
    text = cli.read(folder, "text.txt")
    for name, data in (("short.txt", text[:table.CONTEXT * 23 + 5]), ("val.txt", text[-tokens:])):
        with open(os.path.join(folder, name), "wb") as f:
            f.write(data)
    draw = random.Random("tokens")
    for name, n in (("train.bin", 4000), ("val.bin", tokens)):
        with open(os.path.join(folder, name), "wb") as f:
            f.write(struct.pack(f"<{n}H", *(draw.randrange(257) for _ in range(n))))
    for prefix, n in (("", 200), ("val-", table.VALIDATION)):
        write_idx(os.path.join(folder, prefix + "images"), os.path.join(folder, prefix + "labels"), n)
    write_table(os.path.join(folder, "train.csv"), 200)
    write_table(os.path.join(folder, "val.csv"), table.VALIDATION)


def is_between(transport):
    return transport.startswith("two hosts")


class Launcher:
    """Starts the ranks of a leg, each transport in its way."""

    def __init__(self, mpiexec):
        self.mpiexec, self.hosts, self.no_hosts = mpiexec, None, two_hosts.lacks()

    def close(self):
        if self.hosts:
            self.hosts.close()

    def lacks(self, transport):
        if transport == "mpi" and not self.mpiexec:
            return "this build is without MPI"
        if is_between(transport) and not self.hosts and not self.no_hosts:
            try:
                self.hosts = two_hosts.Hosts()
            except subprocess.CalledProcessError as e:
                self.no_hosts = f"no network namespaces here: {e.stderr}"
        return self.no_hosts if is_between(transport) else None

    def between_hosts(self, folder, world, words):
        """Ranks of two hosts, by torchrun's variables."""
        how, ranks = {"MASTER_ADDR": "10.77.0.1", "MASTER_PORT": 29500, "LOCKSTEP_SECRET": "5a" * 32}, []
        for host, n in enumerate(table.NODES[world]):
            prefix = [*self.hosts.enter(host), "env", "-C", folder]
            ranks += [meeting.Rank(len(ranks) + i, world, cli.command(), words, prefix, LOCAL_RANK=i, LOCAL_WORLD_SIZE=n,
                                   **how) for i in range(n)]
        for rank in ranks:
            rank.wait(cli.LIMIT_S)
        return next((rank.status for rank in ranks if rank.status), 0), "".join(rank.err for rank in ranks)

    def start(self, folder, world, transport, words):
        """(exit status, stderr) of lockstep with these words on so many ranks."""
        if is_between(transport):
            return self.between_hosts(folder, world, words)
        try:
            if transport == "mpi":
                r = cli.run(folder, "-n", str(world), cli.command(), *words, program=self.mpiexec)
            else:
                r = cli.run(folder, *words, *(["--nproc", str(world)] if transport != "none" else []))
        except subprocess.TimeoutExpired as e:
            return "too late", (e.stderr or b"").decode(errors="replace")
        return r.returncode, r.stderr

    def spelt(self, world, transport, words):
        """The command of start, for a reader."""
        before = {"mpi": ["mpiexec", "-n", str(world)]}.get(transport, [])
        after = ["--nproc", str(world)] if transport in ("shm", "tcp") else []
        nodes = f"   # {table.NODES[world]} ranks on two hosts" if is_between(transport) else ""
        return shlex.join([*before, cli.command(), *words, *after]) + nodes


def words_of(name, run_dir, sets, *more):
    settings = {"run.dir": run_dir, **sets}
    return ["train", name, *more, *(word for key, value in settings.items()
                                    for word in ("--set", f"{key}={value if isinstance(value, str) else json.dumps(value)}"))]


class Bench:
    """Runs rows in a folder and counts what it does."""

    def __init__(self, folder, launcher, again):
        self.folder, self.launcher, self.again = folder, launcher, again
        self.counted = dict.fromkeys(("rows", "skipped", "failed", "runs", "lines", "tensors"), 0)
        self.commands = []  # of the row

    def write_config(self, row, name):
        with open(os.path.join(self.folder, name), "w", encoding="ascii") as f:
            json.dump(table.config(row), f, indent=1)

    def train(self, world, transport, words):
        self.counted["runs"] += 1
        self.commands.append(self.launcher.spelt(world, transport, words))
        status, err = self.launcher.start(self.folder, world, transport, words)
        return cli.check(status == 0, f"exit {status}, want 0: {err[-600:]}") and err

    def truth(self, row, run_dir, **more):
        self.write_config(row, "c.json")
        return self.train(1, "none", words_of("c.json", run_dir, {**table.truth_settings(), **more}, "--resume", "never")) \
            is not False

    def leg(self, leg, run_dir, first, more):
        words = words_of("c.json", run_dir, {**leg["sets"], **more}, "--resume", "never" if first else "auto", "--stop-at",
                         str(leg["stop"]))
        err = self.train(leg["world"], leg["transport"], words)
        if err is False:
            return False
        group, s = table.group(leg), cli.summary(self.folder, run_dir)
        return (cli.check(not group or group in err, f"{group!r} is not in the log: {err[-1500:]}") and
                cli.equal((s["steps"], s["strategy"], s["world_size"]), (leg["stop"], leg["strategy"], leg["world"]),
                          "steps, strategy and world"))

    def travel(self, row, run_dir, **more):
        """The row's whole run."""
        return all(self.leg(leg, run_dir, i == 0, more) for i, leg in enumerate(table.legs(row)))

    def result(self, run_dir):
        lines = [{key: value for key, value in m.items() if key not in TIMES} for m in cli.metrics(self.folder, run_dir)]
        return lines, {key: value for key, value in cli.summary(self.folder, run_dir).items() if key not in OWN}

    def tensors(self, got, want):
        """What differs, as lines; counts what was compared."""
        r = cli.run(self.folder, "diff", got, want)
        lines = r.stdout.splitlines()
        if r.returncode == 0:
            self.counted["tensors"] += int(lines[-1].split()[1])
            return []
        return [line for line in lines if not line[:1].isdigit()] or [r.stderr]

    def judge(self, row):
        """Every line, every result, every tensor."""
        (got, got_end), (want, want_end) = self.result("row"), self.result("truth")
        ok = cli.equal([m["step"] for m in want if "val_loss" in m], [str(s) for s in table.EVALUATED_AT[row["evaluation"]]],
                       "steps that one process evaluates")
        ok &= cli.equal((len(got), len(want)), (table.lines(row),) * 2, "lines")
        clips = any(float(line.get("grad_norm", 0)) > table.CLIP for line in want)
        ok &= cli.check(clips, "clipping has no effect")
        differ = [(a, b) for a, b in zip(got, want) if a != b]
        ok &= cli.check(not differ, f"{len(differ)} lines of metrics.jsonl differ, first got {differ[:1]}")
        ok &= cli.equal(got_end, want_end, "summary")
        ok &= cli.equal(self.tensors("row", "truth")[:1], [], "tensors that differ")
        self.counted["lines"] += len(got)
        return ok

    def tell_first(self, row):
        """Runs both again with a checkpoint of each step, and names the first that differs."""
        if not (self.truth(row, "truth", **EACH_STEP) and self.travel(row, "row", **EACH_STEP)):
            return
        for step in range(1, table.STEPS + 1):
            paths = [os.path.join(name, "checkpoints", f"step-{step:08d}") for name in ("row", "truth")]
            differ = self.tensors(*paths)
            if differ:
                print(f"  first step that differs: {step}, {len(differ)} tensors, first\n    {differ[0]}", flush=True)
                return
        print("  with a checkpoint of each step no tensor differs", flush=True)

    def run(self, number, row):
        cli.row(f"row {number}")
        why = next(filter(None, (self.launcher.lacks(leg["transport"]) for leg in table.legs(row))), None)
        if why:
            self.counted["skipped"] += 1
            cli.skip(why)
            return
        self.counted["rows"] += 1
        self.commands = []
        if self.truth(row, "truth") and self.travel(row, "row") and self.judge(row):
            return
        self.counted["failed"] += 1
        print(f"  {table.name_of(row)}", *self.commands, sep="\n    ", flush=True)
        self.tell_first(row)
        print(f"  repeat it: {shlex.join(self.again)} --row {number} --keep FOLDER", flush=True)


def arguments():
    p = argparse.ArgumentParser(usage=__doc__)
    p.add_argument("lockstep")
    p.add_argument("--all", action="store_true")
    p.add_argument("--row", type=int, action="append")
    p.add_argument("--seed", type=int, default=1)
    for name in ("mpiexec", "json", "keep"):
        p.add_argument(f"--{name}")
    return p.parse_args()


def again(args):
    """The command, but for the rows."""
    words = [sys.executable, os.path.abspath(__file__), cli.command()]
    return [*words, *(["--mpiexec", args.mpiexec] if args.mpiexec else []), *(["--seed", str(args.seed)] if args.seed != 1 else [])]


def chosen(whole, args):
    """{number in the whole table: row}."""
    some = [whole[i] for i in args.row] if args.row else whole if args.all else table.small(whole)
    return {whole.index(row): row for row in some}


@contextlib.contextmanager
def place(keep):
    if keep:
        os.makedirs(keep, exist_ok=True)
        cli.write_text(keep)
        yield os.path.abspath(keep)
    else:
        with cli.workspace() as folder:
            yield folder


def main():
    args, start = arguments(), time.monotonic()
    whole = table.rows(args.seed)
    rows = chosen(whole, args)
    print(f"{len(rows)} rows of {len(whole)}", flush=True)
    launcher = Launcher(args.mpiexec)
    try:
        with place(args.keep) as folder:
            write_data(folder)
            bench = Bench(folder, launcher, again(args))
            for done, (number, row) in enumerate(rows.items(), 1):
                bench.run(number, row)
                if done % 25 == 0:
                    print(f"{done} rows, {time.monotonic() - start:.0f} s", flush=True)
    finally:
        launcher.close()
    counted = {"table": table.fingerprint(list(rows.values())), **bench.counted,
               "seconds": round(time.monotonic() - start)}
    print(json.dumps(counted))
    if args.json:
        with open(args.json, "w", encoding="ascii") as f:
            f.write(json.dumps(counted, indent=1) + "\n")
    cli.finish()


if __name__ == "__main__":
    main()
