#!/usr/bin/env python3
"""The teaching kernels are in convoy_teaching, and neither in the library of a user nor among the installed files.

    library_contents.py LIBRARY TEACHING INSTALL_SCRIPT     exit code 1 and a line for each fault
"""

import subprocess
import sys
from pathlib import Path

NAMESPACE = "convoy::cuda::teaching::"


def symbols_of(library):
    names = subprocess.run(["nm", "-C", library], check=True, capture_output=True, text=True).stdout
    return [line for line in names.splitlines() if NAMESPACE in line]


def main():
    library, teaching, script = map(Path, sys.argv[1:4])
    faults = []
    if found := symbols_of(library):
        faults.append(f"{library}: has {len(found)} symbols of {NAMESPACE}, expected none: {found[0]}")
    found = symbols_of(teaching)
    if not found:
        faults.append(f"{teaching}: has no symbol of {NAMESPACE}, expected some. Was the namespace renamed?")
    if "teaching" in script.read_text():
        faults.append(f"{script}: installs convoy_teaching, expected the library and the program only")
    print("\n".join(faults) or f"{library.name} has no teaching kernel, {teaching.name} {len(found)} symbols of them")
    return bool(faults)


if __name__ == "__main__":
    sys.exit(main())
