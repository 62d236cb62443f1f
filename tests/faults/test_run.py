#!/usr/bin/env python3
"""test_run.py LOCKSTEP - `lockstep run`: environment, lines, exit statuses, signals, and that nothing outlives it.

Ranks are shell lines and small Python programs.  Every rank of a row carries a mark of its own in its environment
(LS_TEST_MARK), by which what is left of it is found in /proc, whoever its parent is by then.
"""
import ctypes
import fcntl
import os
import pty
import random
import resource
import signal
import socket
import subprocess
import sys
import termios
import time

sys.path.insert(0, os.path.join(os.path.dirname(__file__), ".."))
import cli  # noqa: E402

SLOW = 4 if os.environ.get("LS_SANITIZE") else 1  # factor of the time limits
LONG_S = 10 * SLOW  # far below the sleeps of the ranks, far above what a loaded machine makes of a moment
PY = sys.executable


class Job:
    """`lockstep run` with these options; program: a shell line, or a list."""

    def __init__(self, folder, options, program, env=None, stdin=subprocess.DEVNULL, **more):
        self.mark = f"{os.getpid()}-{random.getrandbits(48):x}"
        variables = dict(os.environ, LS_TEST_MARK=self.mark, **(env or {}))
        argv = ["sh", "-c", program] if isinstance(program, str) else program
        more.setdefault("stdout", subprocess.PIPE)
        more.setdefault("stderr", subprocess.PIPE)
        self.began = time.monotonic()
        self.process = subprocess.Popen([cli.command(), "run", *map(str, options), "--", *argv], cwd=folder,
                                        env=variables, stdin=stdin, **more)
        self.pid = self.process.pid

    def processes(self):
        """Ranks and what they started; not the launcher, not its guardian."""
        return [pid for pid, name in self.marked() if name != "lockstep-guard" and pid != self.pid]

    def guardians(self):
        return [pid for pid, name in self.marked() if name == "lockstep-guard"]

    def named_guardians(self):
        """As guardians(), but waits until there is one: ranks may be quicker than it is at giving itself its name."""
        until(self.guardians, "a guardian")
        return self.guardians()

    def marked(self):
        """(pid, name) of all that carry the mark and are no zombies."""
        found, mark = [], f"LS_TEST_MARK={self.mark}".encode()
        for pid in filter(str.isdigit, os.listdir("/proc")):
            try:
                with open(f"/proc/{pid}/environ", "rb") as e, open(f"/proc/{pid}/comm") as c:
                    if mark in e.read().split(b"\0") and state(pid) not in "ZX":
                        found.append((int(pid), c.read().strip()))
            except OSError:
                pass
        return found

    def ranks(self):
        return children(self.pid)

    def wait_ranks(self, n, word="ready"):
        """Until n ranks have made their file `word`-RANK."""
        return until(lambda: all(os.path.exists(os.path.join(self.folder(), f"{word}-{i}")) for i in range(n)),
                     f"{n} ranks {word}")

    def folder(self):
        return os.readlink(f"/proc/{self.pid}/cwd")

    def end(self, limit=30):
        """Exit status as a shell's; .out and .err are texts.  Nothing of it may be left."""
        try:
            out, err = self.process.communicate(timeout=limit * SLOW)
        except subprocess.TimeoutExpired:
            self.process.kill()
            out, err = self.process.communicate()
            cli.check(False, f"it does not end: {err[-300:]!r}")
        self.seconds = time.monotonic() - self.began
        self.out, self.err = (out or b"").decode(errors="replace"), (err or b"").decode(errors="replace")
        self.returncode, self.stderr, self.stdout = self.process.returncode, self.err, self.out
        self.nothing_left(2 if self.returncode == -signal.SIGKILL else 0.05)
        return self.returncode

    def nothing_left(self, within=2.0):
        """The launcher itself leaves when all have gone; when it was killed it may take a moment."""
        ok = until(lambda: not self.processes(), None, within * SLOW)
        cli.check(ok, f"processes are left: {[describe(p) for p in self.processes()]}")
        for pid in self.processes():
            os.kill(pid, signal.SIGKILL)


def state(pid):
    with open(f"/proc/{pid}/stat") as f:
        return f.read().rpartition(")")[2].split()[0]


def describe(pid):
    try:
        with open(f"/proc/{pid}/cmdline", "rb") as f:
            return f"{pid} {state(pid)} {f.read()!r}"
    except OSError:
        return f"{pid} gone"


def children(pid):
    try:
        with open(f"/proc/{pid}/task/{pid}/children") as f:
            return [int(word) for word in f.read().split()]
    except OSError:
        return []


def until(ready, what, limit=20.0):
    end = time.monotonic() + limit
    while time.monotonic() < end:
        if ready():
            return True
        time.sleep(0.005)
    return cli.check(False, f"{what}: too late") if what else False


def alive(pid):
    try:
        return state(pid) not in "ZX"
    except OSError:
        return False


def clean(folder):
    for name in os.listdir(folder):
        if "-" in name:
            os.remove(os.path.join(folder, name))


def run(folder, options, program, **more):
    job = Job(folder, options, program, **more)
    job.end()
    return job


# ---- environment ----

def variables(job):
    """rank -> {name: value}, of ranks that ran `env`."""
    found = {}
    for line in job.out.splitlines():
        rank, _, rest = line.partition("] ")
        name, _, value = rest.partition("=")
        found.setdefault(int(rank[1:]), {})[name] = value
    return found


FOREIGN = {"OMPI_COMM_WORLD_RANK": "7", "OMPI_COMM_WORLD_SIZE": "9", "PMI_RANK": "7", "PMI_SIZE": "9", "PMIX_RANK": "7",
           "SLURM_PROCID": "7", "SLURM_NTASKS": "9", "SLURM_LOCALID": "7", "TORCHELASTIC_RUN_ID": "x",
           "TORCHELASTIC_RESTART_COUNT": "4", "RANK": "7", "WORLD_SIZE": "9", "LOCKSTEP_LISTEN_FD": "77",
           "LOCKSTEP_RUN_ID": "old", "LOCKSTEP_RESTART": "8", "MASTER_ADDR": "nowhere", "MASTER_PORT": "1",
           "MPI_LOCALRANKID": "3", "ROLE_RANK": "3"}


def test_environment(folder):
    cli.row("environment")
    job = run(folder, ["-n", 3], ["env"], env=dict(FOREIGN, OPENBLAS_NUM_THREADS="5", SLURM_JOB_ID="12", MINE="a=b"))
    cli.equal((job.returncode, job.err), (0, ""), "end")
    seen = variables(job)
    cli.equal(sorted(seen), [0, 1, 2], "ranks")
    for rank, env in seen.items():
        for name, want in {"RANK": rank, "WORLD_SIZE": 3, "LOCAL_RANK": rank, "LOCAL_WORLD_SIZE": 3, "GROUP_RANK": 0,
                           "GROUP_WORLD_SIZE": 1, "MASTER_ADDR": "127.0.0.1", "LOCKSTEP_RESTART": 0,
                           "OPENBLAS_NUM_THREADS": 5, "SLURM_JOB_ID": 12, "MINE": "a=b"}.items():
            cli.equal(env.get(name), str(want), f"{name} of rank {rank}")
        for name in FOREIGN:
            if name not in ("RANK", "WORLD_SIZE", "LOCKSTEP_RUN_ID", "LOCKSTEP_RESTART", "MASTER_ADDR", "MASTER_PORT",
                            "LOCKSTEP_LISTEN_FD"):
                cli.check(name not in env, f"{name} is taken away")
        cli.equal("LOCKSTEP_LISTEN_FD" in env, rank == 0, "LOCKSTEP_LISTEN_FD")
        for name in ("LOCKSTEP_RUN_ID", "LOCKSTEP_SECRET", "MASTER_PORT", "LOCKSTEP_PORT", "LOCKSTEP_BOARD_FD"):
            cli.equal(env.get(name), seen[0].get(name), f"{name} of all ranks")
        cli.check(env["MASTER_PORT"] != env["LOCKSTEP_PORT"], "MASTER_PORT is the program's")
    cli.equal(len(seen[0]["LOCKSTEP_SECRET"]), 64, "length of the secret")
    again = variables(run(folder, ["-n", 1], ["env"]))[0]
    for name in ("LOCKSTEP_RUN_ID", "LOCKSTEP_SECRET"):
        cli.check(again[name] != seen[0][name], f"{name} is another job's")
    mine = variables(run(folder, ["-n", 1], ["env"], env={"LOCKSTEP_SECRET": "my own"}))[0]
    cli.equal(mine["LOCKSTEP_SECRET"], "my own", "exported secret")


LISTENS = """
import os, socket
r = int(os.environ["RANK"])
held = {int(f) for f in os.listdir("/proc/self/fd") if os.path.exists(f"/proc/self/fd/{f}")}
board = int(os.environ["LOCKSTEP_BOARD_FD"])
assert "lockstep-board" in os.readlink(f"/proc/self/fd/{board}")
if r == 0:
    fd = int(os.environ["LOCKSTEP_LISTEN_FD"])
    s = socket.socket(fileno=fd)
    assert s.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN)
    assert s.getsockname() == (os.environ["MASTER_ADDR"], int(os.environ["LOCKSTEP_PORT"])), s.getsockname()
    held.discard(fd)
    store = socket.create_server((os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"])))  # the program's own
    store.close()
    assert s.accept()[0].recv(10) == b"hello"
    s.close()
    try:
        socket.create_connection((os.environ["MASTER_ADDR"], int(os.environ["LOCKSTEP_PORT"])))
        raise SystemExit("somebody else listens too")
    except ConnectionRefusedError:
        pass
else:
    socket.create_connection((os.environ["MASTER_ADDR"], int(os.environ["LOCKSTEP_PORT"]))).send(b"hello")
assert held - {0, 1, 2, board} == set(), held
assert os.getpgrp() == os.getpid()
"""


def test_descriptors(folder):
    """The port listens before any rank runs and closes with rank 0's socket; nothing else is handed down."""
    cli.row("descriptors")
    job = run(folder, ["-n", 2], [PY, "-c", LISTENS])
    cli.equal((job.returncode, job.err, job.out), (0, "", ""), "end")


DISPOSITIONS = """
import signal
ignored = [s.name for s in signal.valid_signals() if s in signal.Signals.__members__.values()
           and signal.getsignal(s) == signal.SIG_IGN]
lines = dict(l.split(":") for l in open("/proc/self/status").read().splitlines() if l.startswith("Sig"))
print(int(lines["SigBlk"], 16), int(lines["SigIgn"], 16) & ~(1 << 12) & ~(1 << 24))
"""  # Python itself ignores SIGPIPE and SIGXFSZ


def test_signals_of_ranks(folder):
    """A rank starts with no signal blocked or ignored, a background job's SIGINT included."""
    cli.row("signals of ranks")
    job = run(folder, ["-n", 1], [PY, "-c", DISPOSITIONS],
              preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_IGN))
    cli.equal(job.out, "[0] 0 0\n", "blocked, ignored")
    cli.row("SIGPIPE of ranks")
    job = run(folder, ["-n", 1], "(yes; echo $? >pipe-status) | head -1; cat pipe-status")
    cli.equal(job.out, "[0] y\n[0] 141\n", "a shell's pipe")


# ---- output ----

LINES = r"""
import os, sys
r, n = int(os.environ["RANK"]), 10000
for i in range(n):
    sys.stdout.write(f"{r}:{i}:" + chr(97 + (r + i) % 26) * (i % 120) + "\n")
    if i % 100 == 0:
        sys.stdout.flush()
        sys.stderr.write(f"error {r}:{i}\n")
"""


def check_lines(text, ranks):
    at = [0] * ranks
    for line in text.splitlines():
        r = int(line[1])
        want = f"[{r}] {r}:{at[r]}:" + chr(97 + (r + at[r]) % 26) * (at[r] % 120)
        if not cli.check(line == want, f"{line[:80]!r}, want {want[:80]!r}"):
            return
        at[r] += 1
    cli.equal(at, [10000] * ranks, "lines")


def test_lines(folder):
    cli.row("4 ranks with 10,000 lines each")
    job = run(folder, ["-n", 4], [PY, "-c", LINES])
    cli.equal(job.returncode, 0, "exit status")
    check_lines(job.out, 4)
    errors = job.err.splitlines()
    for r in range(4):
        mine = [line for line in errors if line.startswith(f"[{r}] ")]
        cli.equal(mine, [f"[{r}] error {r}:{i}" for i in range(0, 10000, 100)], f"stderr of rank {r}")
    cli.row("stdout and stderr into one pipe")
    job = run(folder, ["-n", 4], [PY, "-c", LINES], stderr=subprocess.STDOUT)
    check_lines("".join(line + "\n" for line in job.out.splitlines() if "error" not in line), 4)
    cli.equal(job.out.count("error"), 400, "lines of stderr")


BOTH = r"""
import os
for i in range(300):
    for fd in (1, 2):
        os.write(fd, os.environ["RANK"].encode() * 3000 + b"\n")
"""


def test_slow_reader_of_both(folder):
    """Lines of stdout and stderr do not cut each other where both are one full pipe."""
    cli.row("stdout and stderr into one pipe with a slow reader")
    r, w = os.pipe()
    job = Job(folder, ["-n", 2], [PY, "-c", BOTH], stdout=w, stderr=w)
    os.close(w)
    time.sleep(0.3)
    text = b""
    while True:
        some = os.read(r, 10007)
        if not some:
            break
        text += some
        time.sleep(0.0005)
    os.close(r)
    cli.equal(job.end(), 0, "exit status")
    want = {b"[%d] %s" % (i, b"%d" % i * 3000) for i in range(2)}
    lines = text.splitlines()
    cli.equal((len(lines), set(lines) == want), (1200, True), "lines")


LONG = r"""
import os, sys
r = int(os.environ["RANK"])
for i in range(3):
    os.write(1, b"begin%d" % r); os.write(1, b"%d" % r * (1 << 20)); os.write(1, b"end\n")
    print("short", flush=True)
"""


def test_long_line(folder):
    cli.row("lines of 1 MB")
    job = run(folder, ["-n", 3], [PY, "-c", LONG])
    cli.equal(job.returncode, 0, "exit status")
    for r in range(3):
        mine = [line for line in job.out.splitlines() if line.startswith(f"[{r}] ")]
        want = [f"[{r}] begin{r}" + str(r) * (1 << 20) + "end", f"[{r}] short"] * 3
        cli.check(mine == want, f"lines of rank {r}: {[line[:20] for line in mine]}")
    cli.row("a line of 9 MiB comes in pieces")
    job = run(folder, ["-n", 2], "head -c 9437184 /dev/zero | tr '\\0' $RANK; echo; echo last")
    for r in range(2):
        mine = [line for line in job.out.splitlines() if line.startswith(f"[{r}] ")]
        cli.equal("".join(line[4:] for line in mine[:-1]), str(r) * 9437184, f"rank {r}")
        cli.check(len(mine) == 4 and all(len(line) < 5 << 20 for line in mine), f"{len(mine)} pieces, want 3 and 'last'")


def test_odd_output(folder):
    cli.row("no newline at the end")
    job = run(folder, ["-n", 2], "printf one$RANK; printf two$RANK >&2")
    cli.equal(sorted(job.out.splitlines(True)), ["[0] one0\n", "[1] one1\n"], "stdout")
    cli.equal(sorted(job.err.splitlines(True)), ["[0] two0\n", "[1] two1\n"], "stderr")
    cli.row("output closed by the rank")
    job = run(folder, ["-n", 2], "exec >&- 2>&-; sleep 0.2; exit 0")
    cli.equal((job.returncode, job.out, job.err), (0, "", ""), "end")
    cli.row("binary")
    text = bytes(range(256)) * 40
    with open(os.path.join(folder, "binary.dat"), "wb") as f:
        f.write(text)
    job = Job(folder, ["-n", 1], "cat binary.dat")
    out, _ = job.process.communicate(timeout=30)
    cli.equal(out, prefixed(text), "bytes")
    job.nothing_left()
    cli.row("a last line of 60 KB after a kill")
    job = run(folder, ["-n", 1], [PY, "-c", "import os; os.write(1, b'x' * 60000); os.kill(os.getpid(), 9)"])
    cli.equal((job.returncode, job.out), (137, "[0] " + "x" * 60000 + "\n"), "end")


def prefixed(text):
    return b"".join(b"[0] " + line + b"\n" for line in text.split(b"\n"))


def test_reader(folder):
    cli.row("the reader of stdout leaves")
    r, w = os.pipe()
    job = Job(folder, ["-n", 2], "i=0; while [ $i -lt 3000 ]; do echo $i; i=$((i+1)); done; touch done-$RANK", stdout=w)
    os.close(w)
    os.read(r, 10)
    os.close(r)
    cli.equal(job.end(), 1, "exit status")
    cli.check("writing to stdout: Broken pipe" in job.err, job.err)
    cli.check(all(os.path.exists(os.path.join(folder, f"done-{i}")) for i in range(2)), "the ranks went on to their end")
    clean(folder)
    cli.row("the reader of stderr leaves")
    r, w = os.pipe()
    os.close(r)
    job = Job(folder, ["-n", 2], "echo lost >&2; sleep 0.1; echo kept", stderr=w)
    os.close(w)
    cli.equal((job.end(), sorted(job.out.split())), (0, ["[0]", "[1]", "kept", "kept"]), "end")
    cli.row("full disk")
    with open("/dev/full", "wb") as full:
        job = run(folder, ["-n", 2], "echo lost; exit 0", stdout=full)
    cli.equal(job.returncode, 1, "exit status")
    cli.check("No space left" in job.err, job.err)
    cli.row("a slow reader stops the ranks, and a signal still ends all")
    r, w = os.pipe()
    job = Job(folder, ["-n", 2], ["yes", "x" * 1000], stdout=w)
    os.close(w)
    time.sleep(0.7)
    with open(f"/proc/{job.pid}/statm") as f:
        resident = int(f.read().split()[1]) * os.sysconf("SC_PAGE_SIZE") >> 20
    cli.check(resident < 64 or SLOW > 1, f"{resident} MiB resident")
    job.process.send_signal(signal.SIGTERM)
    time.sleep(0.2)
    job.process.send_signal(signal.SIGTERM)
    cli.equal(job.end(), 143, "exit status")
    os.close(r)


def test_stdin(folder):
    cli.row("stdin")
    r, w = os.pipe()
    os.write(w, b"for rank 0\n")
    os.close(w)
    job = run(folder, ["-n", 2], "cat; readlink /proc/self/fd/0", stdin=r)
    os.close(r)
    lines = sorted(job.out.splitlines())
    cli.equal([lines[0], lines[2]], ["[0] for rank 0", "[1] /dev/null"], "what ranks read")
    cli.row("stdin from a terminal")
    parent, child = pty.openpty()
    job = Job(folder, ["-n", 2], "read x; echo got $x; cat", stdin=child,
              preexec_fn=lambda: (os.setsid(), fcntl.ioctl(0, termios.TIOCSCTTY, 0)))
    os.write(parent, b"typed\n")
    time.sleep(0.2)
    os.write(parent, b"more\n\x04")
    cli.equal((job.end(), sorted(job.out.splitlines())), (0, ["[0] got typed", "[0] more", "[1] got"]), "end")
    os.close(parent)
    os.close(child)


# ---- ends ----

# name, n, shell line, exit status, text of the error line (None: no line at all)
ENDS = [
    ("all well", 3, "exit 0", 0, None),
    ("one status", 3, "test $RANK = 1 && exit 7; sleep 60", 7, "rank 1 (pid {1}) exited with status 7"),
    ("wrong world", 3, "exit 3", 3, "exited with status 3"),
    ("killed", 4, "test $RANK = 2 && kill -9 $$; sleep 60", 137, "rank 2 (pid {2}) was killed by signal 9 (Killed)"),
    ("crashed", 2, "test $RANK = 0 && kill -SEGV $$; sleep 60", 139, "rank 0 (pid {0}) was killed by signal 11"),
    ("rank 0 leaves early", 3, "test $RANK = 0 && exit 0; sleep 0.5; echo end", 0, None),
    ("early leave, later failure", 2, "test $RANK = 0 && exit 0; sleep 0.3; exit 5", 5, "rank 1 (pid {1})"),
    ("first failure counts", 3, "test $RANK = 2 && { sleep 0.3; exit 4; }; trap 'exit 9' TERM; sleep 60 & wait", 4, "rank 2 (pid {2})"),
    ("one that was killed is the cause", 2, "test $RANK = 0 && { until test -f up-1; do sleep 0.01; done; exit 1; };"
     "touch up-1; sleep 0.08; kill -9 $$", 137, "rank 1 (pid {1}) was killed by signal 9"),
    ("time to say what it saw", 2, "test $RANK = 0 && { until test -f up-1; do sleep 0.01; done; exit 6; };"
     "touch up-1; trap 'exit 7' TERM; sleep 0.1; touch said-1; sleep 60", 6, "rank 0 (pid {0}) exited with status 6"),
    ("a status above 128", 2, "test $RANK = 0 && exit 200; sleep 60", 200, "exited with status 200"),
]


def test_ends(folder):
    for name, n, line, status, text in ENDS:
        cli.row(name)
        clean(folder)
        job = run(folder, ["-n", n], "echo $$ >pid-$RANK; " + line)
        cli.equal(job.returncode, status, "exit status")
        cli.check(job.seconds < LONG_S, f"it took {job.seconds:.1f} s")
        if text:
            pids = [cli.read(folder, f"pid-{i}").decode().strip() if os.path.exists(os.path.join(folder, f"pid-{i}"))
                    else "?" for i in range(n)]
            cli.check_error(job, status, text.format(*pids))
            cli.equal(os.path.exists(os.path.join(folder, "said-1")), "saw" in name, "what rank 1 said")
        else:
            cli.equal(job.err, "", "stderr")
    clean(folder)


def test_stubborn(folder):
    cli.row("a rank ignores SIGTERM: killed after 2 s")
    job = run(folder, ["-n", 2], "test $RANK = 1 && { sleep 0.3; exit 6; }; trap '' TERM; touch up-0; sleep 60; sleep 60")
    cli.equal(job.returncode, 6, "exit status")
    cli.check(2 <= job.seconds < LONG_S, f"it took {job.seconds:.2f} s")
    cli.row("a rank that is stopped")
    job = run(folder, ["-n", 2], "test $RANK = 1 && { sleep 0.3; exit 6; }; trap 'touch ended-0; exit 0' TERM; kill -STOP $$")
    cli.equal(job.returncode, 6, "exit status")
    cli.check(os.path.exists(os.path.join(folder, "ended-0")), "it ended by itself")
    cli.row("children of ranks")
    job = run(folder, ["-n", 2], "sleep 61 & (trap '' TERM; sleep 62) & test $RANK = 1 && { sleep 0.3; exit 6; }; wait")
    cli.equal(job.returncode, 6, "exit status")
    cli.row("children left behind by ranks that ended well")
    job = run(folder, ["-n", 2], "sleep 61 & exit 0")
    cli.equal((job.returncode, job.err), (0, ""), "end")
    cli.check(job.seconds < LONG_S, f"it took {job.seconds:.2f} s")
    cli.row("they have the time to end in order")
    job = run(folder, ["-n", 2], "(trap 'touch left-$RANK; exit' TERM; touch up-$RANK; while :; do sleep 0.02; done) &"
                                 "until test -f up-$RANK; do sleep 0.02; done; exit 0")
    cli.equal(job.returncode, 0, "exit status")
    cli.check(all(os.path.exists(os.path.join(folder, f"left-{i}")) for i in range(2)), "they were sent SIGTERM")
    clean(folder)
    cli.row("nobody reaps what is left")
    subreaper(True)
    took = []
    while len(took) < 3 and (not took or took[-1] >= 2):  # a loaded machine may need another try
        job = run(folder, ["-n", 2], "sleep 61 & exit 0")
        cli.equal((job.returncode, job.err), (0, ""), "end")
        cli.equal(reap_all(), 3, "zombies: two of the ranks and the guardian")
        took.append(job.seconds)
    cli.check(took[-1] < 2, f"it took {took} s: it waited for zombies")
    subreaper(False)


def reap_all():
    n = 0
    try:
        while os.waitpid(-1, 0)[0]:
            n += 1
    except ChildProcessError:
        pass
    return n


def subreaper(on):
    """Orphans become this process's children, which it does not reap."""
    pr_set_child_subreaper = 36
    cli.equal(ctypes.CDLL(None).prctl(pr_set_child_subreaper, int(on), 0, 0, 0), 0, "prctl")


def test_children(folder):
    """Exactly N direct children, no zombie among them, the launcher asleep."""
    cli.row("children of the launcher")
    job = Job(folder, ["-n", 4], "touch ready-$RANK; test $RANK = 3 && exit 0; sleep 60")
    job.wait_ranks(4)
    until(lambda: len(job.ranks()) == 3, "rank 3 is reaped")
    cli.check(all(state(p) not in "ZX" for p in job.ranks()), "no zombies")
    cli.equal([os.getpgid(p) for p in job.ranks()], job.ranks(), "groups of their own")
    before = cpu(job.pid)
    time.sleep(0.5)
    cli.check(cpu(job.pid) - before <= 3, f"{cpu(job.pid) - before} ticks of processor time in 0.5 s")
    job.process.terminate()
    cli.equal(job.end(), 143, "exit status")
    clean(folder)


def cpu(pid):
    with open(f"/proc/{pid}/stat") as f:
        words = f.read().rpartition(")")[2].split()
    return int(words[11]) + int(words[12])


TRAPS = """
import os, signal, sys, time
r = os.environ["RANK"]
def on(n, f):
    open(f"got-{r}-{n}-{time.monotonic_ns()}", "w").close()
    if n in (2, 15) and os.environ.get("ENDS"):
        time.sleep(0.3 * int(r))
        sys.exit(int(os.environ["ENDS"]) + n if int(os.environ["ENDS"]) else 0)
for n in (1, 2, 15, 10, 12, 18):
    signal.signal(n, on)
open(f"ready-{r}", "w").close()
while True:
    time.sleep(1)
"""


def got(folder, rank, number):
    return len([f for f in os.listdir(folder) if f.startswith(f"got-{rank}-{number}-")])


def test_signals(folder):
    for number, status in [(signal.SIGINT, 130), (signal.SIGTERM, 143), (signal.SIGHUP, 129)]:
        cli.row(f"{number.name}, no handler")
        clean(folder)
        job = Job(folder, ["-n", 3], "touch ready-$RANK; exec sleep 60")
        job.wait_ranks(3)
        time.sleep(0.05)
        job.process.send_signal(number)
        cli.equal((job.end(), job.err), (status, ""), "end")
        cli.check(job.seconds < LONG_S, f"it took {job.seconds:.2f} s")
    for number, ends, status in [(signal.SIGINT, "128", 130), (signal.SIGTERM, "128", 143), (signal.SIGTERM, "0", 0)]:
        cli.row(f"{number.name}, ranks end with {ends} + signal, one after the other")
        clean(folder)
        job = Job(folder, ["-n", 3], [PY, "-c", TRAPS], env={"ENDS": ends})
        job.wait_ranks(3)
        job.process.send_signal(number)
        cli.equal((job.end(), job.err), (status, ""), "end")
        cli.equal([got(folder, r, int(number)) for r in range(3)], [1, 1, 1], "signals to each rank")
    cli.row("one failure after the signal")
    clean(folder)
    job = Job(folder, ["-n", 2], "trap 'test $RANK = 0 && exit 9; sleep 0.5; exit 143' TERM; touch ready-$RANK;"
                                 "while :; do sleep 0.02; done")
    job.wait_ranks(2)
    job.process.send_signal(signal.SIGTERM)
    cli.equal(job.end(), 143, "exit status")
    cli.check("rank 0" in job.err and "status 9" in job.err, job.err)


def test_second_signal(folder):
    for first, second in [(signal.SIGINT, signal.SIGINT), (signal.SIGTERM, signal.SIGTERM), (signal.SIGINT, signal.SIGTERM)]:
        cli.row(f"{first.name}, then {second.name}")
        clean(folder)
        job = Job(folder, ["-n", 3], [PY, "-c", TRAPS])
        job.wait_ranks(3)
        job.process.send_signal(first)
        until(lambda: all(got(folder, r, int(first)) for r in range(3)), "all got it")
        time.sleep(0.05)
        cli.check(job.process.poll() is None, "the ranks have time")
        at = time.monotonic()
        job.process.send_signal(second)
        cli.equal(job.end(), 128 + second, "exit status")
        cli.check(time.monotonic() - at < LONG_S, "at once")
        cli.equal([got(folder, r, int(first)) for r in range(3)], [1, 1, 1], "the first was passed on once")
    cli.row("`timeout` sends its signal twice")
    clean(folder)
    job = Job(folder, ["-n", 2], [PY, "-c", TRAPS], env={"ENDS": "128"})
    job.wait_ranks(2)
    job.process.send_signal(signal.SIGTERM)
    time.sleep(0.004)
    job.process.send_signal(signal.SIGTERM)
    cli.equal(job.end(), 143, "exit status")
    cli.equal([got(folder, r, 15) for r in range(2)], [1, 1], "ranks got it and ended by themselves")
    clean(folder)


def test_other_signals(folder):
    cli.row("SIGUSR1, SIGUSR2, stop and go on")
    job = Job(folder, ["-n", 2], [PY, "-c", TRAPS])
    job.wait_ranks(2)
    ranks = job.ranks()
    job.process.send_signal(signal.SIGUSR1)
    job.process.send_signal(signal.SIGUSR2)
    until(lambda: all(got(folder, r, n) for r in range(2) for n in (10, 12)), "all got them")
    job.process.send_signal(signal.SIGTSTP)
    until(lambda: all(state(p) == "T" for p in [job.pid, *ranks]), "all are stopped")
    job.process.send_signal(signal.SIGCONT)
    until(lambda: all(state(p) in "SR" for p in [job.pid, *ranks]), "all go on")
    job.process.kill()
    job.end()
    cli.row("nohup")
    clean(folder)
    job = Job(folder, ["-n", 1], "touch ready-$RANK; sleep 0.5; echo end",
              preexec_fn=lambda: signal.signal(signal.SIGHUP, signal.SIG_IGN))
    job.wait_ranks(1)
    job.process.send_signal(signal.SIGHUP)
    cli.equal((job.end(), job.out), (0, "[0] end\n"), "end")
    cli.row("SIGINT of a background job")
    clean(folder)
    job = Job(folder, ["-n", 2], "touch ready-$RANK; exec sleep 60",
              preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_IGN))
    job.wait_ranks(2)
    time.sleep(0.05)
    job.process.send_signal(signal.SIGINT)
    cli.equal(job.end(), 130, "exit status")
    clean(folder)


def listens(port):
    found = set()
    for name in ("tcp", "tcp6"):
        with open(f"/proc/net/{name}") as f:
            found |= {line.split()[1].rpartition(":")[2] for line in f.readlines()[1:] if line.split()[3] == "0A"}
    return f"{port:04X}" in found


def test_killed(folder):
    """kill -9 of the launcher: no rank, none of what ranks started, no port, nothing in /dev/shm."""
    shm = set(os.listdir("/dev/shm"))
    for i, delay in enumerate((None, None, 0, 0.004, 0.008, 0.012, 0.02)):
        cli.row(f"SIGKILL of the launcher, {'later' if delay is None else f'{delay} s after its start'}")
        clean(folder)
        stubborn = "trap '' TERM INT HUP; " if i else ""
        job = Job(folder, ["-n", 3], stubborn + "sleep 63 & echo $LOCKSTEP_PORT >ready-$RANK; sleep 64; true",
                  stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        if delay is None:
            job.wait_ranks(3)
            until(lambda: len(job.processes()) == 9, "9 processes")
            until(lambda: cli.read(folder, "ready-0"), "the port")
            port = int(cli.read(folder, "ready-0"))
            cli.check(listens(port), "it listens")
        else:
            time.sleep(delay)
        job.process.kill()
        job.process.wait()
        job.nothing_left()
        until(lambda: not job.guardians(), "guardian is gone", 2 * SLOW)
        if delay is None:
            cli.check(not listens(port), "the port is closed")
    cli.row("nothing else left by SIGKILL")
    cli.equal([name for name in set(os.listdir("/dev/shm")) - shm if "lockstep" in name], [], "/dev/shm")
    clean(folder)
    cli.row("the guardian is killed")
    job = Job(folder, ["-n", 2], "touch ready-$RANK; sleep 0.5; exit 0")
    job.wait_ranks(2)
    cli.equal([os.kill(pid, signal.SIGKILL) for pid in job.named_guardians()], [None], "one guardian")
    cli.equal((job.end(), job.err), (0, ""), "end")
    cli.row("the guardian is killed, then the launcher")
    clean(folder)
    job = Job(folder, ["-n", 2], "touch ready-$RANK; exec sleep 65")
    job.wait_ranks(2)
    for pid in job.named_guardians():
        os.kill(pid, signal.SIGKILL)
    job.process.kill()
    job.end()
    clean(folder)


# ---- restarts ----

def attempts(folder):
    """[(restart, world size)] as rank 0 of each attempt noted it."""
    with open(os.path.join(folder, "attempts")) as f:
        return [tuple(map(int, line.split())) for line in f]


NOTE = "test $RANK = 0 && echo $LOCKSTEP_RESTART $WORLD_SIZE >>attempts; "

# name, options, shell line, exit status, attempts, text of the last line
RESTARTS = [
    ("well at the third", ["-n", 2, "--max-restarts", 3], "test $LOCKSTEP_RESTART = 2 && exit 0; exit 1", 0,
     [(0, 2), (1, 2), (2, 2)], "restart 2 of 3"),
    ("never well", ["-n", 2, "--max-restarts", 2], "exit 7", 7, [(0, 2), (1, 2), (2, 2)], "exited with status 7"),
    ("none allowed", ["-n", 2], "exit 7", 7, [(0, 2)], "exited with status 7"),
    ("killed, the same n", ["-n", 2, "--max-restarts", 1], "test $LOCKSTEP_RESTART = 1 || kill -9 $$", 0,
     [(0, 2), (1, 2)], "restart 1 of 1 with 2 ranks"),
    ("killed, one less", ["-n", 3, "--max-restarts", 1, "--min-nproc", 2],
     "test $WORLD_SIZE = 2 || { test $RANK = 2 && kill -9 $$; sleep 60; }", 0, [(0, 3), (1, 2)], "with 2 ranks"),
    ("killed, then 3 does not fit", ["-n", 4, "--max-restarts", 1, "--min-nproc", 1],
     "test $WORLD_SIZE = 2 && exit 0; test $WORLD_SIZE = 3 && exit 3; test $RANK = 1 && kill -9 $$; sleep 60", 0,
     [(0, 4), (1, 3), (2, 2)], "3 ranks do not fit; trying 2"),
    ("status 3 counts for nothing", ["-n", 5, "--min-nproc", 2], "test $WORLD_SIZE = 2 && exit 0; exit 3", 0,
     [(0, 5), (1, 4), (2, 3), (3, 2)], "trying 2"),
    ("no size fits", ["-n", 3, "--min-nproc", 2, "--max-restarts", 5], "exit 3", 3, [(0, 3), (1, 2)],
     "no number of ranks from 3 down to 2 fits"),
    ("status 3 without --min-nproc", ["-n", 2, "--max-restarts", 5], "exit 3", 3, [(0, 2)], "exited with status 3"),
    ("never below the least", ["-n", 2, "--min-nproc", 2, "--max-restarts", 2], "kill -9 $$", 137,
     [(0, 2), (1, 2), (2, 2)], "killed by signal 9"),
]


def test_restarts(folder):
    for name, options, line, status, want, text in RESTARTS:
        cli.row(name)
        if os.path.exists(os.path.join(folder, "attempts")):
            os.remove(os.path.join(folder, "attempts"))
        # The others go on only when rank 0 has written its note.
        wait = "until grep -q \"^$LOCKSTEP_RESTART \" attempts 2>/dev/null; do sleep 0.01; done; "
        job = run(folder, options, NOTE + wait + line)
        cli.equal(job.returncode, status, f"exit status ({job.err})")
        cli.equal(attempts(folder), want, "attempts")
        cli.check(text in job.err.splitlines()[-1], f"{text!r} is not in {job.err!r}")
        cli.equal(len(cli.error_lines(job)), 1 if status else 0, "error lines")
    cli.row("a signal is no reason to start again")
    job = Job(folder, ["-n", 2, "--max-restarts", 5], "touch ready-$RANK; exec sleep 60")
    job.wait_ranks(2)
    time.sleep(0.05)
    job.process.send_signal(signal.SIGTERM)
    cli.equal((job.end(), job.err), (143, ""), "end")
    clean(folder)
    cli.row("a new port, board and run at each start")
    job = run(folder, ["-n", 1, "--max-restarts", 2], "echo $LOCKSTEP_RUN_ID $LOCKSTEP_PORT; exit 1")
    words = [line.split()[1:] for line in job.out.splitlines()]
    cli.equal((len(words), len({w[0] for w in words}), len({w[1] for w in words})), (3, 1, 3), "runs and ports")


# ---- several nodes ----

def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


MEET = """
import os, socket
e = os.environ
print(e["RANK"], e["WORLD_SIZE"], e["LOCAL_RANK"], e["GROUP_RANK"], e["LOCKSTEP_RUN_ID"], e["LOCKSTEP_SECRET"], flush=True)
at = e["MASTER_ADDR"], int(e["LOCKSTEP_PORT"])
if e["RANK"] == "0":
    s = socket.socket(fileno=int(e["LOCKSTEP_LISTEN_FD"]))
    print("met", sorted(s.accept()[0].makefile().readline().strip() for _ in range(3)))
else:
    assert "LOCKSTEP_LISTEN_FD" not in e
    import time
    for i in range(200):
        try:
            s = socket.create_connection(at); break
        except OSError: time.sleep(0.05)
    s.send(f"rank {e['RANK']}\\n".encode())
"""


def test_nodes(folder):
    cli.row("two nodes on loopback")
    options = ["-n", 2, "--nnodes", 2, "--rdzv", f"127.0.0.1:{free_port()}", "--node-rank"]
    env = {"LOCKSTEP_SECRET": "of both"}
    second = Job(folder, options + [1], [PY, "-c", MEET], env=env)
    time.sleep(0.1)
    first = Job(folder, options + [0], [PY, "-c", MEET], env=env)
    cli.equal((first.end(), second.end(), first.err, second.err), (0, 0, "", ""), "ends")
    lines = sorted((first.out + second.out).splitlines())
    cli.check("[0] met ['rank 1', 'rank 2', 'rank 3']" in lines, str(lines))
    lines = [line.split() for line in lines if "met" not in line]
    cli.equal([line[:5] for line in lines], [["[0]", "0", "4", "0", "0"], ["[1]", "1", "4", "1", "0"],
                                             ["[2]", "2", "4", "0", "1"], ["[3]", "3", "4", "1", "1"]], "places")
    cli.equal(len({line[5] for line in lines}), 1, "one run id")
    cli.equal({line[6] + line[7] for line in lines}, {"ofboth"}, "the secret")
    cli.row("the port is in use")
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        s.listen()
        address = f"127.0.0.1:{s.getsockname()[1]}"
        job = run(folder, ["-n", 1, "--rdzv", address], "echo never")
        cli.check_error(job, 1, address, "Address already in use")
        cli.equal(job.out, "", "stdout")
    cli.row("an address of somebody else: rank 0 may try itself")
    job = run(folder, ["-n", 1, "--rdzv", "192.0.2.1:4000"], "echo $MASTER_ADDR $LOCKSTEP_PORT x$LOCKSTEP_LISTEN_FD")
    cli.equal((job.returncode, job.out), (0, "[0] 192.0.2.1 4000 x\n"), "end")


# ---- usage ----

# name, arguments behind `run`, texts of the error line; exit 2
USAGE = [
    ("nothing", [], ["-n N is missing"]),
    ("no program", ["-n", "2"], ["no program", "--"]),
    ("no program behind --", ["-n", "2", "--"], ["no program"]),
    ("no --", ["-n", "2", "prog", "--lr", "3"], ["-- prog"]),
    ("n of 0", ["-n", "0", "--", "true"], ["-n 0", "1 to 4096"]),
    ("n below 0", ["-n", "-3", "--", "true"], ["-n -3"]),
    ("n too large", ["-n", "5000", "--", "true"], ["-n 5000"]),
    ("n beyond all", ["-n", "99999999999999999999", "--", "true"], ["99999999999999999999"]),
    ("n is no number", ["-n", "2x", "--", "true"], ["2x"]),
    ("n is empty", ["-n", "", "--", "true"], ["-n"]),
    ("not found", ["-n", "2", "--", "no-such-program"], ["no-such-program", "not found"]),
    ("not found by path", ["-n", "2", "--", "./no-such"], ["./no-such", "not found"]),
    ("not executable", ["-n", "2", "--", "./text.txt"], ["./text.txt", "executed"]),
    ("a directory", ["-n", "2", "--", "/tmp"], ["/tmp", "executed"]),
    ("empty name", ["-n", "2", "--", ""], ["no program"]),
    ("wrong interpreter", ["-n", "2", "--", "./wrong.sh"], ["wrong.sh", "cannot be executed", "interpreter"]),
    ("unknown option", ["--np", "2", "--", "true"], ["--np", "lockstep run --help"]),
    ("restarts below 0", ["-n", "2", "--max-restarts", "-1", "--", "true"], ["--max-restarts -1"]),
    ("least above n", ["-n", "2", "--min-nproc", "3", "--", "true"], ["--min-nproc 3", "1 to 2"]),
    ("least of 0", ["-n", "2", "--min-nproc", "0", "--", "true"], ["--min-nproc 0"]),
    ("node without nodes", ["-n", "2", "--node-rank", "1", "--", "true"], ["--node-rank 1"]),
    ("nodes without node", ["-n", "2", "--nnodes", "2", "--rdzv", "h:1", "--", "true"], ["--node-rank"]),
    ("nodes without rdzv", ["-n", "2", "--nnodes", "2", "--node-rank", "0", "--", "true"], ["--rdzv HOST:PORT"]),
    ("nodes without secret", ["-n", "2", "--nnodes", "2", "--node-rank", "0", "--rdzv", "h:1", "--", "true"],
     ["LOCKSTEP_SECRET", "openssl rand -hex 32"]),
    ("nodes with least", ["-n", "2", "--nnodes", "2", "--node-rank", "0", "--rdzv", "h:1", "--min-nproc", "1", "--", "true"],
     ["--min-nproc"]),
    ("rdzv without port", ["-n", "2", "--rdzv", "host", "--", "true"], ["host", "HOST:PORT"]),
    ("rdzv with a wrong port", ["-n", "2", "--rdzv", "host:70000", "--", "true"], ["70000", "65535"]),
    ("rdzv with half a port", ["-n", "2", "--rdzv", "host:12x", "--", "true"], ["host:12x"]),
    ("rdzv without host", ["-n", "2", "--rdzv", ":4000", "--", "true"], [":4000"]),
    ("rdzv of bare IPv6", ["-n", "2", "--rdzv", "::1:4000", "--", "true"], ["[ADDRESS]:PORT"]),
]


def test_usage(folder):
    with open(os.path.join(folder, "wrong.sh"), "w") as f:
        f.write("#!/no/such/interpreter\n")
    os.chmod(os.path.join(folder, "wrong.sh"), 0o755)
    env = {k: v for k, v in os.environ.items() if k != "LOCKSTEP_SECRET"}
    for name, args, texts in USAGE:
        cli.row(name)
        cli.check_error(cli.run(folder, "run", *args, env=env), 2, *texts)
    cli.row("-- belongs to the program behind the first")
    job = run(folder, ["-n", 1], ["echo", "--", "--help", "-n"])
    cli.equal((job.returncode, job.out), (0, "[0] -- --help -n\n"), "end")
    cli.row("a script without first line")
    with open(os.path.join(folder, "plain.sh"), "w") as f:
        f.write("echo rank $RANK\n")
    os.chmod(os.path.join(folder, "plain.sh"), 0o755)
    cli.equal(run(folder, ["-n", 1], ["./plain.sh"]).out, "[0] rank 0\n", "stdout")
    cli.row("other forms of -n")
    cli.equal(run(folder, ["--nproc=1"], ["echo", "x"]).out, "[0] x\n", "stdout")


def test_many(folder):
    cli.row("300 ranks, few files allowed")
    job = run(folder, ["-n", 300], ["sh", "-c", "ulimit -n"],
              preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (100, 4096)))
    cli.equal((job.returncode, job.err), (0, ""), "end")
    cli.equal({line.split()[1] for line in job.out.splitlines()}, {"100"}, "limit of the ranks")
    cli.equal(len(job.out.splitlines()), 300, "lines")
    cli.row("too few files")
    job = run(folder, ["-n", 300], ["true"], preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (100, 200)))
    cli.check_error(job, 1, "300 ranks", "200")


TESTS = [test_environment, test_descriptors, test_signals_of_ranks, test_lines, test_slow_reader_of_both, test_long_line, test_odd_output,
         test_reader, test_stdin, test_ends, test_stubborn, test_children, test_signals, test_second_signal,
         test_other_signals, test_killed, test_restarts, test_nodes, test_usage, test_many]


def main():
    names = sys.argv[2:]
    for test in TESTS:
        if names and test.__name__ not in names:
            continue
        with cli.workspace() as folder:
            began = time.monotonic()
            test(folder)
            if names or time.monotonic() - began > 5:
                print(f"  {test.__name__}: {time.monotonic() - began:.1f} s", flush=True)
    cli.finish()


if __name__ == "__main__":
    main()
