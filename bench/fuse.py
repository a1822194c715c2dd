#!/usr/bin/env python3
"""Models of PyTorch as they are, compiled, and fused by convoy: the same inputs, in turns, in one process.

    bench/fuse.py [--device cuda] [--dtype float16] [--batch 8] [--threads 2] [--json FILE]

channels_last everywhere. "compiled" is torch.compile with frozen weights, "frozen" is convoy.fuse with frozen=True, and
"fused" is convoy.fuse, which looks at each call whether weights have changed. Rounds take them in turns; the record has
the median and the minimum of each. Speedups are those of fused and of frozen over the faster of PyTorch's two. csnn
is SpikingJelly's network for Fashion-MNIST (activation_based.examples.conv_fashion_mnist, T = 4), reset each call.
"""

import argparse
import json
import statistics
import time

MODELS = ("vgg16", "relu_cnn", "csnn", "resnet50")


def words():
    arguments = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    arguments.add_argument("--device", default="cpu", choices=("cpu", "cuda"))
    arguments.add_argument("--dtype", default="float32", choices=("float32", "float16", "bfloat16"))
    arguments.add_argument("--batch", type=int, default=8)
    arguments.add_argument("--threads", type=int, default=2)
    arguments.add_argument("--rounds", type=int, default=15)
    arguments.add_argument("--models", nargs="+", default=MODELS[:3], choices=MODELS,
                           help="resnet50 needs torchvision")
    arguments.add_argument("--no-compile", action="store_true", help="leave torch.compile out")
    arguments.add_argument("--table", action="store_true", help="print what was fused")
    arguments.add_argument("--json", help="also write the record here")
    return arguments.parse_args()


OPTIONS = words() if __name__ == "__main__" else None  # before the imports below: --help needs none of them

import torch  # noqa: E402
from torch import nn  # noqa: E402

import convoy  # noqa: E402
import records  # noqa: E402
from convoy.program import program  # noqa: E402


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


def csnn():
    """With norms that make about a tenth of the neurons fire, as a trained one's do."""
    from spikingjelly.activation_based.examples.conv_fashion_mnist import CSNN

    model = CSNN(4, 128)
    for module in model.modules():
        if isinstance(module, nn.BatchNorm2d):
            module.running_mean.normal_(0, 0.1)
            module.running_var.uniform_(0.1, 0.3)
            module.bias.data.normal_(0, 0.2)
        if isinstance(module, nn.Linear):
            module.weight.data.mul_(3)
    return model, 28


def resnet50():
    """torchvision's, whose additions and average pool stay in PyTorch."""
    import torchvision

    return torchvision.models.resnet50(), 224


MAKERS = dict(zip(MODELS, (vgg16, small_cnn, csnn, resnet50), strict=True))


def seconds(call, x, wait):
    started = time.perf_counter()
    call(x)
    wait()
    return time.perf_counter() - started


def measure(name, options):
    torch.manual_seed(1)
    dtype = getattr(torch, options.dtype)
    model, size = MAKERS[name]()
    model = model.eval().to(options.device, dtype, memory_format=torch.channels_last)
    spiking = name == "csnn"
    make = torch.rand if spiking else torch.randn
    x = make(options.batch, 1 if spiking else 3, size, size, device=options.device, dtype=dtype)
    x = x.to(memory_format=torch.channels_last)
    wait = torch.cuda.synchronize if options.device == "cuda" else lambda: None
    fused = convoy.fuse(model, x, show=options.table)
    calls = {"eager": model, "compiled": torch.compile(model), "fused": fused}
    if not spiking:
        calls["frozen"] = convoy.fuse(model, x, show=False, frozen=True)
    if spiking:
        from spikingjelly.activation_based import functional

        # Membranes start anew in each call, as they do for each batch of a test set.
        calls = {way: lambda x, call=call: (call(x), functional.reset_net(model)) for way, call in calls.items()}
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
    row |= {way + "_least_ms": round(min(taken) * 1e3, 4) for way, taken in times.items()}
    for kind in ("ms", "least_ms"):
        best = min(row[f"{way}_{kind}"] for way in calls if way in ("eager", "compiled"))
        name_of = "speedup" if kind == "ms" else "speedup_of_least"
        row[name_of] = round(best / row[f"fused_{kind}"], 3)
        if "frozen" in calls:
            row["frozen_" + name_of] = round(best / row[f"frozen_{kind}"], 3)
    with open("/proc/loadavg") as load:
        row["load"] = float(load.read().split()[0])
    if spiking:
        row["spikes"] = str(fused.report.spikes)
    print(f"{name:10}", "  ".join(f"{key} {value}" for key, value in row.items()), flush=True)
    return {"model": name, "batch": options.batch, "size": size, **row}


def main(options):
    record = records.of_program(program(), options.device)
    torch.set_num_threads(options.threads)
    import torch._inductor.config as inductor

    inductor.freezing = True
    with torch.no_grad():
        rows = [measure(name, options) for name in options.models]
    record |= {"device": record["machine"], "dtype": options.dtype, "threads": options.threads,
               "torch": torch.__version__, "rows": rows}  # fmt: skip
    if options.json:
        with open(options.json, "w") as file:
            json.dump(record, file, indent=2)


if __name__ == "__main__":
    main(OPTIONS)
