#!/usr/bin/env python3
"""compare_ddp.py - Lockstep on two ranks against PyTorch's DistributedDataParallel over gloo, live.

    compare_ddp.py LOCKSTEP [--work DIR] [--only CASE]

Both start from the file that `lockstep init` wrote, and rank r takes the same micro-batches in both; PyTorch
accumulates under no_sync.  Losses and gradient norms of 20 steps and the parameters after them.  Exit 1 names case,
step and tensor of every difference; exit 77 when PyTorch is missing.
"""
import contextlib
import sys

import gpt_torch
import torch
import torch_ranks
from torch.nn.parallel import DistributedDataParallel

BUCKETS = {"strategy": "ddp", "bucket_mb": 0.05}  # of which the models have 8 or so

CASES = {
    "one-micro": torch_ranks.Case("gpt2-tied-gelu_tanh", 8, 4, BUCKETS, False),
    "blocks": torch_ranks.Case("gpt2-tied-gelu_tanh", 8, 1, BUCKETS, False),
    "blocks-llama": torch_ranks.Case("llama-untied-gqa", 8, 2, BUCKETS, False),
    # Lockstep's choice where M/N is no power of two
    "interleaved": torch_ranks.Case("gpt2-sgd-constant", 12, 2, BUCKETS, True),
}


class Model(torch.nn.Module):
    """The parameters of gpt_torch.py under names that a module allows; with bf16 parameters it runs under autocast."""

    def __init__(self, parameters, config):
        super().__init__()
        self.names, self.model = list(parameters), config["model"]
        self.bf16 = config["parallel"].get("param_dtype") == "bf16"
        for name, tensor in parameters.items():
            self.register_parameter(name.replace(".", "/"), torch.nn.Parameter(tensor.detach()))

    def by_name(self):
        return {name: self.get_parameter(name.replace(".", "/")) for name in self.names}

    def forward(self, inputs, targets):
        with torch.autocast("cpu", dtype=torch.bfloat16, enabled=self.bf16):
            return gpt_torch.loss_of(self.by_name(), inputs, targets, self.model)


class Single:
    """One process; and what DDP shares with it."""

    def __init__(self, parameters, config):
        self.loss = Model(parameters, config)
        self.by_name = self.loss.by_name

    def communicating(self, _last):
        return contextlib.nullcontext()

    def grad_norm(self, limit):
        return torch.nn.utils.clip_grad_norm_(self.by_name().values(), limit).item()

    def whole(self, tensor):
        return tensor


class Ddp(Single):
    def __init__(self, parameters, config):
        super().__init__(parameters, config)
        self.loss = DistributedDataParallel(self.loss, bucket_cap_mb=config["parallel"]["bucket_mb"],
                                            gradient_as_bucket_view=True)

    def communicating(self, last):
        return contextlib.nullcontext() if last else self.loss.no_sync()


if __name__ == "__main__":
    sys.exit(torch_ranks.main("PyTorch DDP", CASES, Ddp))
