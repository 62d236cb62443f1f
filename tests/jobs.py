"""jobs.py - jobs of several ranks from outside: starts them, finds their processes, judges what they leave.

    job = jobs.Job(folder, 4, "train", "c.json", "--nproc", "4")
    job.wait_for_ranks()                    {rank: pid}
    job.end(limit)                          exit status of the launcher; -9 and a failed check when it stays
    job.check_nothing_left()

Every process of a job is known by a variable of its environment, so also one that has left its parent counts.
A port, a socket or shared memory without a name ends with the processes that hold it.

Python's standard library only, Linux.
"""
import os
import re
import signal
import subprocess
import sys
import time
import uuid

import cli

MARK = "LOCKSTEP_TEST_JOB"
SANITIZED = bool(os.environ.get("LS_SANITIZE"))
SLOWER = 5 if SANITIZED else 1  # allowance for limits of time


def environment(pid):
    try:
        with open(f"/proc/{pid}/environ", "rb") as f:
            pairs = [text.split(b"=", 1) for text in f.read().split(b"\0") if b"=" in text]
    except OSError:
        return {}
    return {key.decode(errors="replace"): value.decode(errors="replace") for key, value in pairs}


def is_alive(pid):
    """Neither gone nor a zombie that its parent has not fetched."""
    try:
        with open(f"/proc/{pid}/stat") as f:
            return f.read().rsplit(")", 1)[1].split()[0] not in "ZX"
    except OSError:
        return False


def status_of(pid):
    """VmRSS in KiB and threads from /proc, and the number of descriptors."""
    with open(f"/proc/{pid}/status") as f:
        text = f.read()
    return {"rss": int(re.search(r"VmRSS:\s*(\d+)", text)[1]), "threads": int(re.search(r"Threads:\s*(\d+)", text)[1]),
            "fds": len(os.listdir(f"/proc/{pid}/fd"))}


def shared_names():
    try:
        return {name for name in os.listdir("/dev/shm") if "lockstep" in name.lower() or name.startswith("ls_")}
    except OSError:
        return set()


class Job:
    def __init__(self, folder, n, *args, program=None, env=None):
        self.folder, self.n, self.mark = folder, n, uuid.uuid4().hex
        self.shm = shared_names()
        self.temporary = os.path.join(folder, "tmp")
        os.makedirs(self.temporary, exist_ok=True)
        self.out = os.path.join(folder, f"job-{self.mark}.txt")
        with open(self.out, "wb") as out:
            self.process = subprocess.Popen(
                [program or cli.command(), *cli.fresh(args)], cwd=folder, stdin=subprocess.DEVNULL, stdout=out,
                stderr=subprocess.STDOUT, start_new_session=True,
                env={**os.environ, "TMPDIR": self.temporary, **(env or {}), MARK: self.mark})

    def processes(self):
        """{pid: environment} of all that live."""
        found = {int(name): environment(name) for name in os.listdir("/proc") if name.isdigit()}
        return {pid: env for pid, env in found.items() if env.get(MARK) == self.mark and is_alive(pid)}

    def ranks(self):
        """{rank: pid}; of a rank's own children none."""
        found = {}
        for pid, env in sorted(self.processes().items(), reverse=True):
            if pid != self.process.pid and "RANK" in env:
                found[int(env["RANK"])] = pid
        return found

    def wait_until(self, ready, what, limit=cli.LIMIT_S):
        end = time.monotonic() + limit
        while time.monotonic() < end and self.process.poll() is None:
            if ready():
                return True
            time.sleep(0.005)
        return cli.check(False, f"{what}: {'too late' if self.process.poll() is None else 'it ended'}: {self.text()[-500:]}")

    def wait_for_ranks(self):
        self.wait_until(lambda: len(self.ranks()) == self.n, f"{self.n} ranks")
        return self.ranks()

    def lines(self, run_dir="r"):
        try:
            return cli.read(self.folder, run_dir, "metrics.jsonl").count(b"\n")
        except OSError:
            return 0

    def wait_for_steps(self, n=1):
        return self.wait_until(lambda: self.lines() >= n, "metrics")

    def end(self, limit=cli.LIMIT_S):
        try:
            return self.process.wait(limit * SLOWER)
        except subprocess.TimeoutExpired:
            cli.check(False, f"it does not end within {limit * SLOWER} s: {self.text()[-1500:]}")
            for pid in self.processes():
                os.kill(pid, signal.SIGKILL)
            self.process.wait()
            return -9

    def text(self):
        with open(self.out, errors="replace") as f:
            return f.read()

    def errors(self):
        """{rank: its error line}, one each, the launcher's under None; rank 0 of `train --nproc` has no prefix."""
        found = {}
        for line in self.text().splitlines():
            m = re.match(r"(?:\[(\d+)\] )?lockstep: error: (.*)", line)
            if m:
                own = m[1] is None and re.match(r"rank \d+ \(pid \d+\) (was killed by|exited with)", m[2])
                rank = None if own and (None not in found) else int(m[1] or 0)
                cli.check(rank not in found, f"a second error line of rank {rank}: {self.text()[-1500:]}")
                found[rank] = m[2]
        return found

    def check_nothing_left(self, writing=False):
        """
        No process, however it was started, nothing in the folder for temporary files, no name in /dev/shm.  writing:
        what rank 0 was just writing may be left unfinished, beside its name.
        """
        end = time.monotonic() + 0.5 * SLOWER
        while self.processes() and time.monotonic() < end:
            time.sleep(0.01)
        left = self.processes()
        for pid in left:
            os.kill(pid, signal.SIGKILL)
        cli.equal(sorted(left.values(), key=str)[:1], [], "processes left")
        cli.equal(os.listdir(self.temporary), [], "temporary files left")
        cli.equal(sorted(shared_names() - self.shm), [], "names left in /dev/shm")
        if not writing:
            cli.equal(cli.temporaries(self.folder), [], "unfinished files left")


def python_with_torch():
    """The Python that tests/run.sh has prepared, or this one; None where neither has torch."""
    tried = [os.environ.get("LOCKSTEP_PYTHON"), os.path.join(os.environ.get("LOCKSTEP_VENV", ""), "bin", "python"),
             sys.executable]
    for python in tried:
        if python and os.path.exists(python) and \
                subprocess.run([python, "-c", "import torch.distributed.run"], check=False, stdout=subprocess.DEVNULL,
                               stderr=subprocess.DEVNULL).returncode == 0:
            return python
    return None
