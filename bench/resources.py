#!/usr/bin/env python3
"""Registers, stack and shared memory of every GPU kernel in a program or library; needs no GPU.

    bench/resources.py build/cuda/bin/convoy --json bench/results/h200/resources.json

Reads what `cuobjdump` says (of the CUDA toolkit, or named with --cuobjdump). A stack of 0 bytes means
that nothing was spilled. Where a kernel fixes its block, `ctas` is how many of them a multiprocessor's
65,536 registers hold; shared memory that a launch asks for comes on top and depends on the tile.
"""

import argparse
import json
import re
import shutil
import subprocess
import sys
from pathlib import Path

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
    name = output_of("c++filt", symbol).strip()
    name = re.sub(r"\(anonymous namespace\)::|convoy::cuda::(sm\d+::)?|unsigned ", "", name)
    name = re.sub(r"^void ", "", name).replace("__nv_bfloat16", "bf16").replace("__half", "f16")
    depth = 0
    for i, c in enumerate(name):  # up to the parameters
        depth += (c == "<") - (c == ">")
        if c == "(" and depth == 0:
            return name[:i]
    return name


def kernels(cuobjdump, program, architecture):
    usage = output_of(cuobjdump, "--gpu-architecture", architecture, "--dump-resource-usage", program)
    threads = {symbol: int(value, 16) for symbol, value in
               THREADS.findall(output_of(cuobjdump, "--gpu-architecture", architecture, "--dump-elf", program))}
    rows = []
    for symbol, *numbers in FUNCTION.findall(usage):
        registers, stack, shared, local = map(int, numbers)
        block = threads.get(symbol)
        a_warp = -(-registers * 32 // 256) * 256
        rows.append(dict(kernel=short(symbol), registers=registers, stack_bytes=stack, local_bytes=local,
                         static_shared_bytes=shared, threads=block,
                         ctas=65536 // (a_warp * -(-block // 32)) if block else None))
    return sorted(rows, key=lambda row: row["kernel"])


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("program")
    parser.add_argument("--architecture", default="sm_90")
    parser.add_argument("--cuobjdump", default=shutil.which("cuobjdump") or "/usr/local/cuda/bin/cuobjdump")
    parser.add_argument("--json", help="write the figures here")
    args = parser.parse_args()
    rows = kernels(args.cuobjdump, args.program, args.architecture)
    if not rows:
        sys.exit(f"{args.program}: no kernel for {args.architecture} in it")
    for row in rows:
        print(
            f"{row['kernel']:<56} {row['registers']:4} registers  {row['stack_bytes']:5} B stack  "
            f"{row['static_shared_bytes']:6} B shared  {row['threads'] or '-':>5} threads  {row['ctas'] or '-':>2} CTAs"
        )
    if args.json:
        Path(args.json).write_text(json.dumps({"architecture": args.architecture, "kernels": rows}, indent=1) + "\n")


if __name__ == "__main__":
    main()
