"""cli.py - the built command from outside: runs it, judges its exit and its one error line.

    lockstep = cli.command()                the path in argv[1]
    with cli.workspace() as folder:         a directory of the test's own, removed in the end
        r = cli.run(folder, "train", "c.json")
        cli.row("unknown key"); cli.check_error(r, 2, "model.n_layers", "did you mean")
    cli.finish()                            exit status of the script

Python's standard library only.
"""
import contextlib
import copy
import json
import os
import random
import shutil
import subprocess
import sys
import tempfile

LIMIT_S = 60  # of one command; all tests use models of a few thousand parameters
_row, _checks, _failures = "", 0, 0


def command():
    return os.path.abspath(sys.argv[1])


def row(name):
    global _row
    _row = name


def check(ok, what):
    global _checks, _failures
    _checks += 1
    if not ok:
        _failures += 1
        print(f"FAIL [{_row}] {what}", flush=True)
    return bool(ok)


def equal(got, want, what):
    return check(got == want, f"{what}: got {got!r}, want {want!r}")


def skip(why):
    print(f"skipped [{_row}] {why}", flush=True)


def finish():
    print(f"{os.path.basename(sys.argv[0])}: {_checks} checks, {_failures} failures")
    sys.exit(1 if _failures or not _checks else 0)


@contextlib.contextmanager
def workspace():
    folder = tempfile.mkdtemp(prefix="lockstep-test-")
    try:
        os.chmod(folder, 0o755)
        write_text(folder)
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def write_text(folder, name="text.txt", words=4000):
    """A text of few words, the same every time."""
    draw = random.Random(7)
    some = "the lock step of a tensor and its rank sum to one bit in every tree".split()
    path = os.path.join(folder, name)
    with open(path, "w") as f:
        f.write(" ".join(draw.choice(some) for _ in range(words)))
    return path


GPT = {
    "run": {"steps": 4, "dir": "r", "threads": 1},
    "model": {"type": "gpt", "n_layer": 2, "n_head": 2, "d_model": 32, "context": 16},
    "data": {"train": "text.txt", "val_fraction": 0.1},
    "batch": {"global": 4},
    "optim": {"lr": 1e-3},
    "log": {"every": 1},
}


def config(**changes):
    """GPT with changes, keys as section__key; a value of None takes the key away."""
    made = copy.deepcopy(GPT)
    for name, value in changes.items():
        *sections, key = name.split("__")
        at = made
        for section in sections:
            at = at.setdefault(section, {})
        if value is None:
            at.pop(key, None)
        else:
            at[key] = value
    return made


def write_config(folder, name="c.json", **changes):
    with open(os.path.join(folder, name), "w") as f:
        json.dump(config(**changes), f, indent=1)
    return name


def fresh(args):
    """Tests train again and again in the same directories: where they do not say --resume, they start over."""
    if "train" not in args or "bench" in args or "--resume" in args:
        return list(args)
    at = args.index("train") + 1
    return [*args[:at], "--resume", "never", *args[at:]]


def run(folder, *args, program=None, limit=LIMIT_S, **options):
    """The finished command; .stdout and .stderr are texts."""
    args = fresh(args)
    options.setdefault("stdout", subprocess.PIPE)
    done = subprocess.run([program or command(), *args], cwd=folder, stdin=subprocess.DEVNULL,
                          stderr=subprocess.PIPE, timeout=limit, **options)
    done.stdout = (done.stdout or b"").decode(errors="replace")
    done.stderr = done.stderr.decode(errors="replace")
    return done


def start(folder, *args, **options):
    """The running command; its progress is thrown away."""
    args = fresh(args)
    return subprocess.Popen([command(), *args], cwd=folder, stdin=subprocess.DEVNULL,
                            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, **options)


def check_ok(r):
    return check(r.returncode == 0, f"exit {r.returncode}, want 0: {r.stderr[-500:]}")


def warnings(text):
    """Warning lines, but for the one about the BLAS kernel, which is this machine's environment's."""
    return [line for line in text.splitlines() if "warning: " in line and "OPENBLAS_CORETYPE" not in line]


def error_lines(r):
    return [line for line in r.stderr.splitlines() if line.startswith("lockstep: error: ")]


def check_error(r, status, *texts):
    """This exit status, one error line and last of all, and these texts in it."""
    lines = error_lines(r)
    equal(r.returncode, status, f"exit status ({r.stderr[-300:]!r})")
    if not check(len(lines) == 1, f"{len(lines)} error lines, want one: {r.stderr[-500:]!r}"):
        return
    check(r.stderr.endswith(lines[0] + "\n"), f"the error line is not the last: {r.stderr[-500:]!r}")
    for text in texts:
        check(text in lines[0], f"{text!r} is not in {lines[0]!r}")


def tree(folder):
    """Every path below folder, links and empty directories too, with its size."""
    return sorted((os.path.relpath(os.path.join(base, name), folder),
                   os.lstat(os.path.join(base, name)).st_size if name in files else -1)
                  for base, folders, files in os.walk(folder) for name in folders + files)


def latest(folder, run_dir="r"):
    """The path of the run's newest checkpoint, below folder; None where there is none."""
    store = os.path.join(folder, run_dir, "checkpoints")
    steps = sorted(name for name in os.listdir(store) if name.startswith("step-")) if os.path.isdir(store) else []
    return os.path.join(run_dir, "checkpoints", steps[-1]) if steps else None


def read(folder, *parts):
    with open(os.path.join(folder, *parts), "rb") as f:
        return f.read()


def summary(folder, run_dir="r"):
    return json.loads(read(folder, run_dir, "summary.json"))


def metrics(folder, run_dir="r"):
    """The lines of metrics.jsonl as objects, numbers as their texts: equal texts, equal bits."""
    text = read(folder, run_dir, "metrics.jsonl").decode()
    return [json.loads(line, parse_float=str, parse_int=str) for line in text.splitlines()]


def temporaries(folder):
    return [path for path, _ in tree(folder) if ".tmp-" in path]
