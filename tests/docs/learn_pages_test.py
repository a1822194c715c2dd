#!/usr/bin/env python3
"""Outputs and excerpts on the pages of docs/learn are the program's and the sources' own.

    learn_pages_test.py SOURCE PROGRAM           exit code 1 and a line for each block that is wrong
    learn_pages_test.py SOURCE PROGRAM --write   puts the output of today into blocks that show all of it

- A ```text block after `    convoy explain ...` is part of that command's output. A line "..." stands for lines that
  the page leaves out. docs/learn/explain.md has a test of its own.
- A ```cpp block that begins with `// src/...` is an excerpt of that file, moved to the left; `// ...` leaves lines out.
"""

import re
import subprocess
import sys
import textwrap
from pathlib import Path

OUTPUT = re.compile(r"^    convoy explain ([^\n]+)\n\n```text\n(.*?)^```$", re.M | re.S)
EXCERPT = re.compile(r"^```cpp\n// (src/\S+)\n(.*?)^```$", re.M | re.S)


def wrong_line(shown, whole, omission):
    """The first line of `shown` that is not in `whole` at its place; "" if all are."""
    at = 0
    for piece in re.split(rf"^ *{re.escape(omission)}\n", shown, flags=re.M):
        lines = piece.splitlines()
        if not lines:
            continue
        places = [i for i in range(at, len(whole)) if whole[i:i + len(lines)] == lines]
        if not places:
            missing = [line for line in lines if line not in whole]
            return (missing or ["(its lines, in another order)"])[0].strip()
        at = places[0] + len(lines)
    return ""


def excerpt_is_wrong(shown, text):
    """An excerpt keeps the indentation of its lines to each other."""
    lines = text.splitlines()
    deepest = max(len(line) - len(line.lstrip()) for line in lines)
    faults = [wrong_line(textwrap.indent(shown, " " * depth, bool), lines, "// ...") for depth in range(deepest + 1)]
    return "" if "" in faults else faults[0]


def check_page(source, program, path):
    """Faults of a page, the numbers of its outputs and excerpts, and the page with the output of today."""
    page, name, faults = path.read_text(), path.relative_to(source), []

    def output(block):
        ran = subprocess.run([program, "explain", *block[1].split()], capture_output=True, text=True)
        if fault := ran.stderr.strip() or wrong_line(block[2], ran.stdout.splitlines(), "..."):
            faults.append(f"{name}: `convoy explain {block[1]}`: not printed: {fault}")
        return block[0] if "..." in block[2].splitlines() else block[0].replace(block[2], ran.stdout)

    written, outputs = OUTPUT.subn(output, page)
    excerpts = EXCERPT.findall(page)
    for file, shown in excerpts:
        if fault := excerpt_is_wrong(shown, (source / file).read_text()):
            faults.append(f"{name}: not in {file}: {fault}")
    return faults, outputs, len(excerpts), written


def main():
    source, program = Path(sys.argv[1]), sys.argv[2]
    faults, outputs, excerpts = [], 0, 0
    for path in sorted((source / "docs/learn").glob("*.md")):
        if path.name == "explain.md":
            continue
        wrong, shown, quoted, written = check_page(source, program, path)
        faults += wrong
        outputs += shown
        excerpts += quoted
        if "--write" in sys.argv:
            path.write_text(written)
    if outputs < 8 or excerpts < 11:
        faults.append(f"docs/learn: {outputs} outputs and {excerpts} excerpts, expected 8 and 11 or more")
    sys.exit("\n".join(faults) if faults else 0)


if __name__ == "__main__":
    main()
