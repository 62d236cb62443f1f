#!/usr/bin/env python3
"""test_signals.py LOCKSTEP - signals end a run in order; a kill leaves whole files or none.

A run's progress is read from metrics.jsonl, so no test waits longer than it must.
"""
import json
import os
import shutil
import signal
import subprocess
import sys
import time

sys.path.insert(0, os.path.join(os.path.dirname(__file__), ".."))
import cli  # noqa: E402

LONG = 10_000_000  # steps: no run ends by itself


def wait_until(ready, process, what):
    """ready() within the limit; the process must live meanwhile."""
    end = time.monotonic() + cli.LIMIT_S
    while time.monotonic() < end and process.poll() is None:
        if ready():
            return True
        time.sleep(0.005)
    return cli.check(False, f"{what}: {'too late' if process.poll() is None else 'it ended'}")


def size(folder, *parts):
    try:
        return os.path.getsize(os.path.join(folder, *parts))
    except OSError:
        return 0


def lines(folder, run_dir="r"):
    try:
        return cli.read(folder, run_dir, "metrics.jsonl").count(b"\n")
    except OSError:
        return 0


def end(process, limit=cli.LIMIT_S):
    """The status of its end; a process that stays is killed and counts as -9."""
    try:
        return process.wait(limit)
    except Exception:
        process.kill()
        process.wait()
        cli.check(False, "it does not end")
        return -9


def check_saved(folder, run_dir="r"):
    """Parameters and summary are there, whole, and those of the last line of metrics."""
    s = cli.summary(folder, run_dir)
    last = [m for m in cli.metrics(folder, run_dir) if "loss" in m][-1]
    cli.equal((str(s["steps"]), str(s["tokens"])), (last["step"], last["tokens"]), "last step")
    cli.equal(repr(s["final_loss"]), repr(float(last["loss"])), "final loss")
    r = cli.run(folder, "inspect", run_dir, "--json")
    cli.check_ok(r)
    cli.equal(json.loads(r.stdout)["params_sha256"], s["params_sha256"], "params_sha256")
    cli.equal(cli.temporaries(folder), [], "temporary files")
    return s


def test_ends_in_order(folder):
    """The result is the one of a run that was to end there."""
    for number, status, every in [(signal.SIGINT, 130, 1), (signal.SIGTERM, 143, 1), (signal.SIGTERM, 143, 1000)]:
        cli.row(f"{number.name}, a line every {every} steps")
        shutil.rmtree(os.path.join(folder, "r"), ignore_errors=True)
        cli.write_config(folder, run__steps=LONG, log__every=every, optim__schedule__type="constant")
        p = cli.start(folder, "train", "c.json")
        wait_until(lambda: lines(folder) >= 1, p, "metrics")
        time.sleep(0.1)
        p.send_signal(number)
        cli.equal(end(p), status, "exit status")
        s = check_saved(folder)
        cli.check("stopped after step" in cli.read(folder, "r", "log.txt").decode(), "log.txt tells")
        cli.check_ok(cli.run(folder, "train", "c.json", "--set", f"run.steps={s['steps']}", "--set", "run.dir=whole",
                             "--set", "log.every=1000"))
        whole = cli.summary(folder, "whole")
        for key in ("params_sha256", "state_sha256", "final_loss"):
            cli.equal(s[key], whole[key], key)


def test_background(folder):
    """A shell gives a background job SIGINT ignored; it must end the run all the same."""
    cli.row("SIGINT of a background job")
    cli.write_config(folder, run__steps=LONG)
    p = cli.start(folder, "train", "c.json", preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_IGN))
    wait_until(lambda: lines(folder) >= 5, p, "metrics")
    p.send_signal(signal.SIGINT)
    cli.equal(end(p), 130, "exit status")
    check_saved(folder)


def evaluates_long(folder, **changes):
    """A run that, after step 1, evaluates for minutes."""
    cli.write_text(folder, "long.txt", words=600_000)
    cli.write_config(folder, data__val="long.txt", data__val_fraction=None, eval__every=1, eval__batches=0,
                     run__steps=LONG, model__n_layer=8, model__d_model=128, **changes)
    p = cli.start(folder, "train", "c.json")
    wait_until(lambda: lines(folder) == 1, p, "the first step")
    time.sleep(0.1)
    return p


def test_during_evaluation(folder):
    cli.row("SIGTERM during evaluation")
    p = evaluates_long(folder)
    started = time.monotonic()
    p.send_signal(signal.SIGTERM)
    cli.equal(end(p), 143, "exit status")
    cli.check(time.monotonic() - started < 10, "at once, not after the evaluation")
    s = check_saved(folder)
    cli.equal((s["steps"], s["val_loss"]), (1, None), "one step, no validation loss")


def test_second_signal(folder):
    """One long micro-batch: the first signal waits for the step's end, a second one of either kind does not."""
    if "thread" in os.environ.get("LS_SANITIZE", ""):
        cli.row("second signal")
        cli.skip("the thread sanitizer holds signals back until the next system call")
        return
    for first, second in [(signal.SIGINT, signal.SIGINT), (signal.SIGINT, signal.SIGTERM),
                          (signal.SIGTERM, signal.SIGINT)]:
        cli.row(f"{first.name}, then {second.name}")
        cli.write_config(folder, run__steps=LONG, batch__global=4096, batch__micro=4096, model__n_layer=4,
                         log__progress="none")  # without it a measurement stands between log.txt and the step
        shutil.rmtree(os.path.join(folder, "r"), ignore_errors=True)
        p = cli.start(folder, "train", "c.json")
        wait_until(lambda: size(folder, "r", "log.txt") > 0, p, "the start")
        time.sleep(0.2)
        p.send_signal(first)
        time.sleep(0.05)
        cli.check(p.poll() is None, "the first signal waits for the step")
        p.send_signal(second)
        started = time.monotonic()
        cli.equal(end(p), -second, "killed by the second")
        cli.check(time.monotonic() - started < 1, "at once")
        cli.equal(cli.latest(folder), None, "nothing saved")


def test_before_the_first_step(folder):
    """While data is loaded nothing has been written, and nothing is: the earlier run stays where it is."""
    cli.row("SIGTERM while loading")
    cli.write_config(folder)
    cli.check_ok(cli.run(folder, "train", "c.json"))
    before = cli.tree(folder)
    os.mkfifo(os.path.join(folder, "slow.txt"))
    p = cli.start(folder, "train", "c.json", "--set", "data.train=slow.txt")
    with open(os.path.join(folder, "slow.txt"), "wb") as pipe:  # opens when the command has opened it
        p.send_signal(signal.SIGTERM)
        pipe.write(b"the lock step of a rank " * 500)
    cli.equal(end(p), 143, "exit status")
    os.remove(os.path.join(folder, "slow.txt"))
    cli.equal(cli.tree(folder), before, "files")


def test_kill(folder):
    """Killed at any moment, also while it saves: the checkpoint is whole, or not there."""
    cli.row("SIGKILL")
    cli.write_config(folder, run__steps=3, model__d_model=256, batch__micro=4)
    began = time.monotonic()
    cli.check_ok(cli.run(folder, "train", "c.json"))
    whole = time.monotonic() - began
    want, there = cli.summary(folder)["params_sha256"], 0
    for i in range(12):
        p = cli.start(folder, "train", "c.json", "--set", "run.dir=k")
        time.sleep(whole * (0.4 + i / 10))
        p.kill()
        end(p)
        if cli.latest(folder, "k"):
            there += 1
            r = cli.run(folder, "inspect", "k", "--json")
            cli.check_ok(r)
            cli.equal(json.loads(r.stdout)["params_sha256"], want, "params_sha256")
    print(f"  {there} of 12 had saved", flush=True)
    cli.row("init killed over an older file")
    cli.check_ok(cli.run(folder, "init", "c.json", "-o", "i.safetensors"))
    for i in range(8):
        p = cli.start(folder, "init", "c.json", "-o", "i.safetensors", "--set", f"run.seed={i}")
        time.sleep(0.01 + 0.01 * i)
        p.kill()
        end(p)
        cli.check_ok(cli.run(folder, "inspect", "i.safetensors"))


def test_previous(folder):
    """Every new run moves the files of the one before, and only a run's files."""
    cli.write_config(folder)
    hashes = []
    for i in range(4):
        cli.row(f"run {i + 1}")
        r = cli.run(folder, "train", "c.json", "--set", f"run.seed={i}")
        cli.check_ok(r)
        cli.equal("earlier run" in r.stderr, i > 0, "it says so")
        hashes.append(cli.summary(folder)["params_sha256"])
        if i == 0:
            with open(os.path.join(folder, "r", "notes.txt"), "w") as f:
                f.write("mine")
    for i in range(3):
        cli.equal(cli.summary(folder, f"r/previous-{i + 1}")["params_sha256"], hashes[i], f"previous-{i + 1}")
    cli.check(os.path.exists(os.path.join(folder, "r", "notes.txt")), "other files stay")


def test_reader_leaves(folder):
    """`lockstep train c.json 2>&1 | head -1` ends the reading, not the training."""
    cli.row("closed pipe")
    cli.write_config(folder, run__steps=50)
    r, w = os.pipe()
    os.close(r)
    p = subprocess.Popen([cli.command(), "train", "c.json"], cwd=folder, stderr=w, stdin=subprocess.DEVNULL)
    os.close(w)
    cli.equal(end(p), 0, "exit status")
    check_saved(folder)


def main():
    for test in (test_ends_in_order, test_background, test_during_evaluation, test_second_signal,
                 test_before_the_first_step, test_kill, test_previous, test_reader_leaves):
        with cli.workspace() as folder:
            test(folder)
    cli.finish()


if __name__ == "__main__":
    main()
