"""Two GPUs in one process, through convoy and PyTorch.

    gpu_two.py            Exit code 0; 1 where something differs; 77 without two GPUs

Plans, threads, PyTorch's operators, fused models and networks give on cuda:1 the bits of cuda:0, whatever device is
current. Each case that fails is printed with what was found.
"""

import contextlib
import io
import sys
import threading
import traceback

import numpy as np

from gpu_torch import torch

if torch.cuda.device_count() < 2:
    print(f"skipped: {torch.cuda.device_count()} GPU, two are needed")
    sys.exit(77)

import convoy
import convoy.torch

STAGES = [
    "f16:n8h32w32c64k128r3pad1+bias+relu+max2",
    "f16:n8h33w31c60k61r3pad1+bias+relu",
    "n8h28w28c64k64r3pad1+bias+relu",
    "n4h28w28c16k4r3pad1+bias",
    "f16:n8h28w28c64k64r3pad1groups64+bias+relu6",
    "f16:n4h64w64c3k32r3stride2pad1+bias+relu",
    "f16:n8h28w28c64k64r3pad1+bias+relu+max3s2p1",
    "f16:n8h28w28c64k64r3pad1nchw+bias+relu",
    "f16:n4h28w28c128k128r3pad1groups32+bias+relu",
    "f16:n4h14w14c64k64r3pad1+bias+lif(2,1)+t4+max2",
]
GPUS = (0, 1)


def operands(stage, text):
    generator = torch.Generator().manual_seed(1)
    w = torch.randn(stage.w_shape, generator=generator) * 0.05
    b = torch.randn(stage.w_shape[0], generator=generator)
    x = torch.randn(stage.x_shape, generator=generator)
    return x.to(torch.float16 if text.startswith("f16") else torch.float32), w, b


def plan_case(text):
    def case():
        stage = convoy.Stage(text)
        x, w, b = operands(stage, text)
        axes = "nchw" if "nchw" in text else "nhwc"
        found = []
        for gpu in GPUS:
            for current in GPUS:
                torch.cuda.set_device(current)
                plan = convoy.Plan(stage, w.numpy(), device=f"cuda:{gpu}", axes=axes)
                y = plan(x.to(f"cuda:{gpu}"), b.to(f"cuda:{gpu}"))
                torch.cuda.synchronize(gpu)
                if torch.cuda.current_device() != current:
                    return f"the current device became {torch.cuda.current_device()}, it was {current}"
                if y.device.index != gpu:
                    return f"y of a plan on cuda:{gpu} is on {y.device}"
                found.append(((gpu, current), y.cpu()))
        torch.cuda.set_device(0)
        try:
            plan(x.to("cuda:0"), b.to("cuda:0"))
            return "a plan on cuda:1 took an x on cuda:0"
        except convoy.Error:
            pass
        differ = [where for where, y in found if not torch.equal(y, found[0][1])]
        return f"other bits on (GPU, current device) {differ}" if differ else None

    return case


def threads_on_both():
    text = STAGES[0]
    stage = convoy.Stage(text)
    x, w, b = operands(stage, text)
    plans = [convoy.Plan(stage, w.numpy(), device=f"cuda:{gpu}", axes="nhwc", concurrent_runs=8) for gpu in GPUS]
    want = plans[0](x.cuda(0), b.cuda(0)).cpu()
    found = []

    def go(gpu, number):
        try:
            with torch.cuda.device(1 - gpu if number % 4 > 1 else gpu), torch.cuda.stream(torch.cuda.Stream(gpu)):
                for _ in range(200):
                    y = plans[gpu](x.to(f"cuda:{gpu}"), b.to(f"cuda:{gpu}"))
                torch.cuda.synchronize(gpu)
                if not torch.equal(y.cpu(), want):
                    found.append(f"thread {number} on cuda:{gpu}: other bits")
        except Exception as error:  # reported by the case
            found.append(f"thread {number} on cuda:{gpu}: {error!r}")

    threads = [threading.Thread(target=go, args=(i % 2, i)) for i in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return "; ".join(found) or None


def torch_operator():
    w, b = torch.randn(128, 64, 3, 3) * 0.05, torch.randn(128)
    x = torch.randn(4, 64, 32, 32).to(memory_format=torch.channels_last)
    for current in GPUS:
        torch.cuda.set_device(current)
        ys = [
            convoy.torch.stage(
                "n1h32c64k128r3pad1+bias+relu+max2",
                x.to(f"cuda:{gpu}", torch.float16),
                w.to(f"cuda:{gpu}", torch.float16).to(memory_format=torch.channels_last),
                b.to(f"cuda:{gpu}"),
            ).cpu()
            for gpu in GPUS
        ]
        if not torch.equal(*ys):
            return f"other bits on cuda:1, current device {current}"
    torch.cuda.set_device(0)
    return None


def model():
    torch.manual_seed(3)
    return torch.nn.Sequential(
        torch.nn.Conv2d(3, 32, 3, padding=1),
        torch.nn.BatchNorm2d(32),
        torch.nn.ReLU(),
        torch.nn.MaxPool2d(2),
        torch.nn.Conv2d(32, 64, 3, padding=1),
        torch.nn.ReLU(),
        torch.nn.AdaptiveAvgPool2d(1),
        torch.nn.Flatten(),
        torch.nn.Linear(64, 10),
    ).eval()


def fused(gpu, x):
    with contextlib.redirect_stdout(io.StringIO()):
        one = model().to(f"cuda:{gpu}", torch.float16, memory_format=torch.channels_last)
        return convoy.fuse(one, x.to(f"cuda:{gpu}"))


def sample(n):
    torch.manual_seed(4)
    return torch.randn(n, 3, 64, 64).half().to(memory_format=torch.channels_last)


def fuse_on_each():
    x, outputs = sample(4), []
    for gpu in GPUS:
        one = fused(gpu, x)
        with torch.cuda.device(1 - gpu):
            outputs.append(one(x.to(f"cuda:{gpu}")).cpu())
        if gpu == 0:
            moved = one.to("cuda:1")(x.to("cuda:1")).cpu()
            if not torch.allclose(moved, outputs[0], atol=2e-2):
                return f"moved to cuda:1 it differs by {float((moved - outputs[0]).abs().max())}"
    return None if torch.equal(*outputs) else f"differ by {float((outputs[0] - outputs[1]).abs().max())}"


def data_parallel():
    x = sample(8).to("cuda:0")
    one = fused(0, x)
    want = one(x)
    both = torch.nn.DataParallel(one, [0, 1])(x)
    if torch.allclose(want, both, atol=2e-2):
        return None
    return f"differs by {float((want - both).abs().max())}"


def network_on_each():
    images = np.random.default_rng(1).integers(0, 256, (3000, 28, 28), np.uint8)
    labels = []
    for device in ("cpu", "cuda:0", "cuda:1"):
        network = convoy.Network(convoy.demo_model(), device=device)
        labels += [(device, network.labels(images)), (device, network.labels(images))]
    differ = {device: int((one != labels[0][1]).sum()) for device, one in labels}
    return f"labels that differ from the CPU's: {differ}" if sum(differ.values()) > 6 else None


CASES = [(f"plan of {text}", plan_case(text)) for text in STAGES] + [
    ("eight threads on both", threads_on_both),
    ("PyTorch's operator", torch_operator),
    ("fused on each, and moved", fuse_on_each),
    ("DataParallel of a fused model", data_parallel),
    ("network on each", network_on_each),
]


def main():
    torch.set_grad_enabled(False)
    failed = 0
    for name, case in CASES:
        torch.cuda.set_device(0)
        try:
            wrong = case()
        except Exception:  # told below
            wrong = traceback.format_exc()
        failed += wrong is not None
        print(f"{'ok' if wrong is None else 'FAILED'}: {name}{'' if wrong is None else ': ' + str(wrong)}", flush=True)
    print(f"{len(CASES)} cases, {failed} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
