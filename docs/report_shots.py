#!/usr/bin/env python3
"""report_shots.py - makes runs, their reports, and pictures of these in headless Chromium.

    docs/report_shots.py LOCKSTEP OUT_DIR          report.png, report-dark.png, compare.png, compare-dark.png

Chromium is what `chromium` or `chromium-browser` is in PATH.  Python's standard library only.
"""
import json
import os
import random
import shutil
import subprocess
import sys

RUNS = {  # name: (changes of the config, ranks)
    "one": ({}, 2),
    "two": ({"optim": {"lr": 3e-3, "schedule": {"warmup": 10}}, "model": {"mlp": "swiglu", "norm": "rmsnorm"}}, 1),
}


def config(changes):
    made = {"run": {"steps": 120}, "model": {"type": "gpt", "n_layer": 2, "n_head": 4, "d_model": 64, "context": 32},
            "data": {"train": "text.txt", "val_fraction": 0.1}, "batch": {"global": 16},
            "optim": {"lr": 1e-3, "schedule": {"warmup": 20}}, "eval": {"every": 20, "batches": 2},
            "parallel": {"bucket_mb": 0.1}, "log": {"every": 1, "trace": True, "progress": "none"}}
    for section, keys in changes.items():
        made[section] = {**made[section], **keys}
    return made


def make_runs(lockstep, folder):
    draw = random.Random(3)
    words = "the lock step of a tensor and its rank sum to one bit in every tree".split()
    with open(os.path.join(folder, "text.txt"), "w", encoding="utf-8") as f:
        f.write(" ".join(draw.choice(words) for _ in range(20000)))
    for name, (changes, ranks) in RUNS.items():
        with open(os.path.join(folder, name + ".json"), "w", encoding="utf-8") as f:
            json.dump(config(changes), f)
        many = ["--nproc", str(ranks)] if ranks > 1 else []
        subprocess.run([lockstep, "train", name + ".json", "--resume", "never", *many], cwd=folder, check=True)


def browser():
    found = shutil.which("chromium") or shutil.which("chromium-browser")
    if not found:
        sys.exit("report_shots: no chromium in PATH")
    return found


def shoot(page, picture, width, height, dark):
    scheme = ["--blink-settings=preferredColorScheme=0"] if dark else []
    subprocess.run([browser(), "--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", *scheme,
                    f"--window-size={width},{height}", f"--screenshot={picture}", "file://" + page],
                   check=True, capture_output=True, timeout=120)
    print(picture)


def main():
    lockstep, out = os.path.abspath(sys.argv[1]), os.path.abspath(sys.argv[2])
    os.makedirs(out, exist_ok=True)
    if not os.path.isdir(os.path.join(out, "runs")):
        make_runs(lockstep, out)
    pages = {"report": (["runs/one"], 2000), "compare": (["runs/one", "runs/two"], 2800)}
    for name, (dirs, height) in pages.items():
        page = os.path.join(out, name + ".html")
        subprocess.run([lockstep, "report", *dirs, "-o", page], cwd=out, check=True, stdout=subprocess.DEVNULL)
        for dark in (False, True):
            shoot(page, os.path.join(out, name + ("-dark" if dark else "") + ".png"), 1280, height, dark)


main()
