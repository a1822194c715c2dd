#!/usr/bin/env python3
"""`convoy dump`, `compare` and `check`: a network that is right passes, each planted error is found
and its operator and element named, and bad input is told from it.

    CONVOY_PROGRAM=build/release/bin/convoy tests/cli/debugging_test.py [unittest options]
"""
import array
import json
import math
import re
import shutil
import unittest

from cli_case import CLASSES, IMAGES, SIZE, SPIKING, SPIKING_PARAMETERS, STEPS, CliTest, convoy

SPIKING_OPERATORS = {"conv1": [STEPS, 4, 4, 3], "if1": [STEPS, 4, 4, 3], "pool1": [STEPS, 2, 2, 3],
                     "fc1": [STEPS, 1, 1, 7], "lif1": [STEPS, 1, 1, 7], "fc2": [STEPS, 1, 1, CLASSES],
                     "mean": [1, 1, 1, CLASSES]}
# Two layers read conv1; one of them is called as its follower would be.
BRANCHES = f"""input u8:h{SIZE}w{SIZE}c1
conv1 k2r3pad1+bias+relu6
wide k3r3pad1+bias+leaky(0.25)
relu2 k2r1+relu from(conv1)
both k4r3+bias+clip(0,2)+max3s1p1 from(wide,relu2)
"""


class Debugging(CliTest):
    def setUp(self):
        super().setUp()
        self.spiking = self.make_model("spiking", SPIKING, SPIKING_PARAMETERS)
        self.dumps = self.here / "dumps"

    def dump(self, *words, model=None, folder=None, image=3):
        return convoy("dump", model or self.spiking, folder or self.dumps, "--images", self.images,
                      "--img-idx", image, *words)

    def dump_both(self, model=None, reference=None):
        """Convoy's side of one model, the reference's of another."""
        for words, of in (([], model), (["--reference"], reference or model)):
            result = self.dump(*words, model=of)
            self.assertEqual(result.returncode, 0, result.stderr)

    def compare(self, *words):
        return convoy("compare", self.dumps, *words)

    def check(self, *words, model=None):
        return convoy("check", model or self.spiking, "--images", self.images, *words)

    def passed(self, result):
        self.assertEqual(result.returncode, 0, result.stdout + result.stderr)
        self.assertEqual(result.stderr, "")
        return result.stdout

    def failed(self, result, *expected):
        """Exit code 1, and every pattern in the report."""
        self.assertEqual(result.returncode, 1, result.stdout + result.stderr)
        self.assertEqual(result.stderr, "")
        for pattern in expected:
            self.assertRegex(result.stdout, pattern)

    def values(self, name):
        data = array.array("f")
        data.frombytes((self.dumps / f"dbg_{name}.bin").read_bytes())
        return data

    def put(self, name, values):
        (self.dumps / f"dbg_{name}.bin").write_bytes(array.array("f", values).tobytes())

    def changed_model(self, file, change):
        """The spiking model with one file changed."""
        model = shutil.copytree(self.spiking, self.here / "changed")
        (model / file).write_text(change((model / file).read_text()))
        return model


class Right(Debugging):
    """Networks that are as they should be."""

    def test_dumps_of_a_spiking_network(self):
        self.dump_both()
        index = json.loads((self.dumps / "dbg.json").read_text())
        self.assertEqual({op["name"]: op["shape"] for op in index["operators"]}, SPIKING_OPERATORS)
        self.assertEqual(index["image"], 3)
        of = {op["name"]: op for op in index["operators"]}
        self.assertEqual((of["if1"]["kind"], of["if1"]["threshold"]), ("neuron", 0.5))
        self.assertEqual((of["pool1"]["spikes_of"], of["fc2"]["kind"]), ("if1", "linear"))
        for name, shape in SPIKING_OPERATORS.items():
            for side in (name, name + "_ref"):
                self.assertEqual(len(self.values(side)), math.prod(shape), side)
        self.assertEqual(len(self.values("if1_mem_ref")), math.prod(SPIKING_OPERATORS["if1"]))
        self.assertIn("all 7 operators agree", self.passed(self.compare()))
        spikes = self.values("if1")
        self.assertEqual(set(spikes), {0, 1})  # else the planted errors below would prove little
        report = json.loads(self.passed(self.compare("--json")))
        self.assertTrue(report["passed"])
        self.assertEqual(sum(op["off"] for op in report["operators"]), 0)

    def test_values_are_the_definitions(self):
        # Neurons and pools of the dumped sums, in Python's doubles.
        self.dump_both()
        sums, spikes, pooled = self.values("conv1_ref"), self.values("if1_ref"), self.values("pool1_ref")
        membrane = [0.0] * 48
        for t in range(STEPS):
            for i in range(48):
                membrane[i] += sums[t * 48 + i]
                self.assertAlmostEqual(membrane[i], self.values("if1_mem_ref")[t * 48 + i], delta=1e-5)
                fires = membrane[i] >= 0.5
                self.assertEqual(spikes[t * 48 + i], fires)
                membrane[i] = 0 if fires else membrane[i]
            for place in range(12):
                i, j, k = place // 6, place // 3 % 2, place % 3
                window = [spikes[t * 48 + ((2 * i + r) * 4 + 2 * j + s) * 3 + k] for r in (0, 1) for s in (0, 1)]
                self.assertEqual(pooled[t * 12 + place], max(window))

    def test_other_networks(self):
        branches = self.make_model("branches", BRANCHES,
                                   {"conv1": (18, 2), "wide": (54, 3), "relu2": (4, 0), "both": (180, 4)})
        for model, names in ((self.model, "conv1 relu1 fc1"),
                             (branches, "conv1 relu1 wide leaky1 relu2 relu3 both clip1 pool1")):
            with self.subTest(model.name):
                self.dump_both(model)
                index = json.loads((self.dumps / "dbg.json").read_text())
                self.assertEqual([op["name"] for op in index["operators"]], names.split())
                self.passed(self.compare())
                self.passed(self.check("--op", "all", "fuse1", model=model))
                shutil.rmtree(self.dumps)

    def test_check(self):
        for words in (["--op", "all"], ["--op", "none"], ["--op", "fuse1"], ["--op", "fuse1", "fuse2", "fuse3"],
                      ["--op", "if1", "lif1", "pool1"], [], ["--timesteps", "1"], ["--timesteps", "5"]):
            with self.subTest(words):
                self.assertIn(f"{IMAGES} of {IMAGES} agree",
                              self.passed(self.check(*words, "--batch-size", IMAGES)))

    def test_check_without_tolerance(self):
        # Sums are rounded: 0 is too strict for them, not for spikes.
        result = self.check("--tol", "0", "--rtol", "0", "--batch-size", IMAGES, "--topk", "2")
        self.failed(result, r"conv1: \d+ of 576 values are wrong\n  \(t,n,h,w,c\) = \(0,\d+,\d,\d,\d\)",
                    r"if1 .* passed\n", "FAILED\n$")

    def test_check_times_and_reports(self):
        report = json.loads(self.passed(self.check("--op", "conv1", "--time-op", "conv1", "fuse2", "--batch-size",
                                                   "4", "--img-idx", "2", "--json")))
        self.assertEqual([op["name"] for op in report["operators"]], ["conv1", "fuse2"])
        self.assertEqual([op["checked"] for op in report["operators"]], [True, False])
        for op in report["operators"]:
            self.assertGreater(op["seconds"], 0)
            self.assertGreater(op["reference_seconds"], 0)
        self.assertEqual((len(report["labels"]), report["labels"]), (4, report["reference_labels"]))
        text = self.passed(self.check("--op", "none", "--time-op", "conv1"))
        self.assertRegex(text, r"conv1 .* timed\n")

    def test_check_saves_what_compare_reads(self):
        for words in (["--op", "conv1", "pool1"], ["--op", "fuse1"]):
            with self.subTest(words):
                self.passed(self.check(*words, "--batch-size", "2", "--save", self.dumps))
                index = json.loads((self.dumps / "dbg.json").read_text())
                self.assertEqual(index["operators"][-1]["shape"], [STEPS, 2, 2, 2, 3])
                self.passed(self.compare())


class Planted(Debugging):
    """One thing is wrong: it is found, and named."""

    def test_a_weight(self):
        def change(text):
            lines = text.splitlines()
            lines[9 + 4] = str(float(lines[9 + 4]) + 0.1)  # the middle of filter 1
            return "\n".join(lines)

        self.dump_both(self.changed_model("conv1.weight.txt", change), self.spiking)
        result = self.compare()
        self.failed(result, r"FAILED: conv1 is the first wrong operator, at \(t,h,w,c\) = \(0,\d,\d,1\)",
                    "conv1: 48 of 144 values")

    def test_a_weight_behind_neurons(self):
        wrong = self.changed_model("fc2.bias.txt", lambda text: "0.5\n" + text.split("\n", 1)[1])
        self.dump_both(wrong, self.spiking)
        result = self.compare()
        self.failed(result, r"FAILED: fc2 is the first wrong operator, at \(t,h,w,c\) = \(0,0,0,0\)",
                    "fc2: 3 of 9 values", "mean: 1 of 3 values")
        self.assertNotIn("fc1: ", result.stdout)

    def test_a_threshold(self):
        wrong = self.changed_model("network.txt", lambda text: text.replace("if(0.5)", "if(0.75)"))
        self.dump_both(wrong, self.spiking)
        self.failed(self.compare(), r"FAILED: if1 is the first wrong operator, at \(t,h,w,c\) = \(0,\d,\d,\d\): "
                                    r"0, expected 1, error 1; membrane 0\.\d+ from the threshold")

    def test_a_time_step(self):
        self.dump_both()
        values = self.values("pool1")
        values[12 + 5] = 1 - values[12 + 5]  # of step 1: row 0, column 1, channel 2
        self.put("pool1", values)
        self.failed(self.compare(), r"FAILED: pool1 is the first .* \(t,h,w,c\) = \(1,0,1,2\)", "pool1: 1 of 36 values")

    def test_a_transposed_layer(self):
        self.dump_both()
        values = self.values("conv1")
        self.put("conv1", [values[t * 48 + pixel * 3 + k]
                           for t in range(STEPS) for k in range(3) for pixel in range(16)])
        self.failed(self.compare(), "FAILED: conv1", r"agrees if it is read as \[T,C,H,W\], PyTorch's order")

    def test_a_value_that_is_none(self):
        self.dump_both()
        for value in (math.nan, math.inf):
            values = self.values("fc1")
            values[9] = value
            self.put("fc1", values)
            self.failed(self.compare(), r"FAILED: fc1 .* \(t,h,w,c\) = \(1,0,0,2\)", "1 of them NaN or infinite")
            report = json.loads(self.compare("--json").stdout)
            self.assertEqual((report["first_off"], report["operators"][3]["not_finite"]), ("fc1", 1))
            self.dump()

    def test_tolerance_and_topk(self):
        self.dump_both()
        self.put("fc2", [value + 0.001 * (i + 1) for i, value in enumerate(self.values("fc2_ref"))])
        self.failed(self.compare("--topk", "2"), "fc2: 9 of 9")
        report = json.loads(self.compare("--topk", "2", "--json").stdout)
        worst = report["operators"][5]["worst"]
        self.assertEqual([one["at"] for one in worst], [[2, 0, 0, 0, 2], [2, 0, 0, 0, 1]])
        self.passed(self.compare("--tol", "0.01"))

    def test_a_spike_at_the_threshold_may_differ(self):
        self.dump_both()
        spikes, membranes = self.values("if1"), self.values("if1_mem_ref")
        spikes[0] = 1 - spikes[0]
        self.put("if1", spikes)
        membranes[0] = 0.500001
        self.put("if1_mem_ref", membranes)
        self.assertIn("membrane at the threshold: 1\n", self.passed(self.compare()))
        (self.dumps / "dbg_if1_mem_ref.bin").unlink()  # a reference without membranes excuses nothing
        self.failed(self.compare(), "FAILED: if1")


class BadInput(Debugging):
    def test_dumps_that_do_not_fit(self):
        self.dump_both()
        path = self.dumps / "dbg_if1.bin"
        good = path.read_bytes()
        for data in (good[:-1], good[:-4], good + b"0000", b""):
            path.write_bytes(data)
            self.refused(self.compare(), r"dbg_if1\.bin", f"{len(data)} bytes, expected {len(good)}")
        path.unlink()
        self.refused(self.compare(), r"dbg_if1\.bin", "(?i)no such")
        path.write_bytes(good)
        (self.dumps / "dbg_fc1_ref.bin").unlink()
        self.refused(self.compare(), r"dbg_fc1_ref\.bin")

    def test_two_sides_that_do_not_belong_together(self):
        self.dump_both()
        self.dump("--reference", image=4)
        self.refused(self.compare(), "image 3, but the reference is of image 4")
        self.dump("--reference", model=self.model)
        self.refused(self.compare(), "7 operators, but the reference has 3")

    def test_spoiled_indices(self):
        self.dump_both()
        path = self.dumps / "dbg.json"
        good = path.read_text()
        for change, *expected in (
            (lambda text: text[:-9], "object"),
            (lambda text: "[]", "object"),
            (lambda text: text.replace('"name"', '"nome"'), 'operator 1: has no "name"'),
            (lambda text: text.replace('"if1"', '"../if1"'), r"dbg_\.\.%2Fif1\.bin", "(?i)no such"),
            (lambda text: text.replace('"if1"', '"if\\u0001"'), "operator 2", "control character"),
            (lambda text: text.replace('"if1"', '"conv1"'), "conv1"),
            (lambda text: text.replace('"neuron"', '"newton"'), "newton"),
            (lambda text: text.replace("   3,", "   4,", 1), "bytes|belong"),
            (lambda text: text.replace("   3,", "   9000000000000000000,", 1), "4 GiB"),
            (lambda text: text.replace("   3,", "   -3,", 1), "1 or more"),
            (lambda text: text.replace("max2", "max3"), "do not match"),
            (lambda text: text.replace("max2", "maxi"), "operator 3"),
            (lambda text: text.replace("max2", "max2s1000000000"), "operator 3"),
            (lambda text: text.replace('"stage"', '"stadium"'), 'operator 2: has no "stage"'),
        ):
            spoiled = change(good)
            self.assertNotEqual(spoiled, good)
            with self.subTest(expected):
                path.write_text(spoiled)
                (self.dumps / "dbg_ref.json").write_text(spoiled)
                self.refused(self.compare(), r"dbg\.json|dumps", *expected)
        path.unlink()
        self.refused(self.compare(), r"dbg\.json")

    def test_one_side_alone(self):
        self.assertEqual(self.dump().returncode, 0)
        self.refused(self.compare(), r"expected dbg_ref\.json too", "convoy dump MODEL .* --reference`")
        for file in self.dumps.iterdir():
            file.unlink()
        self.assertEqual(self.dump("--reference").returncode, 0)
        self.refused(self.compare(), r"expected dbg\.json too", "convoy dump MODEL [^ ]*` writes it")

    def test_folders_that_are_none(self):
        file = self.write("file", b"keep me")
        for folder in (file, file / "below"):
            self.refused(self.dump(folder=folder), "file", "folder|cannot be made")
            self.refused(convoy("compare", folder), "file", "folder of dumps")
            self.refused(self.check("--save", folder), "file", "folder|cannot be made")
        self.assertEqual(file.read_bytes(), b"keep me")
        self.refused(convoy("compare", self.here / "absent"), "absent")

    def test_images_that_are_not_there(self):
        self.refused(self.dump(image=IMAGES),
                     f"--img-idx {IMAGES}: the file has {IMAGES} images, expected an index from 0 to")
        self.refused(self.dump(image=-1), "--img-idx")
        self.refused(self.check("--img-idx", IMAGES - 1, "--batch-size", "2"), "Ask for at most 1")
        self.refused(self.check("--batch-size", "9223372036854775807"), "has 12")
        self.assertFalse(self.dumps.exists())

    def test_words_that_mean_nothing(self):
        known = "conv1, if1, pool1, fc1, lif1, fc2, fuse1 to fuse3"
        for words in (["--op", "conv9"], ["--op", "all", "conv9"], ["--time-op", "conv9"], ["--op", "fuse4"]):
            self.refused(self.check(*words), known)
        for count in ("0", "-1", "65537", "two"):
            self.refused(self.check("--timesteps", count), "--timesteps", "1 to 65536")
        self.refused(self.compare("--tol", "-1"), "--tol")
        self.refused(self.compare("--rtol", "nan"), "--rtol")

    def test_files_of_one_name(self):
        twins = self.make_model("twins", SPIKING.replace("fc1", "conv1_ref"),
                                {"conv1": (27, 3), "conv1_ref": (84, 7), "fc2": (21, 3)})
        self.refused(self.dump(model=twins), r"dbg_conv1_ref\.bin", "Rename")

    def test_names_that_no_file_has(self):
        names = ("block/conv:0", "../fc%2F", "x" * 300)
        text = SPIKING
        for old, new in zip(SPIKING_PARAMETERS, names, strict=True):
            text = text.replace(f"{old} ", f"{new} ")
        model = self.make_model("named", text, {})
        files = ("block%2Fconv:0", "..%2Ffc%252F")
        for file, counts in zip(files, SPIKING_PARAMETERS.values()):
            for kind, count in zip(("weight", "bias"), counts, strict=True):
                (model / f"{file}.{kind}.txt").write_text("0.25\n" * count)
        # A name that is too long for a file's: the message tells the file's.
        refusal = self.dump(model=model)
        self.refused(refusal, r"x{202}%~[0-9a-f]{16}\.txt")
        for count in SPIKING_PARAMETERS["fc2"]:
            file = re.search(r"in (x+%~[0-9a-f]{16})\.txt", self.dump(model=model).stderr)[1]
            (model / f"{file}.txt").write_text("0.25\n" * count)
        for words in ((), ("--reference",)):
            result = self.dump(*words, model=model)
            self.assertEqual(result.returncode, 0, result.stderr)
        written = {path.name for path in self.dumps.iterdir()}
        self.assertLessEqual({"dbg_block%2Fconv:0.bin", "dbg_..%2Ffc%252F_ref.bin"}, written)
        self.assertEqual(len(written), 2 * 7 + 2 + 2)  # with two membranes and two indices
        result = self.compare()
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertIn("block/conv:0", result.stdout)
        result = self.run_model("--profile", model=model)
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertRegex(result.stdout, r"(?m)^block/conv:0 +n1h6(.|\n)*^x{160}\.\.\. ")

    def test_half_a_dump_is_never_left(self):
        self.dump_both()
        before = sorted(path.name for path in self.dumps.iterdir())
        self.dump_both()
        self.assertEqual(sorted(path.name for path in self.dumps.iterdir()), before)


if __name__ == "__main__":
    unittest.main()
