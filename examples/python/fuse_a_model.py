"""Fuses a small convolutional network, compares it with the model, and times both.

    python examples/python/fuse_a_model.py        needs PyTorch
"""

import time

import torch
from torch import nn

import convoy


def block(inputs, outputs):
    return nn.Sequential(nn.Conv2d(inputs, outputs, 3, padding=1, bias=False), nn.BatchNorm2d(outputs), nn.ReLU(),
                         nn.MaxPool2d(2))  # fmt: skip


def milliseconds(run, x, rounds=20):
    """The median of some calls."""
    run(x)  # the first call makes plans and packs weights
    seconds = []
    for _ in range(rounds):
        started = time.perf_counter()
        run(x)
        seconds.append(time.perf_counter() - started)
    return sorted(seconds)[rounds // 2] * 1e3


torch.manual_seed(0)
model = nn.Sequential(block(3, 32), block(32, 64), block(64, 128), nn.Flatten(), nn.Linear(128 * 16, 10)).eval()
x = torch.randn(8, 3, 32, 32).to(memory_format=torch.channels_last)

fused = convoy.fuse(model, x)  # prints which layers became which stage
with torch.no_grad():
    print(f"largest difference of the logits: {(fused(x) - model(x)).abs().max():.1e}")
    print(f"PyTorch {milliseconds(model, x):.2f} ms, fused {milliseconds(fused, x):.2f} ms")
