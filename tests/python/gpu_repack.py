#!/usr/bin/env python3
"""Plan.repack on a GPU: the bits of set_weights for every kernel, the order of the stream, CUDA graphs.

    gpu_repack.py [SOURCE]   SOURCE: the source folder, for its lists of stages; exit code 0 and a line per
                             kernel; 1 if one fails; 77 without a GPU
"""

import pathlib
import re
import sys

import convoy
from gpu_torch import torch

source = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else pathlib.Path(__file__).parents[2])
TYPES = {"f16": torch.float16, "bf16": torch.bfloat16, "f32": torch.float32}
failed = []


def said(name, right):
    print(("passed " if right else "FAILED ") + name, flush=True)
    if not right:
        failed.append(name)


def inputs(stage, generator):
    kind = str(stage).split(":")[0] if ":" in str(stage) else "f32"
    if kind == "u8":
        x = torch.randint(0, 256, stage.x_shape, generator=generator, dtype=torch.uint8)
    else:
        x = torch.randn(stage.x_shape, generator=generator).to(TYPES[kind])
    more = {}
    if "+bias" in str(stage):
        more["bias"] = torch.randn(stage.w_shape[0], generator=generator).cuda()
    if "+norm" in str(stage):
        more["norm"] = (torch.full((stage.c,), 1 / 64).cuda(), torch.full((stage.c,), -0.5).cuda())
    return x.cuda(), more, TYPES.get(kind, torch.float32)


def outputs(plan, x, more):
    y = plan(x, **more)
    return [v for v in (y if isinstance(y, tuple) else [y]) if v is not None]


def layouts(w):
    """w [K, R, S, C] in memory in several orders, the same values."""
    yield "krsc", w.contiguous()
    yield "kcrs", w.permute(0, 3, 1, 2).contiguous().permute(0, 2, 3, 1)
    yield "crsk", w.permute(3, 1, 2, 0).contiguous().permute(3, 1, 2, 0)
    wide = torch.zeros(*w.shape[:3], w.shape[3] + 3, dtype=w.dtype, device=w.device)
    wide[..., 2 : 2 + w.shape[3]] = w
    yield "a slice", wide[..., 2 : 2 + w.shape[3]]


for path in sorted(source.glob("tests/cuda/*-stages.txt")):
    kernel = path.name.removesuffix("-stages.txt")
    lines = [line.split("#")[0].strip() for line in path.read_text().splitlines()]
    stages = [line for line in lines if line and " " not in line]
    checked = 0
    for text in stages[:: max(1, len(stages) // 6)]:
        generator = torch.Generator().manual_seed(checked)
        text = re.sub(r"n\d+", lambda m: f"n{min(int(m[0][1:]), 4)}", text, count=1)
        try:
            stage = convoy.Stage(text)
            axes = "nchw" if "nchw" in text else "nhwc"
            w = torch.randn(stage.w_shape, generator=generator)
            plan = convoy.Plan(stage, w, device="cuda", axes=axes, kernel=kernel)
        except convoy.Error:
            continue  # not of this GPU, or a chain of several stages
        x, more, kind = inputs(stage, generator)
        for flips in (False, True):
            want = outputs(convoy.Plan(stage, w, device="cuda", axes=axes, kernel=kernel, flip_filters=flips), x, more)
            again = convoy.Plan(stage, device="cuda", axes=axes, kernel=kernel, flip_filters=flips)
            for name, laid in layouts(w.cuda()):
                again.repack(laid)
                got = outputs(again, x, more)
                if not all(torch.equal(a, b) for a, b in zip(got, want, strict=True)):
                    said(f"{kernel}: {stage} weights {name} flips {flips}", False)
        rounded = w.to(kind)
        want = outputs(convoy.Plan(stage, rounded.float(), device="cuda", axes=axes, kernel=kernel), x, more)
        again = convoy.Plan(stage, device="cuda", axes=axes, kernel=kernel)
        again.repack(rounded.cuda())
        if not all(torch.equal(a, b) for a, b in zip(outputs(again, x, more), want, strict=True)):
            said(f"{kernel}: {stage} weights of {kind}", False)
        checked += 1
    said(f"{kernel}: {checked} stages", True) if checked else print("left out", kernel)

# The order: weights change, are packed and read in turns, and nothing waits in between.
for text in ("f16:n2h14w14c256k256r3pad1", "f16:n1h8w8c64k64r1", "f16:n2h28w28c3k64r7stride2pad3",
             "f16:n1h8w8c512k8r3pad1", "n2h14w14c64k64r3pad1", "f16:n2h9w9c60k61r3pad1+relu+max2",
             "n2h28w28c64k64r3pad1"):  # fmt: skip
    stage = convoy.Stage(text)
    generator = torch.Generator().manual_seed(1)
    x, more, kind = inputs(stage, generator)
    plan = convoy.Plan(stage, device="cuda", axes="nhwc")
    w = torch.zeros(stage.w_shape, device="cuda")
    # Exact in f16 whatever the scale, and so are their products with x.
    base = (torch.randint(-64, 65, stage.w_shape, generator=generator) / 64).cuda()
    x = torch.randint(-8, 9, stage.x_shape, generator=generator).to(x.dtype).cuda()
    scales = [(-1) ** i * 2.0 ** (i % 5) for i in range(60)]
    got = []
    for scale in scales:
        torch.mul(base, scale, out=w)
        plan.repack(w)
        got.append(plan(x))
    fixed = convoy.Plan(stage, base, device="cuda", axes="nhwc")(x)
    # Powers of two scale every sum exactly; a ReLU needs the positive ones.
    said(f"{stage} ({plan.kernel}): 60 packings in turns with runs",
         all(torch.equal(y, (fixed.float() * scale).to(y.dtype))
             for y, scale in zip(got, scales, strict=True) if scale > 0 or "relu" not in text))  # fmt: skip

    graph = torch.cuda.CUDAGraph()
    torch.mul(base, 1, out=w)
    with torch.cuda.graph(graph):
        plan.repack(w)
        y = plan(x)
    right = True
    for scale in (1.0, 2.0, -4.0):
        torch.mul(base, scale, out=w)
        graph.replay()
        right = right and ((scale < 0 and "relu" in text) or torch.equal(y, (fixed.float() * scale).to(y.dtype)))
    said("  and in a CUDA graph, whose launches read the weights of the moment", right)
fresh = convoy.Plan("f16:n1h8w8c64k64r1", device="cuda")
graph = torch.cuda.CUDAGraph()
w = torch.zeros(64, 1, 1, 64, device="cuda")
try:
    with torch.cuda.graph(graph):
        w.add_(1)
        try:
            fresh.repack(w)
            told = ""
        except convoy.Error as error:
            told = str(error)
    said("a first repack in a capture is refused", "before the capture" in told)
except RuntimeError as error:
    said(f"a first repack in a capture left the capture whole: {error}", False)
sys.exit(bool(failed))
