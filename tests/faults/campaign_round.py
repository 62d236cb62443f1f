"""campaign_round.py - one round of the fault campaign: a training drawn from a seed, and the judge of what a fault did.

    r = Round(seed, number, 0, folder)      its model, ranks, strategy, transport and saves are drawn; files are written
    job = r.launch("--max-restarts", 2)     `lockstep run -n N ... -- lockstep train c.json --resume auto`
    r.wait(job)                             until the drawn moment, at which the fault is to come
    r.begin(); ...                          the fault
    r.named(job, pattern)                   the line that names the culprit came soon
    r.end(job, 0); r.judge(job)             ended in time; the undisturbed run's bits, to be compared with one process
    r.nothing_left(job)

A round whose training ended before the fault came raises TooLate: the next attempt draws again.

What fails is told by cli.check.
"""
import json
import os
import random
import re
import shutil
import signal
import sys
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
import cli  # noqa: E402
import jobs  # noqa: E402

STEPS = 96         # about a second
END_S = 90         # everything that is to end does so within this time; it is far above what any round needs
PATIENCE_S = 30    # parallel.timeout_s where no rank stops: a loaded machine is no fault
SOON_S = 8         # from a fault to the text that names it, beyond parallel.timeout_s

# Twelve micro-batches, of which 1 to 4 ranks have equal shares and the bits of one process.
BASE = {"run__steps": STEPS, "model__dropout": 0.1, "batch__global": 12, "batch__micro": 1, "eval__every": 7,
        "eval__batches": 1, "log__progress": "none"}
MLP = {"model": {"type": "mlp", "sizes": [6, 192, 192, 3]}, "data__train": "rows.csv", "data__format": "csv"}
MODELS = {
    "gpt": {},
    "gpt bf16": {"parallel__param_dtype": "bf16"},
    "llama": {"model__norm": "rmsnorm", "model__mlp": "swiglu", "model__position": "rope", "model__bias": False,
              "model__n_kv_head": 1, "model__tie_embeddings": False},
    "gpt recompute": {"model__recompute": True, "optim__type": "adam"},
    "gpt sgd": {"optim__type": "sgd", "optim__momentum": 0.9, "optim__lr": 0.1},
    "mlp": MLP,
}
SHARDS = [{}, {"parallel__prefetch": 0}, {"parallel__shard": "gradients"}, {"parallel__shard": "optimizer"},
          {"parallel__accumulate": "local"}, {"parallel__reshard_after_forward": False}]
truth = {}  # model: (state_sha256, metrics), of runs that this process has made


def write_rows(path, rows=400):
    draw = random.Random(5)
    with open(path, "w") as f:
        for _ in range(rows):
            x = [draw.gauss(0, 1) for _ in range(6)]
            f.write(",".join(f"{v:.4f}" for v in x) + f",{(x[0] > 0) + (x[1] * x[2] > 0)}\n")


def exact(metrics):
    """What has to be the same for every strategy and world: {step: (loss, norm)}, {step: val_loss}."""
    return ({m["step"]: (m["loss"], m["grad_norm"]) for m in metrics if "loss" in m},
            {m["step"]: m["val_loss"] for m in metrics if "val_loss" in m})


class TooLate(Exception):
    pass


class Round:
    def __init__(self, seed, number, attempt, folder):
        self.seed, self.number, self.folder = seed, number, folder
        draw = self.draw = random.Random(f"{seed}/{number}/{attempt}")
        self.model = draw.choice(sorted(MODELS))
        self.n = draw.choice((2, 3, 4))
        self.every = draw.randint(3, 12)
        self.how, self.sets = self.draw_sets()
        self.step, self.pause = draw.randint(2, STEPS * 3 // 4), draw.uniform(0, 0.03)
        self.moment, self.message, self.named_s, self.began = "", "", None, None
        self.shm, self.jobs = jobs.shared_names(), []
        cli.write_text(folder)
        write_rows(os.path.join(folder, "rows.csv"))
        self.more = {} if self.model != "mlp" else {"model__dropout": None}
        cli.write_config(folder, **self.config())

    def config(self):
        return {**BASE, **MODELS.get(self.model.split("{")[0], {}), **self.more}

    def draw_sets(self):
        """({what: value} for people, keys), which change no bit."""
        draw = self.draw
        strategy = draw.choice(("ddp", "fsdp"))
        how = {"strategy": strategy, "backend": draw.choice(("shm", "tcp")), "async": draw.random() < 0.6}
        keys = {"parallel__strategy": strategy, "parallel__backend": how["backend"], "checkpoint__async": how["async"],
                "checkpoint__every": self.every, "checkpoint__compress": draw.random() < 0.2,
                "checkpoint__keep": draw.randint(2, 3), "parallel__timeout_s": PATIENCE_S,
                "parallel__bucket_mb": 0.02, "parallel__overlap": draw.random() < 0.8,
                **(draw.choice(SHARDS) if strategy == "fsdp" else {})}
        return how, keys

    def undisturbed(self):
        if self.model not in truth:
            r = cli.run(self.folder, "train", "c.json", "--set", "run.dir=whole", limit=END_S * jobs.SLOWER)
            if not cli.check_ok(r):
                raise RuntimeError("the undisturbed run fails")
            truth[self.model] = cli.summary(self.folder, "whole")["state_sha256"], \
                exact(cli.metrics(self.folder, "whole"))
            shutil.rmtree(os.path.join(self.folder, "whole"))
        return truth[self.model]

    # ---- the job ----

    def train(self, stop_at=None, **more):
        """Words of a training command that goes on where it can."""
        words = ["train", "c.json", "--resume", "auto", *(["--stop-at", str(stop_at)] if stop_at else [])]
        for name, value in {**self.sets, **more}.items():
            words += ["--set", f"{name.replace('__', '.')}={value if isinstance(value, str) else json.dumps(value)}"]
        return words

    def launch(self, *options, n=None, env=None, through=(), under=(), **more):
        """through: words in front of the ranks' command; under: in front of the launcher's."""
        words = [*under, cli.command(), "run", "-n", str(n or self.n), *map(str, options), "--", *through, cli.command(),
                 *self.train(**more)]
        self.jobs.append(jobs.Job(self.folder, n or self.n, *words[1:], program=words[0], env=env))
        return self.jobs[-1]

    def close(self):
        """However the round went."""
        for pid in [pid for job in self.jobs for pid in job.processes()]:
            os.kill(pid, signal.SIGKILL)

    def change(self, **more):
        """The training is another one, which has to be made undisturbed too."""
        self.more |= more
        self.model += str(more)
        cli.write_config(self.folder, **self.config())

    def wait(self, job, run_dir="r"):
        """The drawn moment: a fifth of them while ranks start, a fifth in a save, else after a step."""
        where = self.draw.random()
        self.moment = "start" if where < 0.2 else "save" if where < 0.4 else "step"
        until = {"start": job.ranks, "save": lambda: self.is_saving(run_dir) or job.lines(run_dir) > STEPS * 3 // 4,
                 "step": lambda: job.lines(run_dir) >= self.step}[self.moment]
        self.wait_until(job, until)
        time.sleep(self.pause * {"start": 5, "save": 0.2, "step": 1}[self.moment])

    def wait_until(self, job, ready):
        end = time.monotonic() + END_S
        while not ready():
            if job.process.poll() == 0:
                raise TooLate
            if job.process.poll() is not None or time.monotonic() > end:
                raise RuntimeError(f"no fault yet, and it does not go on ({job.process.poll()}): {job.text()[-2500:]}")
            time.sleep(0.001)

    def is_saving(self, run_dir):
        try:
            return any(name.startswith(".tmp-") for name in os.listdir(os.path.join(self.folder, run_dir, "checkpoints")))
        except OSError:
            return False

    def a_rank(self, job):
        """(rank, pid), drawn; waits until all ranks are there."""
        self.wait_until(job, lambda: len(job.ranks()) == self.n)
        rank = self.draw.randrange(self.n)
        return rank, job.ranks()[rank]

    def begin(self):
        self.began = time.monotonic()

    def send(self, pid, what):
        """A signal is the fault."""
        self.begin()
        try:
            os.kill(pid, what)
        except ProcessLookupError as e:
            raise TooLate from e

    # ---- the judge ----

    def named(self, job, pattern, limit=SOON_S, or_unhurt=False):
        """
        Waits for a line of the job's text with this in it: what the user sees.  or_unhurt: where there is none, the job
        may have been through with all that the fault could hurt.
        """
        found, end = None, self.began + limit * jobs.SLOWER
        while not found:
            over = job.process.poll() is not None
            found = next((line for line in job.text().splitlines() if re.search(pattern, line)), None)
            if over or time.monotonic() > end:
                break
            time.sleep(0.01)
        if or_unhurt and not found and job.process.poll() == 0:
            raise TooLate
        self.named_s = time.monotonic() - self.began
        if cli.check(found, f"within {limit} s no line has {pattern!r}: {job.text()[-2500:]}"):
            self.message = found
        return found

    def end(self, job, *statuses):
        status = job.end(END_S)
        cli.check(not statuses or status in statuses, f"exit status {status}, want {statuses}: {job.text()[-2500:]}")
        return status

    def resume(self, n=None, **more):
        """By hand, and usually with other ranks and another strategy."""
        self.sets = self.draw_sets()[1]
        n = n or self.draw.choice((1, 2, 3, 4))
        job = self.launch(n=n, **more)
        self.end(job, 0)
        return job

    def judge(self, job, run_dir="r", all_lines=True):
        """The bits of the undisturbed run in the end, in the state and in each line of the metrics; and nothing left."""
        state, (steps, values) = self.undisturbed()
        try:
            summary, lines = cli.summary(self.folder, run_dir), cli.metrics(self.folder, run_dir)
        except (OSError, ValueError) as e:
            cli.check(False, f"no end of a run: {e}: {job.text()[-2500:]}")
            return
        cli.equal((summary["steps"], summary["state_sha256"]), (STEPS, state), "the state in the end")
        numbers = [m["step"] for m in lines if "loss" in m]
        cli.equal(len(numbers), len(set(numbers)), "steps that stand twice in the metrics")
        for got, want in zip(exact(lines), (steps, values)):
            if not all_lines:
                want = {step: want[step] for step in got}
            wrong = next((step for step in want if got.get(step) != want[step]), None)
            cli.check(wrong is None, f"metrics of step {wrong}: {got.get(wrong)}, want {want.get(wrong)}")

    def nothing_left(self, *all_jobs, unfinished=False, mounted=False):
        """unfinished: files that nobody had time to remove; mounted: a disk or hosts of the round are still there."""
        for job in all_jobs:
            job.check_nothing_left(writing=True)
        cli.equal(sorted(jobs.shared_names() - self.shm), [], "names left in /dev/shm")
        if not mounted:
            cli.equal((mounts(self.folder), namespaces()), ([], set()), "mounts and network namespaces left")
        if not unfinished:
            left = [path for path, _ in cli.tree(self.folder) if ".tmp-" in path or ".trash-" in path]
            cli.equal(left, [], "temporary files left")


def mounts(folder):
    with open("/proc/self/mounts") as f:
        return [line for line in f if folder in line]


def namespaces():
    """Those that this process has made, by the names that two_hosts.py gives."""
    try:
        return {f"lsa{os.getpid()}", f"lsb{os.getpid()}"} & set(os.listdir("/run/netns"))
    except OSError:
        return set()
