"""campaign_faults.py - the faults of the campaign: each a function of a round that starts a training, does the harm
and judges what came of it.

FAULTS is the table.  A fault that this machine cannot make (no root, no strace) has a reason in `lacks()`.
"""
import os
import shutil
import signal
import subprocess
import sys
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
import cli  # noqa: E402
import jobs  # noqa: E402
import two_hosts  # noqa: E402
from campaign_round import STEPS, TooLate  # noqa: E402

STOPPED_S = 2.5  # parallel.timeout_s where a rank or a cable stops


# ---- processes ----

def killed_rank(r):
    """The launcher starts again, with as many ranks or with one less; half of the rounds kill in the second start too."""
    job = r.launch("--max-restarts", 6, *r.draw.choice(([], ["--min-nproc", 1])))
    r.wait(job)
    rank, pid = r.a_rank(job)
    r.send(pid, signal.SIGKILL)
    r.named(job, rf"rank {rank} \(pid {pid}\) was killed by signal 9")
    if r.draw.random() < 0.5:
        time.sleep(r.draw.uniform(0, 0.4))
        for pid in list(job.ranks().values())[:1]:
            os.kill(pid, signal.SIGKILL)
    r.end(job, 0)
    r.judge(job)
    r.nothing_left(job)


def killed_launcher(r):
    """Its ranks die with it; started by hand, on other ranks, the run goes on."""
    job = r.launch()
    r.wait(job)
    r.send(job.process.pid, signal.SIGKILL)
    goes_on(r, job, -signal.SIGKILL)


def goes_on(r, job, status):
    r.end(job, status)
    r.nothing_left(job, unfinished=True)
    then = r.resume()
    r.message = f"exit status {128 - status if status < 0 else status}"
    r.judge(then)
    r.nothing_left(job, then)


def guardians(job):
    found = []
    for pid in job.processes():
        with open(f"/proc/{pid}/comm") as f:
            found += [pid] if f.read().strip() == "lockstep-guard" else []
    return found


def killed_guardian(r):
    """Nobody misses it, until the launcher is killed too: ranks die nevertheless."""
    job = r.launch()
    r.wait(job)
    for pid in guardians(job):
        r.send(pid, signal.SIGKILL)
    cli.check(r.began, "there was a guardian")
    if r.draw.random() < 0.5:
        time.sleep(r.draw.uniform(0, 0.1))
        r.send(job.process.pid, signal.SIGKILL)
        return goes_on(r, job, -signal.SIGKILL)
    r.end(job, 0)
    r.judge(job)
    return r.nothing_left(job)


def killed_all(r):
    """As when the machine is switched off, but for the disk's memory."""
    job = r.launch()
    r.wait(job)
    every = list(job.processes())
    r.draw.shuffle(every)
    r.begin()
    for pid in every:
        try:
            os.kill(pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
    if r.end(job) == 0:
        raise TooLate
    goes_on(r, job, job.process.returncode)


def terminated(r):
    """SIGTERM to the launcher: the run ends after its step and saves."""
    job = r.launch()
    r.wait(job)
    r.send(job.process.pid, signal.SIGTERM)
    goes_on(r, job, 128 + signal.SIGTERM)


def stopped_rank(r):
    """Named after parallel.timeout_s, ended, and all start again."""
    job = r.launch("--max-restarts", 3, parallel__timeout_s=STOPPED_S)
    r.wait(job)
    rank, pid = r.a_rank(job)
    r.send(pid, signal.SIGSTOP)
    r.named(job, rf"error: .*\branks? ([0-9]+, )*{rank}\b", STOPPED_S)
    r.end(job, 0)
    r.judge(job)
    r.nothing_left(job)


def slow_rank(r):
    """Stopped again and again for a moment: the others wait, nothing else changes."""
    job = r.launch()
    r.wait(job)
    rank, pid = r.a_rank(job)
    for _ in range(r.draw.randint(4, 14)):
        r.send(pid, signal.SIGSTOP)
        time.sleep(r.draw.uniform(0.02, 0.15))
        os.kill(pid, signal.SIGCONT)
        time.sleep(r.draw.uniform(0.005, 0.05))
        if job.process.poll() is not None:
            break
    r.end(job, 0)
    cli.check("error: " not in job.text(), f"no error: {job.text()[-1500:]}")
    r.judge(job)
    r.nothing_left(job)


FAULTS = {
    "rank killed": killed_rank,
    "launcher killed": killed_launcher,
    "guardian killed": killed_guardian,
    "all killed": killed_all,
    "SIGTERM": terminated,
    "rank stopped": stopped_rank,
    "slow rank": slow_rank,
}


def lacks(kind):
    return None
