#!/usr/bin/env python3
"""Models of PyTorch as they are, compiled, and fused by convoy: the same inputs, in turns, in one process.

    bench/fuse.py [--device cuda] [--dtype float16] [--batch 8] [--threads 2] [--json FILE]

channels_last everywhere; compiled means torch.compile with frozen weights. Each figure is the median of rounds that
take the three in turns; fused is compared with the faster of the other two.
"""

import argparse
import json
import platform
import statistics
import time

import torch
from torch import nn

import convoy


def vgg16():
    layers, c = [], 3
    for width in (64, 64, "pool", 128, 128, "pool", 256, 256, 256, "pool", *(512, 512, 512, "pool") * 2):
        if width == "pool":
            layers.append(nn.MaxPool2d(2))
        else:
            layers += [nn.Conv2d(c, width, 3, padding=1), nn.ReLU(inplace=True)]
            c = width
    linear = [nn.Linear(512 * 49, 4096), nn.ReLU(True), nn.Linear(4096, 4096), nn.ReLU(True), nn.Linear(4096, 1000)]
    return nn.Sequential(*layers, nn.Flatten(), *linear), 224


def small_cnn():
    layers, c = [], 3
    for width in (32, 64, 128):
        layers += [nn.Conv2d(c, width, 3, padding=1), nn.BatchNorm2d(width), nn.ReLU(), nn.MaxPool2d(2)]
        c = width
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(128, 10)), 64


MODELS = {"vgg16": vgg16, "relu_cnn": small_cnn}


def seconds(call, x, wait):
    started = time.perf_counter()
    call(x)
    wait()
    return time.perf_counter() - started


def measure(name, options):
    torch.manual_seed(1)
    dtype = getattr(torch, options.dtype)
    model, size = MODELS[name]()
    model = model.eval().to(options.device, dtype, memory_format=torch.channels_last)
    x = torch.randn(options.batch, 3, size, size, device=options.device, dtype=dtype)
    x = x.to(memory_format=torch.channels_last)
    wait = torch.cuda.synchronize if options.device == "cuda" else lambda: None
    calls = {"eager": model, "compiled": torch.compile(model), "fused": convoy.fuse(model, x, show=options.table)}
    if options.no_compile:
        del calls["compiled"]
    times = {way: [] for way in calls}
    for call in calls.values():
        for _ in range(3):
            seconds(call, x, wait)
    for _ in range(options.rounds):
        for way, call in calls.items():
            times[way].append(seconds(call, x, wait))
    row = {way + "_ms": round(statistics.median(taken) * 1e3, 4) for way, taken in times.items()}
    row["speedup"] = round(min(row[way + "_ms"] for way in calls if way != "fused") / row["fused_ms"], 3)
    print(f"{name:10}", "  ".join(f"{key} {value}" for key, value in row.items()), flush=True)
    return {"model": name, "batch": options.batch, "size": size, **row}


def main():
    arguments = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    arguments.add_argument("--device", default="cpu", choices=("cpu", "cuda"))
    arguments.add_argument("--dtype", default="float32", choices=("float32", "float16", "bfloat16"))
    arguments.add_argument("--batch", type=int, default=8)
    arguments.add_argument("--threads", type=int, default=2)
    arguments.add_argument("--rounds", type=int, default=15)
    arguments.add_argument("--models", nargs="+", default=list(MODELS), choices=list(MODELS))
    arguments.add_argument("--no-compile", action="store_true", help="leave torch.compile out")
    arguments.add_argument("--table", action="store_true", help="print what was fused")
    arguments.add_argument("--json", help="also write the record here")
    options = arguments.parse_args()
    torch.set_num_threads(options.threads)
    import torch._inductor.config as inductor

    inductor.freezing = True
    with torch.no_grad():
        rows = [measure(name, options) for name in options.models]
    record = {"device": torch.cuda.get_device_name() if options.device == "cuda" else platform.processor(),
              "dtype": options.dtype, "threads": options.threads, "torch": torch.__version__,
              "convoy": convoy.__version__, "rows": rows}  # fmt: skip
    if options.json:
        with open(options.json, "w") as file:
            json.dump(record, file, indent=2)


if __name__ == "__main__":
    main()
