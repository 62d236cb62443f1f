#!/usr/bin/env python3
"""test_trace.py LOCKSTEP - log.trace: what trace.json says of a run, and that writing it changes no bit.

The file is read as strict JSON.  Then, for every rank: spans of a track nest; each step has its phases, its micro-batches
and its buckets or units, all ranks' together those of the step; every operation is launched, runs and ends in this
order, and its arrows lead from the rank that came last to each of the others.
"""
import collections
import json
import os
import sys

sys.path.insert(0, os.path.join(os.path.dirname(__file__), ".."))
import cli  # noqa: E402

COMPUTE, COMM, REDUCE = 0, 1, 2
TRACKS = ["compute", "comm", "comm, reduce_scatter"]
TRACK_OF = {"all_reduce": COMM, "all_gather": COMM, "reduce_scatter": REDUCE}  # of operations
KINDS, KIND_OF = 10, {"all_reduce": 7, "all_gather": 8, "reduce_scatter": 9}  # in the ids of arrows
FSDP = "parallel.strategy=fsdp"

# name, ranks, micro-batches of a step, steps, settings
ROWS = [
    ("alone", 1, 4, 4, []),
    ("a world of one", 1, 4, 4, ["parallel.strategy=ddp"]),
    ("two ranks", 2, 4, 4, []),
    ("half the bytes", 2, 4, 4, ["parallel.compress=bf16"]),
    ("four ranks over TCP", 4, 4, 4, ["parallel.backend=tcp"]),
    ("three ranks", 3, 6, 4, []),
    ("interleaved", 2, 6, 4, []),
    ("after backward", 2, 4, 4, ["parallel.overlap=false"]),
    ("sent many times", 2, 4, 250, ["parallel.bucket_mb=0.001"]),
    ("one process sends many times", 1, 4, 800, []),
    ("sharded, one host", 2, 4, 4, [FSDP]),
    ("sharded, one rank", 1, 4, 4, [FSDP]),
    ("sharded, copies", 2, 4, 4, [FSDP, "parallel.backend=tcp"]),
    ("sharded, four ranks", 4, 4, 7, [FSDP, "parallel.backend=tcp", "parallel.prefetch=2"]),
    ("kept until backward", 2, 4, 4, [FSDP, "parallel.backend=tcp", "parallel.reshard_after_forward=false"]),
    ("sums at home", 2, 4, 4, [FSDP, "parallel.backend=tcp", "parallel.accumulate=local", "parallel.prefetch=0"]),
    ("ZeRO-2", 2, 4, 4, [FSDP, "parallel.backend=tcp", "parallel.shard=gradients"]),
    ("ZeRO-1", 3, 6, 4, [FSDP, "parallel.backend=tcp", "parallel.shard=optimizer"]),
    ("sharded, sent many times", 2, 4, 120, [FSDP]),
]


def once(pairs):
    keys = [key for key, _ in pairs]
    cli.equal(len(keys), len(set(keys)), f"equal keys in {keys}")
    return dict(pairs)


def read_trace(folder, run_dir):
    text = cli.read(folder, run_dir, "trace.json").decode()
    return json.loads(text, object_pairs_hook=once, parse_constant=lambda word: cli.check(False, f"{word} in JSON"))


def ns(micros):
    return round(micros * 1000)


class Span:
    def __init__(self, event):
        self.name, self.args, self.pid, self.tid = (event[key] for key in ("name", "args", "pid", "tid"))
        self.start, self.end = ns(event["ts"]), ns(event["ts"]) + ns(event["dur"])
        cli.check(event["dur"] >= 0, f"{event}: negative duration")

    def holds(self, when):
        return self.start <= when <= self.end

    def __str__(self):
        return f"{self.name} {self.args} of rank {self.pid}, {self.start}..{self.end} ns"


def check_nesting(spans):
    tracks = collections.defaultdict(list)
    for span in spans:
        tracks[span.pid, span.tid].append(span)
    for track in tracks.values():
        around = []
        for span in sorted(track, key=lambda s: (s.start, -s.end)):
            while around and around[-1].end <= span.start:
                around.pop()
            cli.check(not around or span.end <= around[-1].end, f"{span} reaches beyond {around[-1] if around else ''}")
            around.append(span)


def check_names(events, spans, ranks):
    named = {(e["name"], e["pid"], e["tid"]): e["args"] for e in events if e["ph"] == "M"}
    cli.equal(len(named), sum(e["ph"] == "M" for e in events), "names given once")
    for r in range(ranks):
        cli.equal(named.get(("process_name", r, 0)), {"name": f"rank {r}"}, "name of the process")
    for pid, tid in {(s.pid, s.tid) for s in spans}:
        cli.equal(named.get(("thread_name", pid, tid)), {"name": TRACKS[tid]}, "name of the track")


def evaluates(step, run):
    return step > 0 and (step % run["eval"] == 0 or step == run["steps"])


def operations_of(step, run):
    """name -> how many a rank has in a step and the evaluation after it."""
    each, rounds, n = run["micros"] // run["ranks"], run["rounds"], run["groups"]
    if run["strategy"] == "ddp":
        return {"all_reduce": rounds * n}
    if run["strategy"] != "fsdp":
        return {}
    forwards = run["eval_forwards"] if evaluates(step, run) else 0
    if run["stays"]:  # rows change at the end of a step alone: an evaluation's whole forms serve the next step
        gathers = n * (not evaluates(step - 1, run)) + n * (forwards > 0)
    else:  # the root is whole from forward to backward
        gathers = each * (2 * n - 1 if run["dropped"] else n) + forwards * n
    return {"all_gather": gathers, "reduce_scatter": rounds * n}


def check_step(step, spans, run):
    """`spans` are those of the step, of all ranks."""
    each = run["micros"] // run["ranks"]
    want = {"step": 1, "forward": each, "backward": each, "update": 1, **operations_of(step, run)}
    if run["strategy"] != "single":
        want["agree"] = 1
    if run["strategy"] == "ddp":
        want["wait"] = run["rounds"]
    if evaluates(step, run):
        want["evaluation"] = 1
    for rank in range(run["ranks"]):
        own = [s for s in spans if s.pid == rank]
        found = collections.Counter(s.name for s in own)
        if run["strategy"] == "fsdp":  # for what was not there in time
            found.pop("wait", None)
        cli.equal(dict(found), {name: n for name, n in want.items() if n}, f"spans of step {step}, rank {rank}")
        whole = next((s for s in own if s.name == "step"), None)
        if not whole:
            continue
        around = [s for s in own if s.name == "evaluation"]
        for s in own:
            inside = whole.start <= s.start and s.end <= whole.end
            after = run["strategy"] == "fsdp" and any(e.start <= s.start and s.end <= e.end for e in around)
            cli.check(inside or s.name == "evaluation" or after, f"{s} inside {whole}")
            cli.equal(s.tid, TRACK_OF.get(s.name, COMPUTE), f"track of {s}")
        bytes_sent = sum(s.args["bytes"] for s in own if s.name in ("all_reduce", "reduce_scatter"))
        if run["strategy"] != "single":
            cli.equal(bytes_sent, run["width"] * run["parameters"] * run["rounds"], "bytes of the gradients")
        sizes = {s.args["unit"]: s.args["bytes"] for s in own if s.name == "all_gather"}
        cli.check(not sizes or sum(sizes.values()) == 4 * run["parameters"], f"bytes of whole units: {sizes}")
    for phase in ("forward", "backward"):
        micros = sorted(s.args["micro_batch"] for s in spans if s.name == phase)
        cli.equal(micros, list(range(run["micros"])), f"micro-batches of {phase} in step {step}")


def check_flights(events, spans, overlap):
    """Asynchronous events: from launch to end."""
    pairs = collections.defaultdict(dict)
    for e in events:
        if e["ph"] in "be":
            pairs[e["pid"], e["tid"], e["args"]["sequence"]][e["ph"]] = e
    operations = {(s.pid, s.tid, s.args["sequence"]): s for s in spans if s.name in TRACK_OF}
    cli.equal(sorted(pairs), sorted(operations), "operations launched and run")
    backward = [s for s in spans if s.name == "backward"]
    early = 0
    for key, pair in pairs.items():
        s = operations[key]
        cli.equal(sorted(pair), ["b", "e"], f"launch and end of {s}")
        cli.equal(pair["b"]["id2"], pair["e"]["id2"], "id of launch and end")
        cli.equal((ns(pair["e"]["ts"]), pair["b"]["args"]), (s.end, s.args), f"end of {s}")
        launched = ns(pair["b"]["ts"])
        cli.check(launched <= s.start, f"{s} was launched at {launched}")
        early += s.name != "all_gather" and any(b.pid == s.pid and b.holds(launched) for b in backward)
    if operations:
        cli.equal(early > 0, overlap, f"{early} operations were launched during backward; any")


def check_arrows(events, spans, ranks):
    ends = collections.defaultdict(dict)
    for e in events:
        if e["ph"] in "sf":
            cli.check(e["ph"] not in ends[e["id"]], f"two {e['ph']} of flow {e['id']}")
            ends[e["id"]][e["ph"]] = e
    operations = collections.defaultdict(dict)
    for s in spans:
        if s.name in TRACK_OF:
            operations[s.args["sequence"] * KINDS + KIND_OF[s.name]][s.pid] = s
    cli.equal(len(ends), len(operations) * (ranks - 1), "arrows")
    for name, pair in ends.items():
        ops, (sent, come) = operations[int(name, 16) >> 16], (pair["s"], pair["f"])
        cli.equal(come.get("bp"), "e", "bp")
        last = max(ops.values(), key=lambda s: (s.start, -s.pid))
        cli.equal((sent["pid"], sent["tid"]), (last.pid, last.tid), "an arrow's start")
        cli.equal(come["tid"], last.tid, "the track of its end")
        cli.check(come["pid"] != sent["pid"], f"arrow {name} from rank {sent['pid']} to itself")
        cli.check(ops[sent["pid"]].holds(ns(sent["ts"])), f"{sent} in {ops[sent['pid']]}")
        cli.check(ops[come["pid"]].holds(ns(come["ts"])), f"{come} in {ops[come['pid']]}")
        cli.check(sent["ts"] <= come["ts"], f"arrow {name} goes back in time")


def check_trace(events, run, overlap):
    cli.equal({e["ph"] for e in events}, set("MX" + "be" * (run["strategy"] != "single") + "sf" * (run["ranks"] > 1)), "kinds of events")
    spans = [Span(e) for e in events if e["ph"] == "X"]
    by_step = collections.defaultdict(list)
    for span in spans:
        by_step[span.args["step"]].append(span)
    cli.equal(sorted(by_step), list(range(1, run["steps"] + 1)), "steps")
    check_names(events, spans, run["ranks"])
    check_nesting(spans)
    for step, own in by_step.items():
        check_step(step, own, run)
    check_flights(events, spans, overlap)
    check_arrows(events, spans, run["ranks"])


def trained(folder, name, *options):
    r = cli.run(folder, "train", "c.json", "--set", f"run.dir={name}", *options)
    return cli.check_ok(r) and cli.equal([w for w in cli.warnings(r.stderr) if "trace" in w], [], "warnings")


def strategy_of(ranks, settings):
    named = [s.split("=")[1] for s in settings if s.startswith("parallel.strategy=")]
    return named[0] if named else "ddp" if ranks > 1 else "single"


def groups_in(events, strategy):
    """Buckets or units that travelled."""
    key = "bucket" if strategy == "ddp" else "unit"
    found = {e["args"][key] for e in events if e.get("name") in TRACK_OF}
    cli.equal(sorted(found), list(range(len(found))), f"{key}s")
    cli.check(strategy == "single" or len(found) > 2, f"{len(found)} {key}s, want some")
    return len(found)


def rounds_of(strategy, ranks, micros, settings):
    """How often gradients travel in a step."""
    each = micros // ranks
    blocks, interleaved = each & (each - 1) == 0, ranks & (ranks - 1) == 0
    wanted = strategy == "fsdp" and "parallel.accumulate=local" not in settings
    return each if (interleaved if wanted else not blocks) else 1


def check_row(folder, name, ranks, micros, steps, settings):
    cli.row(name)
    whole = [f"run.steps={steps}", f"batch.global={2 * micros}"]
    strategy, narrow = strategy_of(ranks, settings), "parallel.compress=bf16" in settings
    sets = [part for s in whole + settings for part in ("--set", s)]
    job = ["--nproc", str(ranks)] if ranks > 1 else []
    ok = trained(folder, "plain", *sets, *(job if narrow else []), *([] if job else ["--set", "parallel.strategy=auto"]))
    if not ok or not trained(folder, "traced", "--set", "log.trace=true", *sets, *job):
        return
    for key in ("params_sha256", "state_sha256"):
        cli.equal(cli.summary(folder, "traced")[key], cli.summary(folder, "plain")[key], key)
    cli.check("trace.json" not in os.listdir(os.path.join(folder, "plain")), "trace.json only when asked for")
    events = read_trace(folder, "traced")
    dry = json.loads(cli.run(folder, "train", "c.json", "--dry-run", *sets).stdout)
    shared = "parallel.backend=tcp" not in settings
    check_trace(events, {"ranks": ranks, "micros": micros, "steps": steps, "eval": 3, "strategy": strategy,
                         "groups": groups_in(events, strategy), "rounds": rounds_of(strategy, ranks, micros, settings),
                         "stays": shared or any("shard=" in s for s in settings),
                         "dropped": "parallel.reshard_after_forward=false" not in settings,
                         "eval_forwards": -(-micros // ranks), "parameters": dry["parameters"],
                         "width": 2 if narrow else 4},
                "parallel.overlap=false" not in settings)


def main():
    with cli.workspace() as folder:
        cli.write_config(folder, batch={"global": 8, "micro": 2}, eval__every=3, eval__batches=1, log__every=100,
                         model__d_model=16, model__n_layer=2, parallel__bucket_mb=0.005)
        for row in ROWS:
            check_row(folder, *row)
    cli.finish()


if __name__ == "__main__":
    main()
