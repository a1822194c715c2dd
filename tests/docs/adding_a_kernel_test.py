#!/usr/bin/env python3
"""Compiles the CPU kernel of docs/adding-a-kernel.md as it stands there, with the flags of the library's own kernels.

    adding_a_kernel_test.py SOURCE BUILD      exit code 1 and the compiler's messages if it does not compile
"""

import json
import re
import shlex
import subprocess
import sys
import tempfile
from pathlib import Path

PAGE = "docs/adding-a-kernel.md"


def kernel_of(page):
    """The first two C++ blocks: the loop and the class."""
    blocks = re.findall(r"```c\+\+\n(.*?)```", page, re.S)
    return "\n".join(blocks[:2])


def command_of(build):
    """The command that compiles a kernel of the library with loops for every instruction set."""
    for entry in json.loads((build / "compile_commands.json").read_text()):
        if "/src/cpu/" in entry["file"] and "foreach_target.h" in Path(entry["file"]).read_text():
            words = shlex.split(entry["command"])
            return words[: words.index("-o")], Path(entry["directory"])
    sys.exit(f"{build}/compile_commands.json: no file of src/cpu in it includes foreach_target.h.")


def main():
    source, build = (Path(word).resolve() for word in sys.argv[1:3])
    words, folder = command_of(build)
    with tempfile.TemporaryDirectory() as name:
        cpu = Path(name) / "cpu"
        (cpu / "scale").mkdir(parents=True)
        (cpu / "scale/scale.cpp").write_text(kernel_of((source / PAGE).read_text()))
        families = (source / "src/cpu/families.hpp").read_text()
        declared = families.replace("const Kernel& general();", "const Kernel& general();\nconst Kernel& scale();")
        if declared == families:
            sys.exit("src/cpu/families.hpp: expected a line `const Kernel& general();` to put another beside")
        (cpu / "families.hpp").write_text(declared)
        command = [words[0], f"-I{name}", *words[1:], "-fsyntax-only", str(cpu / "scale/scale.cpp")]
        done = subprocess.run(command, cwd=folder)
    if done.returncode:
        sys.exit(f"{PAGE}: its kernel does not compile. Change the page with the interface.")


if __name__ == "__main__":
    main()
