#!/usr/bin/env python3
"""make_golden_ops.py - writes golden_ops.h: PyTorch's operators in float64, forward and gradients.

Inputs and the gradient of the output are dyadic fractions by formula, so the test makes the same ones.  A row is the
output, then the gradient of each real input, one behind the other.
"""
import os

import torch
import torch.nn.functional as F

IDS = [3, 0, 5, 3, 6, 1]
TARGETS = [2, -100, 0, 6, 3, -100, 1, 6]


def values(shape, which):
    n = torch.Size(shape).numel()
    return torch.tensor([((i * 37 + which * 11 + i * i * 5) % 64 - 31.5) / 16 for i in range(n)],
                        dtype=torch.float64).reshape(shape)


def seed(shape):
    n = torch.Size(shape).numel()
    return torch.tensor([((i * 29 + 7) % 32 - 15.5) / 8 for i in range(n)], dtype=torch.float64).reshape(shape)


def heads_of(qkv, n_head, n_kv):
    b, t, width = qkv.shape
    d = width // (n_head + 2 * n_kv)
    return [x.reshape(b, t, -1, d).transpose(1, 2) for x in qkv.split([n_head * d, n_kv * d, n_kv * d], dim=2)]


def packed(x):
    b, h, t, d = x.shape
    return x.transpose(1, 2).reshape(b, t, h * d)


def attention(n_head, n_kv):
    def call(qkv):
        q, k, v = heads_of(qkv, n_head, n_kv)
        return packed(F.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=n_kv != n_head))
    return call


def rotate(x, base):
    t, d = x.shape[-2:]
    angle = torch.arange(t, dtype=torch.float64)[:, None] * base ** (-torch.arange(0, d, 2, dtype=torch.float64) / d)
    cos, sin = torch.cat([angle.cos()] * 2, dim=1), torch.cat([angle.sin()] * 2, dim=1)
    return x * cos + torch.cat([-x[..., d // 2:], x[..., :d // 2]], dim=-1) * sin


def rope(n_head, n_kv, base):
    def call(qkv):
        q, k, v = heads_of(qkv, n_head, n_kv)
        return torch.cat([packed(rotate(q, base)), packed(rotate(k, base)), packed(v)], dim=2)
    return call


ROWS = {
    "gelu": (F.gelu, (2, 5)),
    "gelu_tanh": (lambda x: F.gelu(x, approximate="tanh"), (2, 5)),
    "silu": (F.silu, (2, 5)),
    "swiglu": (lambda gate, up: F.silu(gate) * up, (2, 5), (2, 5)),
    "layernorm": (lambda x, w, b: F.layer_norm(x, (7,), w, b, 1e-5), (3, 7), (7,), (7,)),
    "rmsnorm": (lambda x, w: F.rms_norm(x, (7,), w, 1e-5), (3, 7), (7,)),
    "softmax": (lambda x: F.softmax(x, dim=-1), (3, 7)),
    "log_softmax": (lambda x: F.log_softmax(x, dim=-1), (3, 7)),
    "cross_entropy": (lambda x: F.cross_entropy(x, torch.tensor(TARGETS), reduction="sum", ignore_index=-100), (8, 7)),
    "head_cross_entropy": (lambda x, w: F.cross_entropy(x @ w.T, torch.tensor(TARGETS), reduction="sum",
                                                        ignore_index=-100), (8, 3), (7, 3)),
    "embedding": (lambda w: F.embedding(torch.tensor(IDS).reshape(2, 3), w), (7, 4)),
    "attention": (attention(2, 2), (2, 4, 18)),
    "attention_grouped": (attention(4, 2), (1, 5, 16)),
    "rope": (rope(2, 2, 10000), (1, 5, 24)),
    "rope_grouped": (rope(2, 1, 500), (2, 3, 16)),
}


def row(call, *shapes):
    inputs = [values(shape, which).requires_grad_() for which, shape in enumerate(shapes)]
    out = call(*inputs)
    out.backward(seed(out.shape))
    return [v for t in [out.detach()] + [x.grad for x in inputs] for v in t.flatten().tolist()]


def array(kind, name, items):
    lines = [f"static const {kind} {name}[] = {{"]
    lines += ["    " + " ".join(item + "," for item in items[at:at + 4]) for at in range(0, len(items), 4)]
    return lines + ["};"]


def main():
    lines = ["/*", " * golden_ops.h - made by make_golden_ops.py with PyTorch " + torch.__version__.split("+")[0] + ".", " */",
             "/* clang-format off */"]
    lines += array("int32_t", "golden_ids", [str(i) for i in IDS])
    lines += array("int32_t", "golden_targets", [str(i) for i in TARGETS])
    for name, (call, *shapes) in ROWS.items():
        lines += array("double", "golden_" + name, [repr(v) for v in row(call, *shapes)])
    lines.append("/* clang-format on */")
    path = os.path.join(os.path.dirname(os.path.abspath(__file__)), "golden_ops.h")
    with open(path, "w", encoding="utf-8") as file:
        file.write("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
