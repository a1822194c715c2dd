#!/usr/bin/env python3
"""What the program writes: files are whole or absent, and lost output is no success.

    CONVOY_PROGRAM=build/release/bin/convoy tests/cli/output_test.py [unittest options]
"""
import json
import os
import resource
import shutil
import signal
import subprocess
import time
import unittest

from cli_case import PROGRAM, STAGE, CliTest, convoy


class Output(CliTest):
    """Files are whole or absent, whatever goes wrong."""

    def left(self):
        return sorted(p.name for p in self.here.iterdir())

    def test_no_folder(self):
        before = self.left()
        self.refused(self.run_model("--json", self.here / "absent/out.json"), "absent", "(?i)no such")
        self.refused(self.run_model("--json", self.here), "folder")
        self.assertEqual(self.left(), before)

    def test_an_unwritable_result_is_told_before_measuring(self):
        before = self.left()
        for option in ("--json", "--csv"):
            result = convoy("bench", "--stage", STAGE, "--rounds", "1000", "--seconds", "10", option,
                            self.here / "absent/out", timeout=30)
            self.refused(result, "absent", "(?i)no such")
        self.assertEqual(self.left(), before)

    def test_a_pipe_is_not_replaced_and_a_link_stays(self):
        pipe, link, file = self.here / "pipe", self.here / "link", self.here / "file"
        os.mkfifo(pipe)
        file.write_text("old")
        link.symlink_to(file)
        bench = ["bench", "--stage", STAGE, "--rounds", "1", "--seconds", "0.01"]
        self.refused(self.run_model("--json", pipe), "pipe", "expected a file")
        self.refused(convoy(*bench, "--csv", pipe), "pipe", "expected a file")
        self.assertTrue(pipe.is_fifo())
        self.assertEqual(self.run_model("--json", link).returncode, 0)
        self.assertTrue(link.is_symlink())
        self.assertIn("accuracy", json.loads(file.read_text()))
        self.refused(self.run_model("--json", ""), "--json", "expected a name")

    def test_a_table_for_programs_on_standard_output(self):
        bench = ["bench", "--stage", STAGE, "--rounds", "1", "--seconds", "0.01"]
        lines = convoy(*bench, "--csv", "-", cwd=self.here).stdout.splitlines()
        self.assertEqual(len(lines), 2, lines)
        self.assertTrue(all("," in line for line in lines), lines)
        self.refused(convoy(*bench, "--csv", "-", "--json", "-"), "--json -", "--csv -")

    def test_lost_output_is_no_success(self):
        more_than_a_buffer = [word for act in ("relu", "relu6", "leaky(0.1)", "clip(0,2)", "relu+max2")
                              for word in ("--stage", f"n1h6c16k16r3pad1+{act}")]
        for words in (["devices", "--no-measure"], ["explain", STAGE, "--no-measure"], ["--help"],
                      ["--version"], ["verify", "--json", *more_than_a_buffer]):
            with self.subTest(words), open("/dev/full", "w") as full:
                result = subprocess.run([PROGRAM, *words], stdout=full, stderr=subprocess.PIPE,
                                        text=True, timeout=120)
                self.assertEqual(result.returncode, 2)
                self.assertIn("standard output: writing failed: No space", result.stderr)

    def test_a_reader_that_has_seen_enough(self):
        # The end is silent, as of other programs: SIGPIPE, no message.
        process = subprocess.Popen([PROGRAM, "verify", "--stage", STAGE], stdout=subprocess.PIPE,
                                   stderr=subprocess.PIPE, text=True)
        with process:
            process.stdout.close()
            self.assertEqual(process.stderr.read(), "")
            self.assertEqual(process.wait(timeout=120), -signal.SIGPIPE)

    @unittest.skipIf(os.geteuid() != 0, "needs root, to become somebody without permission")
    def test_no_permission(self):
        program = shutil.copy(PROGRAM, CliTest.folder)  # where nobody may read it
        subprocess.run(["chmod", "-R", "a+rX", str(self.here)], check=True)
        before = self.left()
        result = subprocess.run(
            [program, "run", self.model, "--images", self.images, "--labels", self.labels, "--json",
             self.here / "out.json"], capture_output=True, text=True, user=65534, group=65534,
            extra_groups=[], env={"PATH": os.environ["PATH"]}, timeout=120)
        self.refused(result, r"out\.json", "(?i)permission")
        self.assertEqual(self.left(), before)

    def test_no_space(self):
        # A file may not grow at all: what a full disk looks like to the program. Python ignores
        # SIGXFSZ and hands that on, so that the write fails instead of killing the program.
        before = self.left()
        result = self.run_model("--json", self.here / "out.json", restore_signals=False,
                                preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0)))
        self.refused(result, r"out\.json", "(?i)large|space")
        self.assertEqual(self.left(), before)

    def test_interrupted(self):
        before = self.left()
        process = subprocess.Popen([PROGRAM, "bench", "--stage", STAGE, "--seconds", "1", "--json",
                                    self.here / "bench.json"], stdout=subprocess.DEVNULL,
                                   stderr=subprocess.DEVNULL)
        time.sleep(1)
        process.send_signal(signal.SIGINT)
        self.assertNotEqual(process.wait(timeout=30), 0)
        self.assertEqual(self.left(), before)

    def test_a_spoiled_tuning_cache_is_a_warning(self):
        cache = self.here / "cache"
        cache.mkdir()
        (cache / "tuning.json").write_text('{"format": 2, "rows": [')
        result = convoy("explain", STAGE, "--no-measure", env={"CONVOY_CACHE": str(cache)})
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertIn("tuning cache", result.stdout + result.stderr)


if __name__ == "__main__":
    unittest.main()
