#!/usr/bin/env python3
"""A further member or enumerator of a stage stops the build until src/core/serves.cpp compares it with what families
serve, and a further member of Serves until every family has answered. This test adds each of them to a copy of the
header and expects the compiler's message.

    serves_test.py SOURCE BUILD      exit code 1 and what was found if something compiles
"""

import re
import subprocess
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent / "docs"))
from adding_a_kernel_test import command_of  # noqa: E402

# Header, the line that the addition follows, the addition, the file that must not compile, the compiler's words.
MEMBER, ENUMERATOR = "decomposes into", "not handled in switch"
STAGE, CHAIN = "include/convoy/stage.hpp", "src/core/chain.hpp"
ADDITIONS = (
    (STAGE, "  bool norm = false;", "bool added = false;", "serves.cpp", MEMBER),
    (STAGE, "  bool ceil = false;", "bool added = false;", "serves.cpp", MEMBER),
    (STAGE, "      idx = false;", "bool added = false;", "serves.cpp", MEMBER),
    (STAGE, "    leaky,  ///<", "added,", "serves.cpp", ENUMERATOR),
    (STAGE, "  u8,    ///<", "added,", "serves.cpp", ENUMERATOR),
    (STAGE, "  nhwc,  ///<", "added,", "serves.cpp", ENUMERATOR),
    (CHAIN, "  bool mean = false;", "bool added = false;", "serves.cpp", MEMBER),
    (CHAIN, "  bool mean = false;", "bool added = false;", "chain.cpp", MEMBER),
)
DECLARATION = re.compile(r"^(?:inline )?constexpr Serves \w+.*?^\};?$", re.M | re.S)
LEAST_DECLARATIONS = 20


class Compiler:
    """Compiles with the flags of the library, with copies of headers before its own."""

    def __init__(self, source, build, overlay):
        found = command_of(build, lambda path: path.suffix in (".cpp", ".cxx"))
        if not found:
            sys.exit(f"{build}/compile_commands.json: found no C++ file, expected those of the library")
        self.command, self.folder = found
        self.overlay = overlay
        self.source = source

    def messages(self, file):
        """What the compiler says of the file, and whether it compiles."""
        first, *others = self.command
        folders = [self.overlay / "include", self.overlay / "src", self.source / "src", self.source / "include"]
        result = subprocess.run(
            [first, *(f"-I{folder}" for folder in folders), *others, "-Wall", "-Werror=switch", "-fsyntax-only",
             "-fmax-errors=0", str(file)],
            cwd=self.folder, capture_output=True, text=True)
        return result.stderr, result.returncode == 0

    def with_addition(self, header, line, addition):
        text = (self.source / header).read_text()
        at = text.find(line)
        if at < 0:
            sys.exit(f"{header}: found no line that begins \"{line.strip()}\", expected one to put another behind")
        end = text.index("\n", at) + 1
        copy = self.overlay / header
        copy.parent.mkdir(parents=True, exist_ok=True)
        copy.write_text(text[:end] + addition + "\n" + text[end:])
        return copy


def declarations(source):
    """Name of the file and text of each declaration of what a family serves."""
    for path in sorted((source / "src").rglob("*.[ch]pp")):
        if path.name not in ("serves.hpp", "serves.cpp"):
            for match in DECLARATION.finditer(path.read_text()):
                yield path.relative_to(source), match.group()


def check_additions(compiler, faults):
    core = compiler.source / "src/core"
    for name in {file for *_, file, _ in ADDITIONS}:
        said, good = compiler.messages(core / name)
        if not good:
            sys.exit(f"src/core/{name}: does not compile as it is:\n{said}")
    for header, line, addition, name, words in ADDITIONS:
        copy = compiler.with_addition(header, line, addition)
        said, good = compiler.messages(core / name)
        copy.unlink()
        if good or words not in said:
            faults.append(f"{header}: `{addition}` behind `{line.strip()}`: src/core/{name} "
                          f"{'compiles' if good else 'fails'}, expected an error with \"{words}\"\n{said[:2000]}")


def check_families(compiler, faults):
    """One file with every declaration, each of which must be an error."""
    every = list(declarations(compiler.source))
    if len(every) < LEAST_DECLARATIONS:
        sys.exit(f"src: found {len(every)} declarations of Serves, expected {LEAST_DECLARATIONS} or more")
    text, first_lines = '#include "core/serves.hpp"\nnamespace convoy {\n', []
    for i, (_, declaration) in enumerate(every):
        text += f"namespace n{i} {{\n"
        first_lines.append(text.count("\n") + 1)
        text += f"{declaration}\n}}\nusing namespace n{i};\n"
    file = compiler.overlay / "declarations.cpp"
    file.write_text(text + "}\n")
    said, good = compiler.messages(file)
    if not good:
        sys.exit(f"declarations of Serves: do not compile as they are:\n{said}")
    compiler.with_addition("src/core/serves.hpp", "  Answer bias, norm;", "Answer added;")
    said, _ = compiler.messages(file)
    lines = {int(number) for number in re.findall(r"declarations\.cpp:(\d+):\d+: error", said)}
    for (path, declaration), first in zip(every, first_lines):
        if not lines & set(range(first, first + declaration.count("\n") + 1)):
            faults.append(f"{path}: compiles without an answer for a further member of Serves:\n{declaration}")


def main():
    source, build = (Path(word).resolve() for word in sys.argv[1:3])
    faults = []
    with tempfile.TemporaryDirectory() as overlay:
        compiler = Compiler(source, build, Path(overlay))
        check_additions(compiler, faults)
        check_families(compiler, faults)
    if faults:
        sys.exit("\n".join(faults))
    print(f"{len(ADDITIONS)} additions to a stage and one to every declaration stop the build")


if __name__ == "__main__":
    main()
