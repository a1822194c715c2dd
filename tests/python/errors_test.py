"""What is wrong raises an exception that says what was found, what was expected and what to do."""

import copy
import functools
import os
import pickle
import re
import signal
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

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
        self.refused(r"x: found f32\[4,5,3\].*, expected f32\[0..2,4,5,3\]", self.x[0], self.bias)
        self.refused(r"x.*f32\[2,4,6,3\]", np.zeros((2, 4, 6, 3), np.float32), self.bias)
        self.refused(r"x: found f32\[2,0,5,3\].*, expected f32\[0..2,4,5,3\]", self.x[:, :0], self.bias)
        self.refused(r"3 images; expected at most the plan's 2", np.zeros((3, 4, 5, 3), np.float32), self.bias)
        self.refused(r"bias", self.x)
        self.refused(r"bias.*f32\[3\]", self.x, np.zeros(3, np.float32))
        self.refused(r"norm: 1 values, expected a pair", self.x, self.bias, norm=(self.bias,))
        self.refused(r"keeps nothing", self.x, self.bias, pre=self.x)
        self.refused(r"big|byte order", self.x.astype(">f4"), self.bias)
        strange = np.zeros((2, 4, 5, 3), np.dtype({"names": ["a"], "formats": ["f4"], "itemsize": 6}))["a"]
        self.refused(r"stride of \d+ bytes, expected a multiple", strange, self.bias)

    def test_no_images(self):
        for x in (self.x[:0], self.x[:0].transpose(0, 3, 1, 2), np.zeros((0, 3, 4, 5), np.float32)):
            y = self.plan(x, self.bias)
            self.assertEqual(y.shape, (0, 4, 5, 2) if x.shape[-1] == 3 else (0, 2, 4, 5))
        out = np.full((0, 4, 5, 2), 7, np.float32)
        self.assertIs(self.plan(self.x[:0], self.bias, out=out), out)
        self.refused("y: 2 images, but x has 0", self.x[:0], self.bias, out=np.zeros((2, 4, 5, 2), np.float32))
        network = convoy.Network(convoy.demo_model())
        self.assertEqual(network(np.zeros((0, 28, 28), np.uint8)).shape, (0, 10))
        self.assertEqual(network.labels(np.zeros((0, 28, 28), np.uint8)).shape, (0,))
        neuron = convoy.Plan("n2h2c1k1r1+if(1)+t3", np.ones((1, 1, 1, 1), np.float32))
        after = np.zeros((0, 2, 2, 1), np.float32)
        self.assertEqual(neuron(np.zeros((3, 0, 2, 2, 1), np.float32), membrane_out=after).shape, (3, 0, 2, 2, 1))

    def test_what_is_no_array(self):
        for interface in (7, {"shape": "x", "typestr": "<f4"}, {"shape": (2, 4, 5, 3), "typestr": "<f4", "data": 0}):
            strange = type("Strange", (), {"__array_interface__": interface})()
            self.refused("^x: .*expected shape, typestr and data like NumPy.s", strange, self.bias)
        self.refused("norm: an int, expected a pair", self.x, self.bias, norm=5)

    def test_text_that_utf8_does_not_hold(self):
        for text in ("n1h1c1k1r1\udcff", "\ud800", "n1h1c1k1r1\0"):
            for make in (convoy.Stage, convoy.Plan, lambda text: convoy.Stage(n=text, h=1, c=1, k=1, r=1),
                         lambda text: convoy.Stage(**{text: 1})):  # fmt: skip
                with self.assertRaises(convoy.Error):
                    make(text)
        with self.assertRaises(convoy.Error):
            convoy.Network.from_text("input u8:h2c1\nflatten\nfc k2\n", {"\udcff": self.bias})
        with self.assertRaisesRegex(convoy.Error, "no-such"):
            convoy.Network(b"/no-such\xff")
        with self.assertRaises(convoy.Error):
            self.plan(type("Named", (), {"__module__": "\udcff"})(), self.bias)

    def test_outputs(self):
        out = np.empty((2, 4, 5, 2), np.float32)
        self.assertIs(self.plan(self.x, self.bias, out=out), out)
        out.flags.writeable = False
        self.refused(r"out: an ndarray that is read only, expected a writable one\. Pass", self.x, self.bias, out=out)
        self.refused(r"f16", self.x, self.bias, out=np.empty((2, 4, 5, 2), np.float16))
        x = np.zeros((2, 4, 5, 3), np.float32)
        plan = convoy.Plan("n2h4w5c3k3r1", np.zeros((3, 1, 1, 3), np.float32))
        with self.assertRaisesRegex(convoy.InvalidOperand, "overlap"):
            plan(x, out=x)
        x.flags.writeable = False  # an input may be
        plan(x)

    def test_plans(self):
        for stage, pattern in [("n1h8c8k8r99", "r"), ("nonsense", "nonsense"), (3, "stage: an int, expected")]:
            with self.assertRaisesRegex(convoy.Error, pattern) as caught:
                convoy.Plan(stage)
            self.assertEqual(caught.exception.code, "invalid_argument")
        with self.assertRaisesRegex(convoy.Error, "found the keyword 'strides', expected one of: .*stride"):
            convoy.Stage(h=8, c=8, k=8, r=3, strides=2)
        with self.assertRaisesRegex(convoy.Error, "axes: 'hwc', expected"):
            convoy.Plan("n1h8c8k8r3", axes="hwc")
        with self.assertRaisesRegex(convoy.Error, "nowhere"):
            convoy.Plan("n1h8c8k8r3", kernel="nowhere")
        with self.assertRaisesRegex(convoy.InvalidOperand, "weights.*f32"):
            convoy.Plan("n1h8c8k8r3", np.zeros((8, 8, 3, 3), np.float32))
        with self.assertRaises(convoy.NoWeights) as caught:
            convoy.Plan("n1h8w9c8k8r3")(np.zeros((1, 8, 9, 8), np.float32))
        self.assertEqual(caught.exception.code, "no_weights")

    def test_keywords_of_a_stage(self):
        sizes = dict(n=1, h=8, c=8, k=8, r=3)
        self.assertEqual(convoy.Stage(**sizes, pad=np.int64(1)), convoy.Stage("n1h8c8k8r3pad1"))
        self.assertEqual(convoy.Stage(**sizes, stride=(np.int32(2), 1), bias=np.True_),
                         convoy.Stage("n1h8c8k8r3stride2x1+bias"))  # fmt: skip
        for pool, text in ((2, "2"), ((3, 2), "3x2"), ("3s2p1", "3s2p1"), ("max3s2p1", "3s2p1")):
            self.assertEqual(convoy.Stage(**sizes, pool=pool), convoy.Stage(f"n1h8c8k8r3+max{text}"))
        for wrong, pattern in (
            ({"n": 1.5}, "n is a float, expected .*an integer"),
            ({"n": True}, "n is a bool"),
            ({"dtype": np.float16}, "dtype is a type, expected text"),
            ({"pad": None}, "pad is a None"),
            ({"pad": (1, 2.0)}, "pad is a float"),
            ({"bias": "no"}, "bias is a str, expected True or False"),
            ({"bias": np.ones(2)}, "bias is an ndarray"),
            ({"keep": ("pre", None)}, "keep is a None"),
        ):
            with self.subTest(wrong), self.assertRaisesRegex(convoy.Error, "Stage: " + pattern):
                convoy.Stage(**{**sizes, **wrong})

    def test_devices(self):
        with self.assertRaisesRegex(convoy.NoDevice, "cud"):
            convoy.Plan("f16:n1h8c8k8r3", device="cuda:77")

    def test_what_no_kernel_takes(self):
        with self.assertRaisesRegex(convoy.Unsupported, "kernel winograd2 can't run"):
            convoy.Plan("n1h8c8k8r1", kernel="winograd2")

    def test_files(self):
        def wrong(error, pattern):
            with self.assertRaisesRegex(error, pattern):
                convoy.Network(folder)

        with tempfile.TemporaryDirectory() as folder:
            description = Path(folder, "network.txt")
            wrong(convoy.FileNotFound, "cannot be opened")
            description.mkdir()
            wrong(convoy.FileError, "is a folder")
            description.rmdir()
            description.write_text("input f32:h2c1\nflatten\nfc k2\nnonsense\n")
            wrong(convoy.InvalidFile, "network.txt:4: ")
            description.write_text("input f32:h2c1\nflatten\nfc k2\n")
            wrong(convoy.FileNotFound, "no weights")
            Path(folder, "fc.weight.txt").write_text("1 2 3")
            wrong(convoy.InvalidFile, "3 values, expected 8")

    def test_hierarchy(self):
        self.assertEqual(convoy.Error.code, "invalid_argument")
        self.assertTrue(issubclass(convoy.Error, RuntimeError))
        kinds = {"InvalidOperand": ValueError, "Unsupported": NotImplementedError, "NoDevice": None,
                 "FileNotFound": FileNotFoundError, "FileError": OSError, "InvalidFile": ValueError, "NoWeights": None,
                 "NoWorkspace": None, "Busy": None, "MovedFrom": None, "OutOfMemory": MemoryError, "DeviceError": None,
                 "InternalError": None}  # fmt: skip
        for name, builtin in kinds.items():
            with self.subTest(name):
                kind = getattr(convoy, name)
                self.assertTrue(issubclass(kind, convoy.Error))
                self.assertTrue(builtin is None or issubclass(kind, builtin))
                self.assertEqual(kind.code.replace("_", ""), name.lower())
                self.assertEqual(str(kind("a message: of one line")), "a message: of one line")

    def test_networks(self):
        with self.assertRaisesRegex(convoy.Error, "nowhere"):
            convoy.Network("/nowhere")
        with self.assertRaisesRegex(convoy.Error, "model: found an empty name, expected the folder of network.txt"):
            convoy.Network("")
        for cut in (convoy.demo_model() + "\0/x", os.fsencode(convoy.demo_model()) + b"\0"):
            with self.assertRaisesRegex(convoy.Error, "model: .*has a NUL character"):
                convoy.Network(cut)
        network = convoy.Network(os.fsencode(convoy.demo_model()))
        self.assertEqual(repr(network), "<convoy.Network u8:h28w28c1 to 10 classes on cpu>")
        with self.assertRaisesRegex(convoy.InvalidOperand, "images"):
            network(np.zeros((1, 27, 28), np.uint8))
        with self.assertRaisesRegex(convoy.Error, "fc.weight"):
            convoy.Network.from_text("input f32:h4c1\nflatten\nfc k2\n", {})
        with self.assertRaisesRegex(convoy.Error, r'weights: "f8", expected f32 \(unchanged\) or f16'):
            convoy.Network(convoy.demo_model(), weights="f8")
        with self.assertRaisesRegex(convoy.Error, r'fc\.bias": found a bias, but fc has no \+bias'):
            convoy.Network.from_text("input f32:h4c1\nflatten\nfc k2\n", {
                "fc.weight": np.ones((2, 16), np.float32), "fc.bias": np.ones(2, np.float32)})
        # A state_dict holds more than a network reads: a count of batches, in int64.
        layer = {"fc.weight": np.ones((2, 16), np.float32)}
        more = {"bn.num_batches_tracked": np.array(3), "other.weight": np.ones(3), "fc": "text"}
        network = convoy.Network.from_text("input f32:h4c1\nflatten\nfc k2\n", layer | more)
        self.assertEqual(np.asarray(network(np.ones((1, 4, 4), np.float32))).tolist(), [[16, 16]])
        with self.assertRaisesRegex(convoy.InvalidOperand, "fc.weight: .*format 'd'"):
            convoy.Network.from_text("input f32:h4c1\nflatten\nfc k2\n", {"fc.weight": np.ones((2, 16))})

    def test_programs_errors(self):
        with self.assertRaisesRegex(convoy.Error, "nonsense"):
            convoy.verify("nonsense")
        for run in (convoy.verify, convoy.bench):
            with self.assertRaisesRegex(convoy.Error, "stages: 3, expected a stage"):
                run(3)
        with self.assertRaisesRegex(convoy.Error, "stages: an empty sequence"):
            convoy.verify([])

    def test_the_program_in_a_pipe_that_nobody_reads(self):
        reading, writing = os.pipe()
        os.close(reading)
        words = [sys.executable, "-P", "-m", "convoy", "explain", "--no-measure", "n1h8c8k8r3"]
        done = subprocess.run(words, stdout=writing, stderr=subprocess.PIPE, restore_signals=False)
        os.close(writing)
        self.assertEqual((done.returncode, done.stderr), (-signal.SIGPIPE, b""))

    def test_pickle(self):
        stage = convoy.Stage("n1h8c8k8r3+relu")
        self.assertEqual(pickle.loads(pickle.dumps(stage)), stage)

    def test_what_is_packed_for_a_machine_says_how_to_make_it_again(self):
        weights = np.ones((8, 3, 3, 8), np.float32)
        plan = convoy.Plan("n1h8c8k8r3+relu", weights)
        for thing, again in ((plan, "convoy.Plan(plan.stage, weights). Pickle plan.stage and the weights"),
                             (convoy.Network(convoy.demo_model()), "convoy.Network(folder)"),
                             (plan.pack(weights), "plan.pack(weights)")):  # fmt: skip
            for call in (copy.copy, copy.deepcopy, *(functools.partial(pickle.dumps, protocol=p) for p in range(6))):
                with self.assertRaisesRegex(TypeError, f"^a convoy.{type(thing).__name__} can be neither copied nor "
                                                       f"pickled: .*{re.escape(again)}"):  # fmt: skip
                    call(thing)


if __name__ == "__main__":
    unittest.main()
