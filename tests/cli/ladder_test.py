#!/usr/bin/env python3
"""convoy ladder: what it refuses, and on a machine with a GPU what it prints.

    CONVOY_PROGRAM=build/release/bin/convoy tests/cli/ladder_test.py [unittest options]
"""
import json
import unittest

from cli_case import CliTest, convoy

SMALL = "f16:n1h8c64k64r3pad1+bias+relu+keep(pre)"


def no_gpu():
    return not json.loads(convoy("devices", "--json", "--no-measure").stdout)["gpus"]["devices"]


class Ladder(CliTest):
    def test_wrong_usage(self):
        for words, *expected in (
            (["--device", "cpu"], "--device", '"cpu"', "cuda"),
            (["--device", "toaster"], "toaster"),
            (["--stage", "f16:h8"], "f16:h8"),
            (["--rounds", "0"], "--rounds", "1 to 1000"),
            (["--seconds", "0"], "--seconds", "0.001 to 10"),
            (["more"], "more"),
        ):
            with self.subTest(words):
                self.refused(convoy("ladder", *words), *expected)

    def test_without_a_gpu_it_says_so(self):
        if not no_gpu():
            self.skipTest("there is a GPU")
        for words in ([], ["--stage", SMALL], ["--json"]):
            with self.subTest(words):
                self.refused(convoy("ladder", *words), "device cuda(:0)?: ", "or use cpu")

    def test_rungs_and_what_lacks_one(self):
        if no_gpu():
            self.skipTest("no GPU")
        words = ("ladder", "--stage", SMALL, "--rounds", "1", "--seconds", "0.001")
        self.assertIn("ladder_9_bounds", convoy(*words).stdout)
        stage, = json.loads(convoy(*words, "--json").stdout)["stages"]
        self.assertEqual(stage["left_out"], [])
        self.assertEqual(len(stage["rungs"]), 11)
        self.assertEqual(sum("without" in rung for rung in stage["rungs"]), 9)
        for rung in stage["rungs"]:
            self.assertGreater(rung["median_us"], 0)
            self.assertGreater(rung["launches"][0]["registers"], 0)

    def test_a_stage_that_no_rung_takes(self):
        if no_gpu():
            self.skipTest("no GPU")
        self.refused(convoy("ladder", "--stage", "bf16:n1h8c64k64r3"), "bf16", "f16")


if __name__ == "__main__":
    unittest.main()
