#!/usr/bin/env python3
"""test_bad_input.py LOCKSTEP [WRONG_BLAS.so] - bad input: a clear error, and nothing lost or left behind.

Each row runs the command in a directory of its own; a refusal must leave the directory as it was.
As root, permissions are tested as user nobody, full disks on a tmpfs in a mount name space of the
test's own; elsewhere with chmod and a limit on file sizes.
"""
import gzip
import os
import resource
import shutil
import subprocess
import sys

sys.path.insert(0, os.path.join(os.path.dirname(__file__), ".."))
import cli  # noqa: E402

ROOT = os.geteuid() == 0

# name, changes of the config, texts of the error line
CONFIGS = [
    ("unknown key", {"model__d_modl": 32}, ["c.json:", '"model.d_modl"', 'did you mean "model.d_model"']),
    ("unknown section", {"modle__x": 1}, ['"modle', "did you mean"]),
    ("unknown top key", {"steps": 3}, ['"steps"']),
    ("wrong type", {"run__steps": "ten"}, ["c.json:", "run.steps", "wanted an integer", '"ten"']),
    ("fraction for integer", {"run__steps": 1.5}, ["run.steps", "1.5"]),
    ("boolean for number", {"optim__lr": True}, ["optim.lr"]),
    ("section of a wrong type", {"optim": 3}, ["optim"]),
    ("missing key", {"optim__lr": None}, ["optim.lr"]),
    ("out of range, below", {"run__steps": 0}, ["run.steps", "0", ">= 1"]),
    ("out of range, above", {"model__dropout": 1.5}, ["model.dropout", "1.5"]),
    ("negative lr", {"optim__lr": -1}, ["optim.lr", "-1"]),
    ("unknown choice", {"model__norm": "batchnorm"}, ["model.norm", "batchnorm", "rmsnorm"]),
    ("d_model by n_head", {"model__d_model": 33}, ["model.d_model 33", "model.n_head 2"]),
    ("n_head by n_kv_head", {"model__n_kv_head": 3}, ["n_kv_head"]),
    ("micro by global", {"batch__micro": 3}, ["batch.micro 3", "batch.global 4"]),
    ("warmup", {"optim__schedule__warmup": 4}, ["warmup"]),
    ("two kinds of validation", {"data__val": "text.txt"}, ["data.val", "data.val_fraction"]),
    ("no data file", {"data__train": "nope.txt"}, ["data.train", "nope.txt"]),
    ("no validation file", {"data__val": "nope.txt", "data__val_fraction": 0}, ["data.val", "nope.txt"]),
    ("one of a list", {"data__train": ["text.txt", "nope.txt"]}, ["nope.txt"]),
    ("empty data", {"data__train": "empty.txt"}, ["empty.txt", "empty"]),
    ("data is a directory", {"data__train": "folder"}, ["folder", "directory"]),
    ("dangling link", {"data__train": "dangling"}, ["dangling"]),
    ("context beyond the data", {"model__context": 100000}, ["model.context 100000", "tokens"]),
    ("validation too short", {"data__val_fraction": 1e-9}, ["data.val_fraction", "tokens"]),
    ("vocabulary too small", {"model__vocab_size": 100}, ["text.txt", "model.vocab_size", "100"]),
    ("vocabulary of characters", {"model__vocab_size": 5, "data__tokenizer": "char"},
     ["text.txt", "model.vocab_size"]),
    ("truncated gz", {"data__train": "cut.gz"}, ["cut.gz", "truncated"]),
    ("damaged gz", {"data__train": "bad.gz"}, ["bad.gz"]),
    ("no model.init", {"model__init": "nope.safetensors"}, ["model.init", "nope.safetensors"]),
    ("model.init of another kind", {"model__init": "text.txt"}, ["model.init", "text.txt"]),
    ("model.init of another shape", {"model__init": "small.safetensors"},
     ["model.init", "small.safetensors", "(16,16), expected (32,32)"]),
    ("memory below the plan", {"run__memory_mb": 1, "model__d_model": 256},
     ["run.memory_mb", "1 MiB", "parameters"]),
    ("run directory is a file", {"run__dir": "text.txt"}, ["text.txt"]),
    ("run directory below a file", {"run__dir": "text.txt/a/b"}, ["text.txt"]),
]

# name, text of the config file, texts of the error line
TEXTS = [
    ("not JSON", '{"run": {"steps": 1,\n  "seed" 3}}', ["c.json:2:10", "':'"]),
    ("trailing comma", '{"run": {"steps": 1,}}', ["c.json:1:"]),
    ("comment", '// mine\n{}', ["c.json:1:1"]),
    ("empty", "", ["c.json:1:1"]),
    ("text behind", "{} x", ["c.json:1:"]),
    ("not an object", "[1]", ["c.json", "object", "list"]),
    ("duplicate key", '{"run": {"steps": 1, "steps": 2}}', ["c.json:1:", 'duplicate key', "steps"]),
    ("duplicate section", '{"run": {"steps": 1},\n "run": {}}', ["c.json:2:2", 'duplicate key "run"']),
    ("not UTF-8", b'{"run": {"name": "\xff"}}', ["c.json:1:"]),
    ("number of no kind", '{"run": {"steps": NaN}}', ["c.json:1:"]),
]

COLLECTIVES = ["bench", "collectives", "-n", "2"]

# name, arguments, texts of the error line; exit 2
USAGE = [
    ("no config", ["train"], ["CONFIG"]),
    ("config missing", ["train", "nope.json"], ["nope.json", "No such file"]),
    ("config is a directory", ["train", "folder"], ["folder", "directory"]),
    ("two configs", ["train", "c.json", "d.json"], ["c.json", "d.json"]),
    ("unknown option", ["train", "c.json", "--step"], ["--step", "lockstep train --help"]),
    ("option without value", ["train", "c.json", "--set"], ["--set", "value"]),
    ("flag with value", ["train", "c.json", "--dry-run=1"], ["--dry-run"]),
    ("set without =", ["train", "c.json", "--set", "run.steps"], ["run.steps"]),
    ("set of an unknown key", ["train", "c.json", "--set", "run.step=3"],
     ["--set run.step=3", 'did you mean "run.steps"']),
    ("set of a wrong type", ["train", "c.json", "--set", "run.steps=x"], ["run.steps", "integer"]),
    ("nproc 0", ["train", "c.json", "--nproc", "0"], ["--nproc 0", "want 1 to"]),
    ("nproc 0, dry", ["train", "c.json", "--nproc", "0", "--dry-run"], ["--nproc 0", "want 1 to"]),
    ("init over a text", ["init", "c.json", "-o", "text.txt"], ["text.txt is there and is no safetensors file"]),
    ("nproc that is none", ["train", "c.json", "--nproc=two"], ["--nproc two", "want 1 to"]),
    ("nproc over MPI", ["train", "c.json", "--nproc", "2", "--set", "parallel.backend=mpi"],
     ["parallel.backend", "mpirun -n 2"]),
    ("nproc of one strategy", ["train", "c.json", "--nproc", "2", "--set", "parallel.strategy=single"],
     ["parallel.strategy", "2 ranks"]),
    ("resume from nothing", ["train", "c.json", "--resume", "nope"], ["--resume", "nope", "No such file"]),
    ("resume from a directory without checkpoints", ["train", "c.json", "--resume", "folder"], ["folder", "no checkpoint"]),
    ("resume from parameters", ["train", "c.json", "--resume", "small.safetensors"], ["no checkpoint", "model.init"]),
    ("stop-at 0", ["train", "c.json", "--stop-at", "0"], ["--stop-at 0"]),
    ("stop-at of a word", ["train", "c.json", "--stop-at", "3x"], ["--stop-at 3x"]),
    ("a key that is none", ["train", "c.json", "--allow-change", "optim.lrr"], ["--allow-change optim.lrr", "optim.lr?"]),
    ("init without -o", ["init", "c.json"], ["-o"]),
    ("eval without data", ["eval", "small.safetensors"], ["validation", "--data"]),
    ("eval of no text", ["eval", "small.safetensors", "--data", "nope.txt"], ["nope.txt"]),
    ("eval of a short text", ["eval", "small.safetensors", "--data", "short.txt"], ["16"]),
    ("diff of one", ["diff", "r"], ["diff"]),
    ("inspect of none", ["inspect"], ["inspect"]),
    ("bench of nothing", ["bench"], ["bench"]),
    ("bench of a wrong config", ["bench", "train", "nope.json"], ["nope.json"]),
    ("bench gemm of a config", ["bench", "gemm", "c.json"], ["bench gemm", "c.json"]),
    ("bench on 0", ["bench", "train", "c.json", "--nproc", "0"], ["--nproc 0", "want 1 to"]),
    ("bench over MPI", ["bench", "train", "c.json", "--nproc", "2", "--set", "parallel.backend=mpi"],
     ["parallel.backend", "mpirun -n 2 lockstep bench"]),
    ("bench gemm on many", ["bench", "gemm", "--nproc", "2"], ["bench gemm", "--nproc"]),
    ("bench of no steps", ["bench", "train", "c.json", "--steps", "0"], ["--steps 0", "want 1 to"]),
    ("bench of something else", ["bench", "gem"], ["gem", "train, gemm and collectives"]),
    ("bench collectives of none", ["bench", "collectives"], ["-n N", "--help"]),
    ("bench collectives of no ranks", COLLECTIVES + ["-n", "0"], ["-n 0", "1 to"]),
    ("bench collectives of a word", COLLECTIVES + ["-n", "4x"], ["-n 4x"]),
    ("bench collectives, no such op", COLLECTIVES + ["--op", "allreduce"], ["allreduce", "all_reduce"]),
    ("bench collectives of no bytes", COLLECTIVES + ["--bytes", "0"], ["--bytes 0"]),
    ("bench collectives of 5X", COLLECTIVES + ["--bytes", "5X"], ["--bytes 5X", "K, M or G"]),
    ("bench collectives of 4KB", COLLECTIVES + ["--bytes", "4KB"], ["--bytes 4KB"]),
    ("bench collectives of 2^64 + 1K", COLLECTIVES + ["--bytes", "18014398509481985K"], ["--bytes"]),
    ("bench collectives, no such transport", COLLECTIVES + ["--transport", "ib"], ["ib", "shm, tcp and threads"]),
    ("bench collectives, no such algorithm", COLLECTIVES + ["--algorithm", "star"], ["star", "halving"]),
    ("bench collectives, halving of 3", COLLECTIVES + ["-n", "3", "--algorithm", "halving"], ["power of two", "3 ranks"]),
    ("bench collectives, no such memory", COLLECTIVES + ["--memory", "gpu"], ["gpu", "heap and ordinary"]),
    ("bench collectives, no such dtype", COLLECTIVES + ["--dtype", "F64"], ["F64", "BF16"]),
    ("bench collectives, no such redop", COLLECTIVES + ["--redop", "xor"], ["xor", "prod"]),
    ("bench collectives, avg of integers", COLLECTIVES + ["--redop", "avg", "--dtype", "I32"], ["avg", "I32"]),
    ("bench collectives, root 2 of 2", COLLECTIVES + ["--root", "2"], ["--root 2", "0 to 1"]),
    ("bench collectives, one to compare", COLLECTIVES + ["--compare", "ring"], ["--compare ring", "ring,tree"]),
    ("bench collectives, the same twice", COLLECTIVES + ["--compare", "tree,tree"], ["--compare tree,tree"]),
    ("bench collectives, compare and an algorithm", COLLECTIVES + ["--compare", "ring,tree", "--algorithm", "tree"],
     ["--compare", "--algorithm"]),
    ("bench collectives, compare all", COLLECTIVES + ["--compare", "ring,tree", "--op", "all"], ["--compare", "one --op"]),
    ("bench collectives, compare on one", COLLECTIVES + ["-n", "1", "--compare", "ring,tree"], ["--compare", "one rank"]),
    ("bench collectives of a file", COLLECTIVES + ["c.json"], ["c.json"]),
    ("unknown command", ["trian", "c.json"], ["trian", "lockstep --help"]),
]

# name, arguments, texts of the error line; exit 1: what the command line names cannot be read or written
FILES = [
    ("eval of nothing", ["eval", "nope"], ["nope"]),
    ("eval of a text", ["eval", "text.txt"], ["text.txt"]),
    ("eval of an empty directory", ["eval", "folder"], ["folder is neither a checkpoint nor a run that has one"]),
    ("inspect of a text", ["inspect", "text.txt"], ["text.txt"]),
    ("inspect of an empty file", ["inspect", "empty.txt"], ["empty.txt"]),
    ("diff with nothing", ["diff", "small.safetensors", "nope"], ["nope"]),
    ("init into a directory", ["init", "c.json", "-o", "folder"], ["folder", "directory"]),
    ("init below nothing", ["init", "c.json", "-o", "nope/x"], ["nope/x"]),
]


def make_inputs(folder):
    path = lambda name: os.path.join(folder, name)
    os.mkdir(path("folder"))
    os.symlink("nowhere", path("dangling"))
    open(path("empty.txt"), "w").close()
    with open(path("short.txt"), "w") as f:
        f.write("too short")
    packed = gzip.compress(cli.read(folder, "text.txt"))
    for name, data in (("cut.gz", packed[:len(packed) // 2]), ("bad.gz", packed[:200] + b"\0" + packed[201:])):
        with open(path(name), "wb") as f:
            f.write(data)
    cli.write_config(folder, model__d_model=16, data__val_fraction=None)
    cli.row("inputs")
    cli.check_ok(cli.run(folder, "init", "c.json", "-o", "small.safetensors"))


def refused(folder, status, args, texts):
    """Exits so, with one line of error, and leaves every file as it was."""
    before = cli.tree(folder)
    cli.check_error(cli.run(folder, *args), status, *texts)
    cli.equal(cli.tree(folder), before, "files")


def test_refusals(folder):
    make_inputs(folder)
    for name, changes, texts in CONFIGS:
        cli.row(name)
        cli.write_config(folder, **changes)
        refused(folder, 2, ["train", "c.json"], texts)
    for name, text, texts in TEXTS:
        cli.row(name)
        with open(os.path.join(folder, "c.json"), "wb") as f:
            f.write(text if isinstance(text, bytes) else text.encode())
        refused(folder, 2, ["train", "c.json"], texts)
    cli.write_config(folder)
    for name, args, texts in USAGE:
        cli.row(name)
        refused(folder, 2, args, texts)
    for name, args, texts in FILES:
        cli.row(name)
        refused(folder, 1, args, texts)


def test_all_problems_at_once(folder):
    cli.row("several problems")
    cli.write_config(folder, run__steps=0, model__d_modl=3, optim__lr="x")
    refused(folder, 2, ["train", "c.json"], ["run.steps", "model.d_modl", "optim.lr"])


def test_help(folder):
    for args in [["--help"], ["-h"], ["help"], ["bench", "collectives", "--help"]] + [
            form for name in "train init eval inspect diff bench run".split()
            for form in ([name, "--help"], [name, "-h"], ["help", name], [name, "x", "--help"])]:
        cli.row(" ".join(args))
        r = cli.run(folder, *args)
        cli.check_ok(r)
        cli.check(r.stdout.startswith("usage: lockstep") and not r.stderr, "help on stdout alone")
    cli.row("no arguments")
    r = cli.run(folder)
    cli.equal(r.returncode, 2, "exit status")
    cli.check(r.stderr.startswith("usage: lockstep") and not r.stdout, "usage on stderr alone")


def test_lost_output(folder):
    """Every command whose result does not get out fails; the text goes nowhere else."""
    cli.write_config(folder, run__dir="out")
    cli.row("a run")
    cli.check_ok(cli.run(folder, "train", "c.json"))
    rows = [["eval", "out"], ["inspect", "out"], ["inspect", "out", "--json"], ["diff", "out", "out"], ["--help"],
            ["train", "--help"], ["--version"], COLLECTIVES + ["--bytes", "1K"], ["train", "c.json", "--dry-run"], ["init", "c.json", "-o", "i.st"]]
    for args in rows:
        cli.row("full: " + " ".join(args))
        with open("/dev/full", "wb") as full:
            cli.check_error(cli.run(folder, *args, stdout=full), 1, "stdout")
    cli.row("closed streams")
    done = subprocess.run(f'"{cli.command()}" train c.json --set run.dir=closed >&- 2>&-', shell=True, cwd=folder)
    cli.equal(done.returncode, 0, "exit status")
    cli.equal([line["step"] for line in cli.metrics(folder, "closed")], ["1", "2", "3", "4", "4"], "metrics")


def test_not_finite(folder):
    """The first run's files are moved, not lost; the failed run keeps what its last good step has reached."""
    cli.row("not finite")
    cli.write_config(folder)
    cli.check_ok(cli.run(folder, "train", "c.json"))
    kept = cli.tree(os.path.join(folder, "r", "checkpoints"))
    for micro in (1, 4):
        cli.write_config(folder, optim__lr=1e30, batch__micro=micro)
        r = cli.run(folder, "train", "c.json")
        cli.check_error(r, 1, "step 2", "micro-batch 0", "loss is", "gradient")
        cli.check(cli.error_lines(r)[0] in cli.read(folder, "r", "log.txt").decode(), "the error is in log.txt")
        cli.equal([line["step"] for line in cli.metrics(folder)], ["1"], "steps in metrics")
        cli.equal(cli.summary(folder)["steps"], 1, "steps in the summary")
        good = cli.write_config(folder, "good.json", run__steps=1, run__dir="good", batch__micro=micro, optim__lr=1e30,
                                optim__schedule={"type": "constant"})
        cli.write_config(folder, optim__lr=1e30, batch__micro=micro, optim__schedule={"type": "constant"})
        cli.check_error(cli.run(folder, "train", "c.json"), 1, "step 2")
        cli.check_ok(cli.run(folder, "train", good))
        cli.check_ok(cli.run(folder, "diff", "r", "good"))
        shutil.rmtree(os.path.join(folder, "good"))
    cli.equal(cli.tree(os.path.join(folder, "r", "previous-1", "checkpoints")), kept, "the first run's checkpoints")
    shutil.rmtree(os.path.join(folder, "r"))


def test_memory_limit(folder):
    """The plan fits, but loading the text does not."""
    cli.row("allocation beyond the limit")
    cli.write_text(folder, "large.txt", words=600_000)
    cli.write_config(folder, run__memory_mb=2, data__train="large.txt")
    before = cli.tree(folder)
    cli.check_error(cli.run(folder, "train", "c.json"), 1, "bytes", "asked for", "peak", "run.memory_mb")
    cli.equal(cli.tree(folder), before, "files")
    os.remove(os.path.join(folder, "large.txt"))


def as_nobody(program):
    return {"program": program, "user": "nobody", "group": "nogroup", "extra_groups": []} if ROOT else {}


def test_permissions(folder):
    cli.row("permissions")
    program = os.path.join(folder, "lockstep")
    shutil.copy(cli.command(), program)
    if ROOT and cli.run(folder, "--version", **as_nobody(program)).returncode:
        cli.skip("the command does not run as nobody here")
        return
    cli.write_config(folder, run__dir="locked/r")
    os.mkdir(os.path.join(folder, "locked"), 0o555)
    with open(os.path.join(folder, "secret.txt"), "w") as f:
        f.write("secret")
    os.chmod(f.name, 0)
    for name, args, texts in [("below a read-only directory", [], ["locked/r"]),
                              ("a read-only directory", ["--set", "run.dir=locked"], ["locked", "not writable"]),
                              ("an unreadable text", ["--set", "data.train=secret.txt"], ["secret.txt"])]:
        cli.row(name)
        before = cli.tree(folder)
        r = cli.run(folder, "train", "c.json", *args, **as_nobody(program))
        cli.check_error(r, 2, *texts, "ermission denied")
        cli.equal(cli.tree(folder), before, "files")
    os.remove(program)


def file_size_limit(limit):
    return {"preexec_fn": lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))}


def check_lost_metrics(folder, r, run_dir="r"):
    """The training went on to its end, says so, and every line that is there is whole."""
    cli.check_error(r, 1, "metrics.jsonl")
    cli.equal(len(cli.warnings(r.stderr)), r.stderr.count("cannot be written") +
              r.stderr.count("no more metrics") - 1, "one warning a lost file")
    lines = cli.metrics(folder, run_dir)
    cli.check(0 < len(lines) < 400, f"{len(lines)} lines of metrics")
    cli.check_ok(cli.run(folder, "inspect", run_dir))
    cli.equal(cli.summary(folder, run_dir)["steps"], 400, "steps")


def test_file_size(folder):
    cli.row("a limit that the logs reach")
    cli.write_config(folder, run__steps=400, model__d_model=8, model__n_layer=1, data__tokenizer="char",
                     data__val_fraction=None)  # a checkpoint of 25 KB
    check_lost_metrics(folder, cli.run(folder, "train", "c.json", **file_size_limit(40_000)))
    cli.row("a limit that the checkpoint reaches")
    before = cli.tree(os.path.join(folder, "r"))
    r = cli.run(folder, "train", "c.json", "--set", "log.every=400", **file_size_limit(16_000))
    cli.check_error(r, 1, "step 400 is not saved", "r/checkpoints/", "writing", "File too large")
    cli.equal([p for p in cli.tree(os.path.join(folder, "r", "previous-1"))], before, "the earlier run")
    cli.equal(cli.tree(os.path.join(folder, "r", "checkpoints")), [], "no new checkpoint")
    cli.equal(cli.temporaries(folder), [], "temporary files")
    cli.row("init over an older file")
    cli.check_ok(cli.run(folder, "init", "c.json", "-o", "old.st"))
    old = cli.read(folder, "old.st")
    cli.check_error(cli.run(folder, "init", "c.json", "-o", "old.st", "--set", "run.seed=2",
                            **file_size_limit(4_000)), 1, "old.st", "writing")
    cli.equal(cli.read(folder, "old.st"), old, "the older file")
    cli.equal(cli.temporaries(folder), [], "temporary files")
    shutil.rmtree(os.path.join(folder, "r"))


def test_full_disk(folder):
    """A disk that the metrics and log fill: 48 KiB, of which a file takes all but some pages."""
    cli.row("full disk")
    disk = os.path.join(folder, "disk")
    os.mkdir(disk)
    if not ROOT or subprocess.run(["mount", "-t", "tmpfs", "-o", "size=96k", "none", disk]).returncode:
        cli.skip("no tmpfs can be mounted")
        return
    cli.write_config(folder, run__dir="disk/r", run__steps=400, model__d_model=16, model__n_layer=1,
                     data__val_fraction=None)
    with open(os.path.join(disk, "ballast"), "wb") as f:
        f.write(b"x" * 40_960)
    r = cli.run(folder, "train", "c.json")
    cli.check_error(r, 1, "disk/r/", "No space left on device")
    cli.check("metrics.jsonl" in r.stderr and "warning: " in r.stderr, "metrics.jsonl is named")
    cli.check("step 400" in r.stderr, "the training went on")
    cli.check(cli.metrics(folder, "disk/r"), "whole lines of metrics")
    cli.equal(cli.temporaries(folder), [], "temporary files")
    cli.row("disk full from the start")
    with open(os.path.join(disk, "ballast"), "ab", 0) as f:
        try:
            while f.write(b"x" * 4096):
                pass
        except OSError:
            pass
    r = cli.run(folder, "train", "c.json", "--set", "run.dir=disk/second")
    cli.check(r.returncode in (1, 2), f"exit {r.returncode}")
    cli.check_error(r, r.returncode, "disk/second", "No space left on device")
    cli.equal(cli.temporaries(folder), [], "temporary files")
    subprocess.run(["umount", disk])


def test_address_space(folder):
    """OpenBLAS waits for ever for buffers that a limit denies it; Lockstep refuses before."""
    if os.environ.get("LS_SANITIZE"):
        return
    cli.row("no addresses for OpenBLAS")
    cli.write_config(folder)
    limit = 2 << 30
    before = cli.tree(folder)
    r = cli.run(folder, "train", "c.json", "--set", "run.threads=64",
                preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_AS, (limit, limit)))
    cli.check_error(r, 1, "OpenBLAS", "16384 MiB", "64 threads", "ulimit -v")
    cli.equal(cli.tree(folder), before, "files")


# name, product that the shim gets wrong: m,n,k,a transposed,b transposed; the exit status and its text
BLAS = [
    ("none", "none", 0),
    ("tall, b transposed", "65,33,129,0,1", 1),
    ("wide", "5,128,66,0,0", 1),
    ("both transposed", "33,7,65,1,1", 1),
    ("a row", "1,37,19,0,0", 1),
]


def test_wrong_blas(folder, shim):
    for name, wrong, status in BLAS:
        cli.row("BLAS wrong for: " + name)
        cli.write_config(folder)
        env = dict(os.environ, LD_PRELOAD=shim, LS_WRONG_PRODUCT=wrong)
        before = cli.tree(folder)
        r = cli.run(folder, "train", "c.json", env=env)
        if not status:
            cli.check_ok(r)
            shutil.rmtree(os.path.join(folder, "r"))
            continue
        cli.check_error(r, status, "OpenBLAS", "computes wrong", "OPENBLAS_CORETYPE")
        cli.equal(cli.tree(folder), before, "files")


def main():
    tests = [test_refusals, test_all_problems_at_once, test_help, test_lost_output, test_not_finite,
             test_memory_limit, test_address_space, test_permissions, test_file_size, test_full_disk]
    for test in tests:
        with cli.workspace() as folder:
            test(folder)
    if len(sys.argv) > 2:
        with cli.workspace() as folder:
            test_wrong_blas(folder, os.path.abspath(sys.argv[2]))
    cli.finish()


if __name__ == "__main__":
    # A mount of this test must not outlive it, however it ends.
    if ROOT and "LS_TEST_UNSHARED" not in os.environ and shutil.which("unshare") and not subprocess.run(
            ["unshare", "-m", "true"], stderr=subprocess.DEVNULL).returncode:
        os.environ["LS_TEST_UNSHARED"] = "1"
        os.execvp("unshare", ["unshare", "-m", "--propagation", "private", sys.executable, *sys.argv])
    main()
