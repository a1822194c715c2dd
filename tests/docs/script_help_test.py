#!/usr/bin/env python3
"""Every script of bench/, python/ and scripts/ tells what it is for, also where no package is installed.

    tests/docs/script_help_test.py SOURCE
"""
import re
import subprocess
import sys
import unittest
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

SOURCE = Path(sys.argv.pop() if len(sys.argv) > 1 else __file__).resolve()


def asked(script):
    # -S, -E and -s: neither Debian's nor the user's packages.
    return script, subprocess.run([sys.executable, "-S", "-E", "-s", script, "--help"], capture_output=True, text=True,
                                  stdin=subprocess.DEVNULL, timeout=60)


class Help(unittest.TestCase):
    def test_without_packages(self):
        files = sorted(SOURCE.glob("bench/*.py")) + sorted(SOURCE.glob("python/*.py"))
        scripts = [file for file in files if "argparse" in file.read_text()]  # others are modules of theirs
        self.assertGreater(len(scripts), 20)
        told = 0
        with ThreadPoolExecutor(2) as pool:
            for script, done in pool.map(asked, scripts):
                with self.subTest(script.name):
                    self.assertEqual((done.returncode, done.stderr), (0, ""))
                    if re.search(r'^if __name__ == "__main__"', script.read_text(), re.M):
                        self.assertIn("usage: " + script.name, done.stdout)
                        told += 1
        self.assertGreater(told, 15)

    def test_shell_scripts(self):
        """Whoever asks what one does has not asked for a build."""
        for script in ("demo", "deps", "docs", "format", "peers", "test", "wheel"):
            with self.subTest(script):
                done = subprocess.run([SOURCE / "scripts" / script, "--help"], capture_output=True, text=True,
                                      stdin=subprocess.DEVNULL, timeout=60)
                self.assertEqual((done.returncode, done.stdout), (2, ""))
                self.assertIn(f"Usage: scripts/{script}", done.stderr)


if __name__ == "__main__":
    unittest.main()
