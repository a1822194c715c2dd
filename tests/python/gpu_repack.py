#!/usr/bin/env python3
"""Plan.repack on a GPU: the bits of set_weights for every kernel, the order of the stream, CUDA graphs.

    gpu_repack.py [SOURCE]   SOURCE: the source folder, for its lists of stages; exit code 0 and a line per
                             kernel; 1 if one fails; 77 without a GPU
"""

import math
import pathlib
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
        try:
            stage = convoy.Stage(text)
            stage = stage.replace(n=min(stage.n, 4))
            axes = stage.layout
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

# Weights that stay are not packed again: whatever changes is seen, by whichever way the weights lie.
for text in ("f16:n1h8w8c72k136r3pad1", "n1h9w9c5k7r3pad1", "bf16:n1h1w1c4100k1000r1", "f16:n2h14w14c256k256r3pad1"):
    stage = convoy.Stage(text)
    generator = torch.Generator().manual_seed(2)
    x, more, kind = inputs(stage, generator)
    plan = convoy.Plan(stage, device="cuda", axes="nhwc")
    count = math.prod(stage.w_shape)
    right = True

    def gives(weights, plan=plan, stage=stage, x=x, more=more):
        """Whether a run behind repack has the bits of a fresh plan, twice."""
        fresh = convoy.Plan(stage, weights.float().cpu(), device="cuda", axes="nhwc", kernel=plan.kernel)
        want = outputs(fresh, x, more)
        for _ in range(2):
            plan.repack(weights)
            if not all(torch.equal(a, b) for a, b in zip(outputs(plan, x, more), want, strict=True)):
                return False
        return True

    room = torch.zeros(2 * count + 8, dtype=kind, device="cuda")
    for skip in (0, 1, 3, 8):  # aligned to 16 bytes, and not
        w = room[skip : skip + count].view(stage.w_shape)
        w.copy_(torch.randn(stage.w_shape, generator=generator))
        right &= gives(w)
        for at in (0, count - 1, count // 2, *(min(i * 16384 + 5, count - 1) for i in range(4))):
            w.view(-1)[at] += 1
            right &= gives(w)
    said(f"{stage} ({plan.kernel}): one changed weight is seen", right)
    w = torch.randn(stage.w_shape, generator=generator).to(kind).cuda()
    with_gaps = torch.randn((*stage.w_shape[:-1], 2 * stage.w_shape[-1]), generator=generator).to(kind).cuda()
    with_gaps = with_gaps[..., : stage.w_shape[-1]]
    again = gives(w) and gives(with_gaps) and gives(w) and gives(w.float()) and gives(w) and gives(with_gaps)
    with_gaps.add_(1)
    again = again and gives(with_gaps)
    flat = torch.randn(count, generator=generator).to(kind).cuda()  # the same bytes in two orders
    k, r, s, c = stage.w_shape
    again = again and gives(flat.view(k, r, s, c)) and gives(flat.view(k, c, r, s).permute(0, 2, 3, 1))
    said("  weights with gaps, of another type and in another order in turns", again and gives(flat.view(k, r, s, c)))

big = convoy.Plan("f16:n1h1w1c8192k4096r1", device="cuda")
w = torch.randn(big.stage.w_shape, device="cuda").half()


def seconds(change):
    begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    least = 1e9
    for _ in range(20):
        if change:
            w.neg_()
        begin.record()
        big.repack(w)
        end.record()
        end.synchronize()
        least = min(least, begin.elapsed_time(end) / 1e3)
    return least


big.repack(w)
packed, compared = seconds(True), seconds(False)
said(f"64 MiB of weights: packed in {1e6 * packed:.0f} us, compared in {1e6 * compared:.0f}", compared < packed / 3)

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
