"""convoy.fuse on small models: what is fused, that results are the same, and that the model stays a model."""

import contextlib
import copy
import doctest
import io
import unittest
import warnings

import convoy

try:
    import torch

    import convoy.fusing
    from convoy import layers
except ImportError:
    raise unittest.SkipTest("PyTorch is not installed") from None

from torch import fx, nn

F = nn.functional


def randomised(model):
    """In eval mode, with norms that do something."""
    generator = torch.Generator().manual_seed(4)
    for module in model.modules():
        if isinstance(module, nn.BatchNorm2d):
            for tensor in (*(p.data for p in module.parameters()), module.running_mean):
                tensor.copy_(torch.randn(tensor.shape, generator=generator))
            module.running_var.copy_(torch.rand(module.running_var.shape, generator=generator) + 0.5)
    return model.eval()


def vgg():
    return randomised(nn.Sequential(
        nn.Conv2d(3, 8, 3, padding=1, bias=False), nn.BatchNorm2d(8), nn.ReLU(inplace=True),
        nn.Conv2d(8, 8, 3, padding=1), nn.BatchNorm2d(8, affine=False), nn.ReLU6(), nn.MaxPool2d(2),
        nn.Conv2d(8, 12, 3, stride=2, groups=4, padding="valid"), nn.LeakyReLU(0.1),
        nn.MaxPool2d(3, 1, 1, ceil_mode=True),
        nn.Conv2d(12, 12, (2, 3), padding="same", dilation=(1, 2)), nn.Hardtanh(-0.5, 2),
        nn.Flatten(), nn.Linear(12 * 49, 10), nn.ReLU(), nn.Dropout(), nn.Linear(10, 3)))  # fmt: skip


class Residual(nn.Module):
    """A value with two readers, functions in place of modules, a parameter and a buffer of the root's own."""

    def __init__(self):
        super().__init__()
        self.one, self.two = nn.Conv2d(4, 4, 3, padding=1), nn.Conv2d(4, 4, 3, padding=1)
        self.norm = nn.BatchNorm2d(4)
        self.scale = nn.Parameter(torch.tensor(2.0))
        self.register_buffer("shift", torch.tensor(0.25))

    def forward(self, x, factor=1.0):
        y = self.one(x)
        z = F.relu(self.norm(self.two(y)))
        return F.max_pool2d((y + z) * self.scale + self.shift, 2), F.max_pool2d(torch.relu(self.one(z)), 2, stride=1)


def fused_of(model, *sample, **options):
    return convoy.fuse(model, sample, show=False, **options)


class Fuse(unittest.TestCase):
    def setUp(self):
        torch.manual_seed(5)
        self.x = torch.randn(2, 3, 32, 32)

    def close(self, found, wanted, bound=1e-4):
        torch.testing.assert_close(found, wanted, rtol=bound, atol=bound)

    def test_chains(self):
        model = vgg()
        fused = fused_of(model, self.x)
        names = [row.names for row in fused.report.rows]
        self.assertEqual(names, ["0 1 2", "3 4 5 6", "7 8 9", "10 11", "13 14", "16"])
        self.assertTrue(all(row.kernel and not row.reason for row in fused.report.rows))
        self.assertIn("+bias+relu6+max2", fused.report.rows[1].stage)
        for x in (self.x, self.x[:1], self.x.to(memory_format=torch.channels_last)):
            self.close(fused(x), model(x))
        called = [node.target for node in fused._graph.nodes if node.op == "call_module"]
        self.assertEqual([name for name in called if name.isdigit()], ["12", "15"])  # flatten, dropout

    def test_numbers_keep_their_value(self):
        node = fx.Graph().placeholder("x")
        for slope in (1e-25, 0.12345678901, 3e30):
            act = convoy.Activation(layers.act_of(node, nn.LeakyReLU(slope)))
            self.assertEqual(torch.tensor(act.slope), torch.tensor(slope))

    def test_report(self):
        out = io.StringIO()
        with contextlib.redirect_stdout(out):
            fused = convoy.fuse(vgg(), self.x)
        self.assertEqual(out.getvalue().strip(), str(fused.report))
        self.assertRegex(out.getvalue(), r"3 4 5 6 +n2h32w32c8k8r3pad1\+bias\+relu6\+max2 +\w+")
        self.assertIn("largest difference on the sample", out.getvalue())

    def test_what_is_not_fused_says_why(self):
        model = nn.Sequential(nn.Conv2d(3, 4, 3, padding=1, padding_mode="reflect"), nn.MaxPool2d(2),
                              nn.ConvTranspose2d(4, 4, 2), nn.Conv2d(4, 4, 1), nn.Linear(17, 5)).eval()  # fmt: skip
        model[3].register_forward_hook(lambda *_: None)
        fused = fused_of(model, self.x)
        self.close(fused(self.x), model(self.x))
        self.assertEqual([row.kernel for row in fused.report.rows], [""] * 5)
        reasons = ("reflect", "no Conv2d", "ConvTranspose2d", "hooks", "axes")
        for row, reason in zip(fused.report.rows, reasons, strict=True):
            self.assertIn(reason, row.reason)
        kept = fused_of(nn.Sequential(nn.Flatten(), nn.Linear(3072, 5)).eval(), self.x, linear=False)
        self.assertEqual(kept.report.rows[0].reason, "linear=False")

    def test_two_readers_and_functions(self):
        model = randomised(Residual())
        x = torch.randn(2, 4, 10, 12)
        fused = fused_of(model, x)
        for found, wanted in zip(fused(x), model(x), strict=True):
            self.close(found, wanted)
        self.assertEqual([len(row.names.split()) for row in fused.report.rows], [1, 3, 3])
        with torch.no_grad():
            model.shift.add_(1)
            model.scale.mul_(3)
        self.close(fused(x)[0], model(x)[0])
        fused.to(torch.bfloat16)
        self.close(fused(x.bfloat16())[0], model(x.bfloat16())[0], 0.2)
        model.float()  # the model itself: its buffer is another tensor now
        self.close(fused(x)[0], model(x)[0])
        alone = fused_of(nn.Conv2d(4, 4, 3).eval(), x)
        self.assertIn("a function", alone.report.rows[0].reason)

    def test_views_of_what_stages_give(self):
        """x.view(n, -1) of channels-first tensors, which a stage's result is not."""

        class Views(nn.Module):
            def __init__(self):
                super().__init__()
                self.conv, self.pool, self.linear = nn.Conv2d(3, 8, 3), nn.MaxPool2d(2), nn.Linear(32, 5)

            def forward(self, x):
                y = self.pool(F.relu(self.conv(x)))
                z = F.dropout(y, training=self.training).view(-1, 2, 4, 8, 2)
                return self.linear(y.view(x.size(0), -1, 32)[:, 0]), y.view(torch.int32), z.view_as(y)

        model, x = Views().eval(), torch.randn(2, 3, 10, 10)
        fused = convoy.fuse(model, x, show=False)
        self.assertEqual(fused.report.rows[0].reason, "")
        for one in (x, torch.randn(5, 3, 10, 10), x.contiguous(memory_format=torch.channels_last)[:1]):
            for wanted, found in zip(model(one.contiguous()), fused(one), strict=True):
                self.assertEqual((wanted.shape, wanted.dtype), (found.shape, found.dtype))
                self.assertTrue(torch.allclose(wanted.view(torch.float32), found.view(torch.float32), atol=1e-5))

    def test_a_model_that_changes(self):
        model = vgg()
        fused = fused_of(model, self.x)
        with torch.no_grad():
            for change in (lambda: model[0].weight.mul_(1.5), lambda: model[3].bias.add_(1),
                           lambda: model[1].running_mean.add_(0.5), lambda: model[13].weight.neg_()):  # fmt: skip
                before = fused(self.x)
                change()
                self.assertFalse(torch.equal(before, fused(self.x)))
                self.close(fused(self.x), model(self.x))
        other = vgg()
        fused.load_state_dict(other.state_dict())
        self.close(fused(self.x), other(self.x))
        fused.load_state_dict(vgg().state_dict(), assign=True)
        self.close(fused(self.x), model(self.x))

    def test_layers_that_are_replaced(self):
        """A stage holds its layers: another one in their place must not be passed over in silence."""
        model = vgg()
        fused = fused_of(model, self.x)
        again = copy.deepcopy(fused)
        head, model[16] = model[16], nn.Linear(10, 3)
        with self.assertRaisesRegex(convoy.Error, "the layer 16 was replaced.*a Linear.*Fuse the model again"):
            fused(self.x)
        self.close(fused_of(model, self.x)(self.x), model(self.x))
        again(self.x)
        model[16] = head
        self.close(fused(self.x), model(self.x))
        deep = nn.Sequential(vgg()[:7].eval(), nn.Flatten()).eval()
        fused = fused_of(deep, self.x)
        deep[0] = nn.Identity()
        with self.assertRaisesRegex(convoy.Error, "the layer 0 was replaced.*an Identity"):
            fused(self.x)

    def test_hooks_that_come_later(self):
        model, seen = vgg(), []
        fused = fused_of(model, self.x)
        for layer in (0, 1, 2, 16):
            with model[layer].register_forward_hook(lambda *_: seen.append(0)), self.subTest(layer):
                with self.assertRaisesRegex(convoy.Error, f"the layer {layer} was given hooks.*Fuse the model again"):
                    fused(self.x)
        with model[12].register_forward_hook(lambda *_: seen.append(12)):  # Flatten is PyTorch's
            fused(self.x)
        self.assertEqual(seen, [12])
        self.close(fused(self.x), model(self.x))

    def test_state_and_modes(self):
        model = vgg()
        fused = fused_of(model, self.x)
        self.assertEqual(list(fused.state_dict()), list(model.state_dict()))
        self.assertEqual([id(p) for p in fused.parameters()], [id(p) for p in model.parameters()])
        fused.train()
        self.assertTrue(model.training and model[1].training)
        before = model[1].running_mean.clone()
        fused(self.x)
        self.assertFalse(torch.equal(before, model[1].running_mean))
        fused.eval()
        self.assertFalse(model[1].training)
        self.close(fused(self.x), model(self.x))
        model[4].train()  # one norm alone: by its batch
        self.close(fused(self.x), model(self.x))
        model[4].eval()
        self.close(fused(self.x), model(self.x))
        again = copy.deepcopy(fused)
        with torch.no_grad():
            model[0].weight.zero_()
        self.assertFalse(torch.equal(again(self.x), fused(self.x)))

    def test_inputs_that_stages_do_not_take(self):
        """float64, no batch axis, more axes of a linear layer: the layers themselves, not an error."""
        model = nn.Sequential(nn.Conv2d(3, 4, 3), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(4, 4, 3), nn.LeakyReLU()).eval()
        fused = fused_of(model, self.x)
        self.close(fused(self.x[0]), model(self.x[0]))
        linear = nn.Sequential(nn.Linear(8, 5), nn.ReLU()).eval()
        x = torch.randn(2, 8)
        fused = fused_of(linear, x)
        for one in (x[0], torch.randn(2, 7, 8), torch.randn(2, 3, 4, 8)):
            self.close(fused(one), linear(one))
        model = vgg()
        fused = fused_of(model, self.x)
        with self.assertRaisesRegex(convoy.Error, "x: an? list, expected a torch.Tensor"):
            fused([1.0])
        fused.double()
        found = fused(self.x.double())
        self.assertEqual(found.dtype, torch.float64)
        self.close(found, model(self.x.double()), 1e-12)
        self.close(fused.float()(self.x), model(self.x))
        model = randomised(Residual())  # with functions in its stages
        x = torch.randn(2, 4, 9, 9)
        fused = fused_of(model, x).double()
        for mine, theirs in zip(fused(x.double()), model(x.double()), strict=True):
            self.close(mine, theirs, 1e-12)

    def test_gradients(self):
        model = vgg()
        fused = fused_of(model, self.x)
        grads = []
        for run in (fused, model):
            model.zero_grad()
            run(self.x).square().sum().backward()
            grads.append([p.grad.clone() for p in model.parameters()])
        for mine, theirs in zip(*grads, strict=True):
            torch.testing.assert_close(mine, theirs, rtol=1e-3, atol=1e-3 * theirs.abs().max().item())

    def test_compile(self):
        fused = fused_of(vgg(), self.x)
        with torch.no_grad():
            compiled = torch.compile(fused, fullgraph=True, backend="aot_eager")
            self.close(compiled(self.x), fused(self.x))
            fused.original[0].weight.mul_(1.5)
            self.close(compiled(self.x), fused.original(self.x))

    def test_errors(self):
        class Branches(nn.Module):
            def forward(self, x):
                return x if x.sum() > 0 else -x

        with self.assertRaisesRegex(convoy.Error, "a Branches that torch.fx cannot trace.*Fuse those of its parts"):
            fused_of(Branches().eval(), self.x)
        with self.assertRaisesRegex(convoy.Error, "an OptimizedModule, compiled, .*expected the model itself"):
            fused_of(torch.compile(vgg()), self.x)
        with warnings.catch_warnings(action="ignore"):
            script = torch.jit.trace(vgg(), self.x)
        with self.assertRaisesRegex(convoy.Error, "a TopLevelTracedModule, a script, .*expected the model itself"):
            fused_of(script, self.x)
        fused = fused_of(nn.Conv2d(3, 4, 3).eval(), self.x)
        self.assertIn("as the layer is the model itself; fuse nn.Sequential(model)", str(fused.report))
        with self.assertRaisesRegex(convoy.Error, "in training mode.*eval"):
            fused_of(vgg().train(), self.x)
        with self.assertRaisesRegex(convoy.Error, "an int, expected a torch.nn.Module"):
            fused_of(3, self.x)
        with self.assertRaisesRegex(convoy.Error, "sample: a NoneType, expected a tensor, or a tuple"):
            convoy.fuse(vgg(), None)
        for spoiled in (torch.nan, torch.inf):
            with self.assertRaisesRegex(convoy.Error, "no finite value on the sample.*nothing to compare.*Give"):
                fused_of(vgg(), torch.full_like(self.x, spoiled))
        with self.assertRaisesRegex(convoy.Error, "tolerance: -1, expected 0 or more"):
            fused_of(vgg(), self.x, tolerance=-1)
        with self.assertRaisesRegex(convoy.Error, "differs by .* on the sample, expected at most 0"):
            fused_of(vgg(), self.x, tolerance=0)

    def test_samples_that_the_model_does_not_take(self):
        class Pair(nn.Module):
            def forward(self, x, y):
                return torch.cat([x, y], 2)

        small = nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(5)).eval()
        for model, sample, said in (
            (vgg(), self.x.double(), r"sample: float64 \[2, 3, 32, 32\] on cpu, .*; expected float32, the type of the "
                                     r"model's weights. Convert it, sample.to\(torch.float32\)"),
            (vgg().bfloat16(), self.x, "expected bfloat16, the type of the model's weights"),
            (vgg(), self.x[:, :2], r"its layer 0, a Conv2d, is given float32 \[2, 2, 32, 32\] on cpu, expected "
                                   r"float32 \[N, 3, H, W\].*Pass the arguments"),
            (vgg(), self.x[..., :16], r"layer 13, a Linear, is given float32 \[2, .*, expected float32 \[.., 588\]"),
            (vgg(), self.x.to(torch.int64), "sample: int64 .* 0, a Conv2d, is given int64 .*, expected float32"),
            (small, self.x, r"its layer 1, a BatchNorm2d, .*expected float32 \[N, 5, H, W\]"),
            (nn.Sequential(nn.ConvTranspose2d(3, 4, 3)), self.x[:, :1], "a ConvTranspose2d, .* another .*channels"),
            (Pair(), (self.x, self.x[:1]), r"sample: float32 \[2, .*, float32 \[1, .* several as a tuple"),
            (Pair(), self.x, "missing 1 required positional argument: 'y'.* as a tuple"),
            (vgg(), self.x.to("meta"), "sample: on the meta device, without values, expected cpu or cuda"),
            (vgg().to("meta"), self.x, "model: 0.weight is on the meta device.*to_empty"),
        ):  # fmt: skip
            with self.subTest(said), self.assertRaisesRegex(convoy.Error, said):
                fused_of(model.eval(), sample)


class Documents(unittest.TestCase):
    def test_docstrings(self):
        done = doctest.testmod(convoy.fusing)
        self.assertEqual(done.failed, 0)
        self.assertGreater(done.attempted, 2)


if __name__ == "__main__":
    unittest.main()
