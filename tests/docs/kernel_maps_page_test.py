#!/usr/bin/env python3
"""What docs/learn/kernel-from-inside.md shows below `convoy explain ...` is what that prints, line by line.

    kernel_maps_page_test.py SOURCE PROGRAM      exit code 1 and the lines that differ
"""

import re
import subprocess
import sys
from pathlib import Path

PAGE = "docs/learn/kernel-from-inside.md"


def main():
    page = (Path(sys.argv[1]) / PAGE).read_text()
    wrong = checked = 0
    for words, shown in re.findall(r"^    convoy explain ([^\n]+)\n\n```text\n(.*?)```", page, re.M | re.S):
        command = [sys.argv[2], "explain", *words.split()]
        printed = subprocess.run(command, check=True, capture_output=True, text=True).stdout
        checked += len(shown.splitlines())
        if shown.rstrip() not in printed:
            lines = printed.splitlines()
            missing = [line for line in shown.splitlines() if line not in lines] or ["the lines, in another order"]
            print(f"{PAGE}: `convoy explain {words}` does not print: {missing[0].strip()}", file=sys.stderr)
            wrong += 1
    if checked < 100:
        sys.exit(f"{PAGE}: found only {checked} lines to compare, expected 100 or more. Did its form change?")
    sys.exit(bool(wrong))


if __name__ == "__main__":
    main()
