#!/usr/bin/env python3
"""Fails when a micro-kernel spills: when the innermost loop around its multiply-adds keeps vectors on
the stack. Compilers do that silently, and the loop then runs at a third of its speed.

    spills.py --objdump PROGRAM --library libconvoy.a [--least FMAS] [--list]

In the files named in HOT every innermost loop with at least --least vector multiply-adds (default 8) is
looked at; --list prints them, and those of other files. (Winograd's transforms, for one, have more
values than AVX2 has registers and are not in HOT.) The test also fails when a file in HOT has no such
loop, for then it has stopped looking at what it is about.
"""
import argparse
import collections
import re
import subprocess
import sys

# Accesses of vectors on the stack that a multiply-add may have on average. The loop of first_winograd2
# is a whole tile, a hundred loads and more, and a few sums may wait on the stack once in it. Of
# first's twelve sums with AVX2 one waits there while the weights of a row are loaded: faster than eight.
# In depthwise's loops of five taps GCC 12 stores a value that nothing reads; with AVX2 one of eight sums waits there.
HOT = {"depthwise_simd.cpp": 1 / 8, "few_filters_simd.cpp": 0, "first_simd.cpp": 1 / 18,
       "first_winograd2_simd.cpp": 1 / 16, "grouped_simd.cpp": 0, "register_tile.cpp": 0, "winograd_multiply.cpp": 0}
INSTRUCTION = re.compile(r"^\s*([0-9a-f]+):\s+(\S.*)$")
FUNCTION = re.compile(r"^[0-9a-f]+ <(.*)>:$")
MEMBER = re.compile(r"^(\S+)\.o:\s+file format")
JUMP = re.compile(r"^j\w+\s+([0-9a-f]+)\b")
FMA = re.compile(r"^vf(?:n?m(?:add|sub)|maddsub|msubadd)\d+p[sd]\s")
VECTOR_ON_STACK = re.compile(r"[xyz]mm\d")
STACK = re.compile(r"-?(?:0x[0-9a-f]+)?\(%r[sb]p\)")

Loop = collections.namedtuple("Loop", "member function begin end fmas spills")


def functions(objdump, library):
    """(member, function, [(address, text)]) of everything in the library."""
    listing = subprocess.Popen([objdump, "-d", "-C", "--no-show-raw-insn", library], text=True,
                               stdout=subprocess.PIPE)
    member = function = ""
    body = []
    for line in listing.stdout:
        line = line.rstrip("\n")
        header = FUNCTION.match(line) or MEMBER.match(line)
        if header:
            if body:
                yield member, function, body
                body = []
            if header.re is MEMBER:
                member = header.group(1)
            else:
                function = header.group(1)
            continue
        instruction = INSTRUCTION.match(line)
        if instruction:
            body.append((int(instruction.group(1), 16), instruction.group(2).split("#")[0].strip()))
    if body:
        yield member, function, body
    if listing.wait() != 0:
        sys.exit(f"{objdump} failed on {library}")


def innermost_loops(body):
    """Slices of the body from the target of a backward jump to the jump, that hold no other."""
    index = {address: i for i, (address, _) in enumerate(body)}
    ranges = []
    for i, (address, text) in enumerate(body):
        jump = JUMP.match(text)
        if jump and int(jump.group(1), 16) <= address and int(jump.group(1), 16) in index:
            ranges.append((index[int(jump.group(1), 16)], i))
    for begin, end in ranges:
        inside = [r for r in ranges if r != (begin, end) and begin <= r[0] and r[1] <= end]
        if not inside:
            yield body[begin:end + 1]


def main():
    arguments = argparse.ArgumentParser()
    arguments.add_argument("--objdump", default="objdump")
    arguments.add_argument("--library", required=True)
    arguments.add_argument("--least", type=int, default=8)
    arguments.add_argument("--list", action="store_true")
    options = arguments.parse_args()

    loops = []
    for member, function, body in functions(options.objdump, options.library):
        for loop in innermost_loops(body):
            fmas = sum(1 for _, text in loop if FMA.match(text))
            if fmas < options.least:
                continue
            # A broadcast of a scalar that waits on the stack is a load like any other.
            spills = [f"{address:x}: {text}" for address, text in loop
                      if STACK.search(text) and VECTOR_ON_STACK.search(text)]
            loops.append(Loop(member, function, loop[0][0], loop[-1][0], fmas, spills))

    if options.list:
        for loop in loops:
            print(f"{loop.member}: {loop.fmas} multiply-adds, {len(loop.spills)} on the stack: "
                  f"{loop.function[:150]}")
    loops = [loop for loop in loops if loop.member in HOT]
    failed = False
    for name in HOT:
        if not any(loop.member == name for loop in loops):
            failed = True
            print(f"{name}: no loop with {options.least} multiply-adds. Was it renamed? Correct HOT.")
    spilling = [loop for loop in loops if len(loop.spills) > HOT[loop.member] * loop.fmas]
    for loop in spilling:
        print(f"{loop.member}: {loop.function}: the loop {loop.begin:x}..{loop.end:x} of {loop.fmas} "
              f"multiply-adds spills:")
        print("\n".join(f"    {line}" for line in loop.spills[:6]))
    print(f"{len(loops)} loops of multiply-adds, {len(spilling)} with spills")
    sys.exit(failed or bool(spilling))


main()
