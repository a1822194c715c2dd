"""Stages drawn at random, and what they give by the definition: NumPy loops over taps, in double."""

import numpy as np

import convoy


def draw(rng):
    """A small legal stage; most are ordinary, some have every option at once."""

    def pick(*values):
        return values[rng.integers(len(values))]

    groups = int(pick(1, 1, 1, 2, 3))
    c, k = groups * int(rng.integers(1, 20)), groups * int(rng.integers(1, 20))
    r, s = int(rng.integers(1, 6)), int(rng.integers(1, 6))
    keywords = dict(
        dtype=pick("f32", "f32", "f32", "f16"), n=int(rng.integers(1, 4)), h=int(rng.integers(8, 20)),
        w=int(rng.integers(8, 20)), c=c, k=k, r=r, s=s, groups=groups,
        stride=pick(1, 1, 2, (2, 1)), dil=pick(1, 1, 1, (1, 2)),
        pad=pick(0, 1, (1, 2), (0, 1, 2, 1)), bias=bool(rng.integers(2)),
        act=pick("relu", "relu6", "clip(-0.5,0.75)", "leaky(0.125)"), layout=pick("nhwc", "nhwc", "nhwc", "nchw"),
        strict=bool(rng.integers(4) == 0),
    )  # fmt: skip
    pool = pick(None, None, "2", "3x2", "3s2p1", "2s1")
    if pool:
        keywords["pool"] = pool
    try:
        return convoy.Stage(**keywords), keywords
    except convoy.Error:  # a filter that is larger than its image
        return draw(rng)


def convolved(stage, x, w, bias=None):
    """conv + bias of x [N,H,W,C] and w [K,R,S,C/groups], both double: [N,P,Q,K]."""
    top, left, bottom, right = stage.pad
    x = np.pad(x, ((0, 0), (top, bottom), (left, right), (0, 0)))
    (dh, dw), (uh, uw) = stage.dil, stage.stride
    p = (x.shape[1] - dh * (stage.r - 1) - 1) // uh + 1
    q = (x.shape[2] - dw * (stage.s - 1) - 1) // uw + 1
    y = np.zeros((x.shape[0], p, q, stage.k))
    kg, cg = stage.k // stage.groups, stage.c // stage.groups
    for r in range(stage.r):
        for s in range(stage.s):
            taps = x[:, r * dh : r * dh + uh * (p - 1) + 1 : uh, s * dw : s * dw + uw * (q - 1) + 1 : uw]
            for g in range(stage.groups):
                ks = slice(g * kg, (g + 1) * kg)
                y[..., ks] += taps[..., g * cg : (g + 1) * cg] @ w[ks, r, s].T
    return y if bias is None else y + bias


def activated(act, v):
    if act == "relu":
        return np.maximum(v, 0)
    if act == "relu6":
        return np.clip(v, 0, 6)
    if act.startswith("clip"):
        return np.clip(v, -0.5, 0.75)
    return np.where(v >= 0, v, 0.125 * v)


def pooled(pool, v):
    """Max-pool by its text: "2", "3x2", "3s2p1"."""
    if not pool:
        return v
    (window, stride, pad) = {"2": ((2, 2), (2, 2), 0), "3x2": ((3, 2), (3, 2), 0),
                             "3s2p1": ((3, 3), (2, 2), 1), "2s1": ((2, 2), (1, 1), 0)}[pool]  # fmt: skip
    v = np.pad(v, ((0, 0), (pad, pad), (pad, pad), (0, 0)), constant_values=-np.inf)
    windows = np.lib.stride_tricks.sliding_window_view(v, window, axis=(1, 2))
    return windows[:, :: stride[0], :: stride[1]].max(axis=(-2, -1))


def expected(stage, keywords, x, w, bias):
    """y in double, and the largest error that is allowed of each of its values."""
    x, w = x.astype(float), w.astype(float)
    y = pooled(keywords.get("pool"), activated(keywords["act"], convolved(stage, x, w, bias)))
    size = convolved(stage, abs(x), abs(w)).max()
    return y, 2e-6 * size + (2.0**-10 * abs(y) if stage.dtype == "f16" else 0)
