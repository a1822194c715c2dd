"""convoy.GraphBuilder and runs by names, against NumPy on small integers, which every order of sums gives exactly."""

import copy
import doctest
import gc
import pickle
import tempfile
import threading
import unittest

import numpy as np

import convoy
from convoy import model_folder


def convolution(x, w, bias=None, stride=1, pad=0):
    """x [N, H, W, C] with the filters w [K, R, S, C]."""
    x = np.pad(x, ((0, 0), (pad, pad), (pad, pad), (0, 0)))
    k, r, s, _ = w.shape
    p, q = (x.shape[1] - r) // stride + 1, (x.shape[2] - s) // stride + 1
    y = np.zeros((x.shape[0], p, q, k), np.float32)
    for i in range(r):
        for j in range(s):
            y += x[:, i : i + p * stride : stride, j : j + q * stride : stride] @ w[:, i, j].T
    return y if bias is None else y + bias


def max_pool(x):
    n, h, w, c = x.shape
    return x.reshape(n, h // 2, 2, w // 2, 2, c).max(axis=(2, 4))


class Branches:
    """Two inputs, a branch, a concatenation, a slice, and two outputs, the second a vector."""

    def __init__(self):
        rng = np.random.default_rng(3)

        def integers(*shape):
            return rng.integers(-2, 3, shape).astype(np.float32)

        self.x, self.z = integers(5, 8, 8, 3), integers(5, 8, 8, 2)
        self.w1, self.b1, self.w2 = integers(4, 3, 3, 3), integers(4), integers(6, 1, 1, 2)
        self.w3, self.b3, self.w4 = integers(4, 3, 3, 5), integers(4), integers(7, 4 * 4 * 4)
        self.gamma, self.beta, self.mean = integers(6), integers(6), integers(6)

    def builder(self):
        g = convoy.GraphBuilder()
        x, z = g.input("x", "f32", (8, 8, 3)), g.input("z", "f32", [8, 8, 2])
        a = g.activation(g.convolution(x, self.w1, self.b1, pad=1, strict=True), "relu")
        # PyTorch's order of axes, and strides.
        b = g.convolution(z, np.ascontiguousarray(self.w2.transpose(0, 3, 1, 2)), weights_layout="kcrs", strict=True)
        # The variance is 1 and eps is 0, so that the scale is gamma.
        b = g.batch_norm(b, self.gamma, self.beta, self.mean, np.ones(6, np.float32), eps=0)
        both = g.concat([a, b])
        g.output("both", both)
        c = g.convolution(g.slice(both, 2, 5), self.w3, self.b3, stride=(2, 2), pad=1, strict=True)
        c = g.activation(c, convoy.Activation("clip(-3,9)"))
        g.output("scores", g.linear(g.flatten(c), self.w4))
        return g

    def expected(self):
        a = np.maximum(convolution(self.x, self.w1, self.b1, pad=1), 0)
        b = (convolution(self.z, self.w2) - self.mean) * self.gamma + self.beta
        both = np.concatenate([a, b], axis=3)
        c = np.clip(convolution(both[..., 2:7], self.w3, self.b3, stride=2, pad=1), -3, 9)
        return {"both": both, "scores": c.transpose(0, 3, 1, 2).reshape(5, -1) @ self.w4.T}


class Graphs(unittest.TestCase):
    def equal(self, found, expected):
        self.assertEqual(list(found), list(expected))
        for name, array in expected.items():
            np.testing.assert_array_equal(found[name], array, err_msg=name)

    def test_two_inputs_and_two_outputs(self):
        case = Branches()
        network, expected = case.builder().build(threads=1, batch=2), case.expected()
        self.assertEqual([(port.name, port.dtype, port.axes, port.steps) for port in network.inputs],
                         [("x", "f32", (8, 8, 3), 0), ("z", "f32", (8, 8, 2), 0)])  # fmt: skip
        self.assertEqual([(port.name, port.axes) for port in network.outputs],
                         [("both", (8, 8, 10)), ("scores", (7,))])  # fmt: skip
        self.assertEqual(repr(network.outputs[0]), "<convoy.Port both: f32 [N, 8, 8, 10]>")
        self.assertEqual(repr(network), "<convoy.Network of x, z to both, scores on cpu>")
        inputs = {"z": case.z, "x": case.x}
        network.warm(3)
        self.equal(network.run(inputs), expected)
        # One output only, in a new array, and both in the caller's.
        self.equal(network.run(inputs, ["scores"]), {"scores": expected["scores"]})
        given = {"scores": np.full((5, 7), 9, np.float32), "both": np.full((5, 8, 8, 10), 9, np.float32)}
        results = network.run(inputs, given)
        self.assertIs(results["both"], given["both"])
        np.testing.assert_array_equal(given["scores"], expected["scores"])
        np.testing.assert_array_equal(given["both"], expected["both"])
        self.assertEqual(network.run(inputs, []), {})
        self.assertEqual(network.run({"x": case.x[:0], "z": case.z[:0]})["scores"].shape, (0, 7))
        self.assertEqual([layer.kernel != "" for layer in network.layers], [True] * 4)

    def test_any_number_of_threads_runs_one(self):
        case = Branches()
        network, expected, wrong = case.builder().build(threads=1), case.expected(), []

        def work():
            for _ in range(20):
                found = network.run({"x": case.x, "z": case.z})
                wrong.extend(name for name in expected if not np.array_equal(found[name], expected[name]))

        threads = [threading.Thread(target=work) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.assertEqual(wrong, [])

    def test_parameters_of_other_types_and_strides(self):
        case = Branches()
        expected = case.expected()["both"]
        for kind in ("f16", "strided", "memoryview"):
            with self.subTest(kind):
                case = Branches()
                if kind == "f16":
                    case.w1, case.b1 = case.w1.astype(np.float16), case.b1.astype(np.float16)
                elif kind == "strided":
                    case.w1, case.b1 = np.asfortranarray(case.w1), np.repeat(case.b1, 3)[::3]
                else:
                    case.b1 = memoryview(case.b1)
                run = case.builder().build(threads=1).run({"x": case.x, "z": case.z}, ["both"])
                np.testing.assert_array_equal(run["both"], expected)

    def test_the_builder_copies_and_goes_on(self):
        case = Branches()
        g = case.builder()
        first = g.build(threads=1)
        text = g.describe()
        expected = case.expected()
        for array in (case.w1, case.b1, case.w2, case.w3, case.b3, case.w4):
            array[...] = 77
        v = g.activation(g.input("v", "f32", (3,)), "relu")
        g.output("more", v)
        self.assertTrue(g.describe().startswith(text.splitlines()[0]))
        self.equal(first.run({"x": case.x, "z": case.z}), expected)
        second = g.build(threads=1)
        found = second.run({"x": case.x, "z": case.z, "v": np.full((5, 3), -2, np.float32)})
        self.equal(found, {**expected, "more": np.zeros((5, 3), np.float32)})

    def test_pixels_pool_and_neurons(self):
        g = convoy.GraphBuilder(steps=3)
        x = g.normalise(g.input("pixels", "u8", (4, 4, 1)), std=1 / 255)
        spikes = g.activation(g.convolution(x, np.ones((1, 1, 1, 1), np.float32)), "if(4)", soft=True)
        g.output("spikes", spikes)
        g.output("rate", g.mean_of_steps(g.max_pool(spikes, 2)))
        g.output("pooled", g.max_pool(x, convoy.Pool(2)))
        network = g.build(threads=1)
        self.assertEqual([port.steps for port in network.outputs], [3, 0, 0])
        self.assertEqual(repr(network.outputs[0]), "<convoy.Port spikes: f32 [3, N, 4, 4, 1]>")
        pixels = np.zeros((1, 4, 4, 1), np.uint8)
        pixels[0, 0, 0, 0], pixels[0, 3, 3, 0] = 2, 4
        found = network.run({"pixels": pixels})
        # 2 + 2 reaches the threshold in step 2; 4 reaches it in every step.
        self.assertEqual(found["spikes"][:, 0, 0, 0, 0].tolist(), [0, 1, 0])
        self.assertEqual(found["spikes"][:, 0, 3, 3, 0].tolist(), [1, 1, 1])
        self.assertEqual(found["rate"].ravel().tolist(), [np.float32(1) / np.float32(3), 0, 0, 1])
        self.assertEqual(found["pooled"].ravel().tolist(), [2, 0, 0, 4])

    def test_one_input_runs_without_a_name_too(self):
        g = convoy.GraphBuilder()
        g.output("y", g.linear(g.input("x", "f32", (3,)), np.eye(3, dtype=np.float32), np.ones(3, np.float32)))
        network = g.build()
        self.assertEqual((network.classes, network.image_shape, network.dtype), (3, (3,), "f32"))
        x = np.array([[1, 5, 2]], np.float32)
        self.assertEqual(network(x).tolist(), [[2, 6, 3]])
        self.assertEqual(network.labels(x).tolist(), [1])
        folder = convoy.Network(convoy.demo_model())
        images = np.random.default_rng(0).integers(0, 256, (3, 28, 28, 1), np.uint8)
        np.testing.assert_array_equal(folder.run({"images": images})["mean"], folder(images))


class Names(unittest.TestCase):
    def test_any_name(self):
        g = convoy.GraphBuilder()
        x = g.input("x:0", "f32", (4, 4, 1))
        w = np.ones((1, 1, 1, 1), np.float32)
        y = g.convolution(x, w, name="layer1/conv:0")
        y = g.activation(y, "relu", name="layer1/relu\n\u202e")
        y = g.max_pool(g.concat([y, g.convolution(y, w, name="x:0")], name="größer"), 2, name="pool")
        y = g.flatten(g.slice(y, 0, 2, name="slice"), name="flat")
        g.output("pool", g.linear(y, np.ones((1, 8), np.float32), name="fc"))
        self.assertIn("layer1/relu????: f32 4x4x1", g.describe())
        network = g.build(threads=1)
        self.assertEqual([layer.name for layer in network.layers][:2], ["layer1/conv:0", "x:0"])
        self.assertIn("<layer1/conv:0: n1h4", repr(network.layers[0]))
        self.assertEqual(network.run({"x:0": np.ones((1, 4, 4, 1), np.float32)})["pool"].tolist(), [[8]])
        with self.assertRaisesRegex(convoy.Error, 'slice "fc": an operator has that name already'):
            g.slice(x, 0, 1, name="fc")
        with self.assertRaisesRegex(convoy.Error, r"a\?b: slice: channels \[1, 2\) of 1"):
            g.slice(x, 1, 1, name="a\nb")

    def test_files_of_names(self):
        names = ["layer1/conv:0", "../a%2F", "x" * 300, "größer" * 60]
        text = "input f32:h1c1\nflatten\n" + "".join(f"{name} k1\n" for name in names)
        one = np.array([[2]], np.float32)
        for form in ("text", "safetensors"):
            with self.subTest(form), tempfile.TemporaryDirectory() as folder:
                model_folder.write(folder, text, {f"{name}.weight": one for name in names}, form)
                network = convoy.Network(folder)
                self.assertEqual([layer.name for layer in network.layers], names)
                self.assertEqual(network(np.ones((1, 1, 1, 1), np.float32)).tolist(), [[16]])
                for name in names:
                    self.assertEqual(model_folder.read(folder, f"{name}.weight", (1, 1)), one)
        self.assertEqual(doctest.testmod(model_folder).failed, 0)


class Refusals(unittest.TestCase):
    def setUp(self):
        self.g = convoy.GraphBuilder()
        self.x = self.g.input("x", "f32", (4, 4, 3))
        self.w = np.ones((2, 3, 3, 3), np.float32)

    def refused(self, pattern, call, *arguments, error=convoy.Error, **named):
        before = self.g.describe()
        with self.assertRaisesRegex(error, pattern):
            call(*arguments, **named)
        self.assertEqual(self.g.describe(), before)

    def test_values(self):
        other = convoy.GraphBuilder()
        theirs = other.input("x", "f32", (4, 4, 3))
        self.refused("another builder", self.g.activation, theirs, "relu")
        self.refused("another builder", self.g.concat, [self.x, theirs])
        self.refused("another builder", self.g.output, "y", theirs)
        del other
        gc.collect()
        self.refused("this builder has none of that number", convoy.GraphBuilder().flatten, theirs)
        self.refused("incompatible function arguments", self.g.activation, None, "relu", error=TypeError)
        self.refused("incompatible function arguments", self.g.concat, [self.x, 3], error=TypeError)

    def test_inputs_and_outputs(self):
        self.refused("no other input or output", self.g.input, "x", "f32", (4,))
        self.refused("no other input or output", self.g.input, "", "f32", (4,))
        self.refused("found 2 axes", self.g.input, "y", "f32", (4, 4))
        self.refused("found the size 0", self.g.input, "y", "f32", (4, 4, 0))
        self.refused("dtype: 'i32', expected u8, f32, f16 or bf16", self.g.input, "y", "i32", (4,))
        self.refused("it is an input", self.g.output, "y", self.x)
        y = self.g.activation(self.x, "relu")
        self.refused("no other input or output", self.g.output, "x", y)
        self.g.output("y", y)
        self.refused("the output y already", self.g.output, "again", y)
        self.refused("no other input or output", self.g.output, "y", self.g.activation(y, "relu"))
        self.refused("has no output", convoy.GraphBuilder().build)
        self.refused("steps: 0, expected 1 to 65536", convoy.GraphBuilder, 0)

    def test_parameters(self):
        g, w = self.g, self.w
        operand = convoy.InvalidOperand
        self.refused("weights: None, expected an array", g.convolution, self.x, None, error=operand)
        self.refused("weights: a list, expected an array", g.convolution, self.x, [1.0], error=operand)
        self.refused("weights: .*format 'd' of 8 bytes.*astype", g.convolution, self.x, w.astype(float), error=operand)
        self.refused("weights: found u8.*expected f32", g.convolution, self.x, w.astype(np.uint8))
        self.refused("weights: .*expected 4 axes", g.convolution, self.x, w[0])
        self.refused("operand 2 is f32 2x3x3x2", g.convolution, self.x, w[..., :2])
        self.refused("bias: .*expected 1 axes", g.convolution, self.x, w, w)
        self.refused("operand 3 is f32 3", g.convolution, self.x, w, np.ones(3, np.float32))
        self.refused("weights_layout: 'hwc'", g.convolution, self.x, w, weights_layout="hwc")
        self.refused("finite", g.convolution, self.x, w * np.float32("inf"), error=operand)
        self.refused("stride is a float", g.convolution, self.x, w, stride=1.5)
        self.refused("groups of 3 channels", g.convolution, self.x, w, groups=2)
        self.refused("flatten it first", g.linear, self.x, np.ones((2, 48), np.float32))
        self.refused("gamma: None", g.batch_norm, self.x, None, w, w, w, error=operand)
        self.refused("swish", g.activation, self.x, "swish")
        self.refused("act: None", g.activation, self.x, None)
        self.refused("pool: None", g.max_pool, self.x, None)
        self.refused(r"channels \[2, 4\) of 3", g.slice, self.x, 2, 2)
        self.refused("found 1 operands", g.concat, [self.x])
        self.refused("as a neuron gives it", g.mean_of_steps, self.x)
        self.refused("mean: found a str", g.normalise, self.x, mean="0.5")
        self.refused("mean has 2 numbers, expected one or 3", g.normalise, self.x, mean=(1, 2))

    def test_no_copies(self):
        for call in (copy.copy, copy.deepcopy, pickle.dumps):
            self.refused("can be neither copied nor pickled", call, self.g, error=TypeError)

    def test_runs(self):
        case = Branches()
        network = case.builder().build(threads=1)
        inputs = {"x": case.x, "z": case.z}

        def refused(pattern, *arguments, error=convoy.InvalidOperand, **named):
            with self.assertRaisesRegex(error, pattern):
                network.run(*arguments, **named)

        refused("input z: it is missing", {"x": case.x})
        refused("input x: it is missing", {})
        refused('input "w": the network has none of that name, expected x, z', {**inputs, "w": case.x})
        refused("x: None, expected an array", {**inputs, "x": None})
        refused("x: .*format 'd'", {**inputs, "x": case.x.astype(float)})
        refused(r"x: .*expected f32\[.*,8,8,3\], contiguous", {**inputs, "x": case.x[0]})
        refused(r"x: .*expected f32\[.*,8,8,3\], contiguous", {**inputs, "x": case.x.astype(np.float16)})
        refused(r"x: .*expected f32\[5,8,8,3\], contiguous", {**inputs, "x": case.x[:, ::-1]})
        refused(r"z: .*expected f32\[5,8,8,2\], contiguous", {**inputs, "z": case.z[:4]})
        refused('output "sum": the network has none of that name, expected both, scores', inputs, ["sum"])
        refused("output both: it is given twice", inputs, ["both", "both"])
        refused("both: None, expected an array. Leave it out", inputs, {"both": None})
        refused(r"scores: .*expected f32\[5,7\]", inputs, {"scores": np.zeros((5, 6), np.float32)})
        refused("overlap in memory", inputs, {"both": np.zeros(3200, np.float32).reshape(5, 8, 8, 10),
                                              "scores": case.x.reshape(-1)[:35].reshape(5, 7)})  # fmt: skip
        refused("outputs: a str, expected a dict", inputs, "both")
        refused("outputs: an int, expected a dict", inputs, 3)
        refused("inputs: found an int as a name", {1: case.x})
        frozen = np.zeros((5, 7), np.float32)
        frozen.flags.writeable = False
        refused("scores: .*read only", inputs, {"scores": frozen})
        with self.assertRaisesRegex(convoy.InvalidOperand, "images: this network has 2 inputs"):
            network(case.x)
        with self.assertRaisesRegex(convoy.InvalidOperand, "image_shape: this network has 2 inputs"):
            _ = network.image_shape


if __name__ == "__main__":
    unittest.main()
