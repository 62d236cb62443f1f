#!/usr/bin/env python3
"""checkpoint_peers.py - the same state saved and loaded by Lockstep and by torch.distributed.checkpoint, in turn.

    checkpoint_peers.py LOCKSTEP RATE [--python PYTHON] [--mib 1536] [--ranks 1,2] [--rounds 3] [--folder DIR]

RATE is tests/bench/checkpoint_rate.c, built.  Both hold the whole state on every rank (DDP) and sync what they save;
loads find the files in the page cache.  A JSON line for each number of ranks: medians over the rounds.
"""
import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile

TORCH = """
import os, sys, time, torch, torch.distributed as dist, torch.distributed.checkpoint as dcp
folder, mib = sys.argv[1], int(sys.argv[2])
torch.set_num_threads(1)
dist.init_process_group("gloo")
rows = (mib << 20) // 24 // 1024 // 4
state = {f"t{i}": (torch.arange(rows * 1024, dtype=torch.float32) % 1000).reshape(rows, 1024) for i in range(24)}
dist.barrier(); start = time.monotonic()
dcp.save(state, storage_writer=dcp.FileSystemWriter(folder, sync_files=True))
dist.barrier(); save = time.monotonic() - start; start = time.monotonic()
dcp.load(state, checkpoint_id=folder)
dist.barrier(); load = time.monotonic() - start
if dist.get_rank() == 0:
    print("RESULT", save, load)
dist.destroy_process_group()
"""


def run(command, **options):
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, check=False, **options)
    if done.returncode:
        sys.exit(f"{' '.join(command)}: exit {done.returncode}\n{done.stderr[-2000:]}")
    return done.stdout


def lockstep(options, n, folder):
    ranks = [options.lockstep, "run", "-n", str(n), "--"] if n > 1 else []
    text = run([*ranks, options.rate, folder, str(options.mib)])
    return json.loads(text[text.index("{"):])


def torch(options, n, folder, script):
    launcher = [options.python, "-m", "torch.distributed.run", "--nproc-per-node", str(n), "--master-port", "29677"]
    text = run([*launcher, script, folder, str(options.mib)])
    save, load = text.split("RESULT", 1)[1].split()[:2]
    return {"save_s": float(save), "load_s": float(load)}


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("lockstep")
    parser.add_argument("rate")
    parser.add_argument("--python", default=sys.executable)
    parser.add_argument("--mib", type=int, default=1536)
    parser.add_argument("--ranks", default="1,2")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--folder")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=options.folder) as work:
        script = os.path.join(work, "dcp.py")
        with open(script, "w", encoding="utf-8") as file:
            file.write(TORCH)
        for n in map(int, options.ranks.split(",")):
            ours, theirs = [], []
            for _ in range(options.rounds):
                for kept, measure in ((ours, lambda f, k=n: lockstep(options, k, f)), (theirs, lambda f, k=n: torch(options, k, f, script))):
                    folder = os.path.join(work, "state")
                    kept.append(measure(folder))
                    shutil.rmtree(folder)
                    os.sync()  # what is freed is freed before the next one's clock runs
            row = {"ranks": n, "mib": options.mib}
            for key in ours[0]:
                if key not in row:
                    row[key] = round(statistics.median(r[key] for r in ours), 3)
            for key in theirs[0]:
                row["torch_" + key] = round(statistics.median(r[key] for r in theirs), 3)
            print(json.dumps(row), flush=True)


main()
