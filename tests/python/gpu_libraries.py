#!/usr/bin/env python3
"""Arrays of CuPy, Numba, JAX and PyTorch on a GPU: needs a wheel with GPU code, torch with CUDA, and any of the others.

gpu_libraries.py        exit code 0 and a line a check; 1 where one failed; 77 without a GPU
"""

import os
import sys

os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")

import numpy as np

import convoy
from gpu_torch import torch

failed = []


def said(name, check):
    try:
        right = check()
        print(("passed " if right else "FAILED ") + name, flush=True)
    except Exception as error:
        right = False
        print(f"FAILED {name}: {type(error).__name__} {str(error)[:300]}", flush=True)
    if not right:
        failed.append(name)


def library(name):
    try:
        return __import__(name, fromlist=["_"])
    except Exception as error:
        print(f"skipped {name}: {type(error).__name__} {error}", flush=True)
        return None


TEXT = "n4h32w32c64k128r3pad1+bias+relu+max2"
STAGE = convoy.Stage("f16:" + TEXT)
make = torch.Generator().manual_seed(1)
w = (torch.randn(STAGE.w_shape, generator=make) * 0.05).numpy()
x = torch.randn(STAGE.x_shape, generator=make).half().numpy()
b = torch.randn(128, generator=make).numpy()
plan = convoy.Plan(STAGE, w, device="cuda", axes="nhwc")
on_cpu = convoy.Plan("n1h4c3k2r3", np.zeros((2, 3, 3, 3), np.float32))
wanted = plan(torch.tensor(x).cuda(), torch.tensor(b).cuda()).cpu().numpy()
# Some have kernels with a workspace.
TEXTS = ("f16:n8h33w31c60k61r3pad1+relu", "f16:n4h28w28c13k24r1", "f16:n4h16w16c64k64r3pad1+relu+max3s2p1")
WORKING = [convoy.Plan(text, np.ones(convoy.Stage(text).w_shape, np.float32) / 64, device="cuda", axes="nhwc")
           for text in TEXTS]  # fmt: skip
WORKING = [one for one in WORKING if one.workspace_bytes]
print("plans with a workspace:", *WORKING, sep="\n  ")


def second_stream(one):
    """On the first stream, on a second one, in a graph, on eight at once: the same bits."""
    given = torch.randn(one.stage.x_shape, generator=make).half().cuda()
    first, stream = one(given), torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        second = one(given)
    torch.cuda.synchronize()
    by_handle = one(given, stream=stream.cuda_stream)
    stream.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        captured = one(given)
    torch.cuda.synchronize()
    captured.zero_()
    graph.replay()
    junk = [torch.full((one.workspace_bytes // 4 + 1,), 3.0, device="cuda") for _ in range(3)]
    graph.replay()
    torch.cuda.synchronize()
    whole = all((each == 3).all().item() for each in junk)  # the graph writes to memory of its own
    streams, many = [torch.cuda.Stream() for _ in range(8)], []
    for _ in range(20):
        for each in streams:
            with torch.cuda.stream(each):
                many.append(one(given))
    torch.cuda.synchronize()
    return whole and all(torch.equal(first, other) for other in (second, by_handle, captured, *many))


for one in WORKING:
    said(f"streams and graphs of {one.stage} by {one.kernel}", lambda one=one: second_stream(one))


def network_on_streams():
    network = convoy.Network.from_text(
        "input f32:h16c8\nconv1 k32r3pad1+relu\nconv2 k32r3pad1+relu+max2\nflatten\nfc k10\n",
        {"conv1.weight": np.ones((32, 8, 3, 3), "f") / 72, "conv2.weight": np.ones((32, 32, 3, 3), "f") / 288,
         "fc.weight": np.random.default_rng(0).standard_normal((10, 2048)).astype("f")}, device="cuda")  # fmt: skip
    images = [torch.randn(64, 16, 16, 8, device="cuda") for _ in range(4)]
    torch.cuda.synchronize()
    right = []
    for one in images:
        right.append(network(one))
        torch.cuda.synchronize()
    streams, got = [torch.cuda.Stream() for _ in range(4)], []
    for turn in range(50):
        with torch.cuda.stream(streams[turn % 4]):
            got.append(network(images[turn % 4]))
    torch.cuda.synchronize()
    same = all(torch.equal(one, right[turn % 4]) for turn, one in enumerate(got))
    graph, kept = torch.cuda.CUDAGraph(), torch.zeros_like(right[0])
    with torch.cuda.graph(graph):
        network.run(images[0], logits=kept)
    graph.replay()
    torch.cuda.synchronize()
    return same and torch.equal(kept, right[0])


said("a network on four streams, and in a graph", network_on_streams)

cupy = library("cupy")
if cupy:

    def result():
        y = plan(cupy.asarray(x), cupy.asarray(b))
        return isinstance(y, cupy.ndarray) and np.array_equal(cupy.asnumpy(y), wanted)

    def own_stream():
        stream, big = cupy.cuda.Stream(non_blocking=True), cupy.random.random((4000, 4000), dtype=cupy.float32)
        cupy.cuda.Device().synchronize()
        with stream:
            for _ in range(30):
                big = big @ big / 4000  # the mean's square: it goes to 0
            late = cupy.asarray(x) + (big[0, 0] * 0).astype(cupy.float16)
            y = plan(late, cupy.asarray(b))
        stream.synchronize()
        return np.array_equal(cupy.asnumpy(y), cupy.asnumpy(plan(cupy.asarray(cupy.asnumpy(late)), cupy.asarray(b))))

    def a_slice():
        big = cupy.zeros((4, 32, 32, 96), cupy.float16)
        big[..., 32:] = cupy.asarray(x)
        return np.array_equal(cupy.asnumpy(plan(big[..., 32:], cupy.asarray(b))), wanted)

    def given_stream(one):
        given = cupy.ones(one.stage.x_shape, cupy.float16)
        first = cupy.asnumpy(one(given))
        stream = cupy.cuda.Stream(non_blocking=True)
        cupy.cuda.Device().synchronize()
        y = one(given, stream=stream)
        stream.synchronize()
        return np.array_equal(cupy.asnumpy(y), first)

    for name, check in (("result", result), ("stream of its own", own_stream), ("slice of channels", a_slice)):
        said("CuPy: " + name, check)
    for one in WORKING:
        said(f"CuPy: a given stream, {one.stage}", lambda one=one: given_stream(one))

numba = library("numba.cuda")
if numba:

    def result():
        y = plan(numba.to_device(x), numba.to_device(b))
        return hasattr(y, "copy_to_host") and np.array_equal(y.copy_to_host(), wanted)

    def stream():
        own = numba.stream()
        given = numba.to_device(x, stream=own)
        return np.array_equal(plan(given, numba.to_device(b)).copy_to_host(), wanted)

    def refused():
        try:
            on_cpu(numba.to_device(np.zeros((1, 4, 4, 3), np.float32)))
        except convoy.InvalidOperand:
            return True
        return False

    for name, check in (("result", result), ("array with a stream", stream), ("refused by the CPU", refused)):
        said("Numba: " + name, check)
    for one in WORKING:
        said(f"Numba: {one.stage}", lambda one=one: np.array_equal(
            one(numba.to_device(np.ones(one.stage.x_shape, np.float16))).copy_to_host(),
            one(torch.ones(one.stage.x_shape, dtype=torch.float16, device="cuda")).cpu().numpy()))  # fmt: skip


class Interface:
    """A tensor of PyTorch that has nothing but __cuda_array_interface__."""

    def __init__(self, tensor, **facts):
        self.tensor = tensor
        self.__cuda_array_interface__ = dict(tensor.__cuda_array_interface__, version=3, **facts)


def interface_stream():
    stream, source, gb = torch.cuda.Stream(), torch.tensor(x).cuda(), torch.tensor(b).cuda()
    torch.cuda.synchronize()
    right = True
    for handle in (stream.cuda_stream, 1):
        given = torch.zeros_like(source)
        torch.cuda.synchronize()
        with torch.cuda.stream(stream if handle != 1 else torch.cuda.default_stream()):
            torch.cuda._sleep(50_000_000)
            given.copy_(source)
        other = torch.cuda.Stream()
        y = plan(Interface(given, stream=handle), gb, stream=other)
        right &= np.array_equal(torch.from_dlpack(y).cpu().numpy(), wanted)
        torch.cuda.synchronize()
    return right


def interface_refusals():
    good, gb = torch.tensor(x).cuda(), torch.tensor(b).cuda()
    host = Interface(good, data=(np.zeros(x.shape, x.dtype).ctypes.data, False))
    said = []
    for wrong in (Interface(good, mask=good), Interface(good, stream=0), host):
        try:
            plan(wrong, gb)
        except convoy.InvalidOperand as error:
            said.append(str(error))
    return len(said) == 3


said("__cuda_array_interface__: its stream comes first", interface_stream)
said("__cuda_array_interface__: mask, stream 0 and memory of the host are refused", interface_refusals)

jax = library("jax")
if jax and any(device.platform == "gpu" for device in jax.devices()):
    jnp = jax.numpy

    def result():
        y = plan(jnp.asarray(x), jnp.asarray(b))
        return isinstance(y, jax.Array) and np.array_equal(np.asarray(y), wanted)

    def jitted():
        once = jax.jit(lambda v: v * 1.0 + jnp.float16(0))
        return all(np.array_equal(np.asarray(once(plan(once(jnp.asarray(x)), jnp.asarray(b)))), wanted)
                   for _ in range(20))  # fmt: skip

    def bf16():
        other = convoy.Plan("bf16:" + TEXT, w, device="cuda", axes="nhwc")
        y = other(jnp.asarray(x).astype(jnp.bfloat16), jnp.asarray(b))
        its = other(torch.tensor(x).bfloat16().cuda(), torch.tensor(b).cuda()).float().cpu().numpy()
        return y.dtype == jnp.bfloat16 and np.array_equal(np.asarray(y.astype(jnp.float32)), its)

    for name, check in (("result", result), ("between jitted functions", jitted), ("bf16", bf16)):
        said("JAX: " + name, check)
    for one in WORKING:
        said(f"JAX: {one.stage}", lambda one=one: np.array_equal(
            np.asarray(one(jnp.ones(one.stage.x_shape, jnp.float16))),
            one(torch.ones(one.stage.x_shape, dtype=torch.float16, device="cuda")).cpu().numpy()))  # fmt: skip

print("failed:", failed)
sys.exit(bool(failed))
