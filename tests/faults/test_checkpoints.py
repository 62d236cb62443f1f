"""test_checkpoints.py - checkpoints that are damaged, of something else, in use or in the way: nothing is lost or guessed.

    test_checkpoints.py LOCKSTEP

A run of 6 steps with checkpoints at 2, 4 and 6 is the start of every row.  Damage to the newest makes it give way to
the one before, which the log says; a named one is an error; in no row is there a crash, a hang or another result than
that of the undisturbed run.
"""
import json
import os
import shutil
import signal
import subprocess
import sys
import time
import zlib

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
import cli  # noqa: E402
import jobs  # noqa: E402

ROOT = os.geteuid() == 0
RANKS = 2


def part(folder, step, name):
    return os.path.join(folder, "r", "checkpoints", f"step-{step:08}", name)


def shard(rank):
    return f"rank-{rank:05}-of-{RANKS:05}.safetensors"


def flip(path, at):
    with open(path, "r+b") as f:
        f.seek(at, 2 if at < 0 else 0)
        byte = f.read(1)[0]
        f.seek(-1, 1)
        f.write(bytes([byte ^ 0x10]))


def cut(path, size):
    os.truncate(path, size if size >= 0 else os.path.getsize(path) + size)


def append(path):
    with open(path, "ab") as f:
        f.write(b"\0")


def swap(folder, a, b):
    os.rename(a, a + "x")
    os.rename(b, a)
    os.rename(a + "x", b)


def edit(path, change):
    """The manifest with a change, and a CRC-32 that fits."""
    with open(path, "rb") as f:
        text = f.read()
    manifest = json.loads(text)
    del manifest["crc32"]
    change(manifest)
    body = json.dumps(manifest).encode()[:-1]
    with open(path, "wb") as f:
        f.write(body + b',"crc32":"%08x"}\n' % zlib.crc32(body))


def link(path):
    os.rename(path, path + ".away")
    os.symlink(os.path.basename(path) + ".away", path)


def edited(change):
    return lambda f: edit(part(f, 6, "manifest.json"), change)


def tensor(manifest, name):
    return next(t for t in manifest["tensors"] if t["name"] == name)


def state(**changes):
    def change(manifest):
        held = json.loads(manifest["state"])
        for key, value in changes.items():
            if value is None:
                del held[key]
            else:
                held[key] = value
        manifest["state"] = json.dumps(held)
    return change


def drop_tensor(manifest):
    """One moment less, and its bytes given to nobody: the files' sizes do not fit any more."""
    manifest["tensors"] = [t for t in manifest["tensors"] if t["name"] != "exp_avg.ln_f.weight"]


# name, what happens to the newest checkpoint, texts of the reason that is given
DAMAGE = [
    ("first byte of a header", lambda f: flip(part(f, 6, shard(1)), 0), [shard(1), "CRC-32"]),
    ("a byte of a header", lambda f: flip(part(f, 6, shard(1)), 100), [shard(1), "CRC-32"]),
    ("a byte of a tensor", lambda f: flip(part(f, 6, shard(0)), -5), [shard(0), "tensor '", "bytes", "CRC-32", "expected"]),
    ("one byte less", lambda f: cut(part(f, 6, shard(0)), -1), [shard(0), "truncated: expected", "found"]),
    ("a thousand bytes less", lambda f: cut(part(f, 6, shard(0)), -1000), [shard(0), "truncated: expected"]),
    ("nothing left", lambda f: cut(part(f, 6, shard(0)), 0), [shard(0), "truncated: expected", "found 0"]),
    ("one byte more", lambda f: append(part(f, 6, shard(1))), [shard(1), "too long: expected"]),
    ("shards swapped", lambda f: swap(f, part(f, 6, shard(0)), part(f, 6, shard(1))), [shard(0), "another file than the manifest's"]),
    ("a shard missing", lambda f: os.remove(part(f, 6, shard(1))), [shard(1), "No such file"]),
    ("a shard of another step", lambda f: shutil.copy(part(f, 4, shard(1)), part(f, 6, shard(1))), [shard(1), "another file"]),
    ("a shard that is a link", lambda f: link(part(f, 6, shard(1))), [shard(1), "symbolic link"]),
    ("a shard that is a directory", lambda f: (os.remove(part(f, 6, shard(1))), os.mkdir(part(f, 6, shard(1)))), [shard(1), "regular file"]),
    ("manifest missing", lambda f: os.remove(part(f, 6, "manifest.json")), ["manifest.json", "No such file"]),
    ("manifest empty", lambda f: cut(part(f, 6, "manifest.json"), 0), ["manifest.json", "cut off"]),
    ("manifest cut", lambda f: cut(part(f, 6, "manifest.json"), -1), ["manifest.json", "cut off"]),
    ("manifest flipped", lambda f: flip(part(f, 6, "manifest.json"), 300), ["manifest.json", "its CRC-32 is"]),
    ("manifest a link", lambda f: link(part(f, 6, "manifest.json")), ["manifest.json", "symbolic link"]),
    ("manifest of another step", lambda f: shutil.copy(part(f, 4, "manifest.json"), part(f, 6, "manifest.json")), ["step-00000006", "another file"]),
    ("a path in a name", edited(lambda m: m["files"][0].update(name="../step-00000004/" + shard(0))), ["../step-00000004", "not the name"]),
    ("an absolute name", edited(lambda m: m["files"][0].update(name="/etc/passwd")), ["/etc/passwd", "not the name"]),
    ("rows that overflow", edited(lambda m: tensor(m, "wte.weight")["chunks"][0].update(rows=2**64 - 1)), ["wte.weight", "row"]),
    ("a shape that overflows", edited(lambda m: tensor(m, "wte.weight").update(shape=[2**40, 2**40])), ["wte.weight", "more bytes"]),
    ("a tensor twice", edited(lambda m: m["tensors"].append(m["tensors"][0])), ["twice"]),
    ("a hole", edited(drop_tensor), ["byte"]),
    ("a newer format", edited(lambda m: m.update(lockstep_checkpoint=2)), ["version 2"]),
    ("no seed", edited(state(seed=None)), ["state", "seed"]),
    ("no cursor", edited(state(sequences=None)), ["state", "sequences"]),
    ("no schedule", edited(state(schedule=None)), ["state", "schedule"]),
    ("no data", edited(state(data=None)), ["state", "data"]),
    ("a step that is none", edited(state(step="six")), ["state", "step"]),
]


def start(folder):
    """Fresh files from a copy, which a row may spoil."""
    shutil.rmtree(os.path.join(folder, "r"), ignore_errors=True)
    shutil.copytree(os.path.join(folder, "good"), os.path.join(folder, "r"))


def resume(folder, *args, **options):
    return cli.run(folder, "train", "c.json", "--resume", "auto", *args, **options)


def one_line(text):
    return " ".join(text.split())


def test_damage(folder):
    for i, (name, spoil, texts) in enumerate(DAMAGE):
        cli.row(name)
        start(folder)
        spoil(folder)
        nproc = [[], ["--nproc", "2"], ["--nproc", "4"]][i % 3]
        r = resume(folder, "--set", "run.steps=8", *nproc)
        cli.check_ok(r)
        passed = [line for line in r.stderr.splitlines() if "passed over" in line]
        cli.equal(len(passed), 1, f"lines about it in {r.stderr[-600:]!r}")
        for text in texts:
            cli.check(text in one_line(" ".join(passed)), f"{text!r} in {passed}")
        cli.check("going on after step 4" in r.stderr, "it goes on from the one before")
        cli.equal(cli.summary(folder)["state_sha256"], cli.summary(folder, "longer")["state_sha256"], "state_sha256")
        if i % 2:
            continue
        start(folder)
        spoil(folder)
        r = cli.run(folder, "inspect", os.path.dirname(part(folder, 6, "x")))
        if "state" not in texts:  # inspect knows nothing of what training needs
            cli.check_error(r, 1, *texts)
        r = cli.run(folder, "train", "c.json", "--resume", "r/checkpoints/step-00000006", "--set", "run.steps=8")
        cli.check_error(r, 1, *texts)


def test_all_damaged(folder):
    cli.row("none is valid")
    start(folder)
    for step in (2, 4, 6):
        flip(part(folder, step, shard(0)), -5)
    before = cli.tree(os.path.join(folder, "r"))
    r = resume(folder)
    cli.check_error(r, 1, "none of the 3 checkpoints", "step-00000002", "--resume never")
    cli.equal(cli.tree(os.path.join(folder, "r")), before, "files")
    cli.check_error(cli.run(folder, "eval", "r"), 1, "no checkpoint of 3 is valid")
    cli.check_error(cli.run(folder, "repair", "r"), 1, "none of its 3")


def test_repair(folder):
    cli.row("repair")
    start(folder)
    flip(part(folder, 6, shard(0)), -5)
    os.remove(os.path.join(folder, "r", "checkpoints", "latest"))
    os.mkdir(os.path.join(folder, "r", "checkpoints", ".tmp-step-00000008-1"))
    r = cli.run(folder, "repair", "r")
    cli.check_ok(r)
    cli.check("step-00000006: not valid" in r.stdout and "step-00000004: valid" in r.stdout, r.stdout)
    cli.equal(cli.read(folder, "r", "checkpoints", "latest"), b"step-00000004\n", "latest")
    cli.equal(sorted(os.listdir(os.path.join(folder, "r", "checkpoints"))),
              ["latest", "step-00000002", "step-00000004", "step-00000006"], "nothing else is removed")
    r = cli.run(folder, "eval", "r")
    cli.check_ok(r)
    cli.check("passed over" in r.stderr, "eval says it too")
    for text in ("", "nonsense", "step-00000002\n", "../../etc\n"):
        cli.row(f"latest holds {text!r}")
        with open(os.path.join(folder, "r", "checkpoints", "latest"), "w") as f:
            f.write(text)
        cli.check("going on after step 4" in resume(folder, "--set", "run.steps=5").stderr, "nothing depends on it")
        start(folder)
        flip(part(folder, 6, shard(0)), -5)


# name, arguments, texts
OTHERS = [
    ("another model", ["--set", "model.d_model=16"], ["model.d_model is 16, the checkpoint has 32"]),
    ("two keys", ["--set", "optim.lr=0.5", "--set", "run.seed=3"], ["optim.lr", "run.seed is 3, the checkpoint has 1337"]),
    ("another optimizer", ["--set", "optim.type=sgd"], ["optim.type", "optim.weight_decay"]),
    ("another batch", ["--set", "batch.global=8"], ["batch.global is 8"]),
    ("another vocabulary", ["--set", "model.vocab_size=300"], ["model.vocab_size"]),
    ("another tokenizer", ["--set", "data.tokenizer=char"], ["data.tokenizer"]),
    ("another data file", ["--set", "data.train=other.txt"], ["data.train: other.txt", "not the file of the checkpoint", "--new-data"]),
    ("two data files", ["--set", 'data.train=["text.txt","other.txt"]'], ["data.train: 2 files", "--new-data"]),
    ("compressed gradients", ["--set", "parallel.compress=bf16"], ["parallel.compress"]),
]


def test_others(folder):
    start(folder)
    before = cli.tree(os.path.join(folder, "r"))
    for name, args, texts in OTHERS:
        cli.row(name)
        cli.check_error(resume(folder, "--set", "run.steps=8", *args), 2, "step-00000006", *texts)\
            if "--new-data" not in texts else cli.check_error(resume(folder, "--set", "run.steps=8", *args), 2, *texts)
        cli.equal(cli.tree(os.path.join(folder, "r")), before, "files")
    cli.row("shapes that do not fit, though allowed")
    r = resume(folder, "--set", "run.steps=8", "--set", "model.d_model=16", "--allow-change", "model.d_model",
               "--set", "model.d_ff=64", "--allow-change", "model.d_ff")
    cli.check_error(r, 1, "'exp_avg.h.0.attn.proj.weight' has shape (32,32), expected (16,16)", "more")
    cli.equal(cli.tree(os.path.join(folder, "r")), before, "files")
    cli.row("a model with one layer more")
    r = resume(folder, "--set", "run.steps=8", "--set", "model.n_layer=3", "--allow-change", "model.n_layer")
    cli.check_error(r, 1, "missing", "h.2.", "more")
    cli.row("what may differ")
    r = resume(folder, "--set", "run.steps=7", "--set", "run.threads=2", "--set", "log.every=3", "--set", "eval.batches=1",
               "--set", "checkpoint.keep=9", "--set", "parallel.bucket_mb=1", "--set", "run.memory_mb=400", "--nproc", "2")
    cli.check_ok(r)
    start(folder)
    cli.row("new data")
    r = resume(folder, "--set", "run.steps=8", "--set", "data.train=other.txt", "--new-data")
    cli.check_ok(r)
    cli.check("going on after step 6" in r.stderr, "it goes on")
    cli.row("an edited file under the same name")
    start(folder)
    os.rename(os.path.join(folder, "text.txt"), os.path.join(folder, "kept.txt"))
    shutil.copy(os.path.join(folder, "kept.txt"), os.path.join(folder, "text.txt"))
    flip(os.path.join(folder, "text.txt"), 500)
    cli.check_error(resume(folder, "--set", "run.steps=8"), 2, "data.train", "--new-data")
    os.rename(os.path.join(folder, "kept.txt"), os.path.join(folder, "text.txt"))


def test_new_data(folder):
    """A char tokenizer stays; interrupted on the new data, it goes on in them."""
    cli.write_config(folder, "char.json", run__steps=4, data__tokenizer="char", data__val_fraction=None, optim__schedule={"steps": 12})
    other = ["--set", "data.train=few.txt"]
    for name, text in [("few.txt", "so to be or not to be that is the best bit " * 40), ("odd.txt", "to be or n\u00f6t " * 100)]:
        with open(os.path.join(folder, name), "w", encoding="utf-8") as f:
            f.write(text)

    def go_on(steps, *args):
        return cli.run(folder, "train", "char.json", "--resume", "auto", "--set", f"run.steps={steps}", *args)

    cli.row("a char tokenizer and new data")
    cli.check_ok(cli.run(folder, "train", "char.json"))
    shutil.copytree(os.path.join(folder, "r"), os.path.join(folder, "first"))
    cli.check_ok(go_on(10, *other, "--new-data", "--nproc", "2"))
    whole = cli.summary(folder)["state_sha256"]
    cli.row("a character that it does not know")
    cli.check_error(go_on(12, "--set", "data.train=odd.txt", "--new-data"), 2, "data.train", "odd.txt", "'\u00f6' (U+00F6)", "byte 10")
    cli.row("model.init of other characters, as many")
    with open(os.path.join(folder, "as_many.txt"), "w") as f:
        f.write("".join(chr(ord(c) ^ 32 * c.isalpha()) for c in cli.read(folder, "text.txt").decode()))
    cli.check_error(cli.run(folder, "train", "char.json", "--set", "model.init=first", "--set", "data.train=as_many.txt",
                            "--set", "run.dir=n"), 2, "model.init", "its token 1 stands for 'a'", "for 'A'")
    cli.check(not os.path.exists(os.path.join(folder, "n")), "nothing is written")
    for name, args in [("the same words again", ["--new-data"]), ("without them", [])]:
        cli.row(f"new data, interrupted, {name}")
        shutil.rmtree(os.path.join(folder, "r"))
        shutil.copytree(os.path.join(folder, "first"), os.path.join(folder, "r"))
        cli.check_ok(go_on(7, *other, "--new-data"))
        cli.check_ok(go_on(10, *other, *args))
        cli.equal(cli.summary(folder)["state_sha256"], whole, "state_sha256")


def test_memory(folder):
    """Wherever training alone fits run.memory_mb, it does with its saves, to the same bits."""
    cli.write_config(folder, "tight.json", run__steps=4, data__val_fraction=None, model__d_model=64, model__context=64, batch__global=8)
    few = "no memory for a snapshot"

    def train(mb, *args):
        return cli.run(folder, "train", "tight.json", "--set", f"run.memory_mb={mb}", *args)

    cli.check_ok(train(0))
    want = cli.summary(folder)["state_sha256"]
    for args in (["--set", "checkpoint.every=1"], ["--set", "checkpoint.every=1", "--set", "checkpoint.compress=true"]):
        said = []
        for mb in (3, 4, 5, 16):
            cli.row(f"run.memory_mb {mb} {args[-1]}")
            r = train(mb, *args)
            if r.returncode and train(mb).returncode:
                continue
            cli.check_ok(r)
            cli.equal(cli.summary(folder)["state_sha256"], want, "state_sha256")
            said.append(few in r.stderr)
        cli.equal((said[0], said[-1]), (True, False), "warnings at the tightest and the widest limit")


def test_never_and_paths(folder):
    cli.row("never")
    start(folder)
    cli.check_ok(cli.run(folder, "train", "c.json", "--resume", "never", "--set", "run.steps=2"))
    cli.equal(cli.read(folder, "r", "previous-1", "summary.json"), cli.read(folder, "good", "summary.json"), "the old run")
    cli.equal(cli.latest(folder), "r/checkpoints/step-00000002", "the new one")
    cli.row("an older one of the same run")
    start(folder)
    r = cli.run(folder, "train", "c.json", "--resume", "r/checkpoints/step-00000002", "--stop-at", "3")
    cli.check_ok(r)
    cli.equal(sorted(os.listdir(os.path.join(folder, "r", "checkpoints"))), ["latest", "step-00000002", "step-00000003"],
              "later ones are moved")
    cli.equal(sorted(os.listdir(os.path.join(folder, "r", "previous-1", "checkpoints"))), ["step-00000004", "step-00000006"],
              "but not lost")
    cli.equal([m["step"] for m in cli.metrics(folder) if "loss" in m], ["1", "2", "3"], "metrics are cut")
    cli.row("of another run")
    r = cli.run(folder, "train", "c.json", "--resume", "good", "--set", "run.dir=n", "--set", "run.steps=8")
    cli.check_ok(r)
    cli.equal(cli.summary(folder, "n")["state_sha256"], cli.summary(folder, "longer")["state_sha256"], "state_sha256")
    cli.row("with model.init")
    r = cli.run(folder, "train", "c.json", "--resume", "good", "--set", "model.init=good")
    cli.check_error(r, 2, "--resume", "model.init")
    cli.row("model.init of a checkpoint")
    cli.check_ok(cli.run(folder, "train", "c.json", "--set", "model.init=good/checkpoints/step-00000004", "--set", "run.dir=n"))
    cli.row("steps 999 and 1000")
    for step in (999, 1000):
        shutil.copytree(os.path.dirname(part(folder, 2, "x")), os.path.dirname(part(folder, step, "x")))
        edit(part(folder, step, "manifest.json"), lambda m, s=step: m.update(step=s))
    cli.check("step-00001000: valid, step 1000" in cli.run(folder, "repair", "r").stdout, "1000 is the newer one")


def test_not_shared(folder):
    cli.row("ranks in different directories")
    for rank in range(2):
        os.makedirs(os.path.join(folder, f"own{rank}"))
        shutil.copy(os.path.join(folder, "text.txt"), os.path.join(folder, f"own{rank}"))
        shutil.copy(os.path.join(folder, "c.json"), os.path.join(folder, f"own{rank}"))
    r = cli.run(folder, "run", "-n", "2", "--", "sh", "-c", 'cd "own$RANK"; exec "$@"', "sh", cli.command(), "train", "c.json")
    cli.equal(r.returncode, 1, "exit status")
    cli.check("step 2 is not saved: rank 1: " in r.stderr and "same one for all ranks" in r.stderr, r.stderr[-800:])
    cli.check("step 6/6" in r.stderr, "training went on")
    cli.row("a checkpoint that one rank alone has")
    shutil.copytree(os.path.join(folder, "good"), os.path.join(folder, "own0", "r"), dirs_exist_ok=True)
    r = cli.run(folder, "run", "-n", "2", "--", "sh", "-c", 'cd "own$RANK"; exec "$@"', "sh", cli.command(), "train", "--resume",
                "r", "c.json", "--set", "run.steps=8")
    cli.check("rank 1: " in r.stderr and "No such file" in r.stderr, r.stderr[-800:])


def test_lock(folder):
    cli.row("two runs in one directory")
    start(folder)
    p = cli.start(folder, "train", "c.json", "--resume", "auto", "--set", "run.steps=100000000")
    try:
        end = time.monotonic() + 20
        while len(cli.metrics(folder)) < 10 and time.monotonic() < end:
            time.sleep(0.02)
        began = time.monotonic()
        r = resume(folder, "--set", "run.steps=8")
        cli.check_error(r, 1, "in use", "10 s")
        cli.check(9 < time.monotonic() - began < 15 * jobs.SLOWER, "it waits for a holder that is about to end")
    finally:
        p.send_signal(signal.SIGTERM)
        cli.equal(p.wait(30), 143, "the first run ends well")


def test_disk(folder):
    cli.row("a disk that fills: the run goes on and says so")
    disk = os.path.join(folder, "disk")
    os.mkdir(disk)
    if not ROOT or subprocess.run(["mount", "-t", "tmpfs", "-o", "size=2m", "none", disk], check=False).returncode:
        cli.skip("no tmpfs can be mounted")
        return
    try:
        shutil.copytree(os.path.join(folder, "good"), os.path.join(disk, "r"))
        with open(os.path.join(disk, "ballast"), "wb") as f:
            f.write(b"x" * 300_000)
        sets = ["--set", "run.dir=disk/r", "--set", "checkpoint.every=1", "--set", "run.steps=9"]
        r = resume(folder, *sets)
        cli.check_error(r, 1, "step 9 is not saved", "No space left", "MiB are needed")
        cli.check("step 7 is not saved" in r.stderr and "the last checkpoint is that of step 6" in r.stderr, "warnings")
        cli.equal(cli.latest(disk), "r/checkpoints/step-00000006", "the newest that there is")
        cli.row("on_error stop")
        r = resume(folder, *sets, "--set", "checkpoint.on_error=stop", "--nproc", "2")
        cli.equal(r.returncode, 1, "exit status")
        cli.check("step 7 is not saved" in r.stderr and "step 9/9" not in r.stderr, r.stderr[-500:])
        os.remove(os.path.join(disk, "ballast"))
        cli.row("room again")
        r = resume(folder, "--set", "run.dir=disk/r", "--set", "run.steps=8", "--set", "checkpoint.keep=1")
        cli.check_ok(r)
        cli.equal(cli.summary(disk)["state_sha256"], cli.summary(folder, "longer")["state_sha256"], "state_sha256")
    finally:
        subprocess.run(["umount", disk], check=False)


def main():
    with cli.workspace() as folder:
        cli.write_text(folder, "other.txt", words=3000)
        cli.write_config(folder, run__steps=6, checkpoint__every=2, optim__schedule={"steps": 6})
        cli.check_ok(cli.run(folder, "train", "c.json", "--nproc", "2", "--set", "run.dir=good"))
        cli.check_ok(cli.run(folder, "train", "c.json", "--set", "run.dir=longer", "--set", "run.steps=8"))
        for test in (test_damage, test_all_damaged, test_repair, test_others, test_new_data, test_memory, test_never_and_paths, test_not_shared, test_lock, test_disk):
            began = time.monotonic()
            test(folder)
            print(f"{test.__name__}: {time.monotonic() - began:.1f} s", flush=True)
    cli.finish()


main()
