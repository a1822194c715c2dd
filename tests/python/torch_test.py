"""convoy.torch against PyTorch: values, gradients, opcheck, torch.compile, weights that change, memory formats."""

import doctest
import gc
import threading
import unittest

import convoy

try:
    import torch

    import convoy.torch as ct
    from convoy.weights import place_of, source_of
except ImportError:
    raise unittest.SkipTest("PyTorch is not installed") from None

F = torch.nn.functional
LAST = torch.channels_last


def composite(x, w, b, act=lambda v: v, pool=None, **conv):
    y = act(F.conv2d(x, w, b, **conv))
    return F.max_pool2d(y, **pool) if pool else y


# Text, the filters' shape, and the same in PyTorch.
CASES = [
    ("n1h9c6k8r3pad1+bias+relu+max2", (8, 6, 3, 3), dict(act=torch.relu, pool=dict(kernel_size=2), padding=1)),
    ("n1h9c6k8r3stride2dil2pad2x1groups2+relu6", (8, 3, 3, 3),
     dict(act=F.relu6, padding=(2, 1), stride=2, dilation=2, groups=2)),
    ("n1h9c6k8r3s2+bias+leaky(0.125)+max3s2p1ceil", (8, 6, 3, 2),
     dict(act=lambda v: F.leaky_relu(v, 0.125), pool=dict(kernel_size=3, stride=2, padding=1, ceil_mode=True))),
    ("n1h9c6k8r1+clip(-0.5,0.75)+strict", (8, 6, 1, 1), dict(act=lambda v: F.hardtanh(v, -0.5, 0.75))),
    ("n1h9c6k6r3groups6pad1+bias+max2x3s1x2", (6, 1, 3, 3),
     dict(pool=dict(kernel_size=(2, 3), stride=(1, 2)), padding=1, groups=6)),
    ("n1h9c6k8r3pad1nchw+bias+relu", (8, 6, 3, 3), dict(act=torch.relu, padding=1)),
]  # fmt: skip


def operands(text, shape, dtype=torch.float32, n=2, h=9, w=10):
    generator = torch.Generator().manual_seed(11)
    x = torch.randn(n, 6, h, w, generator=generator).to(dtype)
    weight = torch.randn(shape, generator=generator).to(dtype)
    bias = torch.randn(shape[0], generator=generator) if "+bias" in text else None
    return (x if "nchw" in text else x.to(memory_format=LAST)), weight, bias


def norms(k):
    generator = torch.Generator().manual_seed(12)
    gamma, beta, mean = (torch.randn(k, generator=generator) for _ in range(3))
    return gamma, beta, mean, torch.rand(k, generator=generator) + 0.5


class Operator(unittest.TestCase):
    def test_values(self):
        for text, shape, same in CASES:
            for dtype, bound in ((torch.float32, 1e-5), (torch.float16, 4e-3), (torch.bfloat16, 3e-2)):
                for n, h, w in ((2, 9, 10), (1, 12, 7)):
                    x, weight, bias = operands(text, shape, dtype, n, h, w)
                    y = ct.stage(text, x, weight, bias)
                    wanted = composite(x.double(), weight.double(), bias if bias is None else bias.double(), **same)
                    self.assertEqual(y.dtype, dtype)
                    torch.testing.assert_close(y.double(), wanted, rtol=bound, atol=bound)
                    self.assertTrue(y.is_contiguous(memory_format=torch.contiguous_format if "nchw" in text else LAST))
                    if "nchw" not in text:
                        dense = ct.stage(text, x.contiguous(), weight.to(memory_format=LAST), bias)
                        torch.testing.assert_close(dense, y, rtol=0, atol=0)

    def test_no_images(self):
        """Outputs and gradients have PyTorch's shapes: those of the weights are 0."""
        for text, shape, same in CASES:
            x, weight, bias = operands(text, shape, n=0)
            given = [one.requires_grad_() for one in (x, weight, bias) if one is not None]
            y = ct.stage(text, x, weight, bias)
            wanted = composite(x, weight, bias, **same)
            self.assertEqual(y.shape, wanted.shape)
            mine, theirs = (torch.autograd.grad(out.sum(), given) for out in (y, wanted))
            for one, other in zip(mine, theirs, strict=True):
                self.assertTrue(torch.equal(one, other), text)
        stage = convoy.Stage("n2h4c3k2r3pad1")
        plan = convoy.Plan(stage, torch.ones(*stage.w_shape))
        self.assertEqual(plan(torch.zeros(0, 3, 4, 4)).shape, (0, 2, 4, 4))
        spikes, v = ct.spike("n1h4c3k2r3pad1+if(1)", torch.zeros(5, 0, 3, 4, 4, requires_grad=True),
                             torch.ones(2, 3, 3, 3, requires_grad=True))  # fmt: skip
        self.assertEqual((spikes.shape, v.shape), ((5, 0, 2, 4, 4), (0, 2, 4, 4)))
        (spikes.sum() + v.sum()).backward()

    def test_a_negative_bit_is_seen(self):
        """PyTorch's z.conj().imag is a view with other signs than its memory; DLPack does not tell."""
        stage = convoy.Stage("n1h4c1k2r3")
        plan, z = convoy.Plan(stage, torch.ones(*stage.w_shape)), torch.randn(1, 1, 4, 4, dtype=torch.complex64)
        negative, weights = z.conj().imag, torch.ones(*stage.w_shape, dtype=torch.complex64).conj().imag
        self.assertTrue(negative.is_neg())
        with self.assertRaisesRegex(convoy.InvalidOperand, r"x: a Tensor whose negative bit is set.*x\.resolve_neg"):
            plan(negative)
        with self.assertRaisesRegex(convoy.InvalidOperand, "weights: a Tensor whose negative bit"):
            convoy.Plan(stage, weights)
        torch.testing.assert_close(plan(negative.resolve_neg()), -plan(z.imag.contiguous()))

    def test_asymmetric_padding_and_gradient(self):
        x = torch.randn(2, 6, 9, 10).requires_grad_()
        weight = torch.randn(8, 6, 3, 3).requires_grad_()
        bias = torch.randn(8).requires_grad_()
        y = ct.stage("n1h9c6k8r3pad0x1x2x1stride2+bias+relu", x, weight, bias)
        wanted = F.conv2d(F.pad(x, (1, 1, 0, 2)), weight, bias, stride=2).relu()
        torch.testing.assert_close(y, wanted, rtol=1e-5, atol=1e-5)
        for one, other in zip(*(torch.autograd.grad(z.square().sum(), (x, weight, bias)) for z in (y, wanted)),
                              strict=True):  # fmt: skip
            torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-3)

    def test_gradients(self):
        for text, shape, same in CASES:
            inputs = [t for t in operands(text, shape) if t is not None]
            sums = []
            for run in (lambda *a: ct.stage(text, *a), lambda x, w, b=None: composite(x, w, b, **same)):  # noqa: B023
                leaves = [t.clone().requires_grad_() for t in inputs]
                y = run(*leaves)
                y.backward(torch.linspace(-1, 1, y.numel()).reshape(y.shape))
                sums.append([leaf.grad for leaf in leaves])
            for mine, theirs in zip(*sums, strict=True):
                torch.testing.assert_close(mine, theirs, rtol=1e-4, atol=1e-4, msg=lambda m, text=text: f"{text}: {m}")

    def test_norm_is_folded(self):
        x, weight, _ = operands("", (8, 6, 3, 3))
        gamma, beta, mean, var = norms(8)
        text = "n1h9c6k8r3pad1+bias+relu+max2"

        def mine(x, weight, gamma, beta, mean, var):
            return torch.ops.convoy.stage_norm(x, weight, None, gamma, beta, mean, var, None, 1e-3, text)

        def theirs(x, weight, gamma, beta, mean, var):
            y = F.batch_norm(F.conv2d(x, weight, padding=1), mean, var, gamma, beta, False, 0.0, 1e-3)
            return F.max_pool2d(y.relu(), 2)

        results = []
        for run in (mine, theirs):
            leaves = [t.clone().requires_grad_() for t in (x, weight, gamma, beta)]
            y = run(*leaves, mean, var)
            results.append([y, *torch.autograd.grad(y.square().sum(), leaves)])
        for one, other in zip(*results, strict=True):
            torch.testing.assert_close(one, other, rtol=1e-3, atol=1e-3)
        with torch.no_grad():
            mean.add_(1)  # the running mean moves: folded again
        torch.testing.assert_close(mine(x, weight, gamma, beta, mean, var), theirs(x, weight, gamma, beta, mean, var),
                                   rtol=1e-4, atol=1e-4)  # fmt: skip

    def test_sizes_of_one_and_none(self):
        """y's strides are those that a compiler is told, also where an axis of one has any stride."""
        for n, c, k, h, w in ((2, 1, 1, 5, 4), (1, 3, 1, 1, 1), (2, 3, 4, 1, 1), (3, 1, 4, 1, 6), (0, 3, 4, 5, 5)):
            x, weight, text = torch.randn(n, c, h, w), torch.randn(k, c, 1, 1), f"n1h{h}w{w}c{c}k{k}r1"
            for one in (x, x.to(memory_format=LAST)):
                y = ct.stage(text, one, weight)
                torch.testing.assert_close(y, F.conv2d(x, weight), rtol=1e-5, atol=1e-5)
                self.assertEqual(y.stride(), ct._fake(one, weight, None, text).stride())

    def test_opcheck(self):
        for text, shape, _ in CASES[:3]:
            x, weight, bias = operands(text, shape)
            weight.requires_grad_()
            torch.library.opcheck(torch.ops.convoy.stage.default, (x, weight, bias, text))
        x, weight, _ = operands("", (8, 6, 3, 3))
        arguments = (x.requires_grad_(), weight, None, *norms(8), None, 1e-5, "n1h9c6k8r3pad1+bias+relu")
        torch.library.opcheck(torch.ops.convoy.stage_norm.default, arguments)

    def test_autocast(self):
        x, weight, bias = operands("+bias", (8, 6, 3, 3))
        with torch.autocast("cpu", torch.bfloat16):
            y = ct.stage("n1h9c6k8r3pad1+bias", x, weight, bias)
        self.assertEqual(y.dtype, torch.bfloat16)
        torch.testing.assert_close(y.float(), F.conv2d(x, weight, bias, padding=1), rtol=0.05, atol=0.1)

    def test_errors(self):
        x, weight, bias = operands("+bias", (8, 6, 3, 3))
        text = "n1h9c6k8r3pad1+bias"
        for pattern, arguments in [
            ("float64, expected float32", (x.double(), weight, bias)),
            (r"x: \[2, 6, 9\], expected \[N, 6, H, W\]", (x[..., 0], weight, bias)),
            (r"weight: \[8, 5, 3, 3\], expected \[8, 6, 3, 3\]", (x, weight[:, :5], bias)),
            ("bias: None, expected a tensor", (x, weight)),
            (r"bias: \[7\], expected \[8\]", (x, weight, bias[:7])),
        ]:
            with self.assertRaisesRegex(convoy.InvalidOperand, pattern):
                ct.stage(text, *arguments)
        with self.assertRaisesRegex(convoy.InvalidOperand, "^x: an ndarray, expected a torch.Tensor.$"):
            ct.stage(text, x.numpy(), weight, bias)
        with self.assertRaisesRegex(convoy.InvalidOperand, "^weight: a list, expected a torch.Tensor.$"):
            ct.stage(text, x, weight.tolist(), bias)
        plan = convoy.Plan("n2h9c6k8r3pad1+bias", weight.permute(0, 2, 3, 1))
        for strange in (x.to("meta"), x.to_sparse()):  # without the stack that PyTorch adds
            with self.assertRaisesRegex(convoy.InvalidOperand, r"(?s)^x: a Tensor that can't be read[^\n]*$"):
                plan(strange, bias)
        for rider in ("keep(pre)", "norm", "if(1)"):
            with self.assertRaisesRegex(convoy.Error, "convoy.Plan"):
                ct.stage(f"n1h9c6k8r3pad1+bias+{rider}", x, weight, bias)


class Weights(unittest.TestCase):
    def test_packed_again_only_when_they_change(self):
        text = "n1h9c6k8r3pad1"
        x, weight, _ = operands(text, (8, 6, 3, 3))
        plan = ct.plan(text, x, weight)
        self.assertIs(ct.plan(text, x, weight), plan)
        for change in (lambda: weight.mul_(2), lambda: weight[0].zero_(), lambda: weight.copy_(torch.ones(8, 6, 3, 3))):
            change()
            torch.testing.assert_close(ct.stage(text, x, weight), F.conv2d(x, weight, padding=1), rtol=1e-5, atol=1e-4)
        self.assertIs(ct.plan(text, x, weight), plan)

    def test_plans_of_several_sizes_share_them(self):
        """A plan for each size of x, but not a copy of the weights for each: 40 sizes of one layer took 625 MB."""
        text = "n1h8c256k256r3pad1"
        weight = torch.randn(256, 256, 3, 3) / 48
        sizes = [(n, h) for n in (1, 3) for h in range(8, 23, 2)]

        def run():
            for n, h in sizes:
                x = torch.randn(n, 256, h, 8).to(memory_format=torch.channels_last)
                y = ct.stage(text, x, weight)
                torch.testing.assert_close(y, F.conv2d(x, weight, padding=1), rtol=1e-3, atol=1e-3)

        def packs():
            return len(source_of(place_of(weight), [weight], None).packs)

        run()
        plans = [ct.plan(text, torch.empty(n, 256, h, 8), weight) for n, h in sizes]
        self.assertEqual(len({id(plan) for plan in plans}), len(sizes))
        self.assertEqual(packs(), len({plan.packing for plan in plans}))
        weight.mul_(-2)  # packed again, for all of them
        run()
        self.assertEqual(packs(), len({plan.packing for plan in plans}))

    def test_another_tensor_at_the_same_address(self):
        x = torch.ones(1, 6, 9, 9)
        for turn in range(20):
            weight = torch.full((8, 6, 1, 1), float(turn))
            self.assertEqual(ct.stage("n1h9c6k8r1", x, weight)[0, 0, 0, 0], 6 * turn)
            del weight

    def test_plans_go_with_their_weights(self):
        before = len(ct._plans._kept)
        for _ in range(50):
            ct.stage("n1h9c6k8r1", torch.ones(1, 6, 9, 9), torch.ones(8, 6, 1, 1))
        gc.collect()
        self.assertLess(len(ct._plans._kept) - before, 5)

    def test_inference_mode(self):
        with torch.inference_mode():
            x, weight = torch.ones(1, 6, 9, 9), torch.ones(8, 6, 1, 1)
            self.assertEqual(ct.stage("n1h9c6k8r1", x, weight).max(), 6)
            weight.mul_(2)
            self.assertEqual(ct.stage("n1h9c6k8r1", x, weight).max(), 12)

    def test_threads(self):
        x, weight, _ = operands("", (8, 6, 3, 3))
        wrong = []
        for _ in range(5):
            weight.mul_(1.5)
            wanted = F.conv2d(x, weight, padding=1)

            def work(wanted=wanted):
                for _ in range(20):
                    if not torch.allclose(ct.stage("n1h9c6k8r3pad1", x, weight), wanted, 1e-4, 1e-3):
                        wrong.append(1)

            threads = [threading.Thread(target=work) for _ in range(4)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
        self.assertEqual(wrong, [])


class Module(unittest.TestCase):
    def test_state_and_types(self):
        torch.manual_seed(1)
        layer = ct.StageModule("n1h8c3k8r3pad1+bias+relu+max2")
        conv = torch.nn.Conv2d(3, 8, 3, padding=1)
        layer.load_state_dict(conv.state_dict())
        x = torch.randn(2, 3, 8, 12)
        torch.testing.assert_close(layer(x), F.max_pool2d(conv(x).relu(), 2), rtol=1e-5, atol=1e-5)
        half = layer.to(torch.bfloat16)(x.bfloat16())
        self.assertEqual(half.dtype, torch.bfloat16)
        self.assertIn("n1h8w8c3k8r3pad1", repr(ct.StageModule(convoy.Stage("n1h8c3k8r3pad1"))))

    def test_training(self):
        torch.manual_seed(2)
        layer = ct.StageModule("n1h8c3k4r3pad1+bias+relu")
        conv = torch.nn.Conv2d(3, 4, 3, padding=1)
        layer.load_state_dict(conv.state_dict())
        x, wanted = torch.randn(4, 3, 8, 8), torch.rand(4, 4, 8, 8)
        losses = []
        for module, run in ((layer, layer), (conv, lambda x: conv(x).relu())):
            optimizer = torch.optim.SGD(module.parameters(), 0.5)
            losses.append([])
            for _ in range(20):
                optimizer.zero_grad()
                loss = F.mse_loss(run(x), wanted)
                loss.backward()
                optimizer.step()
                losses[-1].append(loss.item())
        self.assertLess(losses[0][-1], losses[0][0])
        torch.testing.assert_close(*map(torch.tensor, losses), rtol=1e-4, atol=0)

    def test_compile_keeps_it_whole(self):
        torch.manual_seed(3)
        layer = torch.nn.Sequential(ct.StageModule("n1h8c3k4r3pad1+bias+relu"), ct.StageModule("n1h8c4k4r1+bias"))
        for backend in ("eager", "aot_eager"):
            torch._dynamo.reset()
            compiled = torch.compile(layer, fullgraph=True, backend=backend)
            for n in (2, 5):
                x = torch.randn(n, 3, 8, 8)
                torch.testing.assert_close(compiled(x), layer(x), rtol=0, atol=0)
            grads = []
            for run in (compiled, layer):
                layer.zero_grad()
                run(x).square().sum().backward()
                grads.append([p.grad.clone() for p in layer.parameters()])
            torch.testing.assert_close(*grads, rtol=1e-5, atol=1e-5)
            with torch.no_grad():
                layer[0].weight.mul_(2)
            torch.testing.assert_close(compiled(x), layer(x), rtol=0, atol=0)


class Called(unittest.TestCase):
    """The way past the dispatcher: not where something would have to see the operator."""

    def test_who_sees_the_operator(self):
        torch.manual_seed(4)
        x, weight, text = torch.randn(2, 3, 8, 8), torch.randn(4, 3, 3, 3), "n1h8c3k4r3pad1"
        with torch.no_grad():
            plain = ct.stage(text, x, weight)
            self.assertTrue(torch.equal(plain, torch.ops.convoy.stage(x, weight, None, text)))
            with torch.profiler.profile() as profile:
                ct.stage(text, x, weight)
            self.assertIn("convoy::stage", [event.key for event in profile.key_averages()])
            with torch.autocast("cpu", dtype=torch.bfloat16):
                self.assertEqual(ct.stage(text, x, weight).dtype, torch.bfloat16)
            with torch._subclasses.FakeTensorMode():
                fake = ct.stage(text, torch.empty(2, 3, 8, 8), torch.empty(4, 3, 3, 3))
            self.assertIsInstance(fake, torch._subclasses.FakeTensor)
            traced = torch.fx.experimental.proxy_tensor.make_fx(lambda x: ct.stage(text, x, weight))(x)
            self.assertIn("convoy.stage", traced.code)
        self.assertTrue(ct.stage(text, x, weight.requires_grad_()).requires_grad)


class Documents(unittest.TestCase):
    def test_docstrings(self):
        done = doctest.testmod(ct)
        self.assertEqual(done.failed, 0)
        self.assertGreater(done.attempted, 5)


if __name__ == "__main__":
    unittest.main()
