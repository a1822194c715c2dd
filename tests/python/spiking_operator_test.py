"""convoy.torch.spike against SpikingJelly's neurons: values, states, gradients, errors."""

import unittest

import convoy

try:
    import torch
    from torch.library import opcheck

    import convoy.torch as ct
    from convoy.spiking import SURROGATES, gradients, spike_form
except ImportError:
    raise unittest.SkipTest("PyTorch is not installed") from None
try:
    from spikingjelly.activation_based import neuron, surrogate
except ImportError:
    raise unittest.SkipTest("SpikingJelly is not installed") from None

from torch import nn

F = nn.functional


def node(leaky, soft, **options):
    options |= {"v_reset": None if soft else 0.0}
    return neuron.LIFNode(tau=2.5, **options) if leaky else neuron.IFNode(**options)


class Operator(unittest.TestCase):
    def cases(self):
        for leaky in (False, True):
            for soft in (False, True):
                for hold in (False, True):
                    yield leaky, soft, hold, leaky != soft, "atan" if soft == hold else "sigmoid"

    def test_as_spikingjelly(self):
        """Spikes, membranes and gradients by x, weight, bias and the membranes before."""
        torch.manual_seed(1)
        for leaky, soft, hold, detach, name in self.cases():
            with self.subTest(leaky=leaky, soft=soft, hold=hold, detach=detach, surrogate=name):
                steps = 4
                x = torch.randn(*(() if hold else (steps,)), 2, 3, 9, 8, requires_grad=True)
                weight = (torch.randn(5, 3, 3, 3) * 0.4).requires_grad_()
                bias = (torch.randn(5) * 0.3).requires_grad_()
                before = (torch.rand(2, 5, 9, 8) * 0.5).requires_grad_()
                text = "n1h9w8c3k5r3pad1+bias+" + ("lif(2.5,0.9)" if leaky else "if(0.9)") + "+soft" * soft
                text += f"+t{steps}+hold" * hold + "+max2"
                y, v = ct.spike(text, x, weight, bias, before, surrogate=name, detach_reset=detach)
                gy, gv = torch.randn_like(y), torch.randn_like(v)
                mine = torch.autograd.grad((y * gy).sum() + (v * gv).sum(), (x, weight, bias, before))
                of = surrogate.ATan() if name == "atan" else surrogate.Sigmoid()
                theirs = node(leaky, soft, v_threshold=0.9, surrogate_function=of, detach_reset=detach, step_mode="m")
                theirs.v = before
                each = x.unsqueeze(0).expand(steps, -1, -1, -1, -1) if hold else x
                spikes = theirs(F.conv2d(each.flatten(0, 1), weight, bias, padding=1).unflatten(0, (steps, 2)))
                pooled = F.max_pool2d(spikes.flatten(0, 1), 2).unflatten(0, (steps, 2))
                wanted = torch.autograd.grad((pooled * gy).sum() + (theirs.v * gv).sum(), (x, weight, bias, before))
                self.assertTrue(torch.equal(y, pooled))
                self.assertGreater(y.sum(), 0)
                torch.testing.assert_close(v, theirs.v, rtol=1e-5, atol=1e-5)
                for one, other in zip(mine, wanted, strict=True):
                    torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-4)

    def test_gradcheck_in_double(self):
        """Where the surrogate's own function takes the step's place, the formulas are those of a smooth function."""

        class Smooth(torch.autograd.Function):
            """Steps forwards; the surrogate's derivative backwards, by autograd, in double."""

            @staticmethod
            def forward(ctx, x, name, alpha):
                ctx.save_for_backward(x)
                ctx.rest = name, alpha
                return (x >= 0).to(x)

            @staticmethod
            def backward(ctx, gy):
                return gy * SURROGATES[ctx.rest[0]](ctx.saved_tensors[0], ctx.rest[1]), None, None

        torch.manual_seed(2)
        smooth = {"sigmoid": torch.sigmoid, "atan": lambda x: torch.atan(torch.pi / 2 * x) / torch.pi + 0.5}
        for name, whole in smooth.items():
            x = torch.randn(7, dtype=torch.float64, requires_grad=True)
            slope = torch.autograd.grad(whole(2.0 * x).sum(), x)[0]
            torch.testing.assert_close(SURROGATES[name](x, 2.0), slope, rtol=1e-12, atol=1e-12)
            torch.autograd.gradcheck(lambda x, f=whole: f(2.0 * x), x)
        for leaky, soft, hold, detach, name in self.cases():
            text = "n1h4c2k3r3pad1x0x0x1+bias+" + ("lif(2.5,0.9)" if leaky else "if(0.9)") + "+soft" * soft
            form = spike_form(text + "+t3+hold" * hold)
            x = torch.randn(*(() if hold else (3,)), 2, 2, 4, 4, dtype=torch.float64, requires_grad=True)
            weight = torch.randn(3, 2, 3, 3, dtype=torch.float64, requires_grad=True)
            bias = torch.randn(3, dtype=torch.float64, requires_grad=True)
            v = before = torch.rand(2, 3, 3, 3, dtype=torch.float64, requires_grad=True)
            padded = F.pad(x if hold else x.flatten(0, 1), (0, 1, 1, 0))
            z = F.conv2d(padded, weight, bias)
            z = z if hold else z.unflatten(0, (3, 2))
            spikes = []
            for t in range(3):
                now = z if hold else z[t]
                h = v + (now - v) / 2.5 if leaky else v + now
                s = Smooth.apply(h - form.threshold, name, 2.0)
                cut = s.detach() if detach else s
                v = h - cut * form.threshold if soft else h * (1 - cut)
                spikes.append(s)
            y = torch.stack(spikes)
            gy, gv = torch.randn_like(y), torch.randn_like(v)
            wanted = torch.autograd.grad((y * gy).sum() + (v * gv).sum(), (x, weight, bias, before))
            found = gradients(form, gy, gv, x.detach(), weight, bias, before, name, 2.0, detach, [True] * 3)
            for one, other in zip(found, wanted, strict=True):
                torch.testing.assert_close(one, other, rtol=1e-9, atol=1e-9)

    def test_opcheck(self):
        weight, bias = torch.randn(4, 3, 3, 3, requires_grad=True), torch.randn(4, requires_grad=True)
        each, held = torch.randn(2, 2, 3, 6, 6, requires_grad=True), torch.randn(2, 3, 6, 6, requires_grad=True)
        operator = torch.ops.convoy.spike.default
        v, text = torch.zeros(2, 4, 6, 6), "n1h6c3k4r3pad1+bias+lif(2,1)+max2"
        opcheck(operator, (each, weight, bias, v, text, "atan", 2.0, True))
        opcheck(operator, (held, weight, None, None, "n1h6c3k4r3pad1+if(1)+t2+hold", "sigmoid", 4.0, False))

    def test_an_infinite_charge(self):
        """A hard reset sets 0 (docs/trust/numbers.md); SpikingJelly's (1 - s) * inf is NaN. Backwards as forwards."""
        x = torch.tensor([float("inf"), 0, 2.5, 2.5]).reshape(4, 1, 1, 1, 1).requires_grad_()
        for neuron_text in ("if(1)", "lif(2,1)"):
            y, v = ct.spike(f"n1h1c1k1r1+{neuron_text}", x, torch.ones(1, 1, 1, 1))
            self.assertEqual(y.flatten().tolist(), [1, 0, 1, 1])
            self.assertEqual(v.item(), 0)
            slopes = torch.autograd.grad(y[1:].sum(), x)[0].flatten()
            self.assertTrue(torch.isfinite(slopes[1:]).all() and (slopes[1:] > 0).all(), slopes)

    def test_errors(self):
        x, weight = torch.zeros(2, 1, 3, 6, 6), torch.zeros(4, 3, 3, 3)
        text = "n1h6c3k4r3pad1+if(1)"
        for wrong, said in (
            (lambda: ct.spike("n1h6c3k4r3pad1+relu", x, weight), "without a neuron"),
            (lambda: ct.spike(text + "+keep(pre)", x, weight), "'keep'"),
            (lambda: ct.spike(text, x[0], weight), r"expected \[T, N, C, H, W\] with C = 3"),
            (lambda: ct.spike(text, x.double(), weight), "float64, expected float32"),
            (lambda: ct.spike(text, x, weight[:, :2]), r"weight: \[4, 2, 3, 3\], expected \[4, 3, 3, 3\]"),
            (lambda: ct.spike(text, x, weight, torch.zeros(4)), r"bias: \[4\], expected None"),
            (lambda: ct.spike(text, x, weight, v=torch.zeros(1, 4, 3, 3)), "expected the membranes"),
            (lambda: ct.spike(text, x, weight, surrogate="tri"), "'tri', expected one of sigmoid, atan"),
        ):  # fmt: skip
            with self.assertRaisesRegex(convoy.Error, said):
                wrong()


if __name__ == "__main__":
    unittest.main()
