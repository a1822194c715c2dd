#!/usr/bin/env python3
"""Chains of stages, as the subcommands that take them see them.

    CONVOY_PROGRAM=build/release/bin/convoy tests/cli/chains_test.py [unittest options]
"""
import json
import unittest

from cli_case import STAGE, CliTest, convoy

IMAGES = ("constants > u8:n3h10c1k8r3+bias+if(1)+t2+hold+max2 > n3h4c8k9r3pad1+bias+if(0.5)+t2 > "
          "n3h1c144k5r1+bias > mean")
SPIKES = "constants > spikes t3 > n2h6w6c7k9r3pad1+lif(2,0.5)+t3"


class Chains(CliTest):
    def test_tune(self):
        result = convoy("tune", "--stage", IMAGES, "--stage", STAGE, "--seconds", "0.01", "--json")
        self.assertEqual(result.returncode, 0, result.stderr)
        chain, stage = json.loads(result.stdout)["stages"]
        self.assertTrue(chain["stage"].endswith("> mean"))
        self.assertEqual({row["kernel"] for row in chain["rows"]}, {"spike_chain", "stages"})
        self.assertNotIn(">", stage["stage"])
        self.refused(convoy("tune", "--stage", IMAGES, "--all-kernels"), "single stages")
        result = convoy("tune", "--stage", f"{STAGE} > n2h4c16k4r1")
        self.assertEqual(result.returncode, 2)
        self.assertRegex(result.stderr, "spike_chain: .*constants > ")

    def test_bench(self):
        out = self.here / "out.json"
        words = ("--rounds", "1", "--seconds", "0.002", "--no-tuning")  # one round: its ratio is that of the medians
        result = convoy("bench", "--stage", IMAGES, "--stage", STAGE, *words, "--json", out, "--csv", "-")
        self.assertEqual(result.returncode, 0, result.stderr)
        chain, stage = json.loads(out.read_text())["rows"]
        self.assertEqual((chain["kernel"], chain["best_peer"]), ("spike_chain", "stage by stage"))
        self.assertTrue(chain["stage"].endswith("> mean"))
        self.assertGreater(chain["gflops"], 0)
        medians = [side["median_us"] for side in (chain["peers"][0], chain["convoy"])]
        self.assertAlmostEqual(chain["ratio"] * medians[1] / medians[0], 1, places=5)
        self.assertEqual({"checked", "error", "plan_us"} & set(chain), set())
        self.assertEqual({"error", "plan_us"} & set(stage), {"error", "plan_us"})
        csv = result.stdout.replace(IMAGES, "-").replace(STAGE, "-")
        self.assertEqual([line.count(",") for line in csv.splitlines()], [18, 18, 18])
        table = convoy("bench", "--stage", SPIKES, *words)
        self.assertRegex(table.stdout, "spike_chain .* stage by stage ")
        # 2.06e9 multiply-adds an image: timed, not checked.
        large = convoy("bench", "--stage", "constants > spikes > n1h114w112c7k64r19pad9+lif(2,0.5)", *words)
        self.assertEqual(large.returncode, 0, large.stderr)
        self.assertIn("not checked", large.stdout)

    def test_bench_refuses(self):
        for flag in ("--peers", "--both-modes", "--both-types", "--unfused", "--apart"):
            with self.subTest(flag):
                self.refused(convoy("bench", "--stage", SPIKES, flag), f"{flag}: ")
        self.refused(convoy("bench", "--stage", f"{STAGE} > n2h4c16k4r1"), "spike_chain: .*constants > ")
        self.refused(convoy("bench", "--stage", SPIKES, "--kernel", "general"), "runs one stage")
        run = convoy("bench", "--stage", f"{STAGE} > n2h4c16k4r1", "--stage", STAGE, "--rounds", "1", "--seconds",
                     "0.001")
        self.assertEqual(run.returncode, 1, run.stderr)
        self.assertRegex(run.stderr, "spike_chain: ")

    def test_explain(self):
        report = json.loads(convoy("explain", IMAGES, "--seconds", "0.01", "--json").stdout)
        self.assertEqual((report["one_kernel"], report["kernel"]), (True, "spike_chain"))
        self.assertGreater(report["by_themselves_seconds"], 0)
        self.assertGreater(report["one_kernel_seconds"], 0)
        self.assertEqual(len(report["stages"]), 3)
        both = [convoy("explain", *words, "--no-measure").stdout for words in
                ((f"{STAGE} > n2h4c16k4r1",), (STAGE, "--then", "n2h4c16k4r1"))]
        self.assertEqual(*both)
        self.assertIn("no kernel on cpu runs these stages as one", both[0])

    def test_verify(self):
        result = convoy("verify", "--stage", IMAGES, "--stage", SPIKES, "--stage", STAGE, "--json")
        self.assertEqual(result.returncode, 0, result.stdout + result.stderr)
        report = json.loads(result.stdout)
        self.assertEqual((report["stages"], report["chains"]), (1, 2))
        cells = {(cell["epilogue"], cell["tail"]) for cell in report["coverage"]
                 if cell["kernel"] == "spike_chain"}
        self.assertEqual(cells, {("mean", "c tail"), ("mean", "k tail"), ("mean", "pixel tail"),
                                 ("mean", "one pixel"), ("lif", "c tail"), ("lif", "k tail"),
                                 ("lif", "pixel tail")})
        self.assertGreater(report["spikes"], 100)
        self.assertRegex(convoy("verify", "--stage", SPIKES).stdout, "0 stages, 1 chain, 1 checks")

    def test_verify_draws(self):
        result = convoy("verify", "--kernel", "spike_chain", "--random", "20", "--seed", "5", "--json")
        self.assertEqual(result.returncode, 0, result.stdout + result.stderr)
        report = json.loads(result.stdout)
        self.assertEqual(report["stages"], 0)
        self.assertEqual({cell["kernel"] for cell in report["coverage"]}, {"spike_chain"})
        self.assertGreaterEqual(len(report["coverage"]), 20)
        self.assertGreaterEqual(min(cell["count"] for cell in report["coverage"]), 5)

    def test_verify_lists(self):
        shapes = self.write("list.txt", f"{SPIKES}  # a chain\r\n{STAGE}\n".encode())
        result = convoy("verify", "--shapes", shapes, "--images", "4", "--json")
        self.assertEqual(result.returncode, 0, result.stdout + result.stderr)
        report = json.loads(result.stdout)
        self.assertEqual((report["stages"], report["chains"]), (1, 1))
        shapes = self.write("bad.txt", f"{STAGE}\n{STAGE} > n2h5c16k4r1\n".encode())
        self.refused(convoy("verify", "--shapes", shapes), r"bad\.txt:2", "expected 4x4x16")

    def test_verify_refuses(self):
        for chain, expected in ((f"{STAGE} > n2h4c16k4r1", "spike_chain: "),
                                (SPIKES.replace("constants > ", ""), "spike_chain: .*constants > "),
                                ("constants > spikes > n1h1c8k8r1pad1+if(1)", "padding"),
                                ("spikes >", "without a stage"), (f"{STAGE} >", "without a stage"),
                                (f"{STAGE} > mean", "expected a neuron"),
                                (f"mean > {STAGE}", "expected mean at the end")):
            with self.subTest(chain):
                result = convoy("verify", "--stage", chain)
                self.assertEqual(result.returncode, 2, result.stdout + result.stderr)
                self.assertRegex(result.stderr, expected)
        self.refused(convoy("verify", "--stage", SPIKES, "--kernel", "general"), "runs one stage")
        self.refused(convoy("verify", "--stage", STAGE, "--kernel", "spike_chain"), "spike_chain")

    def test_too_large_for_the_oracle(self):
        result = convoy("verify", "--stage", SPIKES, "--images", "1000000")
        self.assertEqual(result.returncode, 1, result.stderr)
        self.assertRegex(result.stdout, "^FAILED .*--images")


if __name__ == "__main__":
    unittest.main()
