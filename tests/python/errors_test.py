"""What is wrong raises an exception that says what was found, what was expected and what to do."""

import pickle
import unittest

import numpy as np

import convoy


class Errors(unittest.TestCase):
    def setUp(self):
        self.plan = convoy.Plan("n2h4w5c3k2r3pad1+bias", np.zeros((2, 3, 3, 3), np.float32))
        self.x = np.zeros((2, 4, 5, 3), np.float32)
        self.bias = np.zeros(2, np.float32)

    def refused(self, pattern, *arguments, error=convoy.InvalidOperand, code="invalid_operand", **named):
        with self.assertRaisesRegex(error, pattern) as caught:
            self.plan(*arguments, **named)
        self.assertEqual(caught.exception.code, code)
        self.assertIsInstance(caught.exception, convoy.Error)

    def test_operands(self):
        self.refused(r"x: its elements have the format 'd' of 8 bytes; expected float32.*Convert", self.x.astype(float))
        self.refused(r"x: .*f16.*f32", self.x.astype(np.float16), self.bias)
        self.refused(r"x: a list, expected an array.*numpy.asarray", [1.0], self.bias)
        self.refused(r"x: None", None)
        self.refused(r"x.*f32\[2,4,5\]", self.x[..., 0], self.bias)
        self.refused(r"x.*f32\[2,4,6,3\]", np.zeros((2, 4, 6, 3), np.float32), self.bias)
        self.refused(r"3 images; expected at most the plan's 2", np.zeros((3, 4, 5, 3), np.float32), self.bias)
        self.refused(r"bias", self.x)
        self.refused(r"bias.*f32\[3\]", self.x, np.zeros(3, np.float32))
        self.refused(r"norm: 1 values, expected a pair", self.x, self.bias, norm=(self.bias,))
        self.refused(r"keeps nothing", self.x, self.bias, pre=self.x)
        self.refused(r"big|byte order", self.x.astype(">f4"), self.bias)
        strange = np.zeros((2, 4, 5, 3), np.dtype({"names": ["a"], "formats": ["f4"], "itemsize": 6}))["a"]
        self.refused(r"stride of \d+ bytes, expected a multiple", strange, self.bias)

    def test_outputs(self):
        out = np.empty((2, 4, 5, 2), np.float32)
        self.assertIs(self.plan(self.x, self.bias, out=out), out)
        out.flags.writeable = False
        self.refused(r"out: a ndarray that is read only, expected one to write to\. Pass", self.x, self.bias, out=out)
        self.refused(r"f16", self.x, self.bias, out=np.empty((2, 4, 5, 2), np.float16))
        x = np.zeros((2, 4, 5, 3), np.float32)
        plan = convoy.Plan("n2h4w5c3k3r1", np.zeros((3, 1, 1, 3), np.float32))
        with self.assertRaisesRegex(convoy.InvalidOperand, "overlap"):
            plan(x, out=x)
        x.flags.writeable = False  # an input may be
        plan(x)

    def test_plans(self):
        for stage, pattern in [("n1h8c8k8r99", "r"), ("nonsense", "nonsense"), (3, "a int, expected a convoy.Stage")]:
            with self.assertRaisesRegex(convoy.Error, pattern) as caught:
                convoy.Plan(stage)
            self.assertIsNone(caught.exception.code)
        with self.assertRaisesRegex(convoy.Error, "no keyword 'strides'. There are: .*stride"):
            convoy.Stage(h=8, c=8, k=8, r=3, strides=2)
        with self.assertRaisesRegex(convoy.Error, "axes: 'hwc', expected"):
            convoy.Plan("n1h8c8k8r3", axes="hwc")
        with self.assertRaisesRegex(convoy.Error, "nowhere"):
            convoy.Plan("n1h8c8k8r3", kernel="nowhere")
        with self.assertRaisesRegex(convoy.Error, "weights.*f32"):
            convoy.Plan("n1h8c8k8r3", np.zeros((8, 8, 3, 3), np.float32))
        with self.assertRaises(convoy.NoWeights) as caught:
            convoy.Plan("n1h8w9c8k8r3")(np.zeros((1, 8, 9, 8), np.float32))
        self.assertEqual(caught.exception.code, "no_weights")

    def test_devices(self):
        with self.assertRaisesRegex(convoy.Error, "cud"):
            convoy.Plan("f16:n1h8c8k8r3", device="cuda:77")

    def test_hierarchy(self):
        for name in ("InvalidOperand", "NoWeights", "NoWorkspace", "Busy", "MovedFrom", "OutOfMemory", "DeviceError",
                     "InternalError"):  # fmt: skip
            self.assertTrue(issubclass(getattr(convoy, name), convoy.Error))
        self.assertTrue(issubclass(convoy.InvalidOperand, ValueError))
        self.assertTrue(issubclass(convoy.OutOfMemory, MemoryError))

    def test_networks(self):
        with self.assertRaisesRegex(convoy.Error, "nowhere"):
            convoy.Network("/nowhere")
        network = convoy.Network(convoy.demo_model())
        with self.assertRaisesRegex(convoy.InvalidOperand, "images"):
            network(np.zeros((1, 27, 28), np.uint8))
        with self.assertRaisesRegex(convoy.Error, "fc.weight"):
            convoy.Network.from_text("input f32:h4c1\nflatten\nfc k2\n", {})

    def test_programs_errors(self):
        with self.assertRaisesRegex(convoy.Error, "nonsense"):
            convoy.verify("nonsense")

    def test_pickle(self):
        stage = convoy.Stage("n1h8c8k8r3+relu")
        self.assertEqual(pickle.loads(pickle.dumps(stage)), stage)


if __name__ == "__main__":
    unittest.main()
