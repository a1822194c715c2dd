#!/usr/bin/env python3
"""The programs of examples/ print the output that docs/start/examples.md shows.

    examples_page_test.py SOURCE                      every program has a section with its output, and no other has one
    examples_page_test.py SOURCE NAME PROGRAM [WORD...]    runs the program, and compares its output with its section

Times, shares, and the kernels and tiles that a machine chooses are not compared. Exit code 77: skipped, with the
reason: no GPU for cuda_graph, or no images for spiking_classifier.
"""

import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path

PAGE = "docs/start/examples.md"
SKIPPED = 77
# (pattern, replacement), in this order: what differs between machines and runs.
VARYING = (
    (r"\b\d+ measured, best .*, ", "# measured, best KERNEL TILE, "),
    (r"\d+\.\d %  \w+$", "# %  KERNEL"),
    (r"\d+(?:\.\d+)? (us|%)", r"# \1"),
    (r" +", " "),
)


def sections(page):
    """The ```text block of each section whose heading names a program, by the program's name."""
    found = {}
    for section in re.split(r"^## ", page.read_text(), flags=re.M)[1:]:
        heading, _, rest = section.partition("\n")
        name = re.search(r"`(\w+)\.cpp`", heading)
        if name:
            block = re.search(r"```text\n(.*?)```", rest, re.S)
            found[name[1]] = block[1] if block else None
    return found


def check_names(source):
    shown = sections(source / PAGE)
    programs = {path.stem for path in (source / "examples").glob("*.cpp")}
    faults = [f"examples/{name}.cpp: no section of {PAGE} has `{name}.cpp` in its heading. Add one with its output"
              for name in sorted(programs - shown.keys())]
    faults += [f"{PAGE}: a section names {name}.cpp, which examples/ does not have. Remove it"
               for name in sorted(shown.keys() - programs)]
    faults += [f"{PAGE}: the section of {name}.cpp has no ```text block. Add the program's output"
               for name, block in sorted(shown.items()) if block is None]
    print(*faults, f"{len(shown)} programs, {len(faults)} faults", sep="\n")
    sys.exit(bool(faults))


def same_on_every_machine(text):
    lines = []
    for line in text.rstrip("\n").splitlines():
        for pattern, replacement in VARYING:
            line = re.sub(pattern, replacement, line)
        lines.append(line.rstrip())
    return lines


def images_and_labels():
    """The test images of Fashion-MNIST, or the end of this test."""
    folder = Path(os.environ.get("CONVOY_DATA") or "/usr/share/datasets/fashion-mnist")
    files = [folder / f"t10k-{what}-ubyte.gz" for what in ("images-idx3", "labels-idx1")]
    for file in files:
        if not file.exists():
            print(f"skipped: no {file}. Debian's package dataset-fashion-mnist has it")
            sys.exit(SKIPPED)
    return [str(file) for file in files]


def main():
    source = Path(sys.argv[1]).resolve()
    if len(sys.argv) < 4:
        check_names(source)
    name, command = sys.argv[2], sys.argv[3:]
    shown = sections(source / PAGE).get(name)
    if shown is None:
        sys.exit(f"{PAGE}: no section with `{name}.cpp` in its heading and a ```text block, expected one")
    if name == "spiking_classifier":
        command += images_and_labels()
    with tempfile.TemporaryDirectory() as cache:
        environment = {**os.environ, "CONVOY_CACHE": cache}
        done = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=500)
    print(done.stdout, done.stderr, sep="")
    if name == "cuda_graph" and re.search(r"^device cuda(:0)?: .*or use cpu", done.stderr):
        print("skipped: no GPU")
        sys.exit(SKIPPED)
    if done.returncode != 0:
        sys.exit(f"{name} ended with exit code {done.returncode}, expected 0")
    if same_on_every_machine(done.stdout) != same_on_every_machine(shown):
        sys.exit(f"{PAGE} shows for {name}.cpp\n{shown}Put the output above there if it is right")


if __name__ == "__main__":
    main()
