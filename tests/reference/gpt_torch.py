#!/usr/bin/env python3
"""gpt_torch.py - the GPT of docs/config.md in plain PyTorch: what Lockstep must agree with.

Both styles (GPT-2 and Llama) by the same config, parameters under the same names in one dictionary, the same
sequential batches, schedule, clipping and optimizers.  Nothing is shared with Lockstep but its files.

    gpt_torch.py CONFIG INIT.safetensors [--f64]     one JSON line a step: step, loss, grad_norm, lr

Shapes: B batch, T time, C channels, H heads, K key-value heads, D channels of a head.
"""
import argparse
import array
import gzip
import json
import math
import sys

import refs

try:
    import torch
    import torch.nn.functional as F
except ImportError as missing:
    print(f"skipped: {missing}")
    sys.exit(refs.SKIPPED)

GPT_DEFAULTS = {"dropout": 0, "bias": True, "tie_embeddings": True, "norm": "layernorm", "mlp": "gelu",
                "position": "learned", "norm_eps": 1e-5, "rope_base": 10000, "vocab_size": "auto"}
OPTIM_DEFAULTS = {"type": "adamw", "betas": [0.9, 0.95], "eps": 1e-8, "momentum": 0, "clip_norm": 1.0}


def resolve(config):
    """The config with its defaults filled in (sections model, optim, data; byte tokens)."""
    model = {**GPT_DEFAULTS, **config["model"]}
    model.setdefault("n_kv_head", model["n_head"])
    if model["vocab_size"] == "auto":
        model["vocab_size"] = 256
    wide = 64 * math.ceil(model["d_model"] * 8 / 3 / 64) if model["mlp"] == "swiglu" else 4 * model["d_model"]
    model.setdefault("d_ff", wide)
    optim = {**OPTIM_DEFAULTS, **config["optim"]}
    optim.setdefault("weight_decay", 0.1 if optim["type"] == "adamw" else 0)
    schedule = {"type": "cosine", "steps": config["run"]["steps"], "warmup": 0, "min_lr": optim["lr"] / 10,
                **optim.get("schedule", {})}
    data = {"val_fraction": 0, **config["data"]}
    if model["dropout"] or data.get("order") != "sequential" or data.get("tokenizer", "byte") != "byte":
        raise ValueError("the reference knows dropout 0, data.order sequential, data.tokenizer byte")
    return {**config, "model": model, "optim": {**optim, "schedule": schedule}, "data": data}


def shapes(model):
    """name -> shape of every parameter."""
    C, V, Fw = model["d_model"], model["vocab_size"], model["d_ff"]
    kv = C // model["n_head"] * model["n_kv_head"]
    out = {"wte.weight": (V, C)}
    if model["position"] == "learned":
        out["wpe.weight"] = (model["context"], C)

    def linear(name, rows, columns):
        out[name + ".weight"] = (rows, columns)
        if model["bias"]:
            out[name + ".bias"] = (rows,)

    def norm(name):
        out[name + ".weight"] = (C,)
        if model["norm"] == "layernorm" and model["bias"]:
            out[name + ".bias"] = (C,)

    for i in range(model["n_layer"]):
        norm(f"h.{i}.ln_1")
        linear(f"h.{i}.attn.qkv", C + 2 * kv, C)
        linear(f"h.{i}.attn.proj", C, C)
        norm(f"h.{i}.ln_2")
        for part in ("gate", "up") if model["mlp"] == "swiglu" else ("fc",):
            linear(f"h.{i}.mlp.{part}", Fw, C)
        linear(f"h.{i}.mlp.proj", C, Fw)
    norm("ln_f")
    if not model["tie_embeddings"]:
        out["lm_head.weight"] = (V, C)
    return out


def norm(x, p, name, model):
    weight, eps = p[name + ".weight"], model["norm_eps"]
    if model["norm"] == "rmsnorm":
        return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + eps) * weight
    return F.layer_norm(x, weight.shape, weight, p.get(name + ".bias"), eps)


def linear(x, p, name):
    return F.linear(x, p[name + ".weight"], p.get(name + ".bias"))


def rope(x, base):
    """Rotates the halves of each head, (B,H,T,D): pairs are (d, d + D/2).  Angles in double."""
    T, D = x.shape[-2:]
    rate = base ** (-torch.arange(0, D, 2, dtype=torch.float64) / D)
    angle = torch.outer(torch.arange(T, dtype=torch.float64), rate)
    cos, sin = angle.cos().to(x.dtype), angle.sin().to(x.dtype)
    first, second = x[..., :D // 2], x[..., D // 2:]
    return torch.cat((first * cos - second * sin, second * cos + first * sin), -1)


def attention(x, p, name, model):
    B, T, C = x.shape
    H, K = model["n_head"], model["n_kv_head"]
    D = C // H
    q, k, v = linear(x, p, name + ".qkv").split((C, K * D, K * D), -1)
    q = q.view(B, T, H, D).transpose(1, 2)
    k, v = (t.view(B, T, K, D).transpose(1, 2) for t in (k, v))
    if model["position"] == "rope":
        q, k = rope(q, model["rope_base"]), rope(k, model["rope_base"])
    k, v = (t.repeat_interleave(H // K, dim=1) for t in (k, v))
    future = torch.ones(T, T, dtype=torch.bool).triu(1)
    scores = (q @ k.transpose(-2, -1) / math.sqrt(D)).masked_fill(future, -math.inf)
    y = torch.softmax(scores, -1) @ v
    return linear(y.transpose(1, 2).reshape(B, T, C), p, name + ".proj")


def mlp(x, p, name, model):
    if model["mlp"] == "swiglu":
        y = F.silu(linear(x, p, name + ".gate")) * linear(x, p, name + ".up")
    else:
        y = F.gelu(linear(x, p, name + ".fc"), approximate="tanh" if model["mlp"] == "gelu_tanh" else "none")
    return linear(y, p, name + ".proj")


def embedded(p, inputs, model):
    """(B,T) tokens -> (B,T,C)."""
    x = F.embedding(inputs, p["wte.weight"])
    return x + p["wpe.weight"][:inputs.shape[1]] if model["position"] == "learned" else x


def block(x, p, i, model):
    x = x + attention(norm(x, p, f"h.{i}.ln_1", model), p, f"h.{i}.attn", model)
    return x + mlp(norm(x, p, f"h.{i}.ln_2", model), p, f"h.{i}.mlp", model)


def head_loss(x, p, targets, model):
    """The mean cross-entropy over all tokens."""
    x = norm(x, p, "ln_f", model)
    logits = F.linear(x, p["wte.weight" if model["tie_embeddings"] else "lm_head.weight"])
    logits = logits.to(torch.promote_types(logits.dtype, torch.float32))
    return F.cross_entropy(logits.flatten(0, 1), targets.flatten())


def loss_of(p, inputs, targets, model):
    """The mean cross-entropy over all tokens; inputs and targets are (B,T)."""
    x = embedded(p, inputs, model)
    for i in range(model["n_layer"]):
        x = block(x, p, i, model)
    return head_loss(x, p, targets, model)


def load_parameters(path, model, dtype=torch.float32):
    """name -> leaf tensor, after checking that the file has the names and shapes of the contract, and no other."""
    found = refs.read_safetensors(path)
    wanted = shapes(model)
    wrong = [f"{n}: {tuple(found[n][0]) if n in found else 'missing'}, wanted {wanted.get(n, 'nothing')}"
             for n in sorted(set(found) | set(wanted))
             if n not in found or n not in wanted or tuple(found[n][0]) != wanted[n]]
    if wrong:
        sys.exit(f"{path}: " + "; ".join(wrong))
    return {n: torch.frombuffer(values, dtype=torch.float32).reshape(shape).to(dtype, copy=True).requires_grad_()
            for n, (shape, values) in found.items()}


def flat(tensor):
    """A tensor's values as a list, row-major."""
    return tensor.detach().reshape(-1).tolist()


def load_tokens(config):
    """(training tokens, validation tokens): bytes of one file or a list, plain or .gz."""
    paths = config["data"]["train"]
    joined = bytearray()
    for path in [paths] if isinstance(paths, str) else paths:
        with (gzip.open if path.endswith(".gz") else open)(path, "rb") as file:
            joined += file.read()
    tokens = torch.frombuffer(joined, dtype=torch.uint8).long()
    n_val = int(len(tokens) * config["data"]["val_fraction"])
    return tokens[:len(tokens) - n_val], tokens[len(tokens) - n_val:]


def sequences(tokens, first, count, context):
    """Sequences first ... first + count - 1 of the sequential order: (inputs, targets), each (count,T)."""
    in_epoch = (len(tokens) - 1) // context
    starts = [(q % in_epoch) * context for q in range(first, first + count)]
    rows = torch.stack([tokens[s:s + context + 1] for s in starts])
    return rows[:, :-1], rows[:, 1:]


def learning_rate(optim, step):
    """Of a step, counted from 1."""
    lr, s = optim["lr"], optim["schedule"]
    if step <= s["warmup"]:
        return lr * step / s["warmup"]
    p = min(1.0, (step - s["warmup"]) / (s["steps"] - s["warmup"]))
    if s["type"] == "cosine":
        return s["min_lr"] + (lr - s["min_lr"]) * (1 + math.cos(math.pi * p)) / 2
    return lr + (s["min_lr"] - lr) * p if s["type"] == "linear" else lr


def make_optimizer(p, optim):
    """PyTorch's own; no decay on vectors."""
    groups = [{"params": [t for t in p.values() if t.dim() > 1], "weight_decay": optim["weight_decay"]},
              {"params": [t for t in p.values() if t.dim() == 1], "weight_decay": 0.0}]
    groups = [group for group in groups if group["params"]]
    if optim["type"] == "sgd":
        return torch.optim.SGD(groups, lr=optim["lr"], momentum=optim["momentum"])
    kind = torch.optim.AdamW if optim["type"] == "adamw" else torch.optim.Adam
    return kind(groups, lr=optim["lr"], betas=tuple(optim["betas"]), eps=optim["eps"])


def train(config, p, tokens, on_gradients=None):
    """Trains p in place for run.steps steps; yields {"step", "loss", "grad_norm", "lr"} of each."""
    optim, T, B = config["optim"], config["model"]["context"], config["batch"]["global"]
    optimizer = make_optimizer(p, optim)
    for step in range(1, config["run"]["steps"] + 1):
        lr = learning_rate(optim, step)
        for group in optimizer.param_groups:
            group["lr"] = lr
        loss = loss_of(p, *sequences(tokens, (step - 1) * B, B, T), config["model"])
        optimizer.zero_grad()
        loss.backward()
        if on_gradients:
            on_gradients(step, p)
        limit = optim["clip_norm"] or math.inf
        grad_norm = torch.nn.utils.clip_grad_norm_(p.values(), limit)
        optimizer.step()
        yield {"step": step, "loss": loss.item(), "grad_norm": grad_norm.item(), "lr": lr}


def evaluate(config, p, tokens):
    """The mean loss over the first eval.batches batches of the tokens (20 by default, 0 for all of them)."""
    T, B = config["model"]["context"], config["batch"]["global"]
    whole = (len(tokens) - 1) // T
    batches = config.get("eval", {}).get("batches", 20)
    count = min(batches * B, whole) if batches else whole
    total = 0.0
    with torch.no_grad():
        for first in range(0, count, B):
            n = min(B, count - first)
            total += loss_of(p, *sequences(tokens, first, n, T), config["model"]).item() * n
    return total / count


def train_all(config, init, dtype=torch.float32):
    """(metrics, gradients of step 1, parameters at the end, PyTorch's parameters)."""
    p, grads = load_parameters(init, config["model"], dtype), {}

    def keep_first(step, p):
        if step == 1:
            grads.update({name: flat(t.grad) for name, t in p.items()})

    metrics = list(train(config, p, load_tokens(config)[0], keep_first))
    return metrics, grads, {name: flat(t) for name, t in p.items()}, p


def make_parameters(model, seed=1):
    """Parameters of the contract's distribution without Lockstep, as write_safetensors wants them."""
    torch.manual_seed(seed)
    out = {}
    for name, shape in shapes(model).items():
        t = torch.zeros(shape) if name.endswith(".bias") else torch.ones(shape)
        if len(shape) > 1:
            residual = name.endswith(".proj.weight")
            t = torch.randn(shape) * 0.02 / (math.sqrt(2 * model["n_layer"]) if residual else 1)
        out[name] = (shape, array.array("f", flat(t)))
    return out


def main():
    parser = argparse.ArgumentParser(description="trains the GPT of a Lockstep config in PyTorch")
    parser.add_argument("config")
    parser.add_argument("init", help="what `lockstep init CONFIG -o FILE` wrote")
    parser.add_argument("--f64", action="store_true", help="compute in double")
    options = parser.parse_args()
    with open(options.config, encoding="utf-8") as file:
        config = resolve(json.load(file))
    p = load_parameters(options.init, config["model"], torch.float64 if options.f64 else torch.float32)
    train_tokens, val_tokens = load_tokens(config)
    for line in train(config, p, train_tokens):
        print(json.dumps(line), flush=True)
    if len(val_tokens):
        print(json.dumps({"step": config["run"]["steps"], "val_loss": evaluate(config, p, val_tokens)}))


if __name__ == "__main__":
    main()
