#!/usr/bin/env python3
"""Compiles the kernels of docs/contribute/adding-a-cpu-kernel.md and adding-a-gpu-kernel.md as they stand there, with
the flags of the library's own kernels: the CPU's and, in a build with CUDA, the GPU's .cu file and what prepares its
launches.

    adding_a_kernel_test.py SOURCE BUILD      exit code 1 and the compiler's messages if it does not compile
"""

import json
import re
import shlex
import subprocess
import sys
import tempfile
from pathlib import Path

CPU_PAGE, GPU_PAGE = "docs/contribute/adding-a-cpu-kernel.md", "docs/contribute/adding-a-gpu-kernel.md"


def command_of(build, fits):
    """The command that compiles the first file that `fits`, without the file and the output, and its folder."""
    for entry in json.loads((build / "compile_commands.json").read_text()):
        if fits(Path(entry["file"])):
            words = shlex.split(entry["command"])
            words = [word for word in words if word not in ("-c", entry["file"])]
            at = words.index("-o")
            return words[:at] + words[at + 2 :], Path(entry["directory"])
    return None


def has_simd_loops(path):
    return "/src/cpu/" in str(path) and "foreach_target.h" in path.read_text()


def prepares_launches(path):
    kernel = "/src/cuda/any/depthwise_kernel.cpp"  # by itself, or of a united file
    return str(path).endswith(kernel) or (path.suffix == ".cxx" and kernel in path.read_text())


def is_of_any_gpu(path):
    return "/src/cuda/any/" in str(path) and path.suffix == ".cu"


def blocks_of(path, count):
    """The page's C++ blocks, of which it has at least so many."""
    blocks = re.findall(r"```c\+\+\n(.*?)```", path.read_text(), re.S)
    if len(blocks) < count:
        sys.exit(f"{path}: found {len(blocks)} blocks of C++, expected {count} or more. Did the page's form change?")
    return blocks


def check(page, command, extra):
    words, folder = command
    if subprocess.run([words[0], *extra[:1], *words[1:], *extra[1:]], cwd=folder).returncode:
        sys.exit(f"{page}: {extra[-1]} does not compile. Change the page with the interface.")


def declare_scale(families, to):
    """Writes the header of families with a line for the kernel."""
    text = families.read_text()
    declared = text.replace("const Kernel& general();", "const Kernel& general();\nconst Kernel& scale();")
    if declared == text:
        sys.exit(f"{families}: expected a line `const Kernel& general();` to put another beside")
    to.write_text(declared)


def main():
    source, build = (Path(word).resolve() for word in sys.argv[1:3])
    loop, cpu_class = blocks_of(source / CPU_PAGE, 2)[:2]
    cuda_header, cuda_source, prepared, cuda_class = blocks_of(source / GPU_PAGE, 4)[:4]
    with tempfile.TemporaryDirectory() as name:
        cpu, any_gpu = Path(name) / "cpu", Path(name) / "cuda/any"
        (cpu / "scale").mkdir(parents=True)
        (cpu / "scale/scale.cpp").write_text(loop + "\n" + cpu_class)
        declare_scale(source / "src/cpu/families.hpp", cpu / "families.hpp")
        command = command_of(build, has_simd_loops)
        if not command:
            sys.exit(f"{build}/compile_commands.json: no file of src/cpu in it includes foreach_target.h.")
        check(CPU_PAGE, command, [f"-I{name}", "-fsyntax-only", str(cpu / "scale/scale.cpp")])

        any_gpu.mkdir(parents=True)
        (any_gpu / "scale.hpp").write_text(cuda_header)
        (any_gpu / "scale.cu").write_text(cuda_source)
        command = command_of(build, is_of_any_gpu)
        if command:
            check(GPU_PAGE, command, [f"-I{name}", "-c", "-o", str(any_gpu / "scale.o"), str(any_gpu / "scale.cu")])
            (any_gpu / "scale_kernel.cpp").write_text(prepared + "\n" + cuda_class)
            declare_scale(source / "src/cuda/families.hpp", any_gpu.parent / "families.hpp")
            command = command_of(build, prepares_launches)
            check(GPU_PAGE, command, [f"-I{name}", "-fsyntax-only", str(any_gpu / "scale_kernel.cpp")])


if __name__ == "__main__":
    main()
