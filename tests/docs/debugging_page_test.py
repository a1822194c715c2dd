#!/usr/bin/env python3
"""docs/contribute/debugging.md is right: the lines that it breaks and stops at, its program's output, and gdb's.

    debugging_page_test.py SOURCE CXX      exit code 1 and a line for each difference

Without gdb, or where it may not trace a program, its part is left out.
"""

import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

PAGE = "docs/contribute/debugging.md"


def breakpoints(source, page):
    """Lines of the table of breakpoints that do not have the code that it names."""
    rows = re.findall(r"\| `(\w+\.cuh):(\d+)`, `(.+?)` \|", page)
    if len(rows) < 4:
        yield f"found {len(rows)} places to break at, expected four or more. Did the table's form change?"
    for name, line, code in rows:
        path = next((source / "src").rglob(name))
        found = path.read_text().splitlines()[int(line) - 1]
        if code not in found:
            yield f"{name}:{line} is `{found.strip()}`, not `{code}`"
    stops = re.findall(r"^CUDA thread hit .* at (src/\S+):(\d+)\n(\d+)\s+(.+)$", page, re.M)
    if not stops:
        yield "found no place at which cuda-gdb stops. Did the session's form change?"
    for name, line, shown, code in stops:
        found = (source / name).read_text().splitlines()[int(line) - 1].strip()
        if (shown, code) != (line, found):
            yield f"cuda-gdb stops at {name}:{line}, which is `{found}`, and shows line {shown}, `{code}`"


def run(*words, where, check=True):
    done = subprocess.run(words, cwd=where, capture_output=True, text=True, timeout=300, check=check)
    return done.stdout + done.stderr


def main():
    source, compiler = Path(sys.argv[1]).resolve(), sys.argv[2]
    page = (source / PAGE).read_text()
    program, rest = re.search(r"```cpp\n(.*?)```\n(.*)", page, re.S).groups()
    output, session = re.findall(r"```text\n(.*?)```", rest, re.S)
    wrong = list(breakpoints(source, page))
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "walk.cpp").write_text(program)
        run(compiler, "-std=c++20", "-g", "-O0", f"-I{source}/src", f"-I{source}/include", "walk.cpp", "-o", "walk",
            where=folder)
        printed = run("./walk", where=folder).splitlines()
        wrong += [f"the program does not print: {line}" for line in output.splitlines() if line not in printed]
        if shutil.which("gdb"):
            commands = re.findall(r"^\(gdb\) (.*)$", session, re.M)
            words = [word for command in commands for word in ("-ex", command)]
            told = run("gdb", "-q", "-nx", "-batch", *words, "./walk", where=folder, check=False)
            shown = re.findall(r"^(\$\d+ = .*)$", session, re.M)
            if len(shown) < 8:
                wrong.append(f"gdb's part has {len(shown)} values, expected eight or more. Did its form change?")
            if "ptrace" in told:  # in some containers
                print("skipped: gdb may not trace a program here")
            elif "extended state" in told:  # gdb 13 does not know the registers of some CPUs and kernels
                print("skipped: gdb can't write the registers of this CPU, so that it can't continue")
            else:
                wrong += [f"gdb does not print: {line}" for line in shown if line not in told.splitlines()]
        else:
            print("skipped: no gdb")
    for line in wrong:
        print(f"{PAGE}: {line}", file=sys.stderr)
    sys.exit(bool(wrong))


if __name__ == "__main__":
    main()
