#!/usr/bin/env python3
"""torch_step.py - a training step of the same GPT in PyTorch: eager, scaled_dot_product_attention, fused AdamW.

    torch_step.py CONFIG --threads N [--steps S] [--nproc N [--fsdp]]

Prints one JSON object: median_ms, tokens_per_s, peak_rss_mb, sgemm_gflops (1024^3), torch, threads, ranks.  The GPT-2
style only; the weights' values do not matter here (tests/reference compares those).  With parallel.param_dtype "bf16" in
CONFIG the forward runs under autocast, and FSDP2 has a MixedPrecisionPolicy (bf16 parameters, f32 gradients).  With --nproc the batch is shared by
ranks of DistributedDataParallel over gloo, gradients being views of its buckets, or with --fsdp by fully_shard of each
block and then of the root (FSDP2); a step starts with all ranks together
and ends with the slowest, memory is that of the largest, the rate of sgemm that of all together.
"""
import argparse
import json
import os
import statistics
import tempfile
import time

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
import torch.nn as nn
import torch.nn.functional as F
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard


class Block(nn.Module):
    def __init__(self, c, heads):
        super().__init__()
        self.heads = heads
        self.ln_1, self.ln_2 = nn.LayerNorm(c), nn.LayerNorm(c)
        self.qkv, self.proj = nn.Linear(c, 3 * c), nn.Linear(c, c)
        self.fc, self.out = nn.Linear(c, 4 * c), nn.Linear(4 * c, c)

    def forward(self, x):
        b, t, c = x.shape
        q, k, v = (p.view(b, t, self.heads, c // self.heads).transpose(1, 2) for p in self.qkv(self.ln_1(x)).split(c, 2))
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.proj(y.transpose(1, 2).reshape(b, t, c))
        return x + self.out(F.gelu(self.fc(self.ln_2(x)), approximate="tanh"))


class GPT(nn.Module):
    def __init__(self, vocab, context, layers, heads, c):
        super().__init__()
        self.wte, self.wpe = nn.Embedding(vocab, c), nn.Embedding(context, c)
        self.blocks = nn.ModuleList(Block(c, heads) for _ in range(layers))
        self.ln_f = nn.LayerNorm(c)

    def forward(self, ids, targets):
        x = self.wte(ids) + self.wpe.weight[: ids.shape[1]]
        for block in self.blocks:
            x = block(x)
        logits = F.linear(self.ln_f(x), self.wte.weight)
        return F.cross_entropy(logits.view(-1, logits.shape[-1]), targets.view(-1))


def sgemm_gflops(n=1024):
    a, b = torch.randn(n, n), torch.randn(n, n)
    start = time.perf_counter()
    a @ b
    return 2 * n**3 / (time.perf_counter() - start) * 1e-9


def peak_rss_mb():
    with open("/proc/self/status", encoding="ascii") as file:
        return next(int(line.split()[1]) for line in file if line.startswith("VmHWM:")) / 1024


def shared(model, options, bf16):
    """The model of one of several ranks."""
    if not options.fsdp:
        return nn.parallel.DistributedDataParallel(model, gradient_as_bucket_view=True)
    mesh = init_device_mesh("cpu", (options.nproc,))
    policy = MixedPrecisionPolicy(param_dtype=torch.bfloat16 if bf16 else None, reduce_dtype=torch.float32 if bf16 else None)
    for part in [*model.blocks, model]:
        fully_shard(part, mesh=mesh, mp_policy=policy)
    return model


def time_steps(options, config, ranks):
    """(seconds of each step, rates of sgemm before them) of this rank."""
    m, batch = config["model"], config["batch"]["global"] // ranks
    bf16 = config.get("parallel", {}).get("param_dtype") == "bf16"
    vocab = m.get("vocab_size", 256)
    model = GPT(vocab, m["context"], m["n_layer"], m["n_head"], m["d_model"])
    if ranks > 1:
        model = shared(model, options, bf16)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, betas=(0.9, 0.95), weight_decay=0.1, fused=True)
    times, rates = [], []
    for step in range(options.steps + 3):
        ids = torch.randint(0, min(vocab, 256), (batch, m["context"] + 1))
        rate = sgemm_gflops()
        if ranks > 1:
            dist.barrier()
        start = time.perf_counter()
        optimizer.zero_grad(set_to_none=True)
        with torch.autocast("cpu", dtype=torch.bfloat16, enabled=bf16 and not options.fsdp):
            loss = model(ids[:, :-1], ids[:, 1:].contiguous())
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        if step >= 3:
            times.append(time.perf_counter() - start)
            rates.append(rate)
    return times, rates


def joined(values, op, ranks):
    tensor = torch.tensor(values, dtype=torch.float64)
    if ranks > 1:
        dist.all_reduce(tensor, op)
    return tensor.tolist()


def measure(rank, options, config, meeting):
    ranks = options.nproc
    torch.set_num_threads(options.threads)
    if ranks > 1:
        os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
        dist.init_process_group("gloo", init_method=f"file://{meeting}/ranks", rank=rank, world_size=ranks)
    times, rates = time_steps(options, config, ranks)
    median = statistics.median(joined(times, dist.ReduceOp.MAX, ranks))
    rate = statistics.median(joined(rates, dist.ReduceOp.SUM, ranks))
    (rss,) = joined([peak_rss_mb()], dist.ReduceOp.MAX, ranks)
    if rank == 0:
        print(json.dumps({"median_ms": median * 1e3,
                          "tokens_per_s": config["batch"]["global"] * config["model"]["context"] / median,
                          "peak_rss_mb": rss, "sgemm_gflops": rate, "torch": torch.__version__,
                          "threads": options.threads, "ranks": ranks}), flush=True)
    if ranks > 1:
        dist.barrier()
        os._exit(0)  # gloo's threads now and then abort a process that ends in the usual way


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("config")
    parser.add_argument("--threads", type=int, required=True, help="of each rank")
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--nproc", type=int, default=1, help="ranks, which divide the batch")
    parser.add_argument("--fsdp", action="store_true", help="FSDP2 instead of DDP")
    options = parser.parse_args()
    with open(options.config, encoding="utf-8") as file:
        config = json.load(file)
    if config["batch"]["global"] % options.nproc:
        parser.error(f"--nproc {options.nproc} does not divide a batch of {config['batch']['global']}")
    if options.nproc == 1:
        measure(0, options, config, None)
        return
    with tempfile.TemporaryDirectory() as meeting:
        mp.spawn(measure, (options, config, meeting), nprocs=options.nproc)


if __name__ == "__main__":
    main()
