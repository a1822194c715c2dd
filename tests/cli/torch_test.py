#!/usr/bin/env python3
"""`convoy check --torch`: values of another process are the reference. A worker of this file's own stands for
PyTorch, so that nothing needs to be installed; with CONVOY_TORCH_PYTHON the real one runs too.

    CONVOY_PROGRAM=build/release/bin/convoy tests/cli/torch_test.py [unittest options]
"""
import json
import os
import sys
import unittest

from cli_case import SPIKING, SPIKING_PARAMETERS, CliTest, convoy

OPERATORS = ["conv1", "if1", "pool1", "fc1", "lif1", "fc2"]

# Sums in double, element by element. {plant}: a line that changes `y` ([T,N,P,Q,K] as a flat list) of `kind`.
WORKER = """
import json, sys
from array import array
def read(name):
    values = array("f"); values.frombytes(open(name, "rb").read()); return values
for line in sys.stdin:
    q = json.loads(line)
    if q["op"] == "hello":
        print(json.dumps({{"name": "double sums"}}), flush=True); continue
    s, n, kind, folder, (t, _, p_, q_, k_) = q["stage"], q["n"], q["kind"], q["folder"], q["y_shape"]
    x, h, w, c = read(folder + "/x.bin"), s["h"], s["w"], s["c"]
    y, membrane = [], []
    if kind in ("conv", "linear"):
        weights, bias = read(folder + "/w.bin"), read(folder + "/bias.bin")
        for image in range(q["x_steps"] * n):
            for p in range(p_):
                for column in range(q_):
                    for k in range(k_):
                        y.append(bias[k] + sum(
                            x[((image * h + p + r) * w + column + a) * c + i] *
                            weights[((k * s["r"] + r) * s["s"] + a) * c + i]
                            for r in range(s["r"]) for a in range(s["s"]) for i in range(c)))
    elif kind == "neuron":
        size = n * h * w * c
        v = [0.0] * size
        for step in range(t):
            for i in range(size):
                value = x[(step if q["x_steps"] > 1 else 0) * size + i]
                v[i] += (value - v[i]) / s["tau"] if s["act"] == "lif" else value
                membrane.append(v[i])
                y.append(float(v[i] >= s["threshold"]))
                if y[-1]:
                    v[i] = v[i] - s["threshold"] if s["soft"] else 0.0
    else:
        for image in range(q["x_steps"] * n):
            for p in range(p_):
                for column in range(q_):
                    for k in range(k_):
                        y.append(max(x[((image * h + 2 * p + a) * w + 2 * column + b) * c + k]
                                     for a in (0, 1) for b in (0, 1)))
    {plant}
    open(folder + "/y.bin", "wb").write(array("f", y).tobytes())
    open(folder + "/membrane.bin", "wb").write(array("f", membrane).tobytes())
    print(json.dumps({{"seconds": 0.001}}), flush=True)
"""


class Torch(CliTest):
    def setUp(self):
        super().setUp()
        self.model = self.make_model("spiking", SPIKING, SPIKING_PARAMETERS)

    def check(self, plant="pass", *words, worker=None, env=None):
        script = self.here / "worker.py"
        script.write_text(worker or WORKER.format(plant=plant))
        return convoy("check", self.model, "--images", self.images, "--torch", "--torch-python", sys.executable,
                      "--torch-script", script, *words, env=env)

    def test_a_right_network_passes(self):
        result = self.check("pass", "--batch-size", 3, "--json")
        self.assertEqual(result.returncode, 0, result.stdout + result.stderr)
        report = json.loads(result.stdout)
        self.assertEqual(report["reference"], "double sums")
        self.assertEqual([op["name"] for op in report["operators"]], OPERATORS)
        self.assertTrue(all(op["passed"] for op in report["operators"]))
        self.assertEqual(report["labels"], report["reference_labels"])

    def test_an_error_is_found_where_it_is(self):
        # In each kind one value is off; the operator and the element are named.
        for kind, name, change in (("conv", "conv1", "y[4] += 0.01"), ("neuron", "if1", "y[5] = 1 - y[5]"),
                                   ("pool", "pool1", "y[6] = 1 - y[6]"), ("linear", "fc1", "y[2] -= 0.01")):
            with self.subTest(kind):
                result = self.check(f'if kind == "{kind}": {change}', "--op", name)
                self.assertEqual(result.returncode, 1, result.stdout)
                self.assertRegex(result.stdout, rf"{name} .*FAILED")
                # conv1's fifth value is row 0, column 1, filter 1 of step 0.
                if name == "conv1":
                    self.assertIn("(t,h,w,c) = (0,0,1,1): ", result.stdout)

    def test_both_sides_are_saved(self):
        result = self.check("pass", "--op", "all", "--save", self.here / "saved")
        self.assertEqual(result.returncode, 0, result.stdout + result.stderr)
        self.assertEqual(convoy("compare", self.here / "saved").returncode, 0)

    def test_what_goes_wrong_is_said(self):
        hello = 'import sys, json\nsys.stdin.readline(); print(json.dumps({"name": "it"}), flush=True)\n'
        for worker, words in (
                ("", ["worker died", "worker.py"]),
                ("print('{}', flush=True)", ["--torch-python", "--torch-script"]),
                ("print('no json', flush=True)", ['"no json"', "--torch-script"]),
                ('print(\'{"name": "\\\\u001b"}\', flush=True)', ["--torch-script"]),
                ('print(\'{"error": "no torch here"}\', flush=True)', ["--torch: no torch here"]),
                (hello, ["worker died"]),
                (hello + 'sys.stdin.readline(); print(json.dumps({"seconds": -1}), flush=True)', ["--torch-script"]),
                (hello + 'sys.stdin.readline(); print(json.dumps({"seconds": 1}), flush=True)', ["y.bin"]),
                (WORKER.format(plant="y = y[1:]"), ["y.bin", "bytes, expected"])):
            with self.subTest(words):
                result = self.check(worker=worker or "pass")
                self.assertEqual(result.returncode, 2, result.stdout)
                for word in words:
                    self.assertIn(word, result.stderr)
                self.assertEqual(result.stdout, "")

    def test_what_is_asked_for_stands_before_what_is_inherited(self):
        told = self.here / "told"
        worker = (f"import os\nwith open({str(told)!r}, 'w') as file:\n"
                  "    print(*(os.environ[n] for n in ('OMP_NUM_THREADS', 'CUDA_VISIBLE_DEVICES')), file=file)\n")
        self.check("pass", "--threads", 1, worker=worker + WORKER.format(plant="pass"),
                   env={"OMP_NUM_THREADS": "7", "CUDA_VISIBLE_DEVICES": "3"})
        self.assertEqual(told.read_text(), "1 \n")

    def test_missing_files_are_named(self):
        absent = self.here / "absent"
        for option, path, others in (("--torch-python", absent, ("--torch-script", __file__)),
                                     ("--torch-script", absent, ("--torch-python", sys.executable))):
            result = convoy("check", self.model, "--images", self.images, "--torch", option, path, *others)
            self.assertEqual(result.returncode, 2)
            self.assertIn(str(path), result.stderr)
            self.assertIn(option, result.stderr)

    def test_nothing_is_left_behind(self):
        folder = self.here / "temporary"
        folder.mkdir()
        self.assertEqual(self.check(env={"TMPDIR": str(folder)}).returncode, 0)
        self.assertEqual(self.check(worker="pass", env={"TMPDIR": str(folder)}).returncode, 2)
        self.assertEqual(list(folder.iterdir()), [])

    @unittest.skipUnless(os.environ.get("CONVOY_TORCH_PYTHON"), "CONVOY_TORCH_PYTHON is not set")
    def test_pytorch_agrees(self):
        result = convoy("check", self.model, "--images", self.images, "--torch", "--batch-size", 3)
        self.assertEqual(result.returncode, 0, result.stdout + result.stderr)
        self.assertIn("reference: PyTorch ", result.stdout)


if __name__ == "__main__":
    unittest.main()
