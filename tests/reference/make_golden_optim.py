#!/usr/bin/env python3
"""make_golden_optim.py - writes golden_optim.h: ten steps of PyTorch's optimizers in float32.

Parameters are one matrix (3,5), with weight decay, and one vector (5), without.  Start values and gradients are
dyadic fractions by formula, so the test makes the same ones; gradients are halved on the way, as a division by two
tokens would; the learning rate falls with the step.
"""
import os

import torch

STEPS, ROWS, COLUMNS = 10, 3, 5
LR = 0.0625

VARIANTS = {
    "sgd": (torch.optim.SGD, {}, 0.0),
    "sgd_momentum": (torch.optim.SGD, {"momentum": 0.875}, 0.0),
    "sgd_momentum_decay": (torch.optim.SGD, {"momentum": 0.875}, 0.25),
    "adam": (torch.optim.Adam, {"betas": (0.9, 0.95), "eps": 1e-8}, 0.0),
    "adam_decay": (torch.optim.Adam, {"betas": (0.9, 0.999), "eps": 1e-3}, 0.25),
    "adamw": (torch.optim.AdamW, {"betas": (0.9, 0.95), "eps": 1e-8}, 0.0),
    "adamw_decay": (torch.optim.AdamW, {"betas": (0.9, 0.999), "eps": 1e-3}, 0.25),
}


def start(i):
    return (i * 37 % 64 - 31) / 32


def gradient(i, step):
    return (i * 29 + step * 23 + i * step) % 64 / 16 - 2.03125


def run(kind, options, decay):
    n = ROWS * COLUMNS + COLUMNS
    values = torch.tensor([start(i) for i in range(n)])
    matrix = values[:ROWS * COLUMNS].reshape(ROWS, COLUMNS).clone().requires_grad_()
    vector = values[ROWS * COLUMNS:].clone().requires_grad_()
    optimizer = kind([{"params": [matrix], "weight_decay": decay}, {"params": [vector], "weight_decay": 0.0}],
                     lr=LR, foreach=False, **options)
    for step in range(1, STEPS + 1):
        g = torch.tensor([gradient(i, step) for i in range(n)]) * 0.5
        matrix.grad, vector.grad = g[:ROWS * COLUMNS].reshape(ROWS, COLUMNS), g[ROWS * COLUMNS:]
        for group in optimizer.param_groups:
            group["lr"] = LR * (1 - step / 16)
        optimizer.step()
    return matrix.detach().flatten().tolist() + vector.detach().tolist()


def main():
    lines = ["/*", " * golden_optim.h - made by make_golden_optim.py with PyTorch " + torch.__version__.split("+")[0] + ".",
             " *", " * Parameters after ten steps: the matrix (3,5), then the vector (5).", " */", "/* clang-format off */"]
    for name, (kind, options, decay) in VARIANTS.items():
        values = run(kind, options, decay)
        lines.append(f"static const float golden_{name}[] = {{")
        for at in range(0, len(values), COLUMNS):
            lines.append("    " + " ".join(float(v).hex() + "f," for v in values[at:at + COLUMNS]))
        lines.append("};")
    lines.append("/* clang-format on */")
    path = os.path.join(os.path.dirname(os.path.abspath(__file__)), "golden_optim.h")
    with open(path, "w", encoding="utf-8") as file:
        file.write("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
