#!/usr/bin/env python3
"""compare_fsdp.py - Lockstep's FSDP on two ranks against PyTorch's FSDP2 (fully_shard) over gloo, live.

    compare_fsdp.py LOCKSTEP [--work DIR] [--only CASE]

fully_shard of every block, then of the root; both start from the file that `lockstep init` wrote, and rank r takes the
same micro-batches in both.  PyTorch reduces every micro-batch where Lockstep accumulates shards, and the last alone where
it accumulates locally.  Losses and gradient norms of 20 steps and the parameters after them; bf16 is compare_ways.py's.
Exit 1 names case, step and tensor of every difference; exit 77 when PyTorch or its fully_shard is missing.
"""
import contextlib
import sys

import gpt_torch
import refs
import torch
import torch_ranks
from torch.distributed.device_mesh import init_device_mesh

try:
    from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
except ImportError as missing:
    print(f"skipped: {missing}")
    sys.exit(refs.SKIPPED)

FSDP = {"strategy": "fsdp"}

CASES = {
    "sharded-sums": torch_ranks.Case("gpt2-tied-gelu_tanh", 8, 1, FSDP, True),
    "local-sums": torch_ranks.Case("gpt2-untied-gelu", 8, 1, {**FSDP, "accumulate": "local"}, False),
    "kept-llama": torch_ranks.Case("llama-untied-gqa", 8, 2, {**FSDP, "reshard_after_forward": False}, True),
    "zero-2-sgd": torch_ranks.Case("gpt2-sgd-constant", 12, 2, {**FSDP, "shard": "gradients"}, True),
    "zero-1-adam": torch_ranks.Case("gpt2-adam-linear", 8, 2, {**FSDP, "shard": "optimizer", "unit_blocks": 2}, True),
}


class Part(torch.nn.Module):
    """Some of the parameters of gpt_torch.py under names that a module allows."""

    def __init__(self, parameters):
        super().__init__()
        self.names = list(parameters)
        for name, tensor in parameters.items():
            self.register_parameter(name.replace(".", "/"), torch.nn.Parameter(tensor.detach()))

    def own(self):
        return {name: self.get_parameter(name.replace(".", "/")) for name in self.names}


class Block(Part):
    def __init__(self, parameters, i, model):
        super().__init__({n: t for n, t in parameters.items() if n.startswith(f"h.{i}.")})
        self.i, self.model = i, model

    def forward(self, x):
        return gpt_torch.block(x, self.own(), self.i, self.model)


class Model(Part):
    def __init__(self, parameters, model):
        super().__init__({n: t for n, t in parameters.items() if not n.startswith("h.")})
        self.blocks = torch.nn.ModuleList(Block(parameters, i, model) for i in range(model["n_layer"]))
        self.model = model

    def forward(self, inputs, targets):
        x = gpt_torch.embedded(self.own(), inputs, self.model)
        for block in self.blocks:
            x = block(x)
        return gpt_torch.head_loss(x, self.own(), targets, self.model)


class Fsdp:
    def __init__(self, parameters, config):
        mesh, parallel = init_device_mesh("cpu", (torch_ranks.RANKS,)), config["parallel"]
        drop = parallel.get("shard", "full") == "full" and parallel.get("reshard_after_forward", True)
        self.loss, self.local = Model(parameters, config["model"]), parallel.get("accumulate") == "local"
        bf16 = {"param_dtype": torch.bfloat16, "reduce_dtype": torch.float32, "cast_forward_inputs": True}
        policy = MixedPrecisionPolicy(**(bf16 if parallel.get("param_dtype") == "bf16" else {}))
        for part in [*self.loss.blocks, self.loss]:
            fully_shard(part, mesh=mesh, reshard_after_forward=drop, mp_policy=policy)

    def by_name(self):
        parts = [self.loss, *self.loss.blocks]
        return {name: t for part in parts for name, t in part.own().items()}

    def communicating(self, last):
        self.loss.set_requires_gradient_sync(last or not self.local)
        return contextlib.nullcontext()

    def grad_norm(self, limit):
        return torch.nn.utils.clip_grad_norm_(self.by_name().values(), limit).full_tensor().item()

    def whole(self, tensor):
        return tensor.full_tensor()


if __name__ == "__main__":
    sys.exit(torch_ranks.main("PyTorch FSDP2", CASES, Fsdp))
