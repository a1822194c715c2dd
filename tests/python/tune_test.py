"""convoy.tune of a stage and of a network, with a cache of its own."""

import json
import os
import tempfile
import unittest
from pathlib import Path
from unittest import mock

import numpy as np

import convoy

TEXT = "input f32:h6c4\nconv1 k8r3pad1+bias+relu\nconv2 k8r3pad1+bias+relu\nflatten\nfc k5\n"


def network(batch):
    parameters = {
        "conv1.weight": np.ones((8, 4, 3, 3), np.float32), "conv1.bias": np.ones(8, np.float32),
        "conv2.weight": np.ones((8, 8, 3, 3), np.float32), "conv2.bias": np.ones(8, np.float32),
        "fc.weight": np.ones((5, 288), np.float32)}  # fmt: skip
    return convoy.Network.from_text(TEXT, parameters, threads=1, batch=batch)


class Tune(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        patch = mock.patch.dict(os.environ, {"CONVOY_CACHE": folder.name})
        patch.start()
        self.addCleanup(patch.stop)
        self.path = Path(folder.name, "tuning.json")

    def rows(self):
        return {row["stage"]: row["kernel"] for row in json.loads(self.path.read_text())["rows"]}

    def test_a_stage(self):
        stage = convoy.Stage("n2h8c8k8r3pad1+relu")
        result = convoy.tune(stage, threads=1, seconds=0.002)
        self.assertEqual(result["saved_to"], str(self.path))
        (one,) = result["stages"]
        self.assertEqual(one["stage"], str(stage))
        best = one["rows"][0]
        self.assertTrue(best["chosen"] and best["median_seconds"] > 0 and best["runs"] > 0)
        plan = convoy.Plan(stage, threads=1)
        self.assertEqual((plan.kernel, plan.tile), (best["kernel"], best["tile"]))
        self.assertIn("`convoy tune` measured", plan.explain())

    def test_a_network(self):
        result = convoy.tune(network(3), batches=[3, 1], seconds=0.002)
        self.assertEqual([(one["layers"], one["batch"]) for one in result["stages"]],
                         [([name], batch) for batch in (3, 1) for name in ("conv1", "conv2", "fc")])  # fmt: skip
        self.assertEqual(self.rows(), {one["stage"]: one["rows"][0]["kernel"] for one in result["stages"]})
        self.assertEqual([layer.kernel for layer in network(3).layers],
                         [one["rows"][0]["kernel"] for one in result["stages"][:3]])  # fmt: skip

    def test_nothing_is_saved_unless_asked(self):
        self.assertNotIn("saved_to", convoy.tune(network(1), seconds=0.001, save=False))
        self.assertFalse(self.path.exists())

    def test_wrong_arguments(self):
        def refused(pattern, *arguments, **named):
            with self.assertRaisesRegex(convoy.Error, pattern):
                convoy.tune(*arguments, **named)

        refused("batches: given with a stage", "n1h8c8k8r3", batches=[1])
        refused("device, threads: given with a Network", network(1), threads=2)
        refused("found the batch 0", network(1), batches=[0])
        refused("seconds", network(1), seconds=0)
        refused("column", "n1h8c8k8r3+swish")
        self.assertFalse(self.path.exists())


if __name__ == "__main__":
    unittest.main()
