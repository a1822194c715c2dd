"""PyTorch's own samples of Conv2d, MaxPool2d, BatchNorm2d and Linear, forward and backward, by stages and by fuse.

Each sample ends in one of three ways, and is counted: right; refused, by a convoy.Error that says why; left to
PyTorch, as the table of `fuse` says or as no stage is the like of it. A wrong value, another error, a gradient that
is missing or of another type are failures. CONVOY_CONFORMANCE_DEVICE=cuda runs it on a GPU.

Values are held to docs/trust/numbers.md: |y - y64| <= 2^-24 (24 S + 16 S') and half a unit in the last place,
where S is the sum of the products' magnitudes and S' the largest S of a filter. A folded norm of f16 or bf16 adds half
a unit in the last place of each weight. Gradients are ATen's: the same bound with their own sums, and twice the largest
error that PyTorch's own gradient has.
"""

import collections
import copy
import faulthandler
import os
import sys
import unittest

import convoy

try:
    import torch
    from torch import nn

    import convoy.torch

    try:
        from torch.testing._internal.common_methods_invocations import op_db
        from torch.testing._internal.common_modules import module_db
    except ImportError as missing:  # expecttest
        op_db, why = None, str(missing)
except ImportError as missing:
    torch, op_db, why = None, None, str(missing)

DEVICE = os.environ.get("CONVOY_CONFORMANCE_DEVICE", "cpu")
# Labels of samples that are known to fail, and why. Each must fail: one that does not is a failure too.
EXPECTED_FAILURES: dict[str, str] = {}
HANG = 900  # seconds for all of it


class Sample:
    """A module in eval mode on an input; `like`: the module whose sample it is."""

    def __init__(self, label, like, module, x):
        self.label, self.like, self.module, self.x = label, like, module, x


def pair(value):
    return (value, value) if isinstance(value, int) else tuple(value)


def with_values(module, **values):
    for name, value in values.items():
        if value is not None:
            getattr(module, name).data.copy_(value.detach())
    return module


def of_conv2d(x, weight, bias=None, stride=1, padding=0, dilation=1, groups=1):
    k, c, *sizes = weight.shape
    module = nn.Conv2d(c * groups, k, tuple(sizes), stride, padding, dilation, groups, bias is not None,
                       device=x.device, dtype=x.dtype)  # fmt: skip
    return with_values(module, weight=weight, bias=bias), x


def of_linear(x, weight, bias=None):
    if weight.dim() != 2:
        return None, x
    k, c = weight.shape
    return with_values(nn.Linear(c, k, bias is not None, x.device, x.dtype), weight=weight, bias=bias), x


def of_max_pool2d(x, kernel_size, stride=None, **options):
    return nn.MaxPool2d(kernel_size, stride or None, **options), x


def of_batch_norm(x, mean, var, weight=None, bias=None, training=False, momentum=0.5, eps=1e-5):
    if x.dim() != 4 or (weight is None) != (bias is None):
        return None, x
    tracked = mean is not None and not training
    module = nn.BatchNorm2d(x.shape[1], eps, momentum, weight is not None, tracked, device=x.device, dtype=x.dtype)
    with_values(module, weight=weight, bias=bias)
    return with_values(module, running_mean=mean, running_var=var) if tracked else module, x


OPERATORS = {"nn.functional.conv2d": ("Conv2d", "of_conv2d"), "nn.functional.linear": ("Linear", "of_linear"),
             "nn.functional.max_pool2d": ("MaxPool2d", "of_max_pool2d"),
             "nn.functional.batch_norm": ("BatchNorm2d", "of_batch_norm")}  # fmt: skip


def samples(dtype):
    """PyTorch's, in their order."""
    names = ("nn.Conv2d", "nn.MaxPool2d", "nn.BatchNorm2d", "nn.Linear")
    for info in (info for info in module_db if info.name in names):
        given = info.module_inputs_func(info, device=DEVICE, dtype=dtype, requires_grad=True, training=False)
        for i, one in enumerate(given):
            made, put = one.constructor_input, one.forward_input
            pool = info.name == "nn.MaxPool2d"
            module = info.module_cls(*made.args, **made.kwargs, **({} if pool else {"device": DEVICE, "dtype": dtype}))
            x = (*put.args, *put.kwargs.values())[0]
            yield Sample(f"{info.name}[{i}] {one.desc} {dtype}", info.name[3:], module, x)
    for op in (op for op in op_db if op.name in OPERATORS):
        like, make = OPERATORS[op.name]
        for i, one in enumerate(op.sample_inputs(DEVICE, dtype, requires_grad=True)):
            module, x = globals()[make](one.input, *one.args, **one.kwargs)
            name = ".".join(filter(None, (op.name, op.variant_test_name)))
            yield Sample(f"{name}[{i}] {dtype}", like, module, x)


def pool_text(pool):
    sizes = [pair(value) for value in (pool.kernel_size, pool.stride, pool.padding, pool.dilation)]
    return "+max{}x{}s{}x{}p{}x{}d{}x{}".format(*(v for size in sizes for v in size)) + "ceil" * pool.ceil_mode


def conv_text(conv, x):
    pad = conv.padding
    if pad == "valid":
        pad = (0, 0)
    if pad == "same":
        both = [d * (size - 1) for d, size in zip(conv.dilation, conv.kernel_size, strict=True)]
        pad = [size // 2 for size in both] + [size - size // 2 for size in both]
    (r, s), bias = conv.kernel_size, "+bias" * (conv.bias is not None)
    return (f"n1h{x.shape[2]}w{x.shape[3]}c{conv.in_channels}k{conv.out_channels}r{r}s{s}"
            f"stride{conv.stride[0]}x{conv.stride[1]}pad{'x'.join(map(str, pad))}"
            f"dil{conv.dilation[0]}x{conv.dilation[1]}groups{conv.groups}{bias}")  # fmt: skip


def one_to_one(c, x):
    """A convolution that changes nothing, so that a pool or a norm has a stage to ride on."""
    conv = nn.Conv2d(c, c, 1, bias=False, device=x.device, dtype=x.dtype)
    return with_values(conv, weight=torch.eye(c)[:, :, None, None])


class Case:
    """What runs beside what it should give: layers, x, and a call of Convoy's on (layers, x)."""

    def __init__(self, layers, call):
        self.layers, self.call = layers, call


def stage_cases(sample):
    """The sample by convoy.torch.stage and by StageModule; none where no stage's text says it."""
    module, x = sample.module, sample.x
    if isinstance(module, nn.BatchNorm2d) or (isinstance(module, nn.MaxPool2d) and module.return_indices):
        return
    if x.dim() not in ((2,) if isinstance(module, nn.Linear) else (3, 4)):
        return
    if isinstance(module, nn.Linear):
        text = f"n1h1w1c{module.in_features}k{module.out_features}r1{'+bias' * (module.bias is not None)}"

        def linear(layers, x):
            weight = layers[0].weight[:, :, None, None]
            return convoy.torch.stage(text, x[:, :, None, None], weight, layers[0].bias)[..., 0, 0]

        yield Case([module], linear)
        return
    layers, image = [module], x if x.dim() == 4 else x[None]
    if isinstance(module, nn.MaxPool2d):
        layers = [one_to_one(image.shape[1], x), module]
    text = conv_text(layers[0], image) + (pool_text(module) if len(layers) > 1 else "")
    yield Case(layers, lambda layers, x: convoy.torch.stage(text, x, layers[0].weight, layers[0].bias))
    if isinstance(module, nn.MaxPool2d):  # some thousand samples: once is enough
        return

    def by_module(layers, x):
        stage = convoy.torch.StageModule(text, x.device, x.dtype)
        stage.weight, stage.bias = layers[0].weight, layers[0].bias
        return stage(x)

    yield Case(layers, by_module)


def fused_case(sample):
    module, x = sample.module, sample.x
    layers = [module]
    if isinstance(module, (nn.MaxPool2d, nn.BatchNorm2d)):
        layers = [one_to_one(x.shape[-3], x), module]
    return Case(layers, None)


def magnitudes(layers, x):
    """The same layers in double with every value's magnitude in the place of the value, and no pool: S and more."""
    layers = [copy.deepcopy(layer).double() for layer in layers if not isinstance(layer, nn.MaxPool2d)]
    for layer in layers:
        if isinstance(layer, nn.BatchNorm2d):
            with torch.no_grad():
                gamma = torch.ones_like(layer.running_var) if layer.weight is None else layer.weight
                scale = gamma / (layer.running_var + layer.eps).sqrt()
                shift = (0 if layer.bias is None else layer.bias.abs()) + (layer.running_mean * scale).abs()
            yield_norm = (scale.abs(), shift)
            layer.forward = lambda y, norm=yield_norm: y * norm[0][:, None, None] + norm[1][:, None, None]
        else:
            for parameter in layer.parameters():
                parameter.data.abs_()
    return layers, x.detach().double().abs().requires_grad_()


def run(layers, x):
    for layer in layers:
        x = layer(x)
    return x


def gradients(y, gy, layers, x):
    """{name: gradient} of x and of the parameters."""
    given = {"x": x} | {f"{i}.{name}": p for i, layer in enumerate(layers) for name, p in layer.named_parameters()}
    found = torch.autograd.grad(y, list(given.values()), gy, allow_unused=True)
    return dict(zip(given, found, strict=True))


def half_unit(values, dtype):
    """Half a unit in the last place of each value, in double."""
    info = torch.finfo(dtype)
    return torch.clamp(values.abs(), min=info.tiny) * info.eps / 2


def largest_of_filters(sums, axis):
    """S': the largest of each filter's sums."""
    others = [a for a in range(sums.dim()) if a != axis]
    return sums.amax(others, keepdim=True).expand_as(sums) if sums.numel() and others else sums


class Checked(unittest.TestCase):
    def compare(self, label, found, wanted, allowed, dtype, shape):
        self.assertEqual((tuple(found.shape), found.dtype), (tuple(shape), dtype), label)
        self.assertEqual(found.device.type, DEVICE, label)
        same = (found.double() == wanted) | (found.double().isnan() & wanted.isnan())
        gap = torch.where(same, 0, (found.double() - wanted).abs())
        off = ~(gap <= allowed)
        if off.any():
            at = tuple(int(i) for i in off.nonzero()[0])
            self.fail(f"{label}: {found[at].item()} at {list(at)}, expected {wanted[at].item()} within "
                      f"{allowed[at].item():.3g}; {int(off.sum())} of {off.numel()} differ")  # fmt: skip

    def same(self, label, layers, x, call):
        """The layers' own values, bit for bit, and their gradients as near as PyTorch's own repeat them."""
        found, wanted = ((y[0] if isinstance(y, tuple) else y) for y in (call(x), run(layers, x)))
        self.compare(label, found.detach(), wanted.detach().double(), torch.zeros_like(wanted).double(), wanted.dtype,
                     wanted.shape)  # fmt: skip
        gy = torch.randn(wanted.shape, device=x.device).to(wanted.dtype)
        torch.testing.assert_close(gradients(found, gy, layers, x), gradients(wanted, gy, layers, x),
                                   msg=lambda text: f"{label}: gradients: {text}")  # fmt: skip

    def as_near(self, label, layers, x, found, wanted):
        """Gradients that are as near to those in double as PyTorch's own. How near these are depends on the CPU."""
        exact = [copy.deepcopy(layer).double() for layer in layers]
        exact_x = x.detach().double().requires_grad_()
        gy = torch.randn_like(wanted)
        exact_grads = gradients(run(exact, exact_x), gy.double(), exact, exact_x)
        own_grads = gradients(wanted, gy, layers, x)
        for name, grad in gradients(found, gy, layers, x).items():
            exact_grad = exact_grads[name]
            error = (own_grads[name].double() - exact_grad).abs()
            limit = 2 * (error.max() if error.numel() else 0) + half_unit(exact_grad, x.dtype) + 1e-6
            self.compare(f"{label}: gradient of {name}", grad, exact_grad, limit, x.dtype, exact_grad.shape)

    def check(self, label, layers, x, call):
        """Forward and backward of call beside the layers in double, and the layers' own gradients."""
        dtype = x.dtype
        exact = [copy.deepcopy(layer).double() for layer in layers]
        exact_x = x.detach().double().requires_grad_()
        wanted = run(exact, exact_x)
        wanted = wanted[0] if isinstance(wanted, tuple) else wanted
        sums_layers, sums_x = magnitudes(layers, x)
        sums = run(sums_layers, sums_x)
        axis = sums.dim() - 1 if isinstance(layers[0], nn.Linear) else sums.dim() - 3
        folded = any(isinstance(layer, nn.BatchNorm2d) for layer in layers) and dtype is not torch.float32
        rounding = torch.finfo(dtype).eps / 2 if folded else 0.0

        def bound(sums, axis):
            return 2.0**-24 * (24 * sums + 16 * largest_of_filters(sums, axis)) + rounding * sums

        allowed = bound(sums.detach(), axis)
        if pools := [layer for layer in layers if isinstance(layer, nn.MaxPool2d)]:
            plain = copy.copy(pools[0])
            plain.return_indices = False
            allowed = plain(allowed)
        found = call(layers, x)
        found = found[0] if isinstance(found, tuple) else found
        allowed = allowed + half_unit(wanted.detach(), dtype)
        self.compare(label, found.detach(), wanted.detach(), allowed, dtype, wanted.shape)
        gy = torch.randn(wanted.shape, device=x.device).to(dtype)
        exact_grads = gradients(wanted, gy.double(), exact, exact_x)
        spread = torch.ones_like(sums) * (gy.abs().max().double() if gy.numel() else 1)
        scales = gradients(sums, spread, sums_layers, sums_x)
        own = run(layers, x)
        own_grads = gradients(own[0] if isinstance(own, tuple) else own, gy, layers, x)
        for name, grad in gradients(found, gy, layers, x).items():
            exact_grad, tensor = exact_grads[name], x if name == "x" else None
            if exact_grad is None:
                continue
            self.assertIsNotNone(grad, f"{label}: no gradient of {name}")
            # A norm's own parameters: the sums above leave them out.
            scale = scales.get(name)
            scale = exact_grad.abs().amax().expand_as(exact_grad) if scale is None else scale
            error = (own_grads[name].double() - exact_grad).abs()
            error = error.max() if error.numel() else 0.0
            limit = bound(scale, 0 if tensor is None else axis) + half_unit(exact_grad, dtype) + 2 * error
            self.compare(f"{label}: gradient of {name}", grad, exact_grad, limit, dtype, exact_grad.shape)


@unittest.skipIf(op_db is None, f"PyTorch's samples cannot be had: {why if op_db is None else ''}")
class Conformance(Checked):
    counts = collections.defaultdict(collections.Counter)

    @classmethod
    def setUpClass(cls):
        faulthandler.dump_traceback_later(HANG, exit=True)
        # PyTorch's own gradients in fp32; its test modules let nobody set this flag for good.
        flags = torch.backends.cudnn.flags(enabled=True, allow_tf32=False)
        flags.__enter__()
        cls.addClassCleanup(flags.__exit__, None, None, None)

    @classmethod
    def tearDownClass(cls):
        faulthandler.cancel_dump_traceback_later()
        for like, counts in cls.counts.items():
            print(f"{like}: {counts['right']} right, {counts['refused']} refused, {counts['left']} left to PyTorch",
                  file=sys.stderr)  # fmt: skip

    def refusal(self, error):
        """Every reason says what was found, as docs/use/arrays.md promises."""
        self.assertGreater(len(str(error)), 20)
        self.assertNotIn("Traceback", str(error))
        return "refused"

    def by_stages(self, sample, label):
        cases = list(stage_cases(sample)) if sample.module is not None else []
        for case in cases:
            try:
                self.check(label, case.layers, sample.x, case.call)
            except convoy.Error as error:
                yield self.refusal(error)
            else:
                yield "right"
        if not cases:
            yield "left"

    def by_fuse(self, sample, label):
        if sample.module is None:
            return "left"
        case = fused_case(sample)
        model = nn.Sequential(*case.layers).eval()
        try:
            fused = convoy.fuse(model, sample.x.detach(), show=False)
        except convoy.Error as error:
            return self.refusal(error)
        stages = [row for row in fused.report.rows if row.kernel]
        for row in fused.report.rows:
            self.assertTrue(row.kernel or row.reason, f"{label}: {row}")
        for layer in case.layers:
            layer.eval()
        # Statistics of the batch have sums of their own, in the order of the memory: PyTorch's norm of the same memory.
        if any(isinstance(layer, nn.BatchNorm2d) and layer.running_mean is None for layer in case.layers):
            conv, norm = case.layers
            found, wanted = fused(sample.x), norm(conv(sample.x).contiguous(memory_format=torch.channels_last))
            torch.testing.assert_close(found, wanted, msg=lambda text: f"{label}: {text}")
            self.as_near(label, case.layers, sample.x, found, wanted)
            return "left"
        if not stages:  # PyTorch's own layers, whose errors are no business of ours
            self.same(label, case.layers, sample.x, fused)
            return "left"
        self.check(label, case.layers, sample.x, lambda _, x: fused(x))
        return "right" if stages and (len(case.layers) == 1 or len(stages[0].names.split()) > 1) else "left"

    def one(self, sample):
        module = sample.module
        if module is not None:
            module.eval()
        known = EXPECTED_FAILURES.get(sample.label)
        try:
            outcomes = [*self.by_stages(sample, sample.label), self.by_fuse(sample, sample.label)]
        except Exception:
            if known is None:
                raise
            return
        self.assertIsNone(known, f"{sample.label}: right by now; take it from EXPECTED_FAILURES")
        self.counts[sample.like].update(outcomes)

    def test_every_sample(self):
        total = 0
        for dtype in (torch.float32, torch.float16, torch.bfloat16):
            torch.manual_seed(0)
            for sample in samples(dtype):
                total += 1
                with self.subTest(sample.label):
                    self.one(sample)
        for like in ("Conv2d", "MaxPool2d", "BatchNorm2d", "Linear"):
            self.assertGreater(self.counts[like]["right"], 0, like)
        self.assertGreater(total, 300)

    def test_a_wrong_value_is_seen(self):
        layer, x = nn.Conv2d(4, 5, 3, device=DEVICE), torch.randn(2, 4, 6, 6, device=DEVICE, requires_grad=True)

        def wrong(layers, x):
            y = layers[0](x)
            return y + 1e-4 * (torch.arange(y.numel(), device=x.device).reshape(y.shape) == 7)

        self.check("right", [layer], x, run)
        with self.assertRaises(AssertionError):
            self.check("wrong", [layer], x, wrong)
        with self.assertRaises(AssertionError):
            self.check("gradient", [layer], x, lambda layers, x: run(layers, x * 1.0001 - 0.0001 * x.detach()))


if __name__ == "__main__":
    unittest.main()
