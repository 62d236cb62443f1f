#!/usr/bin/env python3
"""compare_ddp.py - Lockstep on two ranks against PyTorch's DistributedDataParallel over gloo, live.

    compare_ddp.py LOCKSTEP [--work DIR] [--only CASE]

Both start from the file that `lockstep init` wrote, and rank r takes the same micro-batches in both; PyTorch
accumulates under no_sync.  Losses and gradient norms of 20 steps and the parameters after them.  Exit 1 names case,
step and tensor of every difference; exit 77 when PyTorch is missing.
"""
import argparse
import array
import contextlib
import json
import os
import sys
import tempfile

import gpt_torch
import refs
import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch.nn.parallel import DistributedDataParallel

RANKS, STEPS, BUCKET_MB = 2, 20, 0.05  # of which the models have 8 or so

# name -> (variant of refs.py, batch.global, batch.micro, interleaved: Lockstep's choice where M/N is no power of two)
CASES = {
    "one-micro": ("gpt2-tied-gelu_tanh", 8, 4, False),
    "blocks": ("gpt2-tied-gelu_tanh", 8, 1, False),
    "blocks-llama": ("llama-untied-gqa", 8, 2, False),
    "interleaved": ("gpt2-sgd-constant", 12, 2, True),
}


def case_config(name, work):
    variant, whole, micro, _ = CASES[name]
    config = refs.variant_config(variant, work)
    config["run"] = {**config["run"], "name": name, "dir": os.path.join(work, name), "steps": STEPS}
    config["batch"] = {"global": whole, "micro": micro}
    config["parallel"] = {"strategy": "ddp", "bucket_mb": BUCKET_MB}
    return config


class Model(torch.nn.Module):
    """The parameters of gpt_torch.py under names that a module allows."""

    def __init__(self, parameters, model):
        super().__init__()
        self.names, self.model = list(parameters), model
        for name, tensor in parameters.items():
            self.register_parameter(name.replace(".", "/"), torch.nn.Parameter(tensor.detach()))

    def by_name(self):
        return {name: self.get_parameter(name.replace(".", "/")) for name in self.names}

    def forward(self, inputs, targets):
        return gpt_torch.loss_of(self.by_name(), inputs, targets, self.model)


def micros_of(rank, micros, interleaved):
    each = micros // RANKS
    return [k * RANKS + rank if interleaved else rank * each + k for k in range(each)]


def train(rank, config, init, interleaved):
    """(metrics of each step, parameters at the end); the same on all ranks."""
    model = Model(gpt_torch.load_parameters(init, config["model"]), config["model"])
    ddp = DistributedDataParallel(model, bucket_cap_mb=BUCKET_MB, gradient_as_bucket_view=True)
    p, optim, tokens = model.by_name(), config["optim"], gpt_torch.load_tokens(config)[0]
    optimizer, (whole, micro) = gpt_torch.make_optimizer(p, optim), (config["batch"][k] for k in ("global", "micro"))
    mine, lines = micros_of(rank, whole // micro, interleaved), []
    for step in range(1, STEPS + 1):
        for group in optimizer.param_groups:
            group["lr"] = gpt_torch.learning_rate(optim, step)
        optimizer.zero_grad()
        total = torch.zeros((), dtype=torch.float64)
        for m in mine:
            batch = gpt_torch.sequences(tokens, (step - 1) * whole + m * micro, micro, config["model"]["context"])
            with contextlib.nullcontext() if m == mine[-1] else ddp.no_sync():
                loss = ddp(*batch) / len(mine)
                loss.backward()
            total += loss.detach()
        dist.all_reduce(total)
        norm = torch.nn.utils.clip_grad_norm_(p.values(), optim["clip_norm"])
        optimizer.step()
        lines.append({"loss": total.item() / RANKS, "grad_norm": norm.item()})
    return lines, {name: gpt_torch.flat(t) for name, t in p.items()}


def rank_main(rank, work, cases):
    """One rank of PyTorch: every case in turn; rank 0 writes CASE.torch.json."""
    os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{work}/meeting", rank=rank, world_size=RANKS)
    for name in cases:
        config = gpt_torch.resolve(case_config(name, work))
        result = train(rank, config, os.path.join(work, name) + ".init.safetensors", CASES[name][3])
        if rank == 0:
            with open(os.path.join(work, name) + ".torch.json", "w", encoding="utf-8") as file:
                json.dump(result, file)
    dist.barrier()
    sys.stdout.flush()
    os._exit(0)  # gloo's threads now and then abort a process that ends in the usual way


def compare(lockstep, name, work, judge):
    stem = os.path.join(work, name)
    metrics, after = refs.train(lockstep, stem + ".json", stem, nproc=RANKS)
    with open(os.path.join(stem, "summary.json"), encoding="utf-8") as file:
        world = json.load(file)["world_size"]
    judge.check(name, "ranks", "summary.json", abs(world - RANKS), 0)
    with open(stem + ".torch.json", encoding="utf-8") as file:
        lines, want = json.load(file)
    judge.check_metrics(name, metrics, {k: [line[k] for line in lines] for k in ("loss", "grad_norm")})
    config = gpt_torch.resolve(case_config(name, work))
    for tensor, values in want.items():
        pair = [refs.free_part(tensor, v, config) for v in (after[tensor][1], array.array("f", values))]
        judge.check(name, "parameters at the end", tensor, refs.distance(*pair), refs.PARAM_BOUND)


def main():
    parser = argparse.ArgumentParser(description="Lockstep on two ranks against PyTorch DDP")
    parser.add_argument("lockstep")
    parser.add_argument("--work", help="a folder for configs and runs, kept; a temporary one otherwise")
    parser.add_argument("--only", choices=CASES, help="one case")
    options = parser.parse_args()
    cases, judge = [options.only] if options.only else list(CASES), refs.Judge()
    with tempfile.TemporaryDirectory() as temporary:
        work = os.path.abspath(options.work or temporary)
        os.makedirs(work, exist_ok=True)
        for name in cases:
            refs.initial(options.lockstep, case_config(name, work), os.path.join(work, name))
        mp.spawn(rank_main, (work, cases), nprocs=RANKS)
        for name in cases:
            compare(options.lockstep, name, work, judge)
    return judge.finish()


if __name__ == "__main__":
    sys.exit(main())
