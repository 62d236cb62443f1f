"""torch_ranks.py - what compare_ddp.py, compare_fsdp.py and compare_ways.py share: PyTorch's ranks over gloo.

Both start from the file that `lockstep init` wrote, and rank r takes the same micro-batches in both.  How ranks share
the model is the script's: a class made with (parameters by name, config) on each rank, with

    by_name()                        the parameters that the optimizer gets, by Lockstep's names
    loss(inputs, targets)            forward; the mean over the tokens
    communicating(last)              a context around forward and backward of a micro-batch
    grad_norm(limit)                 clips; the norm before, a float
    whole(tensor)                    a parameter with all its values
"""
import argparse
import array
import collections
import json
import os
import sys
import tempfile

import gpt_torch
import refs
import torch
import torch.distributed as dist
import torch.multiprocessing as mp

RANKS, STEPS = 2, 20

# variant of refs.py, batch.global, batch.micro, section parallel, which micro-batches (else blocks of neighbours)
Case = collections.namedtuple("Case", "variant whole micro parallel interleaved")


def case_config(name, case, work):
    config = refs.variant_config(case.variant, work)
    config["run"] = {**config["run"], "name": name, "dir": os.path.join(work, name), "steps": STEPS}
    config["batch"] = {"global": case.whole, "micro": case.micro}
    config["parallel"] = case.parallel
    return config


def micros_of(rank, ranks, config, interleaved):
    each = config["batch"]["global"] // config["batch"]["micro"] // ranks
    return [k * ranks + rank if interleaved else rank * each + k for k in range(each)]


def train(rank, config, shared, mine):
    """(metrics of each step, parameters at the end); the same on all ranks."""
    p, optim, tokens = shared.by_name(), config["optim"], gpt_torch.load_tokens(config)[0]
    optimizer, (whole, micro) = gpt_torch.make_optimizer(p, optim), (config["batch"][k] for k in ("global", "micro"))
    lines = []
    for step in range(1, config["run"]["steps"] + 1):
        for group in optimizer.param_groups:
            group["lr"] = gpt_torch.learning_rate(optim, step)
        optimizer.zero_grad()
        total = torch.zeros((), dtype=torch.float64)
        for m in mine:
            batch = gpt_torch.sequences(tokens, (step - 1) * whole + m * micro, micro, config["model"]["context"])
            with shared.communicating(m == mine[-1]):
                loss = shared.loss(*batch) / len(mine)
                loss.backward()
            total += loss.detach()
        dist.all_reduce(total)
        norm = shared.grad_norm(optim["clip_norm"])
        optimizer.step()
        lines.append({"loss": total.item() / dist.get_world_size(), "grad_norm": norm})
    return lines, {name: gpt_torch.flat(shared.whole(t)) for name, t in p.items()}


def rank_main(rank, ranks, work, jobs):
    """
    One rank of PyTorch: every job in turn, {name: (config, class, micro-batches interleaved, type of the values)}; rank 0
    writes NAME.torch.json.
    """
    os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{work}/meeting-{ranks}", rank=rank, world_size=ranks)
    for name, (config, shared_class, interleaved, dtype) in jobs.items():
        config = gpt_torch.resolve(config)
        parameters = gpt_torch.load_parameters(os.path.join(work, name) + ".init.safetensors", config["model"], dtype)
        result = train(rank, config, shared_class(parameters, config), micros_of(rank, ranks, config, interleaved))
        if rank == 0:
            with open(os.path.join(work, name) + ".torch.json", "w", encoding="utf-8") as file:
                json.dump(result, file)
    dist.barrier()
    sys.stdout.flush()
    os._exit(0)  # gloo's threads now and then abort a process that ends in the usual way


def compare(lockstep, name, case, work, judge):
    stem = os.path.join(work, name)
    metrics, after = refs.train(lockstep, stem + ".json", stem, nproc=RANKS)
    with open(os.path.join(stem, "summary.json"), encoding="utf-8") as file:
        summary = json.load(file)
    judge.check(name, "ranks", "summary.json", abs(summary["world_size"] - RANKS), 0)
    judge.check(name, "strategy", "summary.json", summary["strategy"] != case.parallel["strategy"], 0)
    with open(stem + ".torch.json", encoding="utf-8") as file:
        lines, want = json.load(file)
    judge.check_metrics(name, metrics, {k: [line[k] for line in lines] for k in ("loss", "grad_norm")})
    config = gpt_torch.resolve(case_config(name, case, work))
    for tensor, values in want.items():
        pair = [refs.free_part(tensor, v, config) for v in (after[tensor][1], array.array("f", values))]
        judge.check(name, "parameters at the end", tensor, refs.distance(*pair), refs.PARAM_BOUND)


def main(what, cases, shared_class):
    """The script: every case, or the one asked for; the exit status."""
    parser = argparse.ArgumentParser(description=f"Lockstep on {RANKS} ranks against {what}")
    parser.add_argument("lockstep")
    parser.add_argument("--work", help="a folder for configs and runs, kept; a temporary one otherwise")
    parser.add_argument("--only", choices=cases, help="one case")
    options = parser.parse_args()
    if options.only:
        cases = {options.only: cases[options.only]}
    judge = refs.Judge()
    with tempfile.TemporaryDirectory() as temporary:
        work = os.path.abspath(options.work or temporary)
        os.makedirs(work, exist_ok=True)
        for name, case in cases.items():
            refs.initial(options.lockstep, case_config(name, case, work), os.path.join(work, name))
        jobs = {name: (case_config(name, case, work), shared_class, case.interleaved, torch.float32)
                for name, case in cases.items()}
        mp.spawn(rank_main, (RANKS, work, jobs), nprocs=RANKS)
        for name, case in cases.items():
            compare(options.lockstep, name, case, work, judge)
    return judge.finish()
