#!/usr/bin/env python3
"""`convoy explain --trace`: the file, the summary, and what is refused. `CONVOY_PROGRAM` names the program."""
import json
import os
import unittest

from cli_case import STAGE, CliTest, convoy


class Trace(CliTest):
    def test_time_line_of_the_cpu(self):
        """What Perfetto needs of a file, and numbers that agree with the file's."""
        file = self.here / "trace.json"
        ran = convoy("explain", STAGE, "--threads", 2, "--trace", file, "--seconds", 0.01)
        self.assertEqual(ran.returncode, 0, ran.stderr)
        self.assertIn("the same bits as a run without stamps", ran.stdout)
        trace = json.loads(file.read_text())
        spans = [event for event in trace["traceEvents"] if event["ph"] == "X"]
        self.assertGreater(len(spans), 0)
        for event in spans:
            self.assertEqual({"pid", "tid", "name", "ts", "dur", "args", "ph"}, set(event))
            self.assertGreaterEqual(event["dur"], 0)
        named = {event["tid"] for event in trace["traceEvents"] if event["name"] == "thread_name"}
        self.assertLessEqual({event["tid"] for event in spans}, named)
        self.assertIn(f"{len(spans)} spans", ran.stdout)
        for phase in ("head", "loop", "tail"):
            self.assertIn(f"{trace['otherData'][phase + '_us']:.2f}", ran.stdout)

    def test_json(self):
        file = self.here / "trace.json"
        ran = convoy("explain", STAGE, "--threads", 1, "--trace", file, "--json", "--no-measure")
        told = json.loads(ran.stdout)
        self.assertTrue(told["same_bits"])
        self.assertNotIn("untraced_seconds", told)
        self.assertGreater(told["traced"]["loop_seconds"], 0)
        self.assertEqual(told["file"], str(file))

    def test_standard_output(self):
        ran = convoy("explain", STAGE, "--trace", "-", "--no-measure", cwd=self.here)
        self.assertEqual((ran.returncode, ran.stderr), (0, ""))
        self.assertTrue(json.loads(ran.stdout)["traceEvents"])
        self.assertFalse((self.here / "-").exists())
        self.refused(STAGE, "--trace", "-", "--json", found="--json and --trace would both write to standard output")

    def test_file_is_replaced_whole(self):
        file = self.here / "trace.json"
        file.write_text("old")
        self.assertEqual(convoy("explain", STAGE, "--trace", file, "--no-measure").returncode, 0)
        json.loads(file.read_text())
        self.assertFalse([name for name in os.listdir(self.here) if name.startswith(".trace")])

    def refused(self, *words, found):
        ran = convoy("explain", *words)
        self.assertEqual(ran.returncode, 2, ran.stdout)
        self.assertEqual(ran.stdout, "")
        self.assertIn(found, ran.stderr)
        self.assertLessEqual(len(ran.stderr.splitlines()), 3)

    def test_refusals(self):
        file = self.here / "trace.json"
        self.refused(STAGE, "--trace", self.here / "none" / "trace.json", found="none")
        self.refused(STAGE, "--trace", self.here, found="folder")
        self.refused(STAGE, "--trace", "", found="expected a name")
        self.refused(f"{STAGE} > n2h4c16k8r1", "--trace", file, found="--trace: found a chain, expected a single stage")
        self.refused(STAGE, "--trace", file, "--all", found="--all")
        self.refused(STAGE, "--trace", file, "--kernel", "nothing", found="nothing")
        if not os.path.exists("/dev/nvidia0"):
            self.refused(f"f16:{STAGE}", "--device", "cuda", "--trace", file, found="cuda")
        self.assertFalse(file.exists())


if __name__ == "__main__":
    unittest.main()
