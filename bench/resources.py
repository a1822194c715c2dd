#!/usr/bin/env python3
"""Registers, stack, shared memory and spills of every GPU kernel in a program or library; needs no GPU.

    bench/resources.py build/cuda/bin/convoy --json bench/results/h200/resources.json
    bench/resources.py build/cuda/bin/convoy --architecture sm_80 --loops --check bench/results/sm_80/resources.json

Reads what `cuobjdump` says (of the CUDA toolkit, or of PyPI's nvidia-cuda-cuobjdump and nvidia-cuda-nvdisasm, on the
PATH or named with --cuobjdump). A stack of 0 bytes means that nothing was spilled. Where a kernel fixes its block,
`ctas` is how many of them a multiprocessor's 65,536 registers hold; shared memory that a launch asks for comes on top
and depends on the tile.

--loops disassembles: of each kernel the innermost loops around Tensor Core instructions, and what they spill. Loops
that call a function for each of their sums are left out: they mend rare results. --check compares with a stored file
and fails where a mainloop spills, or where a kernel's figures are others and the compiler is the same.
"""

import argparse
import json
import re
import shutil
import subprocess
import sys
from pathlib import Path

import records

FUNCTION = re.compile(r"^ Function (\S+):\n  REG:(\d+) STACK:(\d+) SHARED:(\d+) LOCAL:(\d+)", re.M)
THREADS = re.compile(
    r"^\.nv\.info\.(\S+)$(?:(?!^\.nv\.).)*?EIATTR_MAX_THREADS\n[^\n]*\n\s*Value:\s*0x(\w+)", re.M | re.S
)


def output_of(*command):
    try:
        return subprocess.run(command, check=True, capture_output=True, text=True, errors="replace").stdout
    except FileNotFoundError:
        sys.exit(f"{command[0]}: not found. It comes with the CUDA toolkit; name one with --cuobjdump.")
    except subprocess.CalledProcessError as error:
        sys.exit(f"{' '.join(command)}: {error.stderr.strip() or error.returncode}")


def short(symbol):
    """"halo<half, 224, 1, max2>" of a mangled name."""
    if cutlass := re.search(r"\d(cutlass_pooled)I.*?GemmShapeILi(\d+)ELi(\d+)E", symbol):  # c++filt gives up
        return "{}<{}, {}>".format(*cutlass.groups())
    name = output_of("c++filt", symbol).strip()
    name = re.sub(r"\(anonymous namespace\)::|convoy::cuda::((sm\d+|teaching)::)?|unsigned ", "", name)
    name = re.sub(r"^void ", "", name).replace("__nv_bfloat16", "bf16").replace("__half", "f16")
    name = name.replace("(Visit)", "")
    depth = 0
    for i, c in enumerate(name):  # up to the parameters
        depth += (c == "<") - (c == ">")
        if c == "(" and depth == 0:
            return name[:i]
    return name


MOST_CALLS = 4  # of a mainloop: until 8.x threads that have parted meet by one
ADDRESS = re.compile(r"^\s+/\*([0-9a-f]+)\*/\s+(.*?);")
JUMP = re.compile(r"\bBRA\b.*?(0x[0-9a-f]+)")
MMA = re.compile(r"\b(?:H|HG|I|IG|Q|QG)MMA\b")
SPILL = re.compile(r"\b(?:LDL|STL)\b")


def mainloops(body):
    """Of the innermost loops with Tensor Core instructions: how many spills each has."""
    index = {address: i for i, (address, _) in enumerate(body)}
    loops = []
    for end, (address, text) in enumerate(body):
        jump = JUMP.search(text)
        begin = index.get(int(jump[1], 16)) if jump and int(jump[1], 16) <= address else None
        if begin is not None and any(MMA.search(text) for _, text in body[begin:end + 1]):
            loops.append((begin, end))
    for begin, end in loops:
        inner = any(begin <= b and e <= end and (b, e) != (begin, end) for b, e in loops)
        texts = [text for _, text in body[begin:end + 1]]
        if not inner and sum(re.search(r"\bCALL\b", text) is not None for text in texts) <= MOST_CALLS:
            yield sum(SPILL.search(text) is not None for text in texts)


def disassembled(cuobjdump, program, architecture):
    """symbol: [(address, instruction)]."""
    found, body = {}, None
    for line in output_of(cuobjdump, "--gpu-architecture", architecture, "--dump-sass", program).splitlines():
        if line.strip().startswith("Function :"):
            body = found.setdefault(line.split()[-1], [])
        elif body is not None and (instruction := ADDRESS.match(line)):
            body.append((int(instruction[1], 16), instruction[2]))
    return found


def kernels(cuobjdump, program, architecture, loops=False):
    usage = output_of(cuobjdump, "--gpu-architecture", architecture, "--dump-resource-usage", program)
    threads = {symbol: int(value, 16) for symbol, value in
               THREADS.findall(output_of(cuobjdump, "--gpu-architecture", architecture, "--dump-elf", program))}
    code = disassembled(cuobjdump, program, architecture) if loops else {}
    rows = []
    for symbol, *numbers in FUNCTION.findall(usage):
        registers, stack, shared, local = map(int, numbers)
        block = threads.get(symbol)
        a_warp = -(-registers * 32 // 256) * 256
        rows.append(dict(kernel=short(symbol), registers=registers, stack_bytes=stack, local_bytes=local,
                         static_shared_bytes=shared, threads=block,
                         ctas=65536 // (a_warp * -(-block // 32)) if block else None))
        if loops:
            spills = list(mainloops(code[symbol]))
            rows[-1].update(mainloops=len(spills), mainloop_spills=sum(spills))
    return sorted(rows, key=lambda row: row["kernel"])


def check(found, path):
    """Prints what is wrong with it, or differs from the stored file; whether anything does."""
    spilling = [row for row in found["kernels"] if row["mainloop_spills"] > 0]
    for row in spilling:
        print(f"{row['kernel']}: its mainloop spills: {row['mainloop_spills']} loads and stores of local memory")
    looked_at = sum(row["mainloops"] for row in found["kernels"])
    if not looked_at:
        sys.exit("no loop around Tensor Core instructions: this looks at nothing any more")
    print(f"{found['architecture']}: {looked_at} loops around Tensor Core instructions; of {len(found['kernels'])} "
          f"kernels {len(spilling)} spill in them")
    stored = json.loads(Path(path).read_text())
    if stored["compiler"] != found["compiler"]:
        print(f"registers not compared: by {found['compiler']}, those of {path} by {stored['compiler']}")
        return bool(spilling)
    was = {row["kernel"]: row for row in stored["kernels"]}
    now = {row["kernel"]: row for row in found["kernels"]}
    differ = [name for name in {**was, **now} if was.get(name) != now.get(name)]
    for name in differ:
        print(f"{name}\n  {path} has {was.get(name)}\n  the program has {now.get(name)}")
    if differ:
        print(f"Meant? Write them anew with --json {path} in place of --check, then run bench/tables.py.")
    return bool(spilling or differ)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("program")
    parser.add_argument("--architecture", default="sm_90")
    parser.add_argument("--cuobjdump", default=shutil.which("cuobjdump") or "/usr/local/cuda/bin/cuobjdump")
    parser.add_argument("--nvcc", default=shutil.which("nvcc") or "/usr/local/cuda/bin/nvcc",
                        help="what compiled the program")
    parser.add_argument("--loops", action="store_true", help="also spills in loops around Tensor Core instructions")
    parser.add_argument("--json", help="write the figures here; needs a program, which names its commit")
    parser.add_argument("--check", metavar="FILE", help="compare with the figures here; with --loops")
    args = parser.parse_args()
    if args.check and not args.loops:
        parser.error("--check needs --loops")
    rows = kernels(args.cuobjdump, args.program, args.architecture, args.loops)
    if not rows:
        sys.exit(f"{args.program}: no kernel for {args.architecture} in it")
    found = {"architecture": args.architecture, "kernels": rows}
    if args.loops:
        found = {"compiler": "nvcc " + output_of(args.nvcc, "--version").split(" V")[-1].split()[0], **found}
    if args.check:
        sys.exit(check(found, args.check))
    for row in rows:
        print(
            f"{row['kernel']:<56} {row['registers']:4} registers  {row['stack_bytes']:5} B stack  "
            f"{row['static_shared_bytes']:6} B shared  {row['threads'] or '-':>5} threads  {row['ctas'] or '-':>2} CTAs"
        )
    if args.json:
        record = records.of_program(args.program)  # by what commit the program was built
        found = {**{key: record[key] for key in ("convoy", "commit", "dirty", "date") if key in record}, **found}
        Path(args.json).write_text(json.dumps(found, indent=1) + "\n")


if __name__ == "__main__":
    main()
