#!/usr/bin/env python3
"""test_ddp_faults.py LOCKSTEP [--strategy fsdp] [TEST...] - one rank of a training goes wrong: all end soon, name it,
and leave nothing.

Each row is one fault under `lockstep train --nproc`, or under `lockstep run` where one rank is to have another
config.  Judged are: the time from the fault to the end, the exit status, that every survivor's error line names the
same culprit, and that no process, file or shared memory is left.
"""
import json
import os
import random
import re
import signal
import struct
import sys
import time

sys.path.insert(0, os.path.join(os.path.dirname(__file__), ".."))
import cli  # noqa: E402
import jobs  # noqa: E402

LONG = 10_000_000  # steps: no run ends by itself
SOON_S = 2.0       # from the fault to the end of everything
FSDP = "--strategy" in sys.argv and sys.argv[sys.argv.index("--strategy") + 1] == "fsdp"
BASE = {"run__steps": LONG, "model__dropout": 0.1, "batch__global": 8, "eval__every": 3, "eval__batches": 0,
        "log__progress": "none", "parallel__bucket_mb": 0.02, "optim__schedule__type": "constant",
        "parallel__strategy": "fsdp" if FSDP else "ddp"}
# Where parameters are gathered, and gradients scattered: kills come while each of these goes on.
SHARDS = [{"parallel__prefetch": 1}, {"parallel__shard": "optimizer"}, {"parallel__prefetch": 0},
          {"parallel__reshard_after_forward": False}, {"parallel__accumulate": "local"},
          {"parallel__shard": "gradients", "parallel__prefetch": 2}]


def sharding(i):
    return SHARDS[i % len(SHARDS)] if FSDP else {}


def write(folder, **changes):
    return cli.write_config(folder, **{**BASE, **changes})


def train(folder, n, *sets, **changes):
    write(folder, **changes)
    words = [word for pair in sets for word in ("--set", pair)]
    return jobs.Job(folder, n, "train", "c.json", "--nproc", str(n), *words)


def check_end(job, fault, statuses, limit=SOON_S, writing=False):
    status = job.end(limit + 10)
    took = time.monotonic() - fault
    cli.check(status in statuses, f"exit status {status}, want one of {statuses}: {job.text()[-1000:]}")
    cli.check(took <= limit * jobs.SLOWER, f"{took:.2f} s from the fault to the end, limit {limit}: {job.text()[-1500:]}")
    job.check_nothing_left(writing)
    return took


def check_culprit(job, survivors, culprit, *texts):
    """Each survivor has one error line, all name this rank, and texts."""
    errors = job.errors()
    for rank in survivors:
        line = errors.get(rank, "")
        cli.check(re.search(rf"\brank {culprit}\b", line) and all(text in line for text in texts),
                  f"rank {rank} says {line!r}, want rank {culprit} and {texts}: {job.text()[-1500:]}")


# ---- killed and stopped ----

def test_killed(folder):
    """
    In forward, backward, a bucket, the optimizer, an evaluation: at random moments of a run that does all that.  Under
    FSDP in a gather of forward or of backward, in a reduce_scatter too.
    """
    draw, most = random.Random(11), 0.0
    for i in range(20):
        n, backend = (2, 4)[i % 2], ("shm", "tcp")[i // 2 % 2]
        culprit = draw.randrange(n)
        cli.row(f"kill {i}: rank {culprit} of {n}, {backend}")
        job = train(folder, n, f"run.dir=r{i}", parallel__backend=backend, **sharding(i))
        pids = job.wait_for_ranks()
        job.wait_until(lambda: job.lines(f"r{i}") >= 1, "metrics")
        time.sleep(draw.random() * 0.1)
        fault = time.monotonic()
        os.kill(pids[culprit], signal.SIGKILL)
        most = max(most, check_end(job, fault, [137]))
        check_culprit(job, set(range(n)) - {culprit}, culprit, f"pid {pids[culprit]}", "signal 9")
        check_culprit(job, [None], culprit, f"pid {pids[culprit]}", "killed by signal 9")
    print(f"  killed: {most:.2f} s at most", flush=True)


def test_killed_early(folder):
    """While ranks meet, load and make the model: all end, though a rank that has not met the others names none."""
    draw, most = random.Random(12), 0.0
    for i in range(12):
        n = (2, 4)[i % 2]
        culprit = draw.randrange(n)
        cli.row(f"kill early {i}: rank {culprit} of {n}")
        job = train(folder, n, f"run.dir=e{i}")
        pids = job.wait_for_ranks()
        time.sleep(draw.random() * 0.06)
        fault = time.monotonic()
        try:
            os.kill(pids[culprit], signal.SIGKILL)
        except (KeyError, ProcessLookupError):
            cli.check(False, f"no rank {culprit}: {job.text()}")
        most = max(most, check_end(job, fault, [137], writing=True))
        check_culprit(job, [None], culprit, "killed by signal 9")
        if os.path.exists(os.path.join(folder, f"e{i}", "config.json")):
            json.loads(cli.read(folder, f"e{i}", "config.json"))
    print(f"  killed early: {most:.2f} s at most", flush=True)


def test_launcher_killed(folder):
    for n in (2, 4):
        cli.row(f"kill the launcher of {n}")
        job = train(folder, n, f"run.dir=l{n}")
        job.wait_until(lambda: job.lines(f"l{n}") >= 1, "metrics")
        fault = time.monotonic()
        job.process.kill()
        check_end(job, fault, [-9])


def test_stopped(folder):
    timeout_s = 2
    for i, (n, backend) in enumerate([(2, "shm"), (4, "tcp"), (4, "shm"), (2, "tcp")]):
        culprit = (n - 1, 0, 2, 1)[i]
        cli.row(f"stop rank {culprit} of {n}, {backend}")
        job = train(folder, n, f"run.dir=s{i}", parallel__backend=backend, parallel__timeout_s=timeout_s,
                    **sharding(i))
        pids = job.wait_for_ranks()
        job.wait_until(lambda: job.lines(f"s{i}") >= 1, "metrics")
        fault = time.monotonic()
        os.kill(pids[culprit], signal.SIGSTOP)
        took = check_end(job, fault, [1], timeout_s + SOON_S)
        cli.check(took >= timeout_s * 0.9, f"ended after {took:.2f} s, before timeout_s")
        check_culprit(job, set(range(n)) - {culprit}, culprit)
        cli.check("warning" in job.text(), "a warning while it waits")


# ---- one rank is told something else ----

def odd_rank(folder, n, odd, *sets, before=(), **changes):
    """A job in which rank `odd` gets these --set as well."""
    write(folder, **{"run__steps": 6, **changes})
    with open(os.path.join(folder, "rank.sh"), "w") as f:
        f.write('#!/bin/sh\nodd=$1 lockstep=$2\nshift 2\n[ "$RANK" = "$odd" ] || set --\n'
                'exec "$lockstep" train c.json "$@"\n')
    os.chmod(os.path.join(folder, "rank.sh"), 0o755)
    words = [word for pair in sets for word in ("--set", pair)]
    return jobs.Job(folder, n, "run", "-n", str(n), "--", "./rank.sh", str(odd), cli.command(), *words)


# name, --set of one rank, exit status, texts in the error line of every rank
DIFFERENT = [
    ("missing", ["data.train=missing.txt"], 2, ["missing.txt"]),
    ("shorter", ["data.train=short.txt"], 2, ["data.train", "9000 tokens"]),
    ("too short", ["data.train=tiny.txt"], 2, ["model.context"]),
    ("a byte differs", ["data.train=other.txt"], 2, ["data.train", "sha256"]),
    ("validation differs", ["data.train=late.txt"], 2, ["data.val", "sha256"]),
    ("lr", ["optim.lr=0.5"], 2, ["optim.lr", "0.5", "0.001"]),
    ("steps", ["run.steps=7"], 2, ["run.steps", "7", "6"]),
    ("seed", ["run.seed=1"], 2, ["run.seed"]),
    ("model", ["model.n_layer=3"], 2, ["model.n_layer"]),
    ("another batch that fits", ["batch.global=16"], 2, ["batch.global", "16", "8"]),
    ("evaluation", ["eval.every=2"], 2, ["eval.every"]),
    ("lines of the log", ["log.every=2"], 2, ["log.every"]),
    ("overlap", ["parallel.overlap=false"], 2, ["parallel.overlap"]),
    ("bucket_mb", ["parallel.bucket_mb=1"], 2, ["parallel.bucket_mb"]),
    ("strategy", ["parallel.strategy=auto"], 2, ["parallel.strategy"]),
]
if FSDP:
    DIFFERENT += [(key, [f"parallel.{key}={value}"], 2, [f"parallel.{key}"]) for key, value in [
        ("shard", "gradients"), ("reshard_after_forward", "false"), ("prefetch", 0), ("accumulate", "local"),
        ("unit_blocks", 2)]]


def test_different(folder):
    text = cli.read(folder, "text.txt")
    for name, content in [("short", text[:10000]), ("tiny", text[:10]), ("other", b"L" + text[1:]),
                          ("late", text[:-1] + b"L")]:
        with open(os.path.join(folder, name + ".txt"), "wb") as f:
            f.write(content)
    for i, (name, sets, status, texts) in enumerate(DIFFERENT):
        n, odd = ((2, 1), (4, 2), (2, 0), (4, 0))[i % 4]
        cli.row(f"{name}, rank {odd} of {n}")
        named = odd if odd or "missing" in name or "too short" in name else 1  # rank 0 is the measure
        fault = time.monotonic()
        job = odd_rank(folder, n, odd, *sets)
        check_end(job, fault, [status])
        check_culprit(job, range(n), named, *texts)
        cli.check(not os.path.exists(os.path.join(folder, "r")), "nothing was written")


def test_refused(folder):
    """What no rank could do is refused once, before there are any."""
    for name, n, sets, status, texts in [
            ("3 ranks, 4 micro-batches", 3, [], 3, ["3 ranks", "4 micro-batches", "1, 2, 4"]),
            ("single", 2, ["parallel.strategy=single"], 2, ["parallel.strategy", "2 ranks"]),
            ("ring", 4, ["parallel.algorithm=ring"], 2, ["ring", "run.determinism"]),
            ("mpi", 2, ["parallel.backend=mpi"], 2, ["mpirun -n 2"])]:
        cli.row(name)
        write(folder)
        words = [word for pair in sets for word in ("--set", pair)]
        cli.check_error(cli.run(folder, "train", "c.json", "--nproc", str(n), *words), status, *texts)
        cli.check(not os.path.exists(os.path.join(folder, "r")), "nothing was written")


def test_before_they_meet(folder):
    """What one rank refuses alone: the others, who wait for it, are ended."""
    for name, sets, status in [("a batch that does not fit", ["batch.global=9"], 3), ("no such key", ["run.stepz=1"], 2),
                               ("another backend", ["parallel.backend=tcp"], 2)]:
        cli.row(name)
        fault = time.monotonic()
        check_end(odd_rank(folder, 4, 2, *sets), fault, [status])
        cli.check(not os.path.exists(os.path.join(folder, "r")), "nothing was written")


def test_may_differ(folder):
    cli.row("threads, memory, folder, timeout, names of files")
    cli.write_text(folder, "same.txt")
    job = odd_rank(folder, 2, 1, "run.threads=2", "run.memory_mb=500", "run.dir=elsewhere", "parallel.timeout_s=50",
                   "data.train=same.txt", "log.progress=plain")
    cli.equal(job.end(), 0, "exit status")
    job.check_nothing_left()
    cli.check(os.path.exists(os.path.join(folder, "r", "summary.json")), "rank 0 has written")
    cli.check(not os.path.exists(os.path.join(folder, "elsewhere")), "rank 1 has not")


def test_memory(folder):
    """One rank's limit, from none to enough: refused by the plan, or while something is made, or in a step."""
    seen = set()
    for i, mb in enumerate([1, 2, 3, 4, 6, 8, 12, 16]):
        n, odd = ((2, 1), (4, 3), (2, 0), (4, 0))[i % 4]
        cli.row(f"run.memory_mb {mb} on rank {odd} of {n}")
        fault = time.monotonic()
        job = odd_rank(folder, n, odd, f"run.memory_mb={mb}", model__d_model=64, data__val_fraction=0.1)
        status = job.end()
        took = time.monotonic() - fault
        seen.add(status)
        cli.check(status in (0, 1, 2), f"exit status {status}: {job.text()[-800:]}")
        cli.check(took < SOON_S * jobs.SLOWER, f"{took:.2f} s: {job.text()[-800:]}")
        job.check_nothing_left()
        if status:
            check_culprit(job, range(n), odd)
    cli.row("run.memory_mb")
    cli.check(0 in seen and len(seen) > 1, f"both too little and enough: {seen}")


# ---- a gradient that is not finite ----

def poison(folder, path, name, row, column, width, value):
    """Sets one element of an f32 tensor in a safetensors file, which then no longer says what its hash is."""
    with open(os.path.join(folder, path), "r+b") as f:
        length = struct.unpack("<Q", f.read(8))[0]
        header = f.read(length)
        begin = json.loads(header)[name]["data_offsets"][0]
        f.seek(8)
        f.write(header.replace(b'"params_sha256"', b'"params_sha25_"'))
        f.seek(8 + length + begin + 4 * (row * width + column))
        f.write(struct.pack("<f", value))


def test_not_finite(folder):
    """
    The sum of two embeddings overflows where byte Z stands at place 3 of a sequence: in one micro-batch of one rank.
    Parameters are finite, so is everything on the other ranks.
    """
    text = bytearray(cli.read(folder, "text.txt"))
    for n, micro in [(2, 0), (2, 3), (4, 2), (4, 1)]:
        cli.row(f"not finite: micro-batch {micro} with {n} ranks")
        some = bytearray(text)
        some[16 * 2 * micro + 3] = ord("Z")
        with open(os.path.join(folder, "z.txt"), "wb") as f:
            f.write(some)
        same = {"model__tie_embeddings": False, "data__order": "sequential", "data__train": "z.txt", "run__steps": 5, "eval__every": 0}
        write(folder, **same)
        cli.check_ok(cli.run(folder, "init", "c.json", "-o", "init.safetensors"))
        poison(folder, "init.safetensors", "wte.weight", ord("Z"), 5, 32, 3e38)
        poison(folder, "init.safetensors", "wpe.weight", 3, 5, 32, 3e38)
        alone = cli.run(folder, "train", "c.json", "--set", "model.init=init.safetensors", "--set", "run.dir=alone")
        cli.check_error(alone, 1, "step 1", f"micro-batch {micro}", "lm_head.weight")
        fault = time.monotonic()
        job = train(folder, n, "model.init=init.safetensors", "run.dir=z", **same, **sharding(micro))
        check_end(job, fault, [1], 2 * SOON_S)
        check_culprit(job, range(n), micro * n // 4, "step 1", f"micro-batch {micro}", "lm_head.weight", "was not taken")
        cli.equal(cli.latest(folder, "z"), None, "nothing was updated or saved")


# ---- signals ----

def check_saved(job, folder, run_dir):
    """The result is that of a run that was to end there."""
    s = cli.summary(folder, run_dir)
    last = [m for m in cli.metrics(folder, run_dir) if "loss" in m][-1]
    cli.equal((str(s["steps"]), str(s["tokens"])), (last["step"], last["tokens"]), "last step")
    cli.check_ok(cli.run(folder, "train", "c.json", "--set", f"run.steps={s['steps']}", "--set", "run.dir=whole", "--set",
                         "parallel.strategy=single"))
    whole = cli.summary(folder, "whole")
    for key in ("params_sha256", "state_sha256", "final_loss"):
        cli.equal(s[key], whole[key], key)
    cli.check("stopped after step" in cli.read(folder, run_dir, "log.txt").decode(), "log.txt tells")
    cli.equal(job.errors(), {}, "error lines")


def exits(job, pids):
    """How each rank ended is only the launcher's to know; here, that none was killed."""
    cli.check("killed" not in job.text(), f"a rank was killed: {job.text()[-500:]}")


def test_signals(folder):
    """Each way of sending it: finish the step, save, exit alike."""
    def to_launcher(job, pids, number):
        os.kill(job.process.pid, number)

    def to_group(job, pids, number):  # as ^C in a terminal, and a launcher of each of its ranks would
        os.killpg(job.process.pid, number)

    def to_all(job, pids, number):
        for pid in pids.values():
            os.kill(pid, number)

    def to_rank(k):
        return lambda job, pids, number: os.kill(pids[k], number)

    ways = [("the launcher", to_launcher, signal.SIGINT), ("the launcher", to_launcher, signal.SIGTERM),
            ("the group", to_group, signal.SIGINT), ("every rank", to_all, signal.SIGINT),
            ("every rank", to_all, signal.SIGTERM), ("rank 0", to_rank(0), signal.SIGTERM),
            ("rank 1", to_rank(1), signal.SIGTERM), ("rank 1", to_rank(1), signal.SIGINT)]
    for i, (name, send, number) in enumerate(ways * 2):
        n = 2 if i < len(ways) else 4
        cli.row(f"{number.name} to {name} of {n}")
        job = train(folder, n, f"run.dir=g{i}")
        pids = job.wait_for_ranks()
        job.wait_until(lambda: job.lines(f"g{i}") >= 1, "metrics")
        fault = time.monotonic()
        send(job, pids, number)
        check_end(job, fault, [128 + number])
        exits(job, pids)
        check_saved(job, folder, f"g{i}")


def test_signal_and_long_save(folder):
    """While rank 0 saves the other ranks wait: else the launcher would end it for their exit status."""
    for i, n in enumerate((2, 4)):
        cli.row(f"SIGTERM to every rank of {n}, 13 MB to save")
        job = train(folder, n, f"run.dir=b{i}", model__d_model=256, model__n_head=8, model__n_layer=4, eval__every=0,
                    batch__micro=1)
        pids = job.wait_for_ranks()
        job.wait_until(lambda: job.lines(f"b{i}") >= 1, "metrics")
        for pid in pids.values():
            os.kill(pid, signal.SIGTERM)
        cli.equal(job.end(20), 143, "exit status")
        exits(job, pids)
        job.check_nothing_left()
        check_saved(job, folder, f"b{i}")


def test_signal_in_evaluation(folder):
    """It ends early, on all ranks alike, though only one of them was told to."""
    text = cli.read(folder, "text.txt")
    with open(os.path.join(folder, "long.txt"), "wb") as f:
        f.write(text * (16 * 10 ** 6 // len(text)))
    for i, (n, who, number) in enumerate(((2, 1, signal.SIGTERM), (4, 3, signal.SIGINT), (4, 0, signal.SIGTERM))):
        cli.row(f"{number.name} to rank {who} of {n} in an evaluation of a minute")
        job = train(folder, n, f"run.dir=e{i}", data__val="long.txt", data__val_fraction=None, eval__every=1)
        pids = job.wait_for_ranks()
        job.wait_until(lambda: job.lines(f"e{i}") >= 1, "metrics")
        time.sleep(0.4)
        fault = time.monotonic()
        os.kill(pids[who], number)
        check_end(job, fault, [128 + number])
        lines = cli.metrics(folder, f"e{i}")
        cli.equal(["val_loss" in m for m in lines], [False], "the evaluation did not end")
        cli.equal(job.errors(), {}, "error lines")
        exits(job, pids)
        cli.equal(cli.summary(folder, f"e{i}")["steps"], 1, "steps saved")


def test_second_signal(folder):
    cli.row("a second SIGINT to the launcher")
    job = train(folder, 2, "run.dir=t", batch__global=4096, batch__micro=2048, model__n_layer=4)
    job.wait_for_ranks()
    job.wait_until(lambda: os.path.exists(os.path.join(folder, "t", "log.txt")), "the start")
    time.sleep(0.2)
    job.process.send_signal(signal.SIGINT)
    time.sleep(0.1)
    cli.check(job.process.poll() is None, "the first waits for the step")
    fault = time.monotonic()
    job.process.send_signal(signal.SIGINT)
    check_end(job, fault, [130])
    cli.equal(cli.latest(folder, "t"), None, "nothing saved")


TESTS = [test_killed, test_killed_early, test_launcher_killed, test_stopped, test_different, test_refused,
         test_before_they_meet, test_may_differ, test_memory, test_not_finite, test_signals, test_signal_and_long_save,
         test_signal_in_evaluation, test_second_signal]


def main():
    named = [word for word in sys.argv[2:] if word.startswith("test_")]
    for test in TESTS:
        if named and test.__name__ not in named:
            continue
        with cli.workspace() as folder:
            began = time.monotonic()
            test(folder)
            print(f"{test.__name__}: {time.monotonic() - began:.1f} s", flush=True)
    cli.finish()


if __name__ == "__main__":
    main()
