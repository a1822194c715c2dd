"""The outputs of `convoy graph` on docs/contribute/graph.md are what the program prints.

    graph_page_test.py CONVOY ROOT

The page shows parts: the lines of each block must follow each other in the output. Kernels depend on the machine.
"""

import re
import subprocess
import sys
from pathlib import Path


def without_kernels(text):
    return [re.sub(r" by \w+  ", " by KERNEL  ", line) for line in text.splitlines()]


def main():
    convoy, root = sys.argv[1], Path(sys.argv[2])
    page = (root / "docs/contribute/graph.md").read_text()
    command = re.search(r"^    convoy (graph .*)$", page, re.M)[1].split()
    done = subprocess.run([convoy, *command], cwd=root, capture_output=True, text=True, check=True)
    printed = without_kernels(done.stdout)
    blocks = re.findall(r"^```text\n(.*?)^```", page, re.S | re.M)
    wrong = 0
    for block in blocks:
        lines = without_kernels(block)
        if not any(printed[i : i + len(lines)] == lines for i in range(len(printed))):
            print(f"docs/contribute/graph.md shows\n{block}\nwhich is no part of the output of "
                  f"`convoy {' '.join(command)}`:\n{done.stdout}")  # fmt: skip
            wrong += 1
    print(f"{len(blocks)} outputs, {wrong} wrong")
    sys.exit(wrong > 0 or len(blocks) < 4)


if __name__ == "__main__":
    main()
