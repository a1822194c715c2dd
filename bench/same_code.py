#!/usr/bin/env python3
"""Compares the machine code of two builds, kernel by kernel; needs no GPU.

    bench/same_code.py before/ after/ --architecture sm_80
    bench/same_code.py before.cu.o build/cuda/bin/convoy --architecture sm_90a

Each side is an object, a library, a program, or a folder, of which all *.o are read. Code is the same if a change to
the sources moved instructions, names and types only: it then has the same speed and gives the same bits. Kernels that
differ in nothing but where their parameters lie, c[0x0][...], are counted apart. Of the others it prints registers,
stack, local memory and the number of instructions, before and after.

Kernels that only one side has are left out; so that a renamed one is not overlooked, their number is printed. The exit
code is 1 if a kernel needs more stack or local memory than before, or its number of instructions grew by more than
--most-growth percent.
"""

import argparse
import collections
import re
import shutil
import sys
from pathlib import Path

import resources

PARAMETER = re.compile(r"c\[0x0\]\[[^]]*\]")
Code = collections.namedtuple("Code", "texts registers stack local")


def files_of(path):
    path = Path(path)
    found = sorted(path.rglob("*.o")) if path.is_dir() else [path]
    if not found:
        sys.exit(f"{path}: no *.o in it")
    return found


def codes(cuobjdump, path, architecture):
    """kernel: its Code."""
    found = {}
    for file in files_of(path):
        usage = resources.output_of(cuobjdump, "--gpu-architecture", architecture, "--dump-resource-usage", str(file))
        bodies = resources.disassembled(cuobjdump, str(file), architecture)
        for symbol, registers, stack, _, local in resources.FUNCTION.findall(usage):
            if symbol in bodies:
                texts = [text for _, text in bodies[symbol]]
                while texts and texts[-1] == "NOP":  # fill up the last line
                    texts.pop()
                found[resources.short(symbol)] = Code(texts, int(registers), int(stack), int(local))
    return found


def sort_of(was, now):
    if was == now:
        return "identical"
    places = [[PARAMETER.sub("c[0x0][]", text) for text in code.texts] for code in (was, now)]
    if places[0] == places[1] and was[1:] == now[1:]:
        return "identical up to the places of parameters"
    return "different"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("before")
    parser.add_argument("after")
    parser.add_argument("--architecture", default="sm_90a")
    parser.add_argument("--most-growth", type=float, default=1.0, metavar="PERCENT")
    parser.add_argument("--cuobjdump", default=shutil.which("cuobjdump") or "/usr/local/cuda/bin/cuobjdump")
    args = parser.parse_args()
    before, after = (codes(args.cuobjdump, side, args.architecture) for side in (args.before, args.after))
    common = [kernel for kernel in before if kernel in after]
    if not common:
        sys.exit(f"{args.before} and {args.after} have no kernel for {args.architecture} in common")
    sorts, worse = collections.Counter(), 0
    for kernel in sorted(common):
        was, now = before[kernel], after[kernel]
        sort = sort_of(was, now)
        sorts[sort] += 1
        if sort != "different":
            continue
        growth = 100 * (len(now.texts) / len(was.texts) - 1)
        bad = now.stack > was.stack or now.local > was.local or growth > args.most_growth
        worse += bad
        print(f"{kernel}: {was.registers} -> {now.registers} registers, {was.stack} -> {now.stack} B stack, "
              f"{was.local} -> {now.local} B local, {len(was.texts)} -> {len(now.texts)} instructions "
              f"({growth:+.2f} %){'  WORSE' if bad else ''}")
    print(f"{args.architecture}: {len(common)} kernels, " + ", ".join(f"{sorts[sort]} {sort}" for sort in (
        "identical", "identical up to the places of parameters", "different")) +
        f"; {len(before) - len(common)} only before, {len(after) - len(common)} only after")
    sys.exit(1 if worse else 0)


if __name__ == "__main__":
    main()
