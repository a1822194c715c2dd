#!/usr/bin/env python3
"""Help, versions, options and words that the program does not know.

    CONVOY_PROGRAM=build/release/bin/convoy tests/cli/usage_test.py [unittest options]
"""
import fcntl
import os
import pty
import re
import select
import struct
import subprocess
import termios
import unittest

from cli_case import PROGRAM, STAGE, CliTest, convoy

SUBCOMMANDS = ["run", "bench", "verify", "explain", "tune", "devices", "check", "dump", "compare",
               "ladder", "report"]


class Usage(CliTest):
    def test_version(self):
        result = convoy("--version")
        self.assertEqual(result.returncode, 0)
        self.assertRegex(result.stdout, r"^\d+\.\d+\.\d+\n$")

    def test_help_of_every_subcommand_has_an_example(self):
        listed = convoy("--help").stdout
        for name in SUBCOMMANDS:
            with self.subTest(name):
                self.assertIn(name, listed)
                result = convoy(name, "--help")
                self.assertEqual(result.returncode, 0)
                self.assertRegex(result.stdout, rf"convoy {name} \S")
                self.assertIn("xample", result.stdout)

    def test_help_of_device_lists_every_gpu_that_explain_knows(self):
        refused = convoy("explain", STAGE, "--map", "--device", "toaster").stderr
        names = re.search(r"one of ((?:\w+, )*\w+)", refused)[1].split(", ")
        self.assertIn("h200", names)
        helped = re.search(r"--device DEVICE(.*?)--threads", convoy("explain", "--help").stdout, re.S)[1]
        for name in names:
            with self.subTest(name):
                self.assertRegex(helped, rf"\b{name}\b")

    def test_without_a_word_the_help_is_an_error(self):
        result = convoy()
        self.assertEqual((result.returncode, result.stdout), (2, ""))
        self.assertEqual(result.stderr, convoy("--help").stdout)

    def test_wrong_usage(self):
        for words, *expected in (
            (["paint"], '"paint"', *SUBCOMMANDS),
            (["--paint"], '"--paint"', *SUBCOMMANDS),
            (["run"], "model", "convoy run --help"),
            (["explain"], "stage", "convoy explain --help"),
            (["bench"], "--stage", "--shapes"),
            (["tune"], "--stage", "--shapes"),
            (["bench", "--frobnicate"], '"--frobnicate": not an option or an argument of this subcommand'),
            (["bench", "--frobnicate", "extra"], '"--frobnicate", "extra"'),
            (["bench", "extra"], '"extra": not an option or an argument'),
            (["bench", "--stage", STAGE, "--threads"], "--threads: no value given, expected N, 1 to 4096"),
            (["bench", "--shapes"], "--shapes: no value given, expected FILE"),
            (["explain", "n2h8c16k16r3 + relu"], "column 13: found a space, expected none"),
            (["verify", "--stage", STAGE, "--shapes", "list"], "excludes"),
            (["verify", "--stage", STAGE, "--images", "0"], '--images: "0": expected a whole number, 1 or more'),
            (["bench", "--stage", STAGE, "--seconds", "nan"], '--seconds: "nan": expected a number, 0.001 to 10'),
            (["bench", "--stage", STAGE, "--dtype", "f8"], '--dtype: "f8": expected f32, f16, bf16 or u8'),
        ):
            with self.subTest(words):
                self.refused(convoy(*words), *expected)

    def test_help_fits_a_terminal_and_is_one_line_an_option_elsewhere(self):
        words = {name: convoy(name, "--help").stdout.split() for name in SUBCOMMANDS}
        for columns in (80, 120, 45, 0):
            for name in SUBCOMMANDS:
                with self.subTest(f"{columns} columns: {name}"):
                    shown = self.on_terminal(columns, name, "--help")
                    self.assertEqual(shown.split(), words[name])
                    # What describes an option stands from column 31 on; examples and names are not broken.
                    wide = [line for line in shown.splitlines() if len(line) > columns and line.startswith(" " * 30)]
                    self.assertEqual(wide if columns >= 80 else [], [])

    def on_terminal(self, columns, *words):
        """What the program prints on a terminal of so many columns."""
        ours, its = pty.openpty()
        fcntl.ioctl(its, termios.TIOCSWINSZ, struct.pack("4H", 24, columns, 0, 0))
        # Our copy of its end stays open: where the last one closes, a reader may find EIO before the last bytes.
        os.set_blocking(ours, False)
        text = b""
        with subprocess.Popen([PROGRAM, *words], stdin=subprocess.DEVNULL, stdout=its) as process:
            ended = False
            while not ended:
                ended = process.poll() is not None
                while select.select([ours], [], [], 0 if ended else 0.01)[0]:
                    text += os.read(ours, 65536)
            self.assertEqual(process.returncode, 0)
        os.close(its)
        os.close(ours)
        return text.decode().replace("\r\n", "\n")

    def test_zero_threads(self):
        for count in ("0", "-3", "many"):
            with self.subTest(count):
                self.refused(self.run_model("--threads", count), "(?i)threads", re.escape(count))
                self.refused(self.run_model(env={"CONVOY_NUM_THREADS": count}),
                             "CONVOY_NUM_THREADS", re.escape(count))

    def test_unknown_device(self):
        self.refused(self.run_model("--device", "toaster"), "toaster", "cpu")

    def test_a_pipe_gets_no_progress(self):
        for words in (["bench", "--stage", STAGE, "--rounds", "3"], ["verify", "--stage", STAGE],
                      ["explain", STAGE], ["devices"]):
            with self.subTest(words[0]):
                result = convoy(*words)
                self.assertEqual(result.returncode, 0, result.stderr)
                self.assertEqual(result.stderr, "")
                self.assertNotIn("\r", result.stdout)
                self.assertNotIn("\033", result.stdout)


if __name__ == "__main__":
    unittest.main()
