#!/usr/bin/env python3
"""What docs/learn/explain.md shows of sizes, kernels and refusals is what `convoy explain` prints.

    explain_page_test.py SOURCE PROGRAM      exit code 1 and the first lines that differ

Times depend on the machine, and with them which kernel fits and is chosen: those are not compared.
"""

import re
import subprocess
import sys
from pathlib import Path

PAGE = "docs/learn/explain.md"


def facts(text):
    """The lines of "Sizes", and of "Kernels" each kernel's name and refusals, without times."""
    lines, part = [], ""
    for line in text.splitlines():
        if re.match(r"[A-Z][A-Za-z ]+$", line):
            part = line
        elif part == "Sizes" and line.strip():
            lines.append(line.rstrip())
        elif part == "Kernels" and line.strip() and "verdict" not in line:
            row = re.match(r"[> ] (\S+) .*?(refuses: .*|chosen|fits.*)$", line)
            if not row:
                lines.append(line.strip())
            else:
                lines.append(row[1])
                if row[2].startswith("refuses"):
                    lines.append(f"{row[1]} {row[2]}")
    return lines


def commands_of(page):
    """Each `convoy explain STAGE` of the page and the output that follows it."""
    parts = re.split(r"^    convoy explain (\S+)$", page, flags=re.M)
    for stage, rest in zip(parts[1::2], parts[2::2]):
        yield stage, "\n".join(re.findall(r"```text\n(.*?)```", rest, re.S))


def main():
    page = (Path(sys.argv[1]) / PAGE).read_text()
    wrong = checked = 0
    for stage, shown in commands_of(page):
        command = [sys.argv[2], "explain", stage, "--no-measure", "--no-tuning", "--threads", "2"]
        printed = facts(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
        for line in facts(shown):
            checked += 1
            if line not in printed:
                print(f"{PAGE}: {stage}: `convoy explain` does not print: {line.strip()}", file=sys.stderr)
                wrong += 1
    if checked < 30:
        sys.exit(f"{PAGE}: found only {checked} lines to compare, expected 30 or more. Did its form change?")
    sys.exit(bool(wrong))


if __name__ == "__main__":
    main()
