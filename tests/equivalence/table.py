"""table.py - the table of equivalence: its columns, which values go together, and the config of a row.

A row is a training.  The columns of TRUTH decide its bits, and one process that is never stopped says which they are;
those of FREE may change none of them.  A value of a column that has no meaning beside another (the size of a bucket
without DDP) stands in no row, so no pair is covered by a row in which it has no effect.
"""
import hashlib
import json

from covering import Covering, choose

STEPS = 10
CONTEXT, VALIDATION = 8, 37  # tokens of a sequence, sequences to evaluate: odd, so that the last micro-batch is ragged
CLIP = 0.05

TRUTH = {
    "model": ["gpt2", "llama", "mixed", "mlp"],
    "tied": [True, False],
    "dropout": [0, 0.2],
    "data": ["bytes", "sequential", "epochs", "char", "tokens_u16", "csv", "idx"],
    "micros": [1, 2, 3, 4, 6, 8, 12, 16],
    "micro": [2, 3],
    "optimizer": ["sgd", "momentum", "adam", "adamw"],
    "schedule": ["cosine", "warm cosine", "short cosine", "warm linear", "constant"],
    "clip": [0, CLIP],
    "dtype": ["f32", "bf16"],
    "evaluation": ["all, ragged", "two batches", "at the end", "none"],
}
FREE = {
    "recompute": [False, True],
    "threads": [1, 2],
    "strategy": ["single", "ddp", "full", "gradients", "optimizer"],
    "world": [1, 2, 3, 4, 8],
    "transport": ["none", "shm", "tcp", "mpi", "two hosts", "two hosts, tcp"],
    "algorithm": ["auto", "direct", "tree", "halving"],
    "bucket_mb": [25, 0.001, 0.05],
    "overlap": [True, False],
    "reshard": [True, False],
    "prefetch": [1, 0, 2],
    "accumulate": ["sharded", "local"],
    "unit_blocks": [1, 2, 3],
    # where the run is stopped, goes on and ends; "=" is the row's own strategy, world and transport
    "route": ["=", "=, =", "=, single", "single, =", "=, ddp 2, =", "ddp 4, =", "=, full 2", "full 3, =",
              "=, gradients 3, =", "=, optimizer 4", "single, full 4, =, ddp 2, ="],
    "stop": [0, 1, 3, 4, 6],  # the step of the first stop: first of all, in the warm-up, with an evaluation, later
    "saving": ["async", "sync", "compressed", "every 3"],
}
COLUMNS = {**TRUTH, **FREE}
# Of these every three values that can stand in one row do: what strategies have of their own, with what they train.
DENSE = ("strategy", "world", "transport", "algorithm", "bucket_mb", "overlap", "reshard", "prefetch", "accumulate", "model",
         "dtype")

MODELS = {
    "gpt2": {},
    "llama": {"n_kv_head": 1, "bias": False, "norm": "rmsnorm", "mlp": "swiglu", "position": "rope"},
    "mixed": {"norm": "rmsnorm", "mlp": "gelu_tanh", "position": "rope"},
}
DATA = {
    "bytes": {"train": "text.txt", "val": "val.txt"},
    "sequential": {"train": "text.txt", "val": "val.txt", "order": "sequential"},
    "epochs": {"train": "short.txt", "val": "val.txt"},
    "char": {"train": "text.txt", "val": "val.txt", "tokenizer": "char"},
    "tokens_u16": {"train": "train.bin", "val": "val.bin", "format": "tokens_u16"},
    "csv": {"train": "train.csv", "val": "val.csv", "format": "csv"},
    "idx": {"train": ["images", "labels"], "val": ["val-images", "val-labels"], "format": "idx"},
}
OPTIMIZERS = {
    "sgd": {"type": "sgd", "lr": 0.1},
    "momentum": {"type": "sgd", "lr": 0.05, "momentum": 0.9, "weight_decay": 0.01},
    "adam": {"type": "adam", "lr": 3e-3, "weight_decay": 0.01},
    "adamw": {"type": "adamw", "lr": 3e-3, "betas": [0.9, 0.99]},
}
SCHEDULES = {
    "cosine": {},
    "warm cosine": {"warmup": 4},
    "short cosine": {"steps": 7, "warmup": 2, "min_lr": 1e-3},
    "warm linear": {"type": "linear", "warmup": 5},
    "constant": {"type": "constant"},
}
EVALUATIONS = {
    "all, ragged": {"every": 4, "batches": 0},
    "two batches": {"every": 4, "batches": 2},
    "at the end": {},
    "none": {},  # nor validation data
}
EVALUATED_AT = {"all, ragged": (4, 8, 10), "two batches": (4, 8, 10), "at the end": (10,), "none": ()}
SAVING = {
    "async": {},
    "sync": {"checkpoint.async": False},
    "compressed": {"checkpoint.compress": True, "checkpoint.every": 1},
    "every 3": {"checkpoint.every": 3, "checkpoint.keep": 1},
}
FSDP = ("full", "gradients", "optimizer")
BACKENDS = {"two hosts": "auto", "two hosts, tcp": "tcp"}  # parallel.backend where it is not the transport's name
NODES = {2: [1, 1], 3: [2, 1], 4: [2, 2], 8: [4, 4]}  # ranks on each of two hosts


def is_power(n):
    return n & (n - 1) == 0


def divides(micros, world):
    """A world that fits, and whose sums are those of one process: docs/ddp.md."""
    return micros % world == 0 and (is_power(world) or is_power(micros // world))


def stations(route):
    return route.split(", ")


def world_of(station):
    return int(station.split()[1]) if " " in station else 1


def only(*names, **values):
    """A rule: where the first column is none of these names, the other has its first value."""
    (column, value), = values.items()
    return (names[0], column), lambda first, other: first in names[1:] or other == value


RULES = [
    (("model", "data"), lambda model, data: (model == "mlp") == (data in ("csv", "idx"))),
    only("model", "gpt2", "llama", "mixed", tied=True), only("model", "gpt2", "llama", "mixed", dropout=0),
    only("model", "gpt2", "llama", "mixed", recompute=False),
    (("micros", "world"), divides),
    (("micros", "route"), lambda micros, route: all(s == "=" or divides(micros, world_of(s)) for s in stations(route))),
    (("strategy", "world"), lambda strategy, world: strategy != "single" or world == 1),
    (("world", "transport"), lambda world, transport: (world == 1) == (transport == "none")),
    (("world", "algorithm"), lambda world, algorithm: {1: algorithm == "auto", 3: algorithm != "halving"}.get(world, True)),
    only("strategy", "ddp", bucket_mb=25), only("strategy", "ddp", overlap=True),
    only("strategy", "full", reshard=True), only("strategy", *FSDP, prefetch=1),
    only("strategy", *FSDP, accumulate="sharded"), only("strategy", *FSDP, unit_blocks=1),
    (("route", "stop"), lambda route, stop: (route == "=") == (stop == 0)),
]


def rows(seed=1):
    return Covering(COLUMNS, RULES, DENSE).rows(seed)


def fingerprint(table):
    return hashlib.sha256(json.dumps(table, sort_keys=True).encode()).hexdigest()[:16]


def wanted(row):
    """Of the small table: every value, each strategy with models and places, each route of one process and of many."""
    yield from row.items()
    for name in ("model", "dtype", "world", "transport", "optimizer"):
        yield row["strategy"], name, row[name]
    yield row["route"], row["strategy"] == "single"


def small(table):
    return choose(table, wanted)


def config(row):
    """The config file: what decides the bits.  All else is set beside it."""
    if row["model"] == "mlp":
        model = {"type": "mlp", "sizes": [16, 25, 11, 5], "activation": "gelu"}
    else:
        model = {"type": "gpt", "n_layer": 3, "n_head": 3, "d_model": 36, "d_ff": 50, "context": CONTEXT,
                 "dropout": row["dropout"], "tie_embeddings": row["tied"], **MODELS[row["model"]]}
        if row["data"] != "char":
            model["vocab_size"] = 257
    data = {key: value for key, value in DATA[row["data"]].items() if key != "val" or row["evaluation"] != "none"}
    return {
        "run": {"steps": STEPS}, "model": model, "data": data,
        "batch": {"global": row["micros"] * row["micro"], "micro": row["micro"]},
        "optim": {**OPTIMIZERS[row["optimizer"]], "clip_norm": row["clip"], "schedule": SCHEDULES[row["schedule"]]},
        "parallel": {"param_dtype": row["dtype"], "timeout_s": 30}, "eval": EVALUATIONS[row["evaluation"]],
        "log": {"every": 1, "progress": "plain"},
    }


def truth_settings():
    return {"parallel.strategy": "single", "run.threads": 1}


def own_settings(row):
    """Of the strategy, under keys of a config."""
    sets = {"parallel.strategy": "fsdp" if row["strategy"] in FSDP else row["strategy"], "run.threads": row["threads"]}
    if row["model"] != "mlp":
        sets["model.recompute"] = row["recompute"]
    if row["world"] > 1:
        sets |= {"parallel.backend": BACKENDS.get(row["transport"], row["transport"]), "parallel.algorithm": row["algorithm"]}
    if row["strategy"] == "ddp":
        sets |= {"parallel.bucket_mb": row["bucket_mb"], "parallel.overlap": row["overlap"]}
    if row["strategy"] in FSDP:
        sets |= {"parallel.shard": row["strategy"], "parallel.reshard_after_forward": row["reshard"],
                 "parallel.prefetch": row["prefetch"], "parallel.accumulate": row["accumulate"],
                 "parallel.unit_blocks": row["unit_blocks"]}
    return {**sets, **SAVING[row["saving"]]}


def station_settings(row, station):
    """Of a station that is not the row's own: all at defaults."""
    strategy = station.split()[0]
    sets = {"parallel.strategy": strategy, "run.threads": 1}
    if strategy in FSDP:
        sets |= {"parallel.strategy": "fsdp", "parallel.shard": strategy}
    if row["model"] != "mlp":
        sets["model.recompute"] = row["recompute"]
    return sets


def legs(row):
    """Of each part of the run: the step that it ends with, ranks, transport, settings, strategy as summary.json has it."""
    route, made = stations(row["route"]), []
    for i, station in enumerate(route):
        stop = STEPS if i == len(route) - 1 else row["stop"] + i
        sets = own_settings(row) if station == "=" else station_settings(row, station)
        world = row["world"] if station == "=" else world_of(station)
        transport = row["transport"] if station == "=" else "none" if world == 1 else "shm"
        made.append({"stop": stop, "world": world, "transport": transport, "sets": sets,
                     "strategy": sets["parallel.strategy"]})
    return made


def group(leg):
    """What the log says of a leg's ranks; None where there is one process."""
    if leg["transport"] == "none":
        return None
    over = "shm+tcp" if leg["transport"] == "two hosts" and leg["world"] > 2 else leg["transport"].split(", ")[-1]
    return f"ranks: {leg['world']} over {'tcp' if over == 'two hosts' else over}, {leg['strategy']}"


def lines(row):
    """Of metrics.jsonl."""
    return STEPS + len(EVALUATED_AT[row["evaluation"]])


def runs(table):
    """Of the command: of each row one process that nobody stops, and the row's own parts."""
    return sum(1 + len(stations(row["route"])) for row in table)


def name_of(row):
    return ", ".join(f"{name} {value}" for name, value in row.items())
