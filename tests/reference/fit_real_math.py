#!/usr/bin/env python3
"""fit_real_math.py - the polynomials of core/kernels/real_math.h (needs numpy).

Least squares on Chebyshev nodes, weighted by the error's share of the result and reweighted towards the smallest
maximum (Lawson).  Prints each polynomial, lowest degree first, with its error in units of 2^-24 of the result.
"""
import math

import numpy as np


def fit(f, a, b, degree, weight, nodes=4000, rounds=60):
    x = 0.5 * (a + b) + 0.5 * (b - a) * np.cos(np.pi * (np.arange(nodes) + 0.5) / nodes)
    y, w = np.array([f(v) for v in x]), np.array([weight(v) for v in x])
    lawson, best = np.ones(nodes), None
    for _ in range(rounds):
        scale = w * np.sqrt(lawson)
        powers = np.vander(x, degree + 1, increasing=True)
        c = np.linalg.lstsq(powers * scale[:, None], y * scale, rcond=None)[0]
        error = np.abs((powers @ c - y) * w)
        if best is None or error.max() < best[0]:
            best = error.max(), c
        lawson *= error / error.mean() + 1e-12
        lawson /= lawson.mean()
    return best


def exp_rest(r):
    """(e^r - 1 - r) / r^2"""
    return 0.5 + r / 6 + r * r / 24 + r**3 / 120 if abs(r) < 1e-3 else (math.expm1(r) - r) / (r * r)


def tanh_rest(s):
    """(tanh(x) / x - 1) / s with s = x^2"""
    x = math.sqrt(s)
    return -1 / 3 + 2 * s / 15 - 17 * s * s / 315 if x < 1e-2 else (math.tanh(x) / x - 1) / s


def erf_rest(s):
    """erf(x) / x - 1 with s = x^2"""
    x = math.sqrt(s)
    return 2 / math.sqrt(math.pi) - 1 if x < 1e-6 else math.erf(x) / x - 1


def erfc_exponent(x):
    """-log(erfc(x)) / x"""
    return -math.log(math.erfc(x)) / x


def main():
    half = math.log(2) / 2
    for name, (error, c) in {
        "exp P(r), |r| <= ln 2 / 2": fit(exp_rest, -half, half, 4, lambda r: r * r / math.exp(r)),
        "tanh P(x^2), |x| < 0.64": fit(tanh_rest, 0, 0.64**2, 4, lambda s: s / (1 + s * tanh_rest(s))),
        "erf P(x^2), |x| < 0.93": fit(erf_rest, 0, 0.93**2, 6, lambda s: 1 / (1 + erf_rest(s))),
        "erf Q(x), 0.92 < x < 4": fit(erfc_exponent, 0.92, 4, 6, lambda x: x * math.erfc(x) / math.erf(x)),
    }.items():
        print(f"{name}: error {error * 2**24:.3f}\n   ", ", ".join(f"{v:.9g}" for v in c))


if __name__ == "__main__":
    main()
