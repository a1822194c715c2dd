#!/usr/bin/env python3
"""convoy run --profile and --trace.

    CONVOY_PROGRAM=build/release/bin/convoy tests/cli/profile_test.py [unittest options]
"""
import json
import pathlib
import random
import unittest

from cli_case import CLASSES, IMAGES, SIZE, SPIKING, SPIKING_PARAMETERS, STEPS, CliTest, idx

MODELS = pathlib.Path(__file__).resolve().parents[2] / "models"
# Of the model in cli_case, an image: conv1 4x4x2 outputs of 9 products, fc1 32 inputs to each class.
OPERATIONS = {"conv1": 2 * 16 * 2 * 9, "fc1": 2 * 32 * CLASSES}
PARAMETERS = {"conv1": 18 + 2, "fc1": 32 * CLASSES + CLASSES}


class Profile(CliTest):
    def profiled(self, *words, **options):
        """The profile of the JSON report, and the trace's events."""
        record, trace = self.here / "profile.json", self.here / "trace.json"
        result = self.run_model("--profile", "--json", record, "--trace", trace, *words, **options)
        self.assertEqual(result.returncode, 0, result.stderr)
        return json.loads(record.read_text())["profile"], json.loads(trace.read_text())["traceEvents"], result.stdout

    def expect_whole(self, profile, events, layers):
        """What holds of every profile."""
        self.assertEqual([layer["name"] for layer in profile["layers"]], layers)
        timed = [layer for layer in profile["layers"] if "seconds" in layer]
        self.assertAlmostEqual(sum(layer["share"] for layer in timed), 1, places=6)
        self.assertAlmostEqual(sum(layer["seconds"] for layer in timed), profile["seconds"], places=9)
        for layer in profile["layers"]:
            self.assertTrue(layer["why"], layer)
        for layer in timed:
            floor = max(layer["operations"] / profile["peak_gflops"] / 1e9, layer["bytes"] / profile["bandwidth"])
            self.assertAlmostEqual(layer["floor_seconds"] / floor, 1, places=6)
            self.assertAlmostEqual(layer["times_floor"] / (layer["seconds"] / floor), 1, places=6)
        spans = [event for event in events if event["ph"] == "X"]
        kernels, parts = ([e for e in spans if e["tid"] == track] for track in (0, 1))
        self.assertTrue(kernels)
        self.assertEqual({event["name"] for event in parts}, {layer["name"] for layer in timed})
        ends = 0
        for event in kernels:  # one after the other
            self.assertGreaterEqual(event["ts"] + 0.002, ends)
            ends = event["ts"] + event["dur"]
        for event in parts:  # inside one of them
            begin, end = event["ts"], event["ts"] + event["dur"]
            self.assertTrue(any(k["ts"] <= begin + 0.002 and end <= k["ts"] + k["dur"] + 0.002 for k in kernels), event)

    def test_a_small_model(self):
        profile, events, text = self.profiled()
        self.expect_whole(profile, events, ["conv1", "fc1"])
        self.assertEqual(profile["images"], IMAGES)
        for layer in profile["layers"]:
            self.assertEqual(layer["operations"], IMAGES * OPERATIONS[layer["name"]])
        conv1, fc1 = profile["layers"]
        hidden = 4 * IMAGES * 32  # between the layers
        self.assertEqual(conv1["bytes"], IMAGES * SIZE * SIZE + 4 * PARAMETERS["conv1"] + hidden)
        self.assertEqual(fc1["bytes"], 4 * PARAMETERS["fc1"] + hidden + 4 * IMAGES * CLASSES)
        self.assertRegex(text, r"(?m)^layer +kernel +time us +share +bytes +floor us +x floor$")
        self.assertRegex(text, r"(?m)^conv1 by \w+: ")
        self.assertRegex(text.splitlines()[-1], r"^\d+\.\d{4}:[01]\.\d{4}$")

    def test_batches(self):
        batch = random.randint(1, IMAGES)
        profile, events, _ = self.profiled("--batch", batch, "--threads", "1")
        self.expect_whole(profile, events, ["conv1", "fc1"])
        spans = [event for event in events if event["ph"] == "X" and event["tid"] == 0]
        self.assertEqual(sum(event["args"]["images"] for event in spans), 2 * IMAGES, f"--batch {batch}")

    def test_spiking_layers_in_one_kernel(self):
        model = self.make_model("spiking", SPIKING, SPIKING_PARAMETERS)
        profile, events, _ = self.profiled(model=model)
        self.expect_whole(profile, events, list(SPIKING_PARAMETERS))
        self.assertEqual(profile["layers"][1]["operations"], 2 * STEPS * IMAGES * 7 * 12)

    def test_colours(self):
        draw = random.Random(7)
        images = self.write("rgb", idx(0x803 + 1, (8, 32, 32, 3), draw.randbytes(8 * 32 * 32 * 3)))
        labels = self.write("rgb-labels", idx(0x801, (8,), [i % 10 for i in range(8)]))
        profile, events, _ = self.profiled(model=MODELS / "rgb-scnn", images=images, labels=labels)
        self.expect_whole(profile, events, ["conv1", "conv2", "conv3", "fc1", "fc2"])

    def test_only_where_asked_for(self):
        result = self.run_model("--json", "-")
        self.assertNotIn("profile", json.loads(result.stdout))
        self.assertNotIn("floor us", self.run_model().stdout)
        alone = self.run_model("--trace", "-")
        self.assertEqual(alone.returncode, 0, alone.stderr)
        self.assertIn("traceEvents", json.loads(alone.stdout))

    def test_refused(self):
        path = self.here / "same.json"
        for words, *expected in ((["--trace", self.here / "no/trace.json"], "no/trace.json"),
                                 (["--trace", self.here], str(self.here)),
                                 (["--trace", ""], "--trace"),
                                 (["--trace", path, "--json", path], "--trace", "the same file")):
            with self.subTest(words):
                self.refused(self.run_model(*words), *expected)


if __name__ == "__main__":
    unittest.main()
