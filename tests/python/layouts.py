"""Every layout and type of x, weights and bias that Conv2d takes, through convoy.torch: for the CPU and for GPUs."""

import itertools

import torch

import convoy
import convoy.torch as ct

F = torch.nn.functional
BOUND = {torch.float32: 1e-4, torch.float16: 2e-2, torch.bfloat16: 0.15}


def layouts(tensor):
    """(name, a tensor of the same values) in the layouts that views and copies give."""
    axes = tensor.dim()
    yield "contiguous", tensor.contiguous()
    yield "transposed", tensor.transpose(0, -1).contiguous().transpose(0, -1)
    wide = torch.full([size * 2 for size in tensor.shape], 7.0, device=tensor.device).to(tensor.dtype)
    sliced = wide[tuple(slice(None, None, 2) for _ in range(axes))]
    sliced.copy_(tensor)
    yield "every second", sliced
    inner = wide[tuple(slice(0, size) for size in tensor.shape)]
    inner.copy_(tensor)
    yield "a corner", inner
    offset = torch.empty(tensor.numel() + 3, dtype=tensor.dtype, device=tensor.device)[3:].view(tensor.shape)
    yield "an odd address", offset.copy_(tensor)
    yield "negative bit", torch._neg_view(-tensor)
    if axes == 4:
        yield "channels_last", tensor.contiguous(memory_format=torch.channels_last)
        yield "[.., W, H]", tensor.transpose(2, 3).contiguous().transpose(2, 3)
        yield "[H, W, C, N]", tensor.permute(2, 3, 1, 0).contiguous().permute(3, 2, 0, 1)


def expanded(tensor):
    """(name, views with strides of 0): of other values."""
    for axis in range(tensor.dim()):
        yield f"expanded axis {axis}", tensor.narrow(axis, 0, 1).expand(tensor.shape)


def every(tensor):
    return [*layouts(tensor), *expanded(tensor)]


def check(device):
    """Raises AssertionError with the case; returns how many there were."""
    generator = torch.Generator().manual_seed(5)
    count = 0
    for dtype, (c, k, size, groups, extra) in itertools.product(
        BOUND, ((3, 8, 3, 1, ""), (16, 8, 1, 1, ""), (8, 8, 3, 8, ""), (6, 4, 3, 2, "nchw"), (128, 128, 3, 1, ""))
    ):  # fmt: skip
        text = f"n1h9c{c}k{k}r{size}pad1groups{groups}{extra}+bias+relu"
        drawn = [torch.randn(shape, generator=generator).to(device, dtype)
                 for shape in ((2, c, 9, 10), (k, c // groups, size, size), (k,))]  # fmt: skip
        drawn[1] /= (c // groups * size * size) ** 0.5
        for which, norm in itertools.product(range(3), (False, True)):
            for name, tensor in every(drawn[which]):
                given = [*drawn[:which], tensor, *drawn[which + 1 :]]
                case = f"{device} {dtype} {text} {('x', 'weight', 'bias')[which]} {name}, norm {norm}"
                x, weight, bias = (one.double().cpu() for one in given)
                wanted = F.conv2d(x, weight, bias, padding=1, groups=groups)
                if norm:
                    statistics = [torch.linspace(0.5, 1.5, k, device=device) for _ in range(4)]
                    y = torch.ops.convoy.stage_norm(*given, *statistics, None, 1e-5, text)
                    gamma, beta, mean, var = (one.double().cpu() for one in statistics)
                    wanted = F.batch_norm(wanted, mean, var, gamma, beta, False, 0.0, 1e-5)
                else:
                    y = ct.stage(text, *given)
                wanted = wanted.relu()
                if y.dtype is not dtype or not torch.allclose(y.double().cpu(), wanted, BOUND[dtype], BOUND[dtype]):
                    raise AssertionError(f"{case}: differs by {(y.double().cpu() - wanted).abs().max():.3g}")
                count += 1
    return count


def check_refused(device):
    """What Conv2d takes, or refuses, and stages do not: InvalidOperand that names the tensor."""
    text = "n1h9c3k8r3pad1+bias"
    x, weight, bias = (torch.ones(shape, device=device) for shape in ((2, 3, 9, 9), (8, 3, 3, 3), (8,)))
    emptied = torch.ones(8, 3, 3, 3, device=device)
    emptied.untyped_storage().resize_(0)
    for case, given, said in (
        ("no batch", (x[0], weight, bias), "x: "), ("float64", (x.double(), weight, bias), "x: "),
        ("complex", (x.to(torch.complex64), weight, bias), "x: "),
        ("sparse x", (x.to_sparse(), weight, bias), "x|spars"),
        ("float64 weight", (x, weight.double(), bias), "weight: "),
        ("sparse weight", (x, weight.to_sparse(), bias), "weight: "),
        ("int weight", (x, weight.int(), bias), "weight: "),
        ("complex bias", (x, weight, bias.to(torch.complex64)), "bias: "),
        ("float64 bias", (x, weight, bias.double()), "bias: "), ("an emptied weight", (x, emptied, bias), "weight: "),
    ):  # fmt: skip
        for before in (False, True):  # also where a plan for such an x is there already
            if before:
                ct.stage(text, x, weight, bias)
            try:
                ct.stage(text, *given)
            except convoy.InvalidOperand as error:
                assert any(part in str(error) for part in said.split("|")), f"{case}: {error}"
            except (RuntimeError, NotImplementedError) as error:
                assert "spars" in case and "Sparse" in str(error), f"{case}: {error}"
            else:
                raise AssertionError(f"{device} {case}: taken, expected InvalidOperand")
