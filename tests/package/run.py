#!/usr/bin/env python3
"""Installs Convoy into a temporary prefix, builds a project that finds it with find_package(convoy) out of the C++
programs of the documents, and runs them: that of README.md, those of docs/start/cpp.md and docs/start/gpu.md. Then
the CPU's program alone, with pkg-config's words (skipped without pkg-config). A project that has the sources in its
build must install nothing of Convoy.

    run.py --source DIR --build DIR [--shared]

--shared configures and builds a shared libconvoy first, in the folder `shared` beside --build, and the
program, both under the linker's --as-needed and --no-undefined, as distributions build them. The library's
files are compiled united, and not optimised: what they export does not depend on it. The program's are those
of a static build: with the same way to the sources, the compiler cache has their objects from --build.
Exit code 0: everything worked, and README's program and that of docs/start/cpp.md printed the output that the latter
shows.
"""
import argparse
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

LINKER_FLAGS = [f"-DCMAKE_{kind}_LINKER_FLAGS=-Wl,--as-needed,--no-undefined"
                for kind in ("EXE", "SHARED")]


def run(*command, **options):
    print("+", *command, flush=True)
    return subprocess.run([str(word) for word in command], check=True, **options)


def program_of(page):
    """The page's only C++ program."""
    programs = [block for block in re.findall(r"```cpp\n(.*?)```", page.read_text(), re.S) if "int main(" in block]
    if len(programs) != 1:
        sys.exit(f"{page}: found {len(programs)} ```cpp blocks with a main function, expected 1")
    return programs[0]


def printed_of(page):
    """The output that the page promises after the word `prints`."""
    printed = re.search(r"prints\s+```text\n(.*?)```", page.read_text(), re.S)
    if not printed:
        sys.exit(f"{page}: found no ```text block after the word 'prints', expected the program's output")
    return printed.group(1)


def run_on_gpu(program):
    """The GPU's program runs, or says why there is no GPU to run on."""
    done = subprocess.run([program], capture_output=True, text=True)
    print(done.stdout + done.stderr)
    if done.returncode != 0 and not re.search("device cuda(:0)?: ", done.stderr):
        sys.exit("The GPU program of docs/start/gpu.md failed")


def exported_symbols(library):
    """Dynamic symbols that are neither ours by mark nor the compiler's for our types."""
    names = subprocess.run(["nm", "-DC", "--defined-only", library], check=True, text=True,
                           capture_output=True).stdout.splitlines()
    names = [line.split(maxsplit=2)[2] for line in names if len(line.split(maxsplit=2)) == 3]
    return [n for n in names if "convoy::cpu::" in n or "convoy::cuda::" in n]


def check_soname(library, source):
    """A program finds a library by its soname: below 1.0 it holds the minor version."""
    version = re.search(r"project\(\s*convoy\s+VERSION (\d+)\.(\d+)",
                        (source / "CMakeLists.txt").read_text())
    major, minor = version.groups()
    expected = f"libconvoy.so.{major}.{minor}" if major == "0" else f"libconvoy.so.{major}"
    dynamic = subprocess.run(["readelf", "-d", library], check=True, text=True,
                             capture_output=True).stdout
    soname = re.search(r"\(SONAME\).*\[(.*)\]", dynamic).group(1)
    if soname != expected or not (library.parent / soname).exists():
        sys.exit(f"{library.name}: its soname is {soname}, expected {expected}, a file beside it")


def check_versions(prefix, folder):
    """Which versions and ranges find_package() accepts. Ours is 0.1.x."""
    cases = {"": True, "0.1": True, "0.1.0": True, "0.1...0.3": True, "0.0...0.1": True,
             "0.0.5...0.2": True, "0.1.0...<0.2": True, "0.0...<0.1": False, "0.2...0.3": False,
             "0.0": False, "0.2": False, "1.0": False, "0.1.999": False}
    lines = ["cmake_minimum_required(VERSION 3.25)", "project(versions LANGUAGES CXX)"]
    for asked, accepted in cases.items():
        lines += ["set(convoy_FOUND FALSE)", f"find_package(convoy {asked} QUIET CONFIG)",
                  f"if({'NOT' if accepted else ''} convoy_FOUND)",
                  f'  message(SEND_ERROR "find_package(convoy {asked}): expected to be '
                  f'{"accepted" if accepted else "refused"}")', "endif()"]
    folder.mkdir()
    (folder / "CMakeLists.txt").write_text("\n".join(lines) + "\n")
    run("cmake", "-S", folder, "-B", folder / "build", "-G", "Ninja", f"-DCMAKE_PREFIX_PATH={prefix}")


def check_parent(source, folder):
    """A project with Convoy's sources in its build installs its own files only, unless it asks for Convoy's too."""
    folder.mkdir()
    (folder / "CMakeLists.txt").write_text("\n".join((
        "cmake_minimum_required(VERSION 3.25)", "project(parent LANGUAGES CXX)",
        f"add_subdirectory({source.resolve()} convoy)", "install(FILES CMakeLists.txt DESTINATION parent)")))
    build, prefix = folder / "build", folder / "prefix"
    run("cmake", "-S", folder, "-B", build, "-G", "Ninja")
    run("cmake", "--install", build, "--prefix", prefix)
    installed = sorted(str(path.relative_to(prefix)) for path in prefix.rglob("*") if path.is_file())
    if installed != ["parent/CMakeLists.txt"]:
        sys.exit(f"a parent project installs {installed}, expected its own file only")
    run("cmake", "-S", folder, "-B", build, "-DCONVOY_INSTALL=ON")
    script = (build / "convoy/cmake_install.cmake").read_text()
    if "convoyTargets" not in script or "libconvoy" not in script:
        sys.exit("a parent project with CONVOY_INSTALL=ON does not install Convoy")


def check_pkg_config(prefix, program, shared, folder):
    """The program, built from pkg-config's words alone, in a prefix that was moved after the installation.
    Returns what it prints; None, and why on standard output, without pkg-config."""
    if not shutil.which("pkg-config"):
        print("skipped: no pkg-config (Debian: pkgconf) to build a program by convoy.pc")
        return None
    moved = folder / "moved"
    shutil.copytree(prefix, moved, symlinks=True)
    files = list(moved.glob("**/pkgconfig/convoy.pc"))
    if len(files) != 1:
        sys.exit(f"expected one convoy.pc in the prefix, found {files}")
    # A shared libconvoy needs no other library's file: only its own is to be found.
    searched = "PKG_CONFIG_LIBDIR" if shared else "PKG_CONFIG_PATH"
    environment = {**os.environ, searched: str(files[0].parent)}
    static = [] if shared else ["--static"]
    flags = run("pkg-config", "--cflags", "--libs", *static, "convoy", capture_output=True, text=True,
                env=environment).stdout.split()
    print(*flags)
    if str(prefix) in " ".join(flags) or ("-lhwy" in flags) == shared:
        sys.exit(f"pkg-config said {flags}: expected the moved prefix, and hwy only if libconvoy is static")
    (folder / "alone.cpp").write_text(program)
    run("c++", "-std=c++20", folder / "alone.cpp", "-o", folder / "alone", *flags)
    library = files[0].parent.parent
    return run(folder / "alone", capture_output=True, text=True,
               env={**os.environ, "LD_LIBRARY_PATH": str(library)} if shared else None).stdout


def main():
    arguments = argparse.ArgumentParser()
    arguments.add_argument("--source", type=pathlib.Path, required=True)
    arguments.add_argument("--build", type=pathlib.Path, required=True)
    arguments.add_argument("--shared", action="store_true")
    options = arguments.parse_args()
    build = options.build
    if options.shared:
        build = options.build.parent / "shared"
        run("cmake", "-S", options.source, "-B", build, "-G", "Ninja", "-DBUILD_SHARED_LIBS=ON",
            "-DCMAKE_BUILD_TYPE=Release", "-DCONVOY_TESTS=OFF", "-DCONVOY_UNITY=ON",
            f"-DCMAKE_PROJECT_INCLUDE={options.source.resolve()}/tests/package/quick_library.cmake", *LINKER_FLAGS)
        run("cmake", "--build", build, "--target", "convoy", "convoy_cli")
        run(build / "bin/convoy", "--version")

    pages = options.source / "docs/start"
    readme_program, program, gpu_program = (
        program_of(page) for page in (options.source / "README.md", pages / "cpp.md", pages / "gpu.md"))
    printed = printed_of(pages / "cpp.md")
    with tempfile.TemporaryDirectory() as folder:
        prefix, project = pathlib.Path(folder, "prefix"), pathlib.Path(folder, "project")
        run("cmake", "--install", build, "--prefix", prefix)
        if options.shared:
            library = next(prefix.glob("lib*/**/libconvoy.so"))
            check_soname(library, options.source)
            leaked = exported_symbols(library)
            if leaked:
                sys.exit(f"{library.name} exports what no public header declares: {leaked[:5]}")
        check_versions(prefix, pathlib.Path(folder, "versions"))
        if not options.shared:
            check_parent(options.source, pathlib.Path(folder, "parent"))
        shutil.copytree(options.source / "tests/package", project,
                        ignore=shutil.ignore_patterns("*.py", "quick_library.cmake"))
        (project / "readme.cpp").write_text(readme_program)
        (project / "consumer.cpp").write_text(program)
        (project / "gpu.cpp").write_text(gpu_program)
        run("cmake", "-S", project, "-B", project / "build", "-G", "Ninja",
            "-DCMAKE_BUILD_TYPE=Release", f"-DCMAKE_PREFIX_PATH={prefix}",
            "-DCMAKE_CXX_FLAGS=-Wall -Wextra -Wpedantic -Werror", *LINKER_FLAGS)
        run("cmake", "--build", project / "build")
        output = run(project / "build/consumer", capture_output=True, text=True).stdout
        readme_output = run(project / "build/readme", capture_output=True, text=True).stdout
        run(project / "build/names")
        run_on_gpu(project / "build/gpu")
        alone = check_pkg_config(prefix, program, options.shared, pathlib.Path(folder))
    print(output)
    if output != printed or alone not in (None, printed):
        sys.exit(f"docs/start/cpp.md says that its program prints\n{printed}By pkg-config it printed\n{alone}")
    if readme_output != printed:
        sys.exit(f"README.md's program printed\n{readme_output}Expected as docs/start/cpp.md says\n{printed}")


main()
