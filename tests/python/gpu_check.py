#!/usr/bin/env python3
"""The package with tensors of PyTorch on a GPU: needs a wheel with GPU code, and torch with CUDA.

    gpu_check.py        exit code 0 and a line a check; 1 at the first that fails; 77 without a GPU
"""

import sys
import threading
import time

import convoy
from gpu_torch import torch

F = torch.nn.functional


def said(name, right):
    print(("passed " if right else "FAILED ") + name, flush=True)
    if not right:
        sys.exit(1)


def refusal(call):
    try:
        call()
    except convoy.Error as error:
        return error
    return None


def near(y, wanted):
    # One rounding to f16 or bf16, and sums in fp32.
    bound = {torch.float16: 2e-3, torch.bfloat16: 1.6e-2, torch.float32: 1e-5}[y.dtype]
    return ((y.double() - wanted).abs() <= bound * (1 + wanted.abs())).all().item()


generator = torch.Generator().manual_seed(3)
for name, dtype in (("f16", torch.float16), ("bf16", torch.bfloat16), ("f32", torch.float32)):
    for c, k, r, h, w in ((64, 128, 3, 28, 26), (3, 16, 7, 30, 31), (13, 24, 1, 9, 10)):
        x = torch.randn(4, c, h, w, generator=generator).to(dtype).to(memory_format=torch.channels_last)
        weights = (torch.randn(k, c, r, r, generator=generator) / (c * r * r) ** 0.5).to(dtype)
        bias = torch.randn(k, generator=generator)
        wanted = F.max_pool2d(F.conv2d(x.double(), weights.double(), bias.double(), padding=r // 2).relu(), 2)
        plan = convoy.Plan(f"{name}:n4h{h}w{w}c{c}k{k}r{r}pad{r // 2}+bias+relu+max2", weights, device="cuda",
                           weights_layout="kcrs")  # fmt: skip
        gx, gb = x.cuda(), bias.cuda()
        y = plan(gx, gb)
        said(f"{plan.stage} on cuda by {plan.kernel}", y.is_cuda and near(y.cpu(), wanted))
        said("  a channels_last result", y.is_contiguous(memory_format=torch.channels_last))
        on_gpu = weights.permute(0, 2, 3, 1).contiguous().cuda()
        said("  weights on the GPU, the same bits",
             torch.equal(convoy.Plan(plan.stage, on_gpu, device="cuda")(gx, gb), y))  # fmt: skip
        out = torch.empty_like(y)
        said("  into a tensor of the caller's, fewer images",
             plan(gx[:2], gb, out=out[:2]).data_ptr() == out.data_ptr() and torch.equal(out[:2], y[:2]))  # fmt: skip

# Streams: what a stream holds comes first, whether PyTorch's current one or one that is given.
plan = convoy.Plan("f16:n8h56w55c64k64r3pad1+relu", torch.ones(64, 3, 3, 64) / 576, device="cuda", axes="nhwc")
for given in (False, True):
    stream = torch.cuda.Stream()
    x = torch.zeros(8, 56, 55, 64, dtype=torch.float16, device="cuda")
    torch.cuda.synchronize()
    right = True
    for turn in range(1, 20):
        with torch.cuda.stream(stream):
            torch.cuda._sleep(2_000_000)
            x.fill_(turn)
            if not given:
                y = plan(x)
        if given:
            out = torch.empty(8, 56, 55, 64, dtype=torch.float16, device="cuda")
            y = plan(x, out=out, stream=stream)
        stream.synchronize()
        right &= abs(y[0, 20, 20, 0].item() - turn) < 0.05
    said("a run is ordered behind the work of " + ("a given stream" if given else "the current stream"), right)

graph, x = torch.cuda.CUDAGraph(), torch.ones(8, 56, 55, 64, dtype=torch.float16, device="cuda")
y = torch.empty_like(x)
captured = convoy.Plan("f16:n8h56w55c64k64r3pad1+relu", torch.ones(64, 3, 3, 64) / 576, device="cuda", axes="nhwc")
captured(x, out=y)
torch.cuda.synchronize()
with torch.cuda.graph(graph):
    captured(x, out=y)
x.fill_(3)
graph.replay()
torch.cuda.synchronize()
said("a CUDA graph captures a run", abs(y[0, 20, 20, 0].item() - 3) < 0.05)

error = refusal(lambda: plan(x.cpu()))
said(f"a tensor on the CPU is refused: {error}", isinstance(error, convoy.InvalidOperand))
cpu_plan = convoy.Plan("n1h8w9c4k4r1", torch.zeros(4, 1, 1, 4))
error = refusal(lambda: cpu_plan(torch.zeros(1, 8, 9, 4, device="cuda")))
said(f"a tensor on the GPU is refused by the CPU: {error}", isinstance(error, convoy.InvalidOperand))
error = refusal(lambda: plan(x, stream="current"))
said(f"a stream that is none: {error}", isinstance(error, convoy.InvalidOperand))
x.untyped_storage().resize_(0)
error = refusal(lambda: plan(x))
said(f"a freed tensor: {error}", isinstance(error, convoy.InvalidOperand))

# Networks: images on the host and on the GPU, the same labels.
images = torch.randint(0, 256, (2000, 28, 28), dtype=torch.uint8, generator=generator)
wanted = convoy.Network(convoy.demo_model()).labels(images)
network = convoy.Network(convoy.demo_model(), device="cuda")
said("a network on images of the host", torch.equal(network.labels(images), wanted))
labels = network.labels(images.cuda())
said("a network on images of the GPU", labels.is_cuda and torch.equal(labels.cpu(), wanted))

# Threads, each on a stream of its own.
x = torch.ones(8, 56, 55, 64, dtype=torch.float16, device="cuda")
torch.cuda.synchronize()
wrong = []


def work():
    with torch.cuda.stream(torch.cuda.Stream()) as _:
        for _ in range(100):
            y = plan(x)
        torch.cuda.current_stream().synchronize()
        if abs(y[0, 20, 20, 0].item() - 1) > 0.05:
            wrong.append(1)


threads = [threading.Thread(target=work) for _ in range(8)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
said("eight threads on eight streams", not wrong)

before = torch.cuda.memory_allocated()
for _ in range(10000):
    plan(x)
torch.cuda.synchronize()
said("10,000 results leave no memory behind", torch.cuda.memory_allocated() - before <= 32 << 20)
started = time.perf_counter()
for _ in range(2000):
    plan(x)
enqueued = (time.perf_counter() - started) / 2000 * 1e6
torch.cuda.synchronize()
print(f"a call on {torch.cuda.get_device_name()} takes {enqueued:.1f} us of the host, or as long as the kernel")
