"""Tensors of PyTorch that a call is given: what autograd is told of a write, and whose numbers are not in memory."""

import unittest

import numpy as np

import convoy
from convoy import _core

try:
    import torch

    import convoy.torch
except ImportError:
    torch = None

WEIGHTS = np.random.default_rng(1).random((8, 3, 3, 16), np.float32)


def kept_plan():
    weights = np.eye(2, dtype=np.float32).reshape(2, 1, 1, 2)
    return convoy.Plan("n1h4c2k2r1+relu+keep(pre,act,idx)+max2", weights, axes="nhwc")


def writers():
    """(name, call that writes into a tensor, a tensor for it)."""
    x, kept = torch.randn(1, 9, 9, 16), torch.randn(1, 4, 4, 2)
    plan = convoy.Plan("n1h9c16k8r3pad1", WEIGHTS)
    neuron = convoy.Plan("n1h2c1k1r1+if(1)+t3", np.ones((1, 1, 1, 1), np.float32))
    steps, network = torch.zeros(3, 1, 2, 2, 1), convoy.Network(convoy.demo_model())
    images = torch.zeros(2, 28, 28, dtype=torch.uint8)
    yield "out", lambda t: plan(x, out=t), torch.zeros(1, 9, 9, 8)
    yield "out", lambda t: plan.run(x, out=t), torch.zeros(1, 9, 9, 12)[..., 2:10]
    yield "pre", lambda t: kept_plan()(kept, pre=t), torch.zeros(1, 4, 4, 2)
    yield "act", lambda t: kept_plan()(kept, act=t), torch.zeros(1, 4, 4, 2)
    yield "idx", lambda t: kept_plan()(kept, idx=t), torch.zeros(1, 2, 2, 2, dtype=torch.int32)
    yield "membrane_out", lambda t: neuron(steps, membrane_out=t), torch.zeros(1, 2, 2, 1)
    yield "logits", lambda t: network.run(images, logits=t), torch.zeros(2, 10)
    yield "labels", lambda t: network.run(images, labels=t), torch.zeros(2, dtype=torch.int32)


@unittest.skipUnless(torch, "PyTorch is not installed")
class Outputs(unittest.TestCase):
    def test_the_version_counter_moves(self):
        for name, call, tensor in writers():
            for mode in (torch.enable_grad, torch.no_grad, torch.inference_mode):
                with self.subTest(name, mode=mode.__name__), mode():
                    before = tensor._version
                    call(tensor)
                    self.assertGreater(tensor._version, before)

    def test_a_saved_tensor_that_is_written_raises_in_backward(self):
        for name, call, tensor in writers():
            if not tensor.is_floating_point():
                continue
            leaf = torch.ones_like(tensor, requires_grad=True)
            saved = leaf.exp()
            with self.subTest(name):
                call(saved.detach())
                with self.assertRaisesRegex(RuntimeError, "modified by an inplace operation"):
                    saved.sum().backward()

    def test_what_requires_a_gradient_is_refused_with_gradients_on(self):
        for name, call, tensor in writers():
            if not tensor.is_floating_point():
                continue
            for given in (torch.nn.Parameter(tensor.clone()), torch.ones_like(tensor, requires_grad=True).exp()):
                before = given.detach().clone()
                with self.subTest(name):
                    with self.assertRaisesRegex(convoy.InvalidOperand, f"^{name}: a tensor that requires a gradient"):
                        call(given)
                    self.assertTrue(torch.equal(given.detach(), before))
                    with torch.no_grad():
                        call(given)  # as PyTorch's own operators

    def test_a_refused_call_does_not_count(self):
        plan, y = convoy.Plan("n1h9c16k8r3pad1", WEIGHTS), torch.zeros(1, 9, 9, 8)
        with self.assertRaises(convoy.InvalidOperand):
            plan(torch.zeros(1, 9, 8, 16), out=y)
        self.assertEqual(y._version, 0)

    def test_tensors_of_inference_mode(self):
        for name, call, tensor in writers():
            with torch.inference_mode():
                made = tensor.clone()
                call(made)
            with (
                self.subTest(name),
                self.assertRaisesRegex(convoy.InvalidOperand, f"^{name}: a tensor of inference_mode"),
            ):
                call(made)


@unittest.skipUnless(torch, "PyTorch is not installed")
class Memory(unittest.TestCase):
    def test_a_negative_view(self):
        plan, x = convoy.Plan("n1h9c16k8r3pad1", WEIGHTS), torch.randn(1, 9, 9, 16)
        calls = {"x": lambda t: plan(t), "out": lambda t: plan(x, out=t[..., :8]),
                 "weights": lambda t: plan.set_weights(torch._neg_view(torch.tensor(WEIGHTS)))}  # fmt: skip
        for name, call in calls.items():
            with (
                self.subTest(name),
                self.assertRaisesRegex(convoy.InvalidOperand, f"^{name}: .*negative bit"),
            ):
                call(torch._neg_view(x))
        self.assertTrue(torch.equal(plan(torch._neg_view(x).resolve_neg()), plan(-x)))
        with self.assertRaisesRegex(convoy.InvalidOperand, "^x: "):
            plan(torch.complex(x, x).conj())

    def test_a_storage_that_was_made_smaller(self):
        plan, x = convoy.Plan("n1h9c16k8r3pad1", WEIGHTS), torch.randn(1, 9, 9, 16)
        whole = 4 * 9 * 9 * 8
        for bytes_left in (0, 16, whole - 4):
            for twice in (False, True):
                y = torch.zeros(1, 9, 9, 8)
                if twice:
                    y.untyped_storage().resize_(20)
                y.untyped_storage().resize_(bytes_left)
                with self.subTest(bytes_left), self.assertRaisesRegex(convoy.InvalidOperand, "^out: "):
                    plan(x, out=y)
        for name, call in (("x", lambda t: plan(t)), ("weights", lambda t: plan.set_weights(t))):
            small = torch.zeros(1, 9, 9, 16) if name == "x" else torch.tensor(WEIGHTS)
            small.untyped_storage().resize_(64)
            with (
                self.subTest(name),
                self.assertRaisesRegex(convoy.InvalidOperand, f"^{name}: .*has 64 bytes"),
            ):
                call(small)
        wide = torch.zeros(1, 9, 9, 24)  # the view's own offset counts
        view = wide[..., 8:]
        self.assertEqual(plan(view).shape, (1, 9, 9, 8))
        wide.untyped_storage().resize_(4 * 9 * 9 * 24 - 4)
        with self.assertRaisesRegex(convoy.InvalidOperand, "^x: .*storage has"):
            plan(view)
        y = torch.zeros(1, 9, 9, 8)  # exactly large enough
        self.assertIs(plan(x, out=y), y)


class _ByMethods:
    """As with a PyTorch whose functions are other ones: its tensors are asked by their methods."""

    def setUp(self):
        self.addCleanup(_core._ask_torch_by_methods, False)
        _core._ask_torch_by_methods(True)

    def test_what_is_plain(self):
        x, weight = torch.ones(2, 3, 4, 4), torch.nn.Parameter(torch.ones(4, 3, 1, 1))
        negative = torch.ones(2, 3, 4, 4, dtype=torch.complex64).conj().imag
        cases = {"plain": (x, weight, None), "a bias": (x, weight.detach(), torch.ones(4)),
                 "trained": (x, weight, None), "negative": (negative, weight.detach(), None),
                 "a class": (torch.nn.Parameter(x), weight.detach(), None), "meta": (x.to("meta"), weight, None),
                 "no tensor": (3, weight, None)}  # fmt: skip
        for grad in (False, True):
            with torch.set_grad_enabled(grad):
                found = {name: [] for name in cases}
                for methods in (True, False):
                    _core._ask_torch_by_methods(methods)
                    for name, given in cases.items():
                        found[name].append(_core._is_plain(*given))
            wanted = {name: name == "a bias" or (name in ("plain", "trained") and not grad) for name in cases}
            self.assertEqual(found, {name: [value, value] for name, value in wanted.items()})

    def test_stages(self):
        x, weight = torch.randn(2, 3, 6, 6), torch.randn(4, 3, 3, 3)
        for _ in range(2):
            torch.testing.assert_close(convoy.torch.stage("n1h6c3k4r3pad1", x, weight),
                                       torch.conv2d(x, weight, padding=1), rtol=1e-4, atol=1e-4)  # fmt: skip
            weight.mul_(2)


class OutputsByMethods(_ByMethods, Outputs):
    pass


class MemoryByMethods(_ByMethods, Memory):
    pass


@unittest.skipUnless(torch, "PyTorch is not installed")
class Messages(unittest.TestCase):
    def test_a_network_has_no_axes(self):
        network = convoy.Network.from_text("input f32:h8c8\nflatten\nfc k2\n", {"fc.weight": np.ones((2, 512), "f")})
        x = torch.arange(5 * 512, dtype=torch.float32).reshape(5, 8, 8, 8)
        with self.assertRaises(convoy.InvalidOperand) as caught:
            network(x)
        self.assertNotIn("axes", str(caught.exception))
        for advised in ("to(memory_format=torch.channels_last)", "permute(0, 3, 1, 2)"):
            self.assertIn(advised, str(caught.exception))
        network(x.to(memory_format=torch.channels_last)), network(x.permute(0, 3, 1, 2))


if __name__ == "__main__":
    unittest.main()
