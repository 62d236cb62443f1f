#!/usr/bin/env python3
"""make_step_figures.py LOCKSTEP [WORK] - draws docs/overlap.svg and docs/memory.svg from runs that it makes.

    docs/make_step_figures.py build/lockstep

overlap.svg: a step of two ranks, and its buckets on their way, out of trace.json: the shortest step of the run.  memory.svg:
what a rank of 4 holds at its peak, by category, under each strategy, out of metrics.jsonl.  The model has 10.7 million
parameters; about a minute on two idle cores.  WORK [a temporary folder] keeps the runs.

Python's standard library only.
"""
import json
import os
import subprocess
import sys
import tempfile

WIDTH = 760
CONFIG = {
    "run": {"steps": 3, "threads": 1},
    "model": {"type": "gpt", "n_layer": 6, "n_head": 6, "d_model": 384, "context": 128},
    "data": {"train": "/usr/share/doc/jargon-text/jargon.txt.gz"},
    "batch": {"global": 8, "micro": 1},
    "optim": {"lr": 1e-3},
    "checkpoint": {"save_at_end": False},
    "log": {"every": 1},
}
TCP = "parallel.backend=tcp"  # as between hosts: ranks of one host would hold parameters once, together
SHARDED = "parallel.strategy=fsdp"
STRATEGIES = [("1 process", 1, []), ("DDP", 4, [TCP, "parallel.strategy=ddp"]),
              ("ZeRO-1", 4, [TCP, SHARDED, "parallel.shard=optimizer"]),
              ("ZeRO-2", 4, [TCP, SHARDED, "parallel.shard=gradients"]), ("FSDP", 4, [TCP, SHARDED, "parallel.shard=full"])]
# CSS class, key of "mem", caption
CATEGORIES = [("c0", "params", "parameters"), ("c1", "grads", "gradients"), ("c2", "optim", "optimizer"),
              ("c3", "activations", "activations"), ("c4", "comm", "buckets and whole blocks")]
# A card with its own background, so that it can be read on any page.
STYLE = """<style>
.card { fill: #ffffff; stroke: #d5d9de } text { fill: #24292f } .dim { fill: #57606a } .grid { stroke: #d5d9de }
.c0 { fill: #2f6db3 } .c1 { fill: #c9752d } .c2 { fill: #3b8c5a } .c3 { fill: #8b6bb1 } .c4 { fill: #b0483f }
.on { fill: #ffffff }
@media (prefers-color-scheme: dark) {
.card { fill: #161b22; stroke: #30363d } text { fill: #e6edf3 } .dim { fill: #9da7b3 } .grid { stroke: #30363d }
.c0 { fill: #4d8fd6 } .c1 { fill: #d98a45 } .c2 { fill: #4fa873 } .c3 { fill: #a58acb } .c4 { fill: #cf665c }
.on { fill: #0d1117 } }
</style>"""


def train(lockstep, work, name, ranks, *settings):
    """The folder of a finished run."""
    config, folder = os.path.join(work, "config.json"), os.path.join(work, name)
    with open(config, "w", encoding="utf-8") as f:
        json.dump(CONFIG, f)
    sets = [word for s in (f"run.dir={folder}", *settings) for word in ("--set", s)]
    subprocess.run([lockstep, "train", config, "--resume", "never", *sets, *(["--nproc", str(ranks)] if ranks > 1 else [])],
                   check=True, stderr=subprocess.DEVNULL)
    return folder


# ---- overlap ----

LANE, LEFT, RIGHT = 26, 120, 20
COMPUTE = {"forward": "c0", "backward": "c2", "wait": "c4", "agree": "c4", "update": "c3"}


def shortest_step(folder):
    """Its events but the step itself, and its begin and end, in microseconds; the first step warms up."""
    with open(os.path.join(folder, "trace.json"), encoding="utf-8") as f:
        events = [e for e in json.load(f) if e["ph"] == "X" and e["args"]["step"] > 1]
    begin, end = {}, {}
    for e in events:
        step = e["args"]["step"]
        begin[step] = min(begin.get(step, e["ts"]), e["ts"])
        end[step] = max(end.get(step, 0), e["ts"] + e["dur"])
    best = min(begin, key=lambda step: end[step] - begin[step])
    return [e for e in events if e["args"]["step"] == best and e["name"] != "step"], begin[best], end[best]


def text(x, y, words, anchor="start", kind=""):
    return f'<text class="{kind}" x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}">{words}</text>'


def box(x, y, width, height, kind, words):
    """A bar with its name in it where there is room, and always as a tooltip."""
    out = [f'<rect class="{kind}" x="{x:.1f}" y="{y:.1f}" width="{max(width, 1):.1f}" height="{height}" rx="2">'
           f"<title>{words}</title></rect>"]
    if width > 7 * len(words):
        out.append(text(x + width / 2, y + height / 2 + 4, words, "middle", "on"))
    return out


def draw_overlap(folder):
    events, begin, end = shortest_step(folder)
    scale = (WIDTH - LEFT - RIGHT) / (end - begin)
    out = [text(LEFT, 24, "One step of two ranks under DDP, time from left to right")]
    for rank in (0, 1):
        for thread, name in ((0, f"rank {rank}, model"), (1, "buckets")):
            out.append(text(LEFT - 8, lane_of(rank, thread) + 16, name, "end", "dim" if thread else ""))
    for e in sorted(events, key=lambda e: e["ts"]):
        is_bucket = e["name"] == "all_reduce"
        name = str(e["args"]["bucket"]) if is_bucket else e["name"]
        out += box(LEFT + (e["ts"] - begin) * scale, lane_of(e["pid"], e["tid"]), e["dur"] * scale, LANE - 4,
                   "c1" if is_bucket else COMPUTE[e["name"]], name)
    y = lane_of(2, 0) + 8
    out.append(text(LEFT, y, "Buckets 0 to 5 leave while backward still forms the others' gradients; what it does not hide",
                    kind="dim"))
    out.append(text(LEFT, y + 17, "is the red wait at its end.  Who comes first to a bucket waits there for the other rank.",
                    kind="dim"))
    return card(out, y + 32)


def lane_of(rank, thread):
    return 40 + rank * (2 * LANE + 14) + thread * LANE


def card(body, height):
    return "\n".join([f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height:.0f}" '
                      'font-family="sans-serif" font-size="13">', STYLE,
                      f'<rect class="card" x="0.5" y="0.5" width="{WIDTH - 1}" height="{height - 1:.0f}" rx="6"/>', *body,
                      "</svg>"]) + "\n"


# ---- memory ----

def memory_of(folder):
    with open(os.path.join(folder, "metrics.jsonl"), encoding="utf-8") as f:
        return json.loads(f.readlines()[-1])["mem"]


def draw_memory(rows):
    """rows: [(strategy, mem)]"""
    most = max(sum(mem[key] for _, key, _ in CATEGORIES) for _, mem in rows)
    scale = (WIDTH - LEFT - RIGHT - 80) / most
    out = [text(LEFT, 24, "What a rank holds, in MiB: one process, and each of four ranks on hosts of their own")]
    for i, (name, mem) in enumerate(rows):
        x, y = LEFT, 40 + i * (LANE + 6)
        out.append(text(LEFT - 8, y + 16, name, "end"))
        for kind, key, caption in CATEGORIES:
            if mem[key]:
                out += box(x, y, mem[key] * scale, LANE - 4, kind, f"{mem[key] / 2**20:.0f}")
                x += mem[key] * scale
        out.append(text(x + 8, y + 16, f"{sum(mem[key] for _, key, _ in CATEGORIES) / 2**20:.0f}", kind="dim"))
    x, y = LEFT, 40 + len(rows) * (LANE + 6) + 6
    for kind, _, caption in CATEGORIES:
        out.append(f'<rect class="{kind}" x="{x}" y="{y}" width="12" height="12" rx="2"/>')
        out.append(text(x + 17, y + 11, caption, kind="dim"))
        x += 32 + 6.6 * len(caption)
    return card(out, y + 28)


def write(name, svg):
    with open(os.path.join(os.path.dirname(os.path.abspath(__file__)), name), "w", encoding="utf-8") as f:
        f.write(svg)


def make_overlap(lockstep, work):
    settings = ["run.steps=12", "batch.global=4", "batch.micro=2", "parallel.strategy=ddp", "parallel.bucket_mb=8",
                "log.trace=true"]
    write("overlap.svg", draw_overlap(train(lockstep, work, "overlap", 2, *settings)))


def make_memory(lockstep, work):
    rows = [(name, memory_of(train(lockstep, work, name.replace(" ", "-"), ranks, *settings)))
            for name, ranks, settings in STRATEGIES]
    write("memory.svg", draw_memory(rows))
    for name, mem in rows:
        print(name, {key: round(mem[key] / 2**20, 1) for _, key, _ in CATEGORIES})


def main():
    lockstep = os.path.abspath(sys.argv[1])
    with tempfile.TemporaryDirectory() as temporary:
        work = sys.argv[2] if len(sys.argv) > 2 else temporary
        os.makedirs(work, exist_ok=True)
        make_overlap(lockstep, work)
        make_memory(lockstep, work)


if __name__ == "__main__":
    main()
