#!/usr/bin/env python3
"""test_data.py LOCKSTEP - data of every format through the command: what it makes, trains on, keeps and refuses."""
import array
import json
import os
import random
import struct
import sys

sys.path.insert(0, os.path.join(os.path.dirname(__file__), ".."))
import cli  # noqa: E402

MLP = {"run": {"steps": 6, "dir": "r", "threads": 1},
       "model": {"type": "mlp", "sizes": [4, 8, 3]},
       "data": {"train": "rows.csv", "val_fraction": 0.25, "format": "csv"},
       "batch": {"global": 8}, "optim": {"lr": 0.05}, "eval": {"batches": 0}, "log": {"every": 1}}


def write(folder, name, content):
    with open(os.path.join(folder, name), "wb") as file:
        file.write(content if isinstance(content, bytes) else content.encode())
    return name


def write_mlp(folder, name="m.json", **changes):
    made = json.loads(json.dumps(MLP))
    for path, value in changes.items():
        section, key = path.split("__")
        made[section][key] = value
    return write(folder, name, json.dumps(made))


def rows(n=64):
    """Three classes around three corners, numbers of one byte."""
    draw = random.Random(3)
    made = []
    for _ in range(n):
        label = draw.randrange(3)
        made.append(([min(255, max(0, 200 * (k == label) + draw.randrange(40))) for k in range(4)], label))
    return made


def write_csv(folder, name, some, header=True):
    lines = ["a,b,c,d,class"] * header + [",".join(map(str, x)) + f",{label}" for x, label in some]
    return write(folder, name, "\n".join(lines) + "\n")


def write_idx(folder, some):
    write(folder, "images", struct.pack(">4B3I", 0, 0, 8, 3, len(some), 2, 2) + b"".join(bytes(x) for x, _ in some))
    write(folder, "labels", struct.pack(">4BI", 0, 0, 8, 1, len(some)) + bytes(label for _, label in some))


def sha(folder, run_dir="r"):
    return cli.summary(folder, run_dir)["params_sha256"]


def train(folder, config, *args):
    return cli.check_ok(cli.run(folder, "train", config, "--resume", "never", *args))


def test_tokenize(folder):
    cli.row("a tokenizer and its tokens")
    r = cli.run(folder, "tokenize", "text.txt", "text.txt", "--vocab-size", "300", "-o", "t.json", "--special", "<|x|>",
                "--tokens", "a.bin")
    cli.check_ok(r)
    told = json.loads(r.stdout)
    cli.equal(told["vocab_size"], 300, "vocabulary")
    cli.equal(os.path.getsize(os.path.join(folder, "a.bin")), 2 * told["tokens"], "bytes of the tokens")
    cli.equal(told["bytes"], 2 * os.path.getsize(os.path.join(folder, "text.txt")), "bytes of both texts")
    cli.check(told["tokens"] < told["bytes"] / 2, "tokens are longer than bytes")
    cli.row("the same as llm.c's file")
    cli.check_ok(cli.run(folder, "tokenize", "text.txt", "text.txt", "--tokenizer", "t.json", "--tokens", "a.llmc",
                         "--format", "llmc"))
    head = array.array("i", cli.read(folder, "a.llmc")[:1024])
    cli.equal(list(head[:4]), [20240520, 1, told["tokens"], 0], "header")
    cli.equal(cli.read(folder, "a.llmc")[1024:], cli.read(folder, "a.bin"), "tokens")
    cli.row("bytes and characters")
    cli.check_ok(cli.run(folder, "tokenize", "text.txt", "--tokenizer", "byte", "--tokens", "b.bin"))
    cli.equal(cli.read(folder, "b.bin")[::2], cli.read(folder, "text.txt"), "bytes")
    cli.check_ok(cli.run(folder, "tokenize", "text.txt", "--tokenizer", "char", "--tokens", "c.bin"))
    cli.row("fewer tokens than asked for")
    write(folder, "few.txt", "ab")
    r = cli.run(folder, "tokenize", "few.txt", "--vocab-size", "300", "-o", "few.json")
    cli.check_ok(r)
    cli.check("no more than 257 tokens, 300" in r.stderr, r.stderr)


USAGE = [
    ("nothing", [], "TEXT is missing"),
    ("no size", ["text.txt", "-o", "n.json"], "--vocab-size N is missing"),
    ("no output", ["text.txt", "--vocab-size", "300"], "-o TOKENIZER.json is missing"),
    ("no number", ["text.txt", "--vocab-size", "3x", "-o", "n.json"], "'3x'"),
    ("too small", ["text.txt", "--vocab-size", "200", "-o", "n.json"], "too small"),
    ("nothing to do", ["text.txt", "--tokenizer", "byte"], "--tokens FILE is missing"),
    ("both", ["text.txt", "--tokenizer", "byte", "--vocab-size", "300"], "--tokenizer takes one"),
    ("format alone", ["text.txt", "--vocab-size", "300", "-o", "n.json", "--format", "llmc"], "--format needs --tokens"),
    ("other format", ["text.txt", "--tokenizer", "byte", "--tokens", "n", "--format", "csv"], "wanted tokens_u16 or llmc"),
    ("no text", ["nope.txt", "--vocab-size", "300", "-o", "n.json"], "nope.txt"),
    ("no tokenizer", ["text.txt", "--tokenizer", "nope.json", "--tokens", "n"], "nope.json"),
    ("WordPiece", ["text.txt", "--tokenizer", "wordpiece.json", "--tokens", "n"], '"WordPiece"'),
]


def check_refused(folder, r, *texts, before):
    cli.check_error(r, 2, *texts)
    cli.equal(cli.tree(folder), before, "files")


def test_usage(folder):
    write(folder, "wordpiece.json", '{"model": {"type": "WordPiece", "vocab": {"a": 0}}}')
    before = cli.tree(folder)
    for name, args, text in USAGE:
        cli.row(f"tokenize, {name}")
        check_refused(folder, cli.run(folder, "tokenize", *args), text, before=before)


def test_token_formats(folder):
    cli.row("text with a tokenizer.json, u16 and llm.c: the same run")
    cli.check_ok(cli.run(folder, "tokenize", "text.txt", "--tokenizer", "t.json", "--tokens", "a.bin"))
    cli.check_ok(cli.run(folder, "tokenize", "text.txt", "--tokenizer", "t.json", "--tokens", "a.llmc", "--format", "llmc"))
    hashes = []
    for kind, path in (("text", "text.txt"), ("tokens_u16", "a.bin"), ("llmc", "a.llmc")):
        cli.write_config(folder, data__tokenizer="t.json", data__format=kind, data__train=path, run__dir="runs/" + kind)
        train(folder, "c.json")
        hashes.append(sha(folder, "runs/" + kind))
    cli.equal(hashes, hashes[:1] * 3, "parameters")
    cli.row("eval of each")
    for kind, path in (("text", "text.txt"), ("tokens_u16", "a.bin"), ("llmc", "a.llmc")):
        with_file = cli.run(folder, "eval", "runs/" + kind, "--data", path)
        cli.check_ok(with_file)
        hashes.append(with_file.stdout)
        cli.check_ok(cli.run(folder, "eval", "runs/" + kind))
    cli.equal(hashes[3:], hashes[3:4] * 3, "results")


def caches(folder):
    return [name for name in os.listdir(os.path.join(folder, "runs")) if name.startswith("tokens-")]


def test_cache(folder):
    cli.row("tokens are kept beside the run")
    kept = caches(folder)
    cli.equal(len(kept), 1, "files")
    path = os.path.join("runs", kept[0])
    good = cli.read(folder, path)
    stamp = os.stat(os.path.join(folder, path)).st_mtime_ns
    cli.write_config(folder, data__tokenizer="t.json", run__dir="runs/again")
    train(folder, "c.json")
    cli.equal(os.stat(os.path.join(folder, path)).st_mtime_ns, stamp, "time of the file")
    cli.equal(sha(folder, "runs/again"), sha(folder, "runs/text"), "parameters")
    for name, bad in (("damaged", good[:-1] + bytes([good[-1] ^ 1])), ("cut", good[:-2]), ("empty", b""),
                      ("text", b"x" * len(good)), ("header", good[:8] + bytes(88))):
        cli.row(f"cache, {name}")
        write(folder, path, bad)
        write(folder, os.path.join("runs", f".{kept[0]}.tmp-1-0"), b"of a killed process")
        train(folder, "c.json")
        cli.equal(sha(folder, "runs/again"), sha(folder, "runs/text"), "parameters")
        cli.equal(cli.read(folder, path), good, "the file, made anew")
    cli.row("cache, another text")
    write(folder, "other.txt", cli.read(folder, "text.txt") + b" more")
    cli.write_config(folder, data__tokenizer="t.json", data__train="other.txt", run__dir="runs/again")
    train(folder, "c.json")
    cli.equal(len(caches(folder)), 2, "files")
    cli.row("two ranks")
    cli.write_config(folder, data__tokenizer="t.json", run__dir="runs/two")
    train(folder, "c.json", "--nproc", "2")
    cli.equal(sha(folder, "runs/two"), sha(folder, "runs/text"), "parameters")
    cli.equal(cli.temporaries(folder), [], "temporary files")


def test_tables(folder):
    some = rows()
    write_csv(folder, "rows.csv", [([x / 255 for x in xs], label) for xs, label in some])
    write_idx(folder, some)
    cli.row("csv")
    write_mlp(folder)
    train(folder, "m.json")
    summary = cli.summary(folder)
    evaluations = [line for line in cli.metrics(folder) if "val_loss" in line]
    cli.equal(evaluations[-1]["val_accuracy"], json.dumps(summary["val_accuracy"]), "accuracy of the metrics")
    cli.equal(summary["tokens"], 6 * 8, "a row is one token")
    cli.check(0.5 < summary["val_accuracy"] <= 1, f"accuracy {summary['val_accuracy']}")
    first = sha(folder)
    r = cli.run(folder, "eval", "r")
    cli.check_ok(r)
    told = json.loads(r.stdout)
    cli.equal(told, {"loss": summary["val_loss"], "perplexity": told["perplexity"], "tokens": 16,
                     "accuracy": summary["val_accuracy"]}, "eval")
    cli.row("csv without a header, in two files")
    write_csv(folder, "one.csv", [([x / 255 for x in xs], label) for xs, label in some[:20]], header=False)
    write_csv(folder, "two.csv", [([x / 255 for x in xs], label) for xs, label in some[20:]])
    write_mlp(folder, data__train=["one.csv", "two.csv"])
    train(folder, "m.json")
    cli.equal(sha(folder), first, "parameters")
    cli.row("idx: the same up to the rounding of x / 255")
    write_mlp(folder, data__train=["images", "labels"], data__format="idx")
    train(folder, "m.json")
    cli.check(abs(cli.summary(folder)["val_loss"] - summary["val_loss"]) < 1e-5, "validation loss")
    one = sha(folder)
    cli.check_ok(cli.run(folder, "eval", "r", "--data", "images", "--data", "labels"))
    cli.check_error(cli.run(folder, "eval", "r", "--data", "images"), 2, "needs two")
    for n, strategy in (("2", "ddp"), ("4", "ddp"), ("2", "fsdp"), ("4", "fsdp")):
        cli.row(f"idx, {strategy} on {n} ranks: the same bits")
        train(folder, "m.json", "--nproc", n, "--set", f"parallel.strategy={strategy}")
        cli.equal(sha(folder), one, "parameters")
        cli.equal(cli.summary(folder)["val_accuracy"], summary["val_accuracy"], "accuracy")
    cli.row("init, then model.init")
    cli.check_ok(cli.run(folder, "init", "m.json", "-o", "m.safetensors"))
    write_mlp(folder, data__train=["images", "labels"], data__format="idx", model__init="m.safetensors")
    train(folder, "m.json")
    cli.equal(sha(folder), one, "parameters")
    cli.row("dry run, bench")
    cli.check_ok(cli.run(folder, "train", "m.json", "--dry-run"))
    cli.check_ok(cli.run(folder, "bench", "train", "m.json", "--steps", "3", "--json"))


def bad_rows():
    """name, changes of the config, texts of the error line; files are written beforehand."""
    return [
        ("ragged", {"data__train": "ragged.csv"}, ["data.train", "ragged.csv: line 3 has 2 columns"]),
        ("NaN", {"data__train": "nan.csv"}, ["nan.csv: line 2, column 4: found NaN"]),
        ("text", {"data__train": "text.csv"}, ["text.csv: line 3, column 2", '"red"']),
        ("text in data.val", {"data__val": "text.csv", "data__val_fraction": 0}, ["data.val", "text.csv: line 3"]),
        ("class", {"model__sizes": [4, 8, 2]}, ["rows.csv: line ", "column 5: class 2", "2 classes"]),
        ("other size", {"model__sizes": [5, 8, 3]}, ["rows.csv: line 2 has 5 columns"]),
        ("missing", {"data__train": "nope.csv"}, ["nope.csv"]),
        ("one file of idx", {"data__format": "idx", "data__train": "images"}, ["needs two: [images, labels]"]),
        ("idx swapped", {"data__format": "idx", "data__train": ["labels", "images"]}, ["the images come first"]),
        ("idx magic", {"data__format": "idx", "data__train": ["rows.csv", "labels"]}, ["rows.csv: not an idx file"]),
        ("text for an mlp", {"data__format": "text"}, ["data.format", "mlp"]),
        ("no val left", {"data__val_fraction": 0.001}, ["data.val_fraction", "no row"]),
    ]


BAD_TOKENS = [
    ("odd", {"data__format": "tokens_u16", "data__train": "odd.bin"}, ["odd.bin: 3 bytes"]),
    ("beyond the vocabulary", {"data__format": "tokens_u16", "data__train": "a.bin"},
     ["a.bin: token ", "does not fit a vocabulary of 256", "model.vocab_size"]),
    ("magic", {"data__format": "llmc", "data__train": "a.bin"}, ["a.bin: magic number"]),
    ("no header", {"data__format": "llmc", "data__train": "odd.bin"}, ["odd.bin: 3 bytes, an llm.c token file"]),
    ("characters of tokens", {"data__format": "tokens_u16", "data__tokenizer": "char"}, ["data.tokenizer", "char"]),
    ("table for a gpt", {"data__format": "csv"}, ["data.format", "gpt"]),
    ("no tokenizer", {"data__tokenizer": "nope.json"}, ["data.tokenizer", "nope.json"]),
    ("WordPiece", {"data__tokenizer": "wordpiece.json"}, ["data.tokenizer", "wordpiece.json", '"WordPiece"']),
    ("not a tokenizer", {"data__tokenizer": "text.txt"}, ["data.tokenizer", "text.txt:1:1"]),
    ("vocabulary below the tokenizer's", {"data__tokenizer": "t.json", "model__vocab_size": 270},
     ["text.txt: token ", "does not fit a vocabulary of 270"]),
]


def test_bad(folder):
    write(folder, "ragged.csv", "1,2,3,4,0\n1,2,3,4,0\n1,2\n")
    write(folder, "nan.csv", "1,2,3,4,0\n1,2,3,NaN,0\n")
    write(folder, "text.csv", "a,b,c,d,e\n1,2,3,4,0\n1,red,3,4,0\n")
    write(folder, "odd.bin", b"\1\0\2")
    write_mlp(folder)
    cli.write_config(folder, run__dir="new")
    before = None
    for name, changes, texts in bad_rows():
        cli.row(f"mlp, {name}")
        write_mlp(folder, run__dir="new", **changes)
        before = cli.tree(folder)
        check_refused(folder, cli.run(folder, "train", "m.json"), *texts, before=before)
    for name, changes, texts in BAD_TOKENS:
        cli.row(f"tokens, {name}")
        cli.write_config(folder, run__dir="new", **changes)
        before = cli.tree(folder)
        check_refused(folder, cli.run(folder, "train", "c.json"), *texts, before=before)


with cli.workspace() as work:
    test_tokenize(work)
    test_usage(work)
    test_token_formats(work)
    test_cache(work)
    test_tables(work)
    test_bad(work)
cli.finish()
