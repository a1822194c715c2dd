#!/usr/bin/env python3
"""Stages drawn at random, on a GPU, against PyTorch in double there: needs a wheel with GPU code, torch with CUDA.

    gpu_parity.py [COUNT] [SEED]     default: 500 1. Exit code 0; 1 where one differs; 77 without a GPU
"""

import sys

import numpy as np

import convoy
from drawn import draw
from gpu_torch import torch

F = torch.nn.functional


def expected(stage, keywords, x, w, bias):
    """y [N, K, P', Q'] in double, and its allowed error. x: [N, C, H, W]."""
    top, left, bottom, right = stage.pad

    def sums(x, w, bias):
        return F.conv2d(F.pad(x, (left, right, top, bottom)), w, bias, stage.stride, 0, stage.dil, stage.groups)

    y = sums(x, w, bias)
    act = keywords["act"]
    if act == "relu":
        y = y.relu()
    elif act == "relu6":
        y = y.clamp(0, 6)
    else:
        y = y.clamp(-0.5, 0.75) if act.startswith("clip") else F.leaky_relu(y, 0.125)
    pool = {"2": (2, 2, 0), "3x2": ((3, 2), (3, 2), 0), "3s2p1": (3, 2, 1), "2s1": (2, 1, 0)}.get(keywords.get("pool"))
    y = F.max_pool2d(y, *pool) if pool else y
    size = sums(x.abs(), w.abs(), None).max()
    return y, 4e-6 * size + (2.0**-10 * y.abs() if stage.dtype == "f16" else 0)


def main():
    count, seed = (int(word) for word in (sys.argv[1:] + ["500", "1"][len(sys.argv) - 1 :]))
    rng = np.random.default_rng(seed)
    kernels, wrong = {}, 0
    for number in range(count):
        stage, keywords = draw(rng)
        dtype = torch.float16 if stage.dtype == "f16" else torch.float32
        make = torch.Generator("cuda").manual_seed(seed * 100000 + number)
        x = torch.randn(stage.n, stage.c, stage.h, stage.w, generator=make, device="cuda").to(dtype)
        w = torch.randn(stage.k, stage.c // stage.groups, stage.r, stage.s, generator=make, device="cuda").to(dtype)
        bias = torch.randn(stage.k, generator=make, device="cuda") if stage.bias else None
        last = stage.layout == "nhwc"
        if last and rng.integers(2):  # a slice of a wider tensor
            width = (stage.c + 15) // 8 * 8  # kernels of f16 need pixels that lie 16 bytes apart
            wide = torch.zeros(stage.n, stage.h, stage.w, width, dtype=dtype, device="cuda")
            wide[..., : stage.c] = x.permute(0, 2, 3, 1)
            given = wide[..., : stage.c]
        else:
            given = x.permute(0, 2, 3, 1).contiguous() if last else x
        plan = convoy.Plan(stage, w.cpu(), device="cuda", weights_layout="kcrs", axes="nhwc" if last else "auto")
        y = plan(given, bias)
        y = (y.permute(0, 3, 1, 2) if last else y).double()
        wanted, bound = expected(stage, keywords, x.double(), w.double(), None if bias is None else bias.double())
        gap = (y - wanted).abs()
        kernels[plan.kernel] = kernels.get(plan.kernel, 0) + 1
        if not (gap <= bound).all():
            wrong += 1
            print(f"FAILED {stage} by {plan.kernel}: {gap.max().item():.3g}")
            print(f"repro: gpu_parity.py {number + 1} {seed}", flush=True)
    print(f"{count - wrong} of {count} drawn stages agree with PyTorch in double on {torch.cuda.get_device_name()}")
    print(f"kernels: {kernels}")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
