#!/usr/bin/env python3
"""Stages and shape lists, as the subcommands that take them see them.

    CONVOY_PROGRAM=build/release/bin/convoy tests/cli/stages_test.py [unittest options]
"""
import json
import os
import unittest

from cli_case import PROGRAM, STAGE, CliTest, convoy


class Stages(CliTest):
    def test_illegal_stages(self):
        illegal = {
            "n0h8c4k4r3": "n",
            "n1h0c4k4r3": "h",
            "n1h8c0k4r3": "c",
            "n1h8c4k0r3": "k",
            "n1h8c4k4r0": "r",
            "n-1h8c4k4r3": "-1",
            "n1h8c4k4r3stride0": "stride",
            "n9999999999h9999999c4k4r3": "2147483647",
            "n2147483647h999999c99999k4r3": "(?i)overflow|large|many|more than",
            "n99999999999999999999h8c4k4r3": "99999999999999999999",
            "n1h8c4k4r3+paint": "paint",
            "n1h8c4k4r3+gelu": "gelu.*not supported yet",
            "n1h8c6k4r3groups4": "groups",
            "n1h4c4k4r3+max3": "(?i)pool|max",
            "n1h2c4k4r3": "(?i)r|filter",
            "n1h8c4k4r3+relu+relu6": "relu6",
            "n1h8c4k4r3+bias+bias": "bias",
            "n1h8c4k4r3+soft": "soft",
            "n1h8c4k4r3+keep(idx)": "idx",
            "n1h8c4k4r3+max2s2p2": "pad",
            "f64:n1h8c4k4r3": "f64",
            "n1h8c4k4": "r is missing",
            "": "n is missing",
            "n1h8c4k4r3+clip(2,1)": "clip",
            "n1h8c4k4r3+lif(0,1)": "tau|lif",
        }
        for text, expected in illegal.items():
            with self.subTest(text):
                self.refused(convoy("explain", text), expected)

    def test_explain(self):
        result = convoy("explain", STAGE)
        self.assertEqual(result.returncode, 0, result.stderr)
        for word in ("gemm_m", "gemm_n", "gemm_k", "general", "winograd"):
            self.assertIn(word, result.stdout)

    def test_in_words(self):
        text = convoy("explain", "n1h8c4k4r3+relu+max3x2s1p1x0d2x1ceil+keep(pre,act,idx)", "--no-measure").stdout
        self.assertIn("max-pool 3 x 2 with stride 1 and padding 1 x 0 and dilation 2 x 1, sizes rounded up; "
                      "also kept: the values before the activation, the values before the pool, the "
                      "position of each maximum.", text)

    def test_explain_json(self):
        result = convoy("explain", STAGE, "--json", "--no-measure")
        self.assertEqual(result.returncode, 0, result.stderr)
        json.loads(result.stdout)

    def test_devices_json(self):
        json.loads(convoy("devices", "--json").stdout)

    def test_shape_lists(self):
        good = self.write("list.txt", f"# two\n{STAGE}\nn1h5c3k4r3  # small\n".encode())
        result = convoy("verify", "--shapes", good)
        self.assertEqual(result.returncode, 0, result.stdout + result.stderr)
        bad = self.write("bad.txt", f"{STAGE}\nn1h5c3\n".encode())
        self.refused(convoy("verify", "--shapes", bad), r"bad\.txt.*2")
        self.refused(convoy("bench", "--shapes", self.here / "absent"), "absent")
        self.refused(convoy("bench", "--shapes", self.here), "(?i)file")
        for name, data in (("none.txt", b""), ("comment.txt", b"# nothing\n\n")):
            self.refused(convoy("verify", "--shapes", self.write(name, data)), name, "no stage")
        binary = self.write("binary.txt", b"n1h8c4k4r3\x1b[2J\0\xff+relu\n")
        result = convoy("verify", "--shapes", binary)
        self.refused(result, r"binary\.txt:1", "column 11")
        self.assertTrue(result.stderr.rstrip("\n").isprintable(), repr(result.stderr))

    def test_a_list_for_other_types_and_sizes(self):
        shapes = self.here / "list"
        shapes.write_text("n8h8c4k5r3pad1+relu+max2+keep(idx)\n")
        changes = ["--shapes", shapes, "--dtype", "f16", "--images", "2", "--without-pool"]
        result = convoy("verify", *changes, "--json")
        self.assertEqual(result.returncode, 0, result.stderr)
        report = json.loads(result.stdout)
        self.assertGreater(report["checks"], 0)
        self.assertEqual({cell["epilogue"] for cell in report["coverage"]}, {"relu"})
        out = self.here / "bench.json"
        self.assertEqual(convoy("bench", *changes, "--rounds", "1", "--json", out).returncode, 0)
        self.assertEqual([row["stage"] for row in json.loads(out.read_text())["rows"]],
                         ["f16:n2h8w8c4k5r3pad1+relu"])

    def test_several_stages(self):
        stages = ["--stage", STAGE, "--stage", "n1h5c3k4r3"]
        for words in (["bench", "--rounds", "1"], ["tune", "--dry-run", "--seconds", "0.01"], ["verify"]):
            with self.subTest(words[0]):
                result = convoy(*words, *stages)
                self.assertEqual(result.returncode, 0, result.stderr)
                self.assertRegex(result.stdout, "2 stages|n2h8w8c16(.|\n)*n1h5w5c3")

    def test_tune_of_all_kernels(self):
        def kernels(*words):
            words = ("tune", "--stage", STAGE, "--seconds", "0.001", "--json", *words)
            result = convoy(*words, env={"CONVOY_CACHE": cache})
            self.assertEqual(result.returncode, 0, result.stderr)
            report = json.loads(result.stdout)
            self.assertGreater(report["cpu"]["l2_bytes"], 0)
            return {row["kernel"] for row in report["stages"][0]["rows"]}

        cache = str(self.here / "cache")
        every = kernels("--all-kernels")
        self.assertFalse(os.path.exists(cache), "--all-kernels saves nothing")
        self.assertGreater(every, kernels(), "kernels of other arithmetics too")

    def test_tune_of_a_network(self):
        cache = self.here / "cache"
        words = ("tune", self.model, "--threads", "1", "--seconds", "0.001")
        result = convoy(*words, "--batch", "2", "--batch", "5", "--json", env={"CONVOY_CACHE": str(cache)})
        self.assertEqual(result.returncode, 0, result.stderr)
        report = json.loads(result.stdout)
        self.assertGreater(report["cpu"]["l2_bytes"], 0)
        self.assertEqual([one["layers"] for one in report["stages"]], [["conv1"], ["fc1"]] * 2)
        self.assertRegex(report["stages"][2]["stage"], "^n5h6w6c1")
        stored = json.loads((cache / "tuning.json").read_text())["rows"]
        self.assertEqual({row["stage"] for row in stored}, {one["stage"] for one in report["stages"]})
        result = convoy(*words, "--batch", "3", "--dry-run")
        self.assertRegex(result.stdout, r"^n3h6w6c1\S+\n  layer: conv1\n  arithmetic: ")
        self.assertNotIn("Saved", result.stdout)
        self.refused(convoy(*words, "--batch", "0"), '--batch: "0"', "1 to 2147483647")
        self.refused(convoy(*words, "--stage", STAGE), "a model folder, and --stage")
        self.refused(convoy(*words, "--strict"), "--strict or --all-kernels")
        self.refused(convoy("tune", "--stage", STAGE, "--batch", "2"), "--batch without a model folder")
        self.refused(convoy("tune", "/nowhere"), "/nowhere")

    @unittest.skipIf("/asan/" in PROGRAM or "/tsan/" in PROGRAM,
                     "sanitizers end a program whose allocation fails")
    def test_more_than_memory_holds(self):
        huge = "n1h2c1k1r1pad3000000"  # y alone is larger than the address space
        self.refused(convoy("bench", "--stage", huge, "--rounds", "1"), "(?i)no memory", "smaller")
        result = convoy("verify", "--stage", huge, "--kernel", "general")
        self.assertEqual(result.returncode, 1)
        self.assertRegex(result.stdout.splitlines()[0], "^FAILED n1h2w2c1k1r1pad3000000: no memory")

    def test_nothing_to_verify(self):
        self.refused(convoy("verify", "--random", "0"), "no stage")
        # A build with sanitizers is for this machine's instruction set alone.
        why = ["no scalar"] if os.environ.get("CONVOY_SANITIZED") else ["winograd4", "multiply-add"]
        self.refused(convoy("verify", "--random", "3", "--kernel", "winograd4",
                            env={"CONVOY_ISA": "scalar"}), *why)
        self.refused(convoy("verify", "--random", "3", "--seed", "-1"), "seed")

    def test_unknown_kernel(self):
        self.refused(convoy("bench", "--stage", STAGE, "--kernel", "paint"), "paint", "general")


if __name__ == "__main__":
    unittest.main()
