"""convoy.torch under forward-mode AD, torch.func and autocast, images without pixels, and results written in place."""

import itertools
import unittest

import convoy

try:
    import torch
    from torch.autograd import forward_ad

    import convoy.torch as ct
except ImportError:
    raise unittest.SkipTest("PyTorch is not installed") from None

F = torch.nn.functional
TEXT = "n1h8c3k4r3pad1+bias+relu+max2"
SPIKES = "n1h8c3k4r3pad1+lif(2,0.5)+t2+hold"


def theirs(x, w, b):
    return F.max_pool2d(F.conv2d(x, w, b, padding=1).relu(), 2)


def theirs_norm(x, w, gamma, mean):
    wide = (1, -1, 1, 1)  # F.batch_norm drops the mean's tangent
    y = (F.conv2d(x, w, padding=1) - mean.reshape(wide)) * (gamma * torch.rsqrt(VAR + 1e-3)).reshape(wide)
    return F.max_pool2d(y.relu(), 2)


def norm(x, w, gamma, mean):
    return torch.ops.convoy.stage_norm(x, w, None, gamma, None, mean, VAR, None, 1e-3, TEXT)


torch.manual_seed(1)
VAR = torch.rand(4) + 0.5
X, W, B = torch.randn(2, 3, 8, 8), torch.randn(4, 3, 3, 3), torch.randn(4)
GAMMA, MEAN = torch.randn(4), torch.randn(4)
PAIRS = {"stage": (lambda x, w, b: ct.stage(TEXT, x, w, b), theirs, (X, W, B)),
         "operator": (lambda x, w, b: torch.ops.convoy.stage(x, w, b, TEXT), theirs, (X, W, B)),
         "stage_norm": (norm, theirs_norm, (X, W, GAMMA, MEAN))}  # fmt: skip


def close(one, other, message=""):
    torch.testing.assert_close(one, other, rtol=1e-3, atol=1e-3, msg=lambda m: f"{message}: {m}")


class Derivatives(unittest.TestCase):
    def test_dual_tensors(self):
        """Whichever operands have a tangent."""
        for name, (mine, other, given) in PAIRS.items():
            for which in range(1, 2 ** len(given)):
                found = []
                for run in (mine, other):
                    torch.manual_seed(3)
                    with forward_ad.dual_level():
                        duals = [forward_ad.make_dual(t, torch.randn_like(t)) if which >> i & 1 else t
                                 for i, t in enumerate(given)]  # fmt: skip
                        found.append(forward_ad.unpack_dual(run(*duals)))
                close(found[0].primal, found[1].primal, name)
                close(found[0].tangent, found[1].tangent, f"{name}, operands {which:b}")

    def test_a_level_without_tangents(self):
        with forward_ad.dual_level():
            self.assertIsNone(forward_ad.unpack_dual(ct.stage(TEXT, X, W, B)).tangent)

    def test_transforms(self):
        for name, (mine, other, given) in PAIRS.items():
            every = tuple(range(len(given)))
            tangents = tuple(torch.randn_like(t) for t in given)
            for kind, transform in {
                "grad": lambda f: torch.func.grad(lambda *a: f(*a).square().sum(), every)(*given),  # noqa: B023
                "jvp": lambda f: torch.func.jvp(f, given, tangents),  # noqa: B023
                "vjp": lambda f: torch.func.vjp(f, *given)[1](torch.ones(2, 4, 4, 4)),  # noqa: B023
                "jacrev": lambda f: torch.func.jacrev(lambda *a: f(*a).sum((2, 3)), every)(*given),  # noqa: B023
                "jacfwd": lambda f: torch.func.jacfwd(lambda *a: f(*a).sum((2, 3)), 2)(*given),  # noqa: B023
                "hessian": lambda f: torch.func.hessian(lambda *a: f(*a).square().sum(), 2)(*given),  # noqa: B023
                "vmap": lambda f: torch.func.vmap(  # noqa: B023
                    lambda x: f(x[None], *given[1:])[0])(given[0]),  # noqa: B023
                "per sample": lambda f: torch.func.vmap(  # noqa: B023
                    torch.func.grad(lambda w, x: f(x[None], w, *given[2:]).square().sum()), (None, 0)  # noqa: B023
                )(given[1], given[0]),
            }.items():  # fmt: skip
                mapped = (torch.utils._pytree.tree_leaves(transform(f)) for f in (mine, other))
                for one, another in zip(*mapped, strict=True):
                    close(one, another, f"{name}, {kind}")

    def test_spikes(self):
        """The operator's own backward pass, and the surrogate in either mode of torch.func."""
        for surrogate, detach in itertools.product(("sigmoid", "atan"), (False, True)):
            def run(x, w, s=surrogate, d=detach):
                y, v = ct.spike(SPIKES, x, w, surrogate=s, detach_reset=d)
                return (y * torch.arange(1.0, 3).reshape(2, 1, 1, 1, 1)).sum() + v.square().sum()

            x, w = X.clone().requires_grad_(), W.clone().requires_grad_()
            wanted = torch.autograd.grad(run(x, w), (x, w))
            for one, other in zip(torch.func.grad(run, (0, 1))(X, W), wanted, strict=True):
                close(one, other, f"grad {surrogate} {detach}")
            tangents = torch.randn_like(X), torch.randn_like(W)
            value, slope = torch.func.jvp(run, (X, W), tangents)
            close(value, run(X, W).detach(), "value")
            close(slope, sum((g * t).sum() for g, t in zip(wanted, tangents, strict=True)), f"jvp {surrogate} {detach}")
            with forward_ad.dual_level():
                dual = run(forward_ad.make_dual(X, tangents[0]), forward_ad.make_dual(W, tangents[1]))
                close(forward_ad.unpack_dual(dual).tangent, slope, "dual")

    def test_backward_inside_autocast(self):
        for dtype in (torch.bfloat16, torch.float16):
            for text in ("", "+relu", "+leaky(0.1)", "+max2", "+relu6+max2"):
                def run(inside, text=text, dtype=dtype):
                    x, w = X.clone().requires_grad_(), W.clone().requires_grad_()
                    with torch.autocast("cpu", dtype=dtype):
                        total = ct.stage("n1h8c3k4r3pad1" + text, x, w).float().square().sum()
                        if inside:
                            return torch.autograd.grad(total, (x, w))
                    return torch.autograd.grad(total, (x, w))

                for one, other in zip(run(True), run(False), strict=True):
                    self.assertTrue(torch.equal(one, other), text)
            x, w = X.clone().requires_grad_(), W.clone().requires_grad_()
            with torch.autocast("cpu", dtype=dtype):
                y = ct.spike(SPIKES + "+max2", x, w)[0].sum()
                inside = torch.autograd.grad(y, (x, w), retain_graph=True)
            for one, other in zip(inside, torch.autograd.grad(y, (x, w)), strict=True):
                self.assertTrue(torch.equal(one, other))


class Sizes(unittest.TestCase):
    def test_images_without_pixels(self):
        for shape in ((2, 3, 0, 8), (2, 3, 8, 0), (0, 3, 0, 0)):
            for text, size in (("n1h8c3k4r3pad1", 3), ("n1h8c3k4r3pad2", 3), ("n1h8c3k4r1", 1),
                               ("n1h8c3k4r3pad2+max2", 3)):  # fmt: skip
                weight = torch.randn(4, 3, size, size)
                for device in ("cpu", "meta"):
                    with self.assertRaisesRegex(convoy.InvalidOperand, "at least one row and one column"):
                        ct.stage(text, torch.empty(shape, device=device), weight.to(device))
        with self.assertRaisesRegex(convoy.InvalidOperand, "at least one row and one column"):
            ct.spike(SPIKES, torch.empty(2, 3, 0, 8), W)
        with self.assertRaisesRegex(convoy.InvalidOperand, "smaller with their padding than the filter"):
            ct.stage("n1h8c3k4r3", torch.empty(0, 3, 2, 2), W)
        self.assertEqual(tuple(ct.stage(TEXT, torch.empty(0, 3, 8, 8), W, B).shape), (0, 4, 4, 4))

    def test_the_text_need_not_be_of_a_size(self):
        y = ct.stage("n1h1c3k4r3pad1+bias+relu+max2", X, W, B)
        self.assertTrue(torch.equal(y, ct.stage(TEXT, X, W, B)))
        y, _ = ct.spike("n1h1w1c3k4r3+lif(2,0.5)+t2+hold+max2", X, W)
        self.assertTrue(torch.equal(y, ct.spike("n1h8c3k4r3+lif(2,0.5)+t2+hold+max2", X, W)[0]))
        with self.assertRaisesRegex(convoy.Error, "h1w1c0"):
            ct.StageModule("n1h1w1c0k4r3")


class InPlace(unittest.TestCase):
    def test_results_own_themselves(self):
        x, w = X.clone().requires_grad_(), W.clone().requires_grad_()
        for grad in (False, True):
            with torch.set_grad_enabled(grad):
                results = [ct.stage(TEXT, x, w, B), *ct.spike(SPIKES, x, w)]
            for result in results:
                self.assertFalse(result._is_view())
                image = result if result.dim() == 4 else result[0]
                self.assertTrue(image.is_contiguous(memory_format=torch.channels_last))
                written = result.mul_(2)
                if grad:
                    torch.autograd.grad(written.sum(), (x, w), retain_graph=True)
                result.detach_()


if __name__ == "__main__":
    unittest.main()
