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
from campaign_round import END_S, PATIENCE_S, SOON_S, STEPS, TooLate  # noqa: E402

STOPPED_S = 2.5 * jobs.SLOWER  # parallel.timeout_s where a rank or a cable stops
MEETING_S = 10  # what ranks that have met may take to connect, however short parallel.timeout_s is (rendezvous.c)


# ---- processes ----

def kill_all(pids):
    for pid in pids:
        try:
            os.kill(pid, signal.SIGKILL)
        except ProcessLookupError:
            pass


def killed_rank(r):
    """The launcher starts again, with as many ranks or with one less; half of the rounds kill in the second start too."""
    job = r.launch("--max-restarts", 6, *r.draw.choice(([], ["--min-nproc", 1])))
    r.wait(job)
    rank, pid = r.a_rank(job)
    r.send(pid, signal.SIGKILL)
    r.named(job, rf"rank {rank} \(pid {pid}\) was killed by signal 9")
    if r.draw.random() < 0.5:
        time.sleep(r.draw.uniform(0, 0.4))
        kill_all(list(job.ranks().values())[:1])
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


def name_of(pid):
    try:
        with open(f"/proc/{pid}/comm") as f:
            return f.read().strip()
    except OSError:
        return ""


def killed_guardian(r):
    """Nobody misses it, until the launcher is killed too: ranks die nevertheless."""
    job = r.launch()
    r.wait(job)
    r.wait_until(job, lambda: "lockstep-guard" in map(name_of, job.processes()))
    for pid in [pid for pid in job.processes() if name_of(pid) == "lockstep-guard"]:
        r.send(pid, signal.SIGKILL)
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
    kill_all(every)
    if r.end(job) == 0:
        raise TooLate
    goes_on(r, job, job.process.returncode)


def terminated(r):
    """SIGTERM to the launcher: the run ends after its step and saves."""
    job = r.launch()
    r.wait(job)
    r.send(job.process.pid, signal.SIGTERM)
    goes_on(r, job, 128 + signal.SIGTERM)


def soon(r):
    """Until a silence is told."""
    return STOPPED_S + SOON_S + (MEETING_S if r.moment == "start" else 0)


def stopped_rank(r):
    """Named after parallel.timeout_s, ended, and all start again."""
    job = r.launch("--max-restarts", 3, parallel__timeout_s=STOPPED_S)
    r.wait(job)
    rank, pid = r.a_rank(job)
    r.send(pid, signal.SIGSTOP)
    r.named(job, rf"error: .*\branks? ([0-9]+, )*{rank}\b", soon(r))
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


# ---- disks ----

def fill(disk):
    """Takes what is left of it."""
    path = os.path.join(disk, "filler")
    with open(path, "wb", buffering=0) as f:
        try:
            while f.write(bytes(1 << 14)):
                pass
        except OSError:
            pass
    return path


def full_disk(r):
    """The run's disk is full from a moment on, in some rounds only for a while; then somebody makes room."""
    disk = os.path.join(r.folder, "campaign-disk")
    os.mkdir(disk)
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=12m", "campaign", disk], check=True)
    try:
        job = r.launch(run__dir="campaign-disk/r")
        r.wait(job, "campaign-disk/r")
        r.begin()
        filler = fill(disk)
        r.named(job, r"campaign-disk/r.*No space left on device|No space left on device.*campaign-disk/r", END_S,
                or_unhurt=True)
        if r.draw.random() < 0.3:
            os.remove(filler)
        if r.end(job, 0, 1, 2):
            r.nothing_left(job, unfinished=True, mounted=True)
            if os.path.exists(filler):
                os.remove(filler)
            job = r.resume(run__dir="campaign-disk/r")
        r.judge(job, "campaign-disk/r", all_lines=False)
        r.nothing_left(job, mounted=True)
    finally:
        subprocess.run(["umount", "-l", disk], check=True)
    r.nothing_left()


def failing_disk(r):
    """
    From a moment on the next fsync of a rank fails: that save is lost on all ranks, and said to be; training goes on.
    While a run starts, or ends, it is an error.
    """
    job = r.launch()
    r.wait(job)
    rank, pid = r.a_rank(job)
    tracer = subprocess.Popen(["strace", "-f", "-qq", "-o", "/dev/null", "-p", str(pid), "-e", "trace=fsync",
                               "-e", "inject=fsync:error=EIO:when=1"], stderr=subprocess.DEVNULL)
    try:
        r.begin()
        r.named(job, rf"(step [0-9]+ is not saved|error): (rank {rank}: )?.*\br/.*Input/output error", END_S,
                or_unhurt=True)
    finally:
        tracer.terminate()
        tracer.wait()
    if r.end(job, 0, 1):
        job = r.resume()
    r.judge(job)
    r.nothing_left(job)


# ---- networks ----

def on_two_hosts(r, hosts, timeout_s=STOPPED_S):
    """A launcher on each host; they share the disk."""
    env = {"LOCKSTEP_SECRET": f"of round {r.number}"}
    return [r.launch("--nnodes", 2, "--node-rank", i, "--rdzv", "10.77.0.1:29500", n=r.n // 2, env=env,
                     under=hosts.enter(i), parallel__timeout_s=timeout_s, parallel__backend="auto") for i in (0, 1)]


def listeners(hosts):
    return "".join(subprocess.run([*hosts.enter(i), "ss", "-Hltn"], capture_output=True, text=True, check=True).stdout
                   for i in (0, 1))


def with_hosts(timeout_s):
    def of(body):
        def fault(r):
            hosts = two_hosts.Hosts()
            try:
                r.n, r.how["backend"] = r.draw.choice((2, 4)), "tcp between two hosts"
                job = on_two_hosts(r, hosts, timeout_s)
                r.wait(job[0])
                body(r, hosts, *job)
                cli.equal(listeners(hosts), "", "ports left")
            finally:
                hosts.close()
            r.nothing_left()
        fault.__doc__ = body.__doc__
        return fault
    return of


def set_cable(hosts, end, state):
    two_hosts.ip("-n", hosts.names[end], "link", "set", "x0", state)


@with_hosts(STOPPED_S)
def cut_cable(r, hosts, first, second):
    """Both sides notice, name a rank of the other side, and end; with the cable back the run goes on."""
    end = r.draw.randrange(2)
    r.begin()
    set_cable(hosts, end, "down")
    far = {first: range(r.n // 2, r.n), second: range(r.n // 2)}
    for job in first, second:
        names = "|".join(str(k) for k in far[job])
        r.named(job, rf"error: .*\branks? ([0-9]+, )*({names})\b", soon(r))
    for job in first, second:
        r.end(job, 1)
    r.nothing_left(first, second, unfinished=True, mounted=True)
    set_cable(hosts, end, "up")
    if r.draw.random() < 0.5:
        then = on_two_hosts(r, hosts)
        for job in then:
            r.end(job, 0)
    else:
        then = [r.resume()]
    r.judge(then[0])
    r.nothing_left(first, second, *then, mounted=True)


@with_hosts(PATIENCE_S)  # TCP's own pauses double after each loss
def slow_cable(r, hosts, first, second):
    """A queue of up to 400 ms that loses what is too much, or short cuts: only time is lost."""
    r.begin()
    if r.draw.random() < 0.5:
        hosts.slow_down(f"{r.draw.randint(5, 30)}mbit")
        time.sleep(r.draw.uniform(0.3, 2))
        hosts.full_speed()
    else:
        for _ in range(r.draw.randint(1, 3)):
            end = r.draw.randrange(2)
            set_cable(hosts, end, "down")
            time.sleep(r.draw.uniform(0.02, 0.3))
            set_cable(hosts, end, "up")
            time.sleep(r.draw.uniform(0.05, 0.3))
    for job in first, second:
        r.end(job, 0)
        cli.check("error: " not in job.text(), f"no error: {job.text()[-1500:]}")
    r.judge(first)
    r.nothing_left(first, second, mounted=True)


# ---- files ----

def store(r):
    return os.path.join(r.folder, "r", "checkpoints")


def steps_saved(r):
    return sorted(name for name in os.listdir(store(r)) if name.startswith("step-")) if os.path.isdir(store(r)) else []


def flip(r, path):
    at = r.draw.randrange(os.path.getsize(path))
    with open(path, "r+b") as f:
        f.seek(at)
        byte = f.read(1)[0]
        f.seek(at)
        f.write(bytes([byte ^ 1 << r.draw.randrange(8)]))


def cut(r, path):
    os.truncate(path, r.draw.randrange(os.path.getsize(path)))


def blank(r, path):
    """A block that never reached the disk."""
    with open(path, "r+b") as f:
        data = bytearray(f.read())
        at = r.draw.randrange(0, len(data), 512)
        if not any(data[at:at + 512]):
            at = 0
        f.seek(at)
        f.write(bytes(len(data[at:at + 512])))


def older(r, path):
    """The file of that name of the checkpoint before."""
    before = os.path.join(store(r), steps_saved(r)[-2], os.path.basename(path))
    shutil.copyfile(before, path)


DAMAGES = [flip, cut, blank, older, lambda r, path: os.remove(path)]


def damaged_checkpoint(r):
    """Between the end of one start and the next one a file of the newest checkpoint is damaged: the one before serves."""
    job = r.launch()
    r.wait_until(job, lambda: len(steps_saved(r)) >= 2 and job.lines() >= r.step)
    job.process.send_signal(r.draw.choice((signal.SIGTERM, signal.SIGKILL)))
    if r.end(job) == 0:
        raise TooLate
    r.nothing_left(job, unfinished=True)
    newest = os.path.join(store(r), steps_saved(r)[-1])
    path = os.path.join(newest, r.draw.choice(sorted(os.listdir(newest))))
    r.moment = "between"
    r.begin()
    r.draw.choice(DAMAGES)(r, path)
    then = r.resume()
    # Beside a manifest of another step it is the data that do not fit.
    r.named(then, rf"{os.path.basename(newest)} is passed over: .*({os.path.basename(path)}|another file than the manifest's)")
    r.judge(then)
    r.nothing_left(job, then)


def bad_line(r, path):
    """(what to read in the error)"""
    with open(path) as f:
        lines = f.read().splitlines()
    i = r.draw.randrange(1, len(lines))
    fields, column = lines[i].split(","), r.draw.randrange(6)
    wrong = r.draw.choice(("x", "nan", "1e99", ""))
    how = r.draw.randrange(3)
    if how == 0:
        fields[column] = wrong
    elif how == 1:
        fields[-1] = r.draw.choice(("3", "-1", "0.5", "cat"))
    else:
        fields.pop()
    lines[i] = ",".join(fields)
    with open(path, "w") as f:
        f.write("\n".join(lines) + "\n")
    return rf"rows.csv: line {i + 1}\b"


def bad_byte(r, path):
    with open(path, "r+b") as f:
        at = r.draw.randrange(1000, os.path.getsize(path))
        f.seek(at)
        f.write(b"\xff")
    return rf"text.txt: invalid UTF-8 at byte {at}\b"


def bad_data(r):
    """
    A line of a table that has no number, or a text that is none: refused before the first step, naming the place.  Or the
    data change between two starts: the run does not go on with others.
    """
    r.moment = "between" if r.draw.random() < 0.4 else "start"
    rows = r.model == "mlp"
    path = os.path.join(r.folder, "rows.csv" if rows else "text.txt")
    if not rows and r.moment == "start":
        r.change(data__tokenizer="char")
    first = []
    if r.moment == "between":
        first = [r.launch(stop_at=r.step)]
        r.end(first[0], 0)
    shutil.copyfile(path, path + ".good")
    text = bad_line(r, path) if rows else bad_byte(r, path)
    if r.moment == "between":
        text = rf"data.train: {os.path.basename(path)} .* is not the file of the checkpoint"
    r.begin()
    job = r.launch()
    r.named(job, rf"error: .*{text}", END_S)
    r.end(job, 2)
    if not first:
        cli.check(not os.path.exists(os.path.join(r.folder, "r")), "nothing was written")
    r.nothing_left(*first, job)
    os.rename(path + ".good", path)
    then = r.resume()
    r.judge(then)
    r.nothing_left(*first, job, then)


FAULTS = {
    "rank killed": killed_rank,
    "launcher killed": killed_launcher,
    "guardian killed": killed_guardian,
    "all killed": killed_all,
    "SIGTERM": terminated,
    "rank stopped": stopped_rank,
    "slow rank": slow_rank,
    "disk full": full_disk,
    "fsync fails": failing_disk,
    "network cut": cut_cable,
    "network slow": slow_cable,
    "checkpoint damaged": damaged_checkpoint,
    "bad data": bad_data,
}


def hosts_lack():
    missing = two_hosts.lacks("tc", "ss")
    if not missing:
        try:
            two_hosts.Hosts().close()
        except subprocess.CalledProcessError as e:
            missing = f"no network name spaces here: {e.stderr.strip()}"
    return missing


def tracer_lacks():
    if os.environ.get("LS_SANITIZE") or os.geteuid() != 0 or not shutil.which("strace") or \
            subprocess.run(["strace", "-o", "/dev/null", "true"], check=False, stderr=subprocess.DEVNULL).returncode:
        return "needs root, strace, and a build without sanitizers"
    return None


def lacks(kind):
    """Why this machine cannot make the fault; None where it can."""
    if kind == "disk full":  # campaign.py is in a mount name space of its own where there can be one
        return None if os.environ.get("LS_TEST_UNSHARED") else "needs root and mounts"
    if kind == "fsync fails":
        return tracer_lacks()
    return hosts_lack() if kind.startswith("network") else None
