"""refs.py - what the reference scripts share; Python's standard library only.

The variants that are compared, a text that is the same on every machine, a reader of safetensors files,
and the three ways in which the scripts use the command:

    initial parameters      lockstep init CONFIG -o FILE
    a trained model         lockstep train CONFIG, metrics.jsonl and the last checkpoint of its run
    gradients of step 1     one step of plain SGD with an enormous learning rate, see gradients()
"""
import array
import json
import math
import os
import struct
import subprocess
import sys
import zlib

SKIPPED = 77  # the exit status that ctest reports as skipped
STEPS = 50

# Relative bounds: losses and gradient norms of every step, gradients of step 1, parameters at the end.
# PyTorch in float keeps to PyTorch in double within 1e-6, 3e-5, 4e-7 and 5e-6 over these variants.
LOSS_BOUND, NORM_BOUND, GRAD_BOUND, PARAM_BOUND = 5e-6, 2e-4, 1e-5, 1e-4

GPT2 = {"norm": "layernorm", "position": "learned", "bias": True}
LLAMA = {"norm": "rmsnorm", "position": "rope", "bias": False, "mlp": "swiglu"}
VARIANTS = {
    "gpt2-tied-gelu_tanh": {"model": {**GPT2, "mlp": "gelu_tanh"}},
    "gpt2-untied-gelu": {"model": {**GPT2, "mlp": "gelu", "tie_embeddings": False}},
    "llama-tied": {"model": LLAMA},
    "llama-untied-gqa": {"model": {**LLAMA, "tie_embeddings": False, "n_kv_head": 2}},
    "gpt2-adam-linear": {"model": {**GPT2, "mlp": "gelu_tanh"},
                         "optim": {"type": "adam", "weight_decay": 0.01,
                                   "schedule": {"type": "linear", "warmup": 5}}},
    "gpt2-sgd-constant": {"model": {**GPT2, "mlp": "gelu"},
                          "optim": {"type": "sgd", "momentum": 0.9, "lr": 0.05, "weight_decay": 0.01,
                                    "schedule": {"type": "constant", "warmup": 5}}},
}


def text(n_bytes):
    """Pseudo-English that depends on nothing but n_bytes: words by a small generator, in sentences."""
    words = ("the of and a to in is that it was he for on are with as his they be at one have this from or had "
             "by not but what all were when we there can an your which their said if do will each about how up "
             "out them then she many some so these would other into has more her two like him see time could no "
             "make than first been its who now people my made over did down only way find use may water long "
             "little very after words called just where most know gradient tensor lockstep memory").split()
    state, out, length, sentence = 20, [], 0, 0
    while length < n_bytes:
        state = (state * 6364136223846793005 + 1442695040888963407) % 2**64
        draw = state >> 33
        word = words[(draw % len(words)) * (draw // 128 % len(words)) // len(words)]  # early words more often
        word = word.capitalize() if sentence == 0 else word
        sentence = 0 if draw % 11 == 3 and sentence > 2 else sentence + 1
        out.append(word + (".\n" if sentence == 0 and draw % 3 == 0 else ". " if sentence == 0 else " "))
        length += len(out[-1])
    return "".join(out)[:n_bytes].encode("ascii")


def variant_config(name, work):
    """The config of a variant as a dictionary; its text is written into the folder work."""
    path = os.path.join(work, "text.txt")
    if not os.path.exists(path):
        with open(path, "wb") as file:
            file.write(text(20000))
    config = {
        "run": {"name": name, "dir": os.path.join(work, name), "steps": STEPS, "seed": 1337},
        "model": {"type": "gpt", "n_layer": 2, "n_head": 4, "d_model": 64, "context": 32},
        "data": {"train": path, "order": "sequential"},
        "batch": {"global": 8},
        "optim": {"type": "adamw", "lr": 1e-3, "clip_norm": 1.0, "schedule": {"type": "cosine", "warmup": 5}},
        "log": {"every": 1},
    }
    for section, keys in VARIANTS[name].items():
        config[section] = {**config[section], **keys}
    return config


def write_config(config, path):
    with open(path, "w", encoding="utf-8") as file:
        json.dump(config, file, indent=2)
    return path


def read_safetensors(path):
    """name -> (shape, array of floats), in the file's order.  F32 alone, as Lockstep's parameters are."""
    with open(path, "rb") as file:
        data = file.read()
    (n,) = struct.unpack_from("<Q", data)
    tensors = {}
    for name, entry in json.loads(data[8:8 + n]).items():
        if name == "__metadata__":
            continue
        if entry["dtype"] != "F32":
            raise ValueError(f"{path}: {name} is {entry['dtype']}, F32 was expected")
        begin, end = entry["data_offsets"]
        values = array.array("f", data[8 + n + begin:8 + n + end])
        if sys.byteorder == "big":
            values.byteswap()
        tensors[name] = (entry["shape"], values)
    return tensors


def read_checkpoint(run_dir, kind="parameter"):
    """The same of a run's last checkpoint, by docs/checkpoints.md: the tensors of that kind, put together of chunks."""
    with open(os.path.join(run_dir, "checkpoints", "latest"), encoding="utf-8") as file:
        folder = os.path.join(run_dir, "checkpoints", file.read().strip())
    with open(os.path.join(folder, "manifest.json"), "rb") as file:
        text = file.read()
    manifest, tensors = json.loads(text), {}
    if int(manifest["crc32"], 16) != zlib.crc32(text[:text.rindex(b',"crc32"')]):
        raise ValueError(f"{folder}: the manifest's CRC-32 is another one")
    for tensor in manifest["tensors"]:
        if tensor["kind"] != kind:
            continue
        values = array.array("f")
        for chunk in sorted(tensor["chunks"], key=lambda c: c["first"]):
            with open(os.path.join(folder, manifest["files"][chunk["file"]]["name"]), "rb") as file:
                file.seek(chunk["offset"])
                data = file.read(chunk["bytes"])
            if int(chunk["crc32"], 16) != zlib.crc32(data):
                raise ValueError(f"{folder}: {tensor['name']}: a chunk's CRC-32 is another one")
            values.frombytes(data)
        tensors[tensor["name"]] = (tensor["shape"], values)
    return tensors


def write_safetensors(path, tensors):
    """The reverse: tensors is name -> (shape, array of floats)."""
    header, offset = {}, 0
    for name, (shape, values) in tensors.items():
        header[name] = {"dtype": "F32", "shape": list(shape), "data_offsets": [offset, offset + 4 * len(values)]}
        offset += 4 * len(values)
    packed = json.dumps(header).encode()
    packed += b" " * (-len(packed) % 8)
    with open(path, "wb") as file:
        file.write(struct.pack("<Q", len(packed)) + packed)
        for _, values in tensors.values():
            file.write(values.tobytes())


def run(command):
    """Runs a command; ends this script with its words when it fails."""
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, check=False)
    if done.returncode != 0:
        sys.exit(f"{' '.join(command)}: exit {done.returncode}\n{done.stdout}{done.stderr}")


def initial(lockstep, config, stem):
    """(path of the config written, path of the initial parameters)."""
    path = write_config(config, stem + ".json")
    run([lockstep, "init", path, "-o", stem + ".init.safetensors"])
    return path, stem + ".init.safetensors"


def train(lockstep, path, run_dir, *settings, nproc=None):
    """Trains, on nproc ranks if given; returns (lines of metrics.jsonl, parameters at the end)."""
    command = [lockstep, "train", path, "--resume", "never", "--set", f"run.dir={run_dir}"]
    if nproc:
        command += ["--nproc", str(nproc)]
    for setting in settings:
        command += ["--set", setting]
    run(command)
    with open(os.path.join(run_dir, "metrics.jsonl"), encoding="utf-8") as file:
        metrics = [json.loads(line) for line in file]
    return metrics, read_checkpoint(run_dir)


def gradients(lockstep, path, init, run_dir):
    """The gradients of step 1, name -> (shape, values).

    A step of plain SGD gives w1 = w0 - lr * g.  With lr = 1 the difference w0 - w1 has lost the bits of g that
    are below the last bit of w0.  With lr = 2^20 the product lr * g is exact (a power of two) and dwarfs w0, so
    (w0 - w1) / lr is g within one rounding, 2^-24 * |g|, and 2^-24 * |w0| / 2^20, which is nothing.
    """
    lr = 2.0 ** 20
    _, after = train(lockstep, path, run_dir, "run.steps=1", "model.init=" + init, "optim.type=sgd",
                     "optim.lr=1048576", "optim.momentum=0", "optim.weight_decay=0", "optim.clip_norm=0",
                     "optim.schedule.type=constant", "optim.schedule.warmup=0")
    grads = {}
    for name, (shape, before) in read_safetensors(init).items():
        grads[name] = (shape, [(w0 - w1) / lr for w0, w1 in zip(before, after[name][1])])
    return grads


def free_part(name, values, config):
    """Values without the key rows of attn.qkv.bias, whose true gradient is zero: what is there is rounding.

    Softmax does not change when all scores of a row move by the same q . b; only rope makes b matter.
    """
    if not name.endswith("attn.qkv.bias") or config["model"].get("position") == "rope":
        return values
    model = config["model"]
    keys = model["d_model"] // model["n_head"] * model.get("n_kv_head", model["n_head"])
    return [*values[:model["d_model"]], *values[model["d_model"] + keys:]]


def digest(values):
    """(norm, probe): the Euclidean norm and the sum with pseudo-random signs, which feels a wrong direction too."""
    norm = math.sqrt(math.fsum(v * v for v in values))
    probe = math.fsum(v if (i * 2654435761 >> 15) & 1 else -v for i, v in enumerate(values))
    return norm, probe


def distance(got, want):
    """|got - want| / |want|; infinite when anything is not finite or the lengths differ."""
    if len(got) != len(want):
        return math.inf
    gap = math.sqrt(math.fsum((a - b) ** 2 for a, b in zip(got, want)))
    size = math.sqrt(math.fsum(b * b for b in want))
    if not math.isfinite(gap):
        return math.inf
    return gap / size if size else (0.0 if gap == 0 else math.inf)


def lockstep_results(lockstep, name, work):
    """Lockstep's half of a variant: (config, metrics, gradients of step 1, parameters, path of init)."""
    config, stem = variant_config(name, work), os.path.join(work, name)
    path, init = initial(lockstep, config, stem)
    metrics, after = train(lockstep, path, stem)
    return config, metrics, gradients(lockstep, path, init, stem + ".step1"), after, init


class Judge:
    """Collects (variant, what was compared, figure, bound); prints a table and every failure by name."""

    def __init__(self):
        self.worst, self.failures = {}, []

    def check(self, variant, kind, where, figure, bound):
        if not figure <= bound:  # NaN fails
            self.failures.append(f"FAIL {variant}: {where}: {kind} differs by {figure:.3g}, bound {bound:.3g}")
        key = (variant, kind)
        if key not in self.worst or not figure <= self.worst[key][0]:
            self.worst[key] = (figure, bound, where)

    def check_metrics(self, variant, got, want):
        """Losses and gradient norms of every step against lists of them."""
        got = {line["step"]: line for line in got if "loss" in line}
        for kind, bound in (("loss", LOSS_BOUND), ("grad_norm", NORM_BOUND)):
            for step, value in enumerate(want[kind], 1):
                mine = got[step][kind] if step in got else math.nan
                self.check(variant, kind, f"step {step}", abs(mine - value) / abs(value), bound)

    def finish(self):
        print(f"{'variant':22} {'compared':22} {'worst':>9} {'bound':>9}  where")
        for (variant, kind), (figure, bound, where) in self.worst.items():
            print(f"{variant:22} {kind:22} {figure:9.2e} {bound:9.2e}  {where}")
        print("\n".join(self.failures) if self.failures else f"{len(self.worst)} comparisons hold")
        return 1 if self.failures or not self.worst else 0
