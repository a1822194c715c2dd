"""Another thread's capture of a CUDA graph forbids some calls: each stands where RelaxedCapture allows it.

    captures_test.py [ROOT]     exit code 1 and a line for each call without a RelaxedCapture before it

PyTorch captures in the global mode, in which such a call of any thread makes the capture invalid (CUDA Runtime API,
cudaThreadExchangeStreamCaptureMode). What only `bench`, `tune` and the profilers call is named below.
"""

import re
import sys
from pathlib import Path

FORBIDDEN = re.compile(
    r"\bcuda(Malloc|Free|HostAlloc|FreeHost|StreamSynchronize|EventSynchronize|StreamQuery|EventQuery|DeviceSynchronize"
    r"|StreamGetId|Memcpy|Memcpy2D|Memset)\("
)
ALONE = {"src/cuda/gpu_timing.cpp", "src/cuda/sm90/halo_trace.cu"}
ALLOWS = ("RelaxedCapture relaxed", "SideStream stream")


def calls_without(text):
    """(line number, line) of each forbidden call whose function does not relax the capture before it."""
    relaxed = False
    for number, line in enumerate(text.splitlines(), 1):
        if line.startswith("}"):  # the end of a function of ours
            relaxed = False
        relaxed = relaxed or any(word in line for word in ALLOWS)
        if FORBIDDEN.search(line) and not relaxed:
            yield number, line.strip()


def main():
    root = Path(sys.argv[1] if len(sys.argv) > 1 else __file__).resolve()
    root = root if root.is_dir() else root.parents[2]
    assert [*calls_without("void a() {\n  cudaFree(p);\n}\n")] == [(2, "cudaFree(p);")]
    assert not [*calls_without("void a() {\n  const RelaxedCapture relaxed;\n  cudaFree(p);\n}\n")]
    files = [p for p in sorted((root / "src").rglob("*")) if p.suffix in {".cpp", ".hpp", ".cu", ".cuh"}]
    found = [
        f"{path.relative_to(root)}:{number}: {line}: no RelaxedCapture before it (src/cuda/memory.hpp)"
        for path in files
        if str(path.relative_to(root)) not in ALONE
        for number, line in calls_without(path.read_text())
    ]
    print("\n".join(found) or f"{len(files)} files: no call that spoils another thread's capture")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
