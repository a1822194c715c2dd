"""Convoy from Python against NumPy (and PyTorch, where it is installed) in double: 500 drawn stages, views, strides."""

import unittest

import numpy as np

import convoy
import drawn
from convoy.stage_form import form_of

try:
    import torch
except ImportError:
    torch = None

NUMPY = {"f32": np.float32, "f16": np.float16}


def operands(rng, stage):
    x = rng.standard_normal((stage.n, stage.h, stage.w, stage.c)).astype(NUMPY[stage.dtype])
    w = rng.standard_normal(stage.w_shape).astype(NUMPY[stage.dtype])
    bias = rng.standard_normal(stage.k).astype(np.float32) if stage.bias else None
    return x, w, bias


class Parity(unittest.TestCase):
    def check(self, stage, y, wanted, bound):
        self.assertEqual(y.shape, wanted.shape, stage)
        wrong = abs(y.astype(float) - wanted) - bound
        self.assertLessEqual(wrong.max(), 0, f"{stage}: {wrong.max()} above the bound")

    def test_drawn_stages(self):
        rng = np.random.default_rng(7)
        ways = 0
        for number in range(500):
            stage, keywords = drawn.draw(rng)
            x, w, bias = operands(rng, stage)
            wanted, bound = drawn.expected(stage, keywords, x, w, bias)
            plan = convoy.Plan(stage, w, axes="nhwc", threads=1 + number % 2)
            if stage.layout == "nchw":
                y = plan(np.ascontiguousarray(x.transpose(0, 3, 1, 2)), bias).transpose(0, 2, 3, 1)
            elif number % 3 == 0:  # a slice of channels, into a slice of channels
                wide = np.full((*x.shape[:3], stage.c + 5), np.nan, x.dtype)
                wide[..., 2:-3] = x
                out = np.zeros((*stage.y_shape[:3], stage.k + 3), x.dtype)
                y = plan(wide[..., 2:-3], bias, out=out[..., 1:-2])
                self.assertFalse(out[..., 0].any() or out[..., -2:].any(), stage)
                ways += 1
            elif number % 3 == 1:  # weights by PyTorch's axes, and fewer images
                plan.set_weights(np.ascontiguousarray(w.transpose(0, 3, 1, 2)), weights_layout="kcrs")
                y = plan(x[:1], bias)
                wanted, bound = wanted[:1], bound[:1] if np.ndim(bound) else bound
            else:
                y = plan.run(x, bias, out=np.empty(stage.y_shape, x.dtype))
            self.check(stage, y, wanted, bound)
        self.assertGreater(ways, 50)

    def test_the_text_of_numbers_with_exponents(self):
        form = form_of("n1h4c1k1r1+clip(-1e30,1e-30)+max2")
        self.assertEqual((form.bounds(), form.pool[0]), ((-1e30, 1e-30), (2, 2)))

    def test_channels_last_views_of_numpy(self):
        rng = np.random.default_rng(3)
        stage = convoy.Stage("n2h6w7c5k3r3pad1")
        x, w, _ = operands(rng, stage)
        plan = convoy.Plan(stage, w)
        y = plan(x)
        first = plan(x.transpose(0, 3, 1, 2))  # the same memory by PyTorch's names
        self.assertEqual(first.shape, (2, 3, 6, 7))
        np.testing.assert_array_equal(first.transpose(0, 2, 3, 1), y)
        with self.assertRaisesRegex(convoy.InvalidOperand, "channels first in memory.*Pass"):
            plan(np.ascontiguousarray(x.transpose(0, 3, 1, 2)))

    def test_second_outputs_and_membranes(self):
        stage = convoy.Stage("n1h4c1k1r1+bias+relu+keep(pre,act,idx)+max2")
        plan = convoy.Plan(stage, np.ones((1, 1, 1, 1), np.float32))
        x = np.arange(-8, 8, dtype=np.float32).reshape(1, 4, 4, 1)
        result = plan(x, np.ones(1, np.float32))
        np.testing.assert_array_equal(result.pre, x + 1)
        np.testing.assert_array_equal(result.act, np.maximum(x + 1, 0))
        self.assertEqual(result.idx.dtype, np.int32)
        self.assertEqual(result.idx.ravel().tolist(), [0, 2, 13, 15])
        neuron = convoy.Plan("n1h1c1k1r1+if(1)+t3", np.ones((1, 1, 1, 1), np.float32))
        after = np.empty((1, 1, 1, 1), np.float32)
        spikes = neuron(np.full((3, 1, 1, 1, 1), 0.5, np.float32), membrane=np.full((1, 1, 1, 1), 0.25, np.float32),
                        membrane_out=after)  # fmt: skip
        self.assertEqual((spikes.ravel().tolist(), after.item()), ([0, 1, 0], 0.5))

    def test_other_types(self):
        w = np.ones((2, 1, 1, 3), np.float32)
        pixels = np.arange(12, dtype=np.uint8).reshape(1, 2, 2, 3)
        self.assertEqual(convoy.Plan("u8:n1h2c3k2r1", w)(pixels)[0, 0, 0, 0], 3)
        normed = convoy.Plan("u8:n1h2c3k2r1+norm", w)
        scale, shift = np.full(3, 2, np.float32), np.full(3, 1, np.float32)
        self.assertEqual(normed(pixels, norm=(scale, shift))[0, 0, 0, 0], 9)
        # NumPy has no bfloat16: the result is a convoy.Tensor.
        self.assertEqual(convoy.Plan("n1h2c3k2r1out(bf16)", w)(pixels.astype(np.float32)).dtype, "bf16")

    def test_stage_keywords_are_the_text(self):
        rng = np.random.default_rng(11)
        for _ in range(200):
            stage, _ = drawn.draw(rng)
            self.assertEqual(convoy.Stage(repr(stage)), stage)
            self.assertEqual(hash(convoy.Stage(repr(stage))), hash(stage))


@unittest.skipUnless(torch, "PyTorch is not installed")
class Torch(unittest.TestCase):
    def test_channels_last(self):
        generator = torch.Generator().manual_seed(5)
        stage = convoy.Stage("n3h9w8c12k6r3pad1+bias+relu+max2")
        x = torch.randn(3, 12, 9, 8, generator=generator).to(memory_format=torch.channels_last)
        w = torch.randn(6, 12, 3, 3, generator=generator)
        bias = torch.randn(6, generator=generator)
        y = convoy.Plan(stage, w, weights_layout="kcrs")(x, bias)
        self.assertTrue(y.is_contiguous(memory_format=torch.channels_last))
        wanted = torch.nn.functional.conv2d(x.double(), w.double(), bias.double(), padding=1)
        wanted = torch.nn.functional.max_pool2d(wanted.relu(), 2)
        torch.testing.assert_close(y.double(), wanted, rtol=1e-5, atol=1e-5)
        out = torch.empty_like(y)
        self.assertIs(convoy.Plan(stage, w, weights_layout="kcrs")(x, bias, out=out), out)
        torch.testing.assert_close(out, y, rtol=0, atol=0)

    def test_all_types_and_an_ambiguous_shape(self):
        for name in ("float32", "float16", "bfloat16"):
            dtype = getattr(torch, name)
            plan = convoy.Plan({"float32": "f32", "float16": "f16", "bfloat16": "bf16"}[name] + ":n1h4c4k4r1",
                               torch.eye(4).reshape(4, 1, 1, 4))  # fmt: skip
            x = torch.arange(64, dtype=dtype).reshape(1, 4, 4, 4)
            with self.assertRaisesRegex(convoy.InvalidOperand, "axes="):
                plan(x)
            last = x.to(memory_format=torch.channels_last)
            torch.testing.assert_close(plan(last), x, rtol=0, atol=0)

    def test_freed_tensor(self):
        x = torch.zeros(1, 2, 2, 3)
        x.untyped_storage().resize_(0)
        with self.assertRaises(convoy.InvalidOperand):
            convoy.Plan("n1h2c3k2r1", torch.zeros(2, 1, 1, 3))(x)


if __name__ == "__main__":
    unittest.main()
