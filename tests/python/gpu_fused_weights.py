#!/usr/bin/env python3
"""Weights of a fused model on a GPU: each call reads the present ones, whoever changed them, and however.

    gpu_fused_weights.py      exit code 0 and a line per check; 1 if one fails; 77 without a GPU

What is right has the bits of a model that was copied and fused with frozen=True right now: its weights are folded by
PyTorch and packed on the host.
"""

import copy
import sys

import convoy
from gpu_torch import torch

nn = torch.nn
failed = []
device = torch.device("cuda")


def said(name, right):
    print(("passed " if right else "FAILED ") + name, flush=True)
    if not right:
        failed.append(name)


class Scale(nn.Module):
    """Code of the user's, which PyTorch runs between stages."""

    def forward(self, x):
        return x * 0.5


class Net(nn.Module):
    """Layers of each kind: with and without bias, norm, affine parameters; grouped, 1x1, a residual, linear."""

    def __init__(self, width=64):
        super().__init__()
        self.one = nn.Sequential(nn.Conv2d(3, width, 3, padding=1), nn.BatchNorm2d(width), nn.ReLU())
        self.two = nn.Sequential(nn.Conv2d(width, width, 3, padding=1, bias=False), nn.BatchNorm2d(width), nn.ReLU(),
                                 nn.MaxPool2d(2))  # fmt: skip
        depthwise = nn.Conv2d(width, width, 3, padding=1, groups=width)
        self.three = nn.Sequential(depthwise, nn.BatchNorm2d(width), nn.ReLU6())
        self.four = nn.Sequential(nn.Conv2d(width, 2 * width + 8, 1), nn.BatchNorm2d(2 * width + 8, affine=False))
        self.five = nn.Conv2d(2 * width + 8, width, 1)
        self.relu = nn.ReLU()
        self.head = nn.Linear(width, 10)

    def forward(self, x):
        x = self.three(self.two(self.one(x)))
        x = self.relu(self.five(self.four(x)) + x)
        return self.head(x.mean((2, 3)))


def made(dtype, last, seed=1):
    torch.manual_seed(seed)
    model = Net().eval()
    for norm in model.modules():
        if isinstance(norm, nn.BatchNorm2d):
            norm.running_mean.normal_(0, 0.3)
            norm.running_var.uniform_(0.5, 2)
            if norm.affine:
                norm.weight.data.uniform_(-2, 2)
                norm.bias.data.normal_(0, 0.5)
    model = model.to(device, dtype)
    x = torch.randn(4, 3, 32, 32).to(device, dtype)
    if last:
        model, x = model.to(memory_format=torch.channels_last), x.to(memory_format=torch.channels_last)
    return model, x


@torch.no_grad()
def expected(model, x):
    return convoy.fuse(copy.deepcopy(model), x, show=False, frozen=True)(x)


def group_of(fused):
    """The group of the last inputs, or None."""
    groups = fused._together._groups if fused._together else {}
    return groups[next(reversed(groups))] if groups else None


def right(fused, model, x):
    """Whether three calls have the bits of the present weights."""
    want = expected(model, x)
    got = [fused(x) for _ in range(3)]
    return all(torch.equal(want, y) for y in got)


torch.set_grad_enabled(False)
for dtype, last in ((torch.float16, True), (torch.float32, False), (torch.bfloat16, True), (torch.float32, True)):
    name = f"{str(dtype)[6:]}, {'channels_last' if last else 'contiguous'}"
    model, x = made(dtype, last)
    fused = convoy.fuse(model, x, show=False)
    said(f"{name}: at first", right(fused, model, x))
    group = group_of(fused)
    stages = sum(bool(row.stage) for row in fused.report.rows)
    said(f"  {stages} stages are packed together", group is not None and len(group.entries) == stages)
    tensors = dict(model.named_parameters()) | {k: v for k, v in model.named_buffers() if v.is_floating_point()}
    ways = {
        "in place": lambda t: t.mul_(1.5),
        "by .data": lambda t: t.data.add_(0.25),
        "one element of an alias": lambda t: t.detach().flatten()[-1:].data.add_(1)
        if t.is_contiguous() else t.data.neg_(),
        "copied from the host": lambda t: t.data.copy_((torch.rand(t.shape) + 0.25).to(t.dtype)),
    }  # fmt: skip
    for way, change in ways.items():
        wrong, seen = [], 0
        for key, tensor in tensors.items():
            before, kept = fused(x), tensor.clone()
            change(tensor)
            after = fused(x)
            seen += not torch.equal(before, after)
            want = expected(model, x)
            if not torch.equal(after, want) or not torch.equal(fused(x), want):
                wrong.append(key)
            tensor.data.copy_(kept)
            if not torch.equal(fused(x), before):
                wrong.append(key + " as before")
        said(f"  each tensor {way}, and back; {seen} of {len(tensors)} change y {wrong or ''}",
             not wrong and 2 * seen > len(tensors))  # fmt: skip
    said("  and the same group was used", group_of(fused) is group)

model, x = made(torch.float16, True)
fused = convoy.fuse(model, x, show=False)
right(fused, model, x)
with torch.enable_grad():
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01, fused=True)
    fused(x).float().sum().backward()
    optimizer.step()
said("a fused optimizer's step", right(fused, model, x))
other, _ = made(torch.float16, True, seed=2)
model.load_state_dict(other.state_dict())
said("load_state_dict", right(fused, model, x))
model.load_state_dict(other.state_dict(), assign=True)
said("load_state_dict with assign", right(fused, model, x))
model.one[0].weight = nn.Parameter(torch.randn_like(model.one[0].weight))
said("another Parameter", right(fused, model, x) and right(fused, model, x))
model.five.weight.data = torch.randn_like(model.five.weight)
said("other .data", right(fused, model, x) and right(fused, model, x))
model.two[1].running_var = model.two[1].running_var * 2
said("another buffer", right(fused, model, x) and right(fused, model, x))
model.cpu()
torch.cuda.empty_cache()
model.cuda()
said("to the CPU and back", right(fused, model, x) and right(fused, model, x))
model.float()
said("as float32", right(fused, model, x.float()) and right(fused, model, x.float()))
model.half()
said("and back", right(fused, model, x) and right(fused, model, x))
model.two[1].eps = 0.5
said("another eps", right(fused, model, x) and right(fused, model, x))
small = x[:1].contiguous(memory_format=torch.channels_last)
wrong = 0
for step in range(6):
    model.two[0].weight.data.neg_()
    model.one[1].running_mean.data.add_(0.5)
    one = small if step % 2 else x
    wrong += not torch.equal(fused(one), expected(model, one))
said("batches of two sizes in turns", not wrong)
with torch.inference_mode():
    good = right(fused, model, x)
    model.head.weight.data.neg_()
    said("inference_mode", good and right(fused, model, x))
with torch.enable_grad():
    good = torch.equal(fused(x), expected(model, x))
    model.head.weight.data.neg_()
    said("with gradients", good and torch.equal(fused(x), expected(model, x)) and fused(x).requires_grad)
model.float()
right(fused, model, x.float())
with torch.autocast("cuda", torch.bfloat16):
    good = right(fused, model, x.float())
    model.two[0].weight.data.neg_()
    said("autocast", good and right(fused, model, x.float()))
said("and without again", right(fused, model, x.float()))
model.half()

# Stage by stage and together in turns, and two fused models of one model: each sees what the others packed.
second = convoy.fuse(model, x, show=False)
right(second, model, x)
wrong = 0
for step in range(12):
    tensor = (model.one[1].running_mean, model.two[0].weight, model.two[1].bias, model.one[0].bias)[step % 4]
    tensor.data.mul_(-1 if step % 8 < 4 else 0.5)
    way = (fused, second, fused._runner)[step % 3]
    wrong += not torch.equal(way(x), expected(model, x))
    tensor.data.mul_(-1 if step % 8 < 4 else 2)  # what it was: others have packed it since
    way = (second, fused._runner, fused)[step % 3]
    wrong += not torch.equal(way(x), expected(model, x))
said("together, stage by stage and by two fused models in turns", not wrong)

# Streams: the weights change, all waits, and two streams run side by side.
streams = [torch.cuda.Stream() for _ in range(3)]
wrong = 0
for step in range(40):
    model.two[0].weight.data.neg_()
    model.one[0].weight.data.neg_()
    want = expected(model, x)
    torch.cuda.synchronize()
    got = []
    for number in range(3):
        with torch.cuda.stream(streams[(step + number) % 3]):
            got.append((fused if step % 4 else fused._runner)(x))
    torch.cuda.synchronize()
    wrong += not all(torch.equal(want, y) for y in got)
said(f"three streams that share no order: {wrong} of 40 rounds wrong", not wrong)

side = torch.cuda.Stream()
with torch.cuda.stream(side):
    for _ in range(3):
        fused(x)
torch.cuda.synchronize()
graph = torch.cuda.CUDAGraph()
with torch.cuda.graph(graph):
    y = fused(x)
good = True
for _ in range(3):
    model.two[0].weight.data.neg_()
    model.one[1].bias.data.add_(0.5)
    want = expected(model, x)
    graph.replay()
    torch.cuda.synchronize()
    good &= torch.equal(y, want) and torch.equal(fused(x), want)
said("a CUDA graph reads the weights of the moment", good)

# Frozen weights keep their values, though the same model's other fused one packs new ones.
frozen = convoy.fuse(model, x, show=False, frozen=True)
want = frozen(x)
torch.cuda.synchronize()
state = {k: v.clone() for k, v in model.state_dict().items()}
for tensor in (model.two[0].weight, model.one[0].bias):
    tensor.data.neg_()
good = right(fused, model, x)
said("frozen weights stay beside others", good and torch.equal(frozen(x), want))

# Code that runs between stages may write to the weights of later ones.
handle = model.relu.register_forward_hook(lambda *_: (model.head.weight.data.neg_(), None)[1])
hooked = convoy.fuse(model, x, show=False)
calls = [(hooked(x), model.head.weight.clone()) for _ in range(5)]
handle.remove()
good = True
for y, weight in calls:
    model.head.weight.data.copy_(weight)
    good &= torch.equal(y, expected(model, x))
said("a hook that changes weights during the call", good)
sequence = nn.Sequential(nn.Conv2d(3, 64, 3, padding=1), nn.ReLU(), Scale(), nn.Conv2d(64, 64, 3, padding=1))
sequence = sequence.eval().to(device)
x = torch.randn(2, 3, 16, 16, device=device)
fused = convoy.fuse(sequence, x, show=False)
said("user code between stages", right(fused, sequence, x))
sys.exit(bool(failed))
